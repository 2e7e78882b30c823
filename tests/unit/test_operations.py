"""Operations of the control thread: slices, waits, deadlines, cancellation, order of changes."""

from __future__ import annotations

import time
import weakref
from typing import Any

import pytest

from kbroker.changes import Changes
from kbroker.errors import ClientError, DiskError, ErrorCode
from kbroker.operations import (
    SLICE_NS,
    Completion,
    Meter,
    Operations,
    OperationTimeoutError,
    Steps,
    collect,
    joined,
)


class World:
    """Operations on a clock that the test moves, and what became of each."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.operations = Operations(lambda: self.now_ms)
        self.ends: list[Any] = []
        self.cancelled = 0

    def start(self, steps: Steps[Any], **options: Any) -> None:
        def on_end(value: Any, error: BaseException | None) -> None:
            self.ends.append(value if error is None else error)

        def on_cancel() -> None:
            self.cancelled += 1

        self.operations.start(steps, on_end, on_cancel=on_cancel, **options)

    def run(self) -> None:
        while self.operations.ready:
            self.operations.run_slice()


@pytest.fixture
def world() -> World:
    return World()


def busy(milliseconds: float) -> None:
    """Use the processor for so long."""
    until = time.monotonic() + milliseconds / 1000
    while time.monotonic() < until:
        pass


def waiting(completion: Completion[Any]) -> Steps[Any]:
    return (yield completion)


def test_short_operation_ends_in_its_first_slice(world: World) -> None:
    def steps() -> Steps[int]:
        yield
        yield
        return 7

    world.start(steps())
    assert world.ends == [7] and not world.operations.ready


def test_long_operations_take_turns_and_let_others_in(world: World) -> None:
    order: list[str] = []

    def steps(name: str) -> Steps[None]:
        for _ in range(3):
            order.append(name)
            busy(SLICE_NS / 1e6 + 1)
            yield

    world.start(steps("a"))
    world.start(steps("b"))
    world.run()
    assert order == ["a", "b"] * 3 and world.ends == [None, None]


def test_error_of_an_operation_is_its_end(world: World) -> None:
    def steps() -> Steps[None]:
        yield
        raise ClientError(ErrorCode.INVALID_REQUEST, "no")

    world.start(steps())
    assert [str(error) for error in world.ends] == ["no"]


def test_wait_returns_the_result_or_raises_the_error(world: World) -> None:
    fine, bad = Completion[int](), Completion[int]()

    def steps() -> Steps[list[object]]:
        found: list[object] = [(yield fine)]
        try:
            yield bad
        except DiskError as error:
            found.append(str(error))
        return found

    world.start(steps())
    assert not world.ends
    fine.resolve(3)
    world.run()
    bad.fail(DiskError("x", "broken"))
    world.run()
    assert world.ends == [[3, "x: broken"]]


def test_wait_for_what_is_done_costs_no_turn(world: World) -> None:
    world.start(waiting(Completion.of(5)))
    assert world.ends == [5]


def test_deadline_raises_at_the_wait_and_the_late_result_is_ignored(world: World) -> None:
    completion = Completion[int]()
    world.start(waiting(completion), deadline_ms=100)
    assert world.operations.next_due_ms() == 100
    world.now_ms = 99
    world.operations.run_due()
    world.run()
    assert not world.ends
    world.now_ms = 100
    world.operations.run_due()
    world.run()
    completion.resolve(1)
    world.run()
    assert len(world.ends) == 1 and isinstance(world.ends[0], OperationTimeoutError)
    assert world.operations.next_due_ms() is None and not len(world.operations)


def test_deadline_over_while_ready_is_raised_at_the_next_wait(world: World) -> None:
    """It was resumed, and others had the thread until its deadline."""
    first = Completion[int]()

    def steps() -> Steps[None]:
        yield first
        yield
        yield Completion.of(None)
        yield Completion()

    world.start(steps(), deadline_ms=100)
    first.resolve(1)
    world.now_ms = 100
    world.operations.run_due()
    world.run()
    assert len(world.ends) == 1 and isinstance(world.ends[0], OperationTimeoutError)
    assert not len(world.operations)


def test_done_completions_do_not_extend_a_slice(world: World) -> None:
    order: list[str] = []

    def steps(name: str) -> Steps[None]:
        for _ in range(3):
            order.append(name)
            busy(SLICE_NS / 1e6 + 1)
            yield Completion.of(None)

    world.start(steps("a"))
    world.start(steps("b"))
    world.run()
    assert order == ["a", "b"] * 3 and world.ends == [None, None]


def test_ended_operations_behind_a_live_deadline_are_dropped(world: World) -> None:
    world.start(waiting(Completion()), deadline_ms=5)
    refs = []
    for _ in range(1_000):
        wait = Completion[None]()
        steps = waiting(wait)
        refs.append(weakref.ref(steps))
        world.start(steps, deadline_ms=1_000)
        wait.resolve(None)
        world.run()
    del steps
    assert sum(ref() is not None for ref in refs) < 100
    assert world.operations.next_due_ms() == 5


def test_deadline_of_an_ended_operation_is_forgotten(world: World) -> None:
    world.start(waiting(Completion.of(1)), deadline_ms=5)
    assert world.operations.next_due_ms() is None


def test_stop_cancels_every_operation_once_with_its_cleanup(world: World) -> None:
    cleaned: list[str] = []

    def steps(name: str, wait: Completion[None] | None) -> Steps[None]:
        try:
            while True:
                busy(3)
                yield wait
        finally:
            cleaned.append(name)

    pending = Completion[None]()
    world.start(steps("waits", pending))
    world.start(steps("ready", None))
    world.operations.stop()
    pending.resolve(None)
    world.run()
    assert sorted(cleaned) == ["ready", "waits"]
    assert world.cancelled == 2 and not world.ends


def test_operation_started_after_the_stop_ends_or_is_cancelled(world: World) -> None:
    world.operations.stop()
    world.start(waiting(Completion.of(1)))
    world.start(waiting(Completion()))
    assert world.ends == [1] and world.cancelled == 1


def test_operations_of_a_client_that_is_gone_are_cancelled(world: World) -> None:
    gone = False
    steps_taken = 0

    def is_gone() -> bool:
        return gone

    def long() -> Steps[None]:
        nonlocal steps_taken
        while True:
            steps_taken += 1
            busy(SLICE_NS / 1e6 + 1)
            yield

    world.start(long(), gone=is_gone)
    world.start(waiting(Completion()), gone=is_gone, deadline_ms=10)
    world.start(waiting(Completion()))
    world.operations.run_slice()
    world.operations.drop_gone()
    assert world.cancelled == 0 and steps_taken == 2
    gone = True
    world.operations.run_slice()
    assert world.cancelled == 1 and steps_taken == 2
    world.operations.drop_gone()
    assert world.cancelled == 2 and not world.ends and len(world.operations) == 1
    assert world.operations.next_due_ms() is None


def test_joined_is_set_when_all_are_with_the_first_error() -> None:
    one, two = Completion[None](), Completion[None]()
    both = joined([one, two])
    two.fail(DiskError("x", "second"))
    assert not both.done
    one.resolve(None)
    assert str(both.error) == "x: second" and joined([]).done


def test_completion_is_set_once_and_a_bad_callback_keeps_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    completion = Completion[int]()
    seen: list[int] = []

    def bad(_: Completion[int]) -> None:
        raise KeyError("x")

    completion.on_done(bad)
    completion.on_done(lambda done: seen.append(done.result()))
    completion.resolve(4)
    assert seen == [4] and "callback" in caplog.text
    with pytest.raises(RuntimeError, match="twice"):
        completion.resolve(5)


def test_meter_counts_the_slices_and_not_what_lies_between(world: World) -> None:
    meter = Meter()
    pending = Completion[None]()

    def steps() -> Steps[int]:
        busy(4)
        yield pending
        busy(4)
        return meter.used_ns

    begun = time.monotonic_ns()
    world.start(steps(), meter=meter)
    between = time.monotonic_ns()
    busy(30)
    between_ns = time.monotonic_ns() - between
    pending.resolve(None)
    world.run()
    assert 8_000_000 <= world.ends[0] <= time.monotonic_ns() - begun - between_ns


def test_collect_makes_a_list_in_steps(world: World) -> None:
    world.start(collect(number * 2 for number in range(3)))
    world.run()
    assert world.ends == [[0, 2, 4]]


# ---- changes


def changing(log: list[str], name: str, wait: Completion[None]) -> Steps[str]:
    log.append(f"{name} begins")
    yield wait
    log.append(f"{name} ends")
    return name


def test_changes_run_one_at_a_time_in_order(world: World) -> None:
    changes = Changes(world.operations, lambda: world.now_ms)
    log: list[str] = []
    first, second = Completion[None](), Completion[None]()
    done = [
        changes.run(changing(log, "a", first)),
        changes.run(changing(log, "b", second)),
        changes.run(changing(log, "c", Completion.of(None))),
    ]
    assert log == ["a begins"]
    first.resolve(None)
    world.run()
    assert log == ["a begins", "a ends", "b begins"]
    second.resolve(None)
    world.run()
    assert log[3:] == ["b ends", "c begins", "c ends"]
    assert [each.result() for each in done] == ["a", "b", "c"]


def test_change_that_fails_lets_the_next_one_through(world: World) -> None:
    changes = Changes(world.operations, lambda: world.now_ms)

    def failing() -> Steps[None]:
        yield
        raise ClientError(ErrorCode.INVALID_REQUEST, "no")

    log: list[str] = []
    failed = changes.run(failing())
    done = changes.run(changing(log, "b", Completion.of(None)))
    world.run()
    assert str(failed.error) == "no" and done.result() == "b"


def test_change_past_its_deadline_is_not_begun(world: World) -> None:
    changes = Changes(world.operations, lambda: world.now_ms)
    log: list[str] = []
    first = Completion[None]()
    changes.run(changing(log, "a", first))
    late = changes.run(changing(log, "b", Completion.of(None)), deadline_ms=10)
    after = changes.run(changing(log, "c", Completion.of(None)), deadline_ms=30)
    world.now_ms = 20
    first.resolve(None)
    world.run()
    assert isinstance(late.error, OperationTimeoutError) and after.result() == "c"
    assert "b begins" not in log


def test_change_goes_on_when_its_client_has_given_up(world: World) -> None:
    changes = Changes(world.operations, lambda: world.now_ms)
    log: list[str] = []
    disk = Completion[None]()
    done = changes.run(changing(log, "a", disk), deadline_ms=10)
    world.start(waiting(done), deadline_ms=10)
    world.now_ms = 10
    world.operations.run_due()
    world.run()
    assert isinstance(world.ends[0], OperationTimeoutError) and not done.done
    disk.resolve(None)
    world.run()
    assert log == ["a begins", "a ends"] and done.result() == "a"


def test_change_of_a_client_that_is_gone_gives_its_turn_away(world: World) -> None:
    changes = Changes(world.operations, lambda: world.now_ms)
    log: list[str] = []
    gone: set[str] = set()

    def planning(name: str, wait: Completion[None]) -> Steps[None]:
        log.append(f"{name} plans")
        for _ in range(2):
            busy(SLICE_NS / 1e6 + 1)
            yield
        yield from changing(log, name, wait)

    disk = Completion[None]()
    changes.run(planning("a", disk), gone=lambda: "a" in gone)
    changes.run(planning("b", disk), gone=lambda: "b" in gone)
    done = changes.run(planning("c", disk), gone=lambda: "c" in gone)
    after = changes.run(changing(log, "d", Completion.of(None)))
    gone |= {"a", "b"}  # in the middle of its plan, and in the queue
    world.operations.drop_gone()
    world.run()
    assert log == ["a plans", "c plans", "c begins"]
    gone.add("c")  # what is being written goes on
    world.operations.drop_gone()
    disk.resolve(None)
    world.run()
    assert log[3:] == ["c ends", "d begins", "d ends"]
    assert done.done and after.result() == "d" and not len(world.operations)


def test_stop_in_the_middle_of_changes_leaves_none_waiting(world: World) -> None:
    changes = Changes(world.operations, lambda: world.now_ms)
    log: list[str] = []
    changes.run(changing(log, "a", Completion()))
    changes.run(changing(log, "b", Completion()))
    world.operations.stop()
    assert log == ["a begins"] and not len(world.operations)
