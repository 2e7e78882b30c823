"""The disk worker of a log directory: order, turns, errors and the stop."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator

import pytest

from kbroker.errors import DiskError, OperatorError
from kbroker.operations import Completion
from kbroker.storage import disk_worker
from kbroker.storage.disk_worker import DiskWorker, Step
from tests.support.waits import wait_for

Posted = list[Callable[[], None]]


@pytest.fixture
def posted() -> Posted:
    """Callables for the control thread, which is the test's."""
    return []


@pytest.fixture
def worker(posted: Posted) -> Iterator[DiskWorker]:
    made = DiskWorker("a disk")
    made.open(posted.append)
    yield made
    made.close()


class Hanging:
    """Work that hangs until `thaw`; then it returns the result, or raises it."""

    def __init__(self, result: object) -> None:
        self.begun = threading.Event()
        self._result = result
        self._thawed = threading.Event()

    def __call__(self) -> object:
        self.begun.set()
        assert self._thawed.wait(60)
        if isinstance(self._result, Exception):
            raise self._result
        return self._result

    def thaw(self) -> None:
        self._thawed.set()


def settle(posted: Posted, *completions: Completion[object]) -> None:
    """Run what is posted until the completions are set."""

    def is_done() -> bool:
        while posted:
            posted.pop(0)()
        return all(each.done for each in completions)

    wait_for("the completions", is_done, 60)


def together(results: list[object]) -> list[object]:
    return results


def test_work_before_the_worker_is_opened_runs_in_the_caller() -> None:
    done = DiskWorker("a disk").run(threading.current_thread)
    assert done.result() is threading.current_thread()


def test_work_runs_on_another_thread_and_the_caller_goes_on(
    worker: DiskWorker, posted: Posted
) -> None:
    hanging = Hanging(7)
    done = worker.run(hanging)
    assert hanging.begun.wait(60) and not done.done
    hanging.thaw()
    settle(posted, done)
    assert done.result() == 7


def test_an_error_is_that_of_its_own_job(worker: DiskWorker, posted: Posted) -> None:
    failing = Hanging(DiskError("x", "broken"))
    failing.thaw()
    failed, fine = worker.run(failing), worker.run(lambda: 2)
    settle(posted, failed, fine)
    assert isinstance(failed.error, DiskError) and fine.result() == 2


def test_results_come_in_the_order_of_the_steps(worker: DiskWorker, posted: Posted) -> None:
    order: list[str] = []
    done = worker.run_steps(
        [Step([name], lambda name=name: name) for name in "abc"],  # type: ignore[misc]
        first=lambda: order.append("first"),
        last=together,
    )
    settle(posted, done)
    assert done.result() == ["a", "b", "c"] and order == ["first"]


def test_a_small_job_comes_through_behind_a_long_one(
    worker: DiskWorker, posted: Posted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits for a turn, not for the 8,000 folders."""
    monkeypatch.setattr(disk_worker, "_TURN_S", 0)
    began = Hanging(None)
    order: list[str] = []
    steps = [Step(["long-0"], began)]
    steps += [Step([f"long-{n}"], lambda: order.append("long")) for n in range(1, 100)]
    long = worker.run_steps(steps, last=together)
    assert began.begun.wait(60)
    small = worker.run(lambda: order.append("small"))
    began.thaw()
    settle(posted, long, small)
    assert order.index("small") <= 2 and order.count("long") == 99


def test_steps_of_one_folder_keep_their_order_whatever_their_jobs(
    worker: DiskWorker, posted: Posted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_worker, "_TURN_S", 0)
    began = Hanging(None)
    order: list[str] = []
    delete = worker.run_steps(
        [Step(["other"], began), *(Step([f"t-{n}"], lambda n=n: order.append(f"delete {n}"))  # type: ignore[misc]
                                 for n in range(9))],
        last=together,
    )  # fmt: skip
    assert began.begun.wait(60)
    create = worker.run_steps([Step(["t-8"], lambda: order.append("create 8"))], last=together)
    began.thaw()
    settle(posted, delete, create)
    assert order.index("delete 8") < order.index("create 8")
    assert order.count("delete 8") == 1 and len(order) == 10


def test_a_hang_is_reported_once_and_its_end(
    worker: DiskWorker,
    posted: Posted,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(disk_worker, "HANG_S", 0.01)
    hanging = Hanging(1)
    assert not worker.hung
    done = worker.run(hanging)
    wait_for("the hang", lambda: worker.hung and worker.hung, 60)
    hanging.thaw()
    settle(posted, done)
    assert not worker.hung
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
        "disk hung", "disk answers again",
    ]  # fmt: skip


def test_a_stop_ends_the_call_under_way_and_drops_the_rest(posted: Posted) -> None:
    worker = DiskWorker("a disk")
    worker.open(posted.append)
    hanging = Hanging(1)
    ran: list[str] = []
    dropped: list[object] = []
    first = worker.run_steps(
        [Step(["a"], hanging), Step(["b"], lambda: ran.append("b"))],
        last=together,
        dropped=dropped.append,
    )
    second = worker.run(lambda: ran.append("second"))
    assert hanging.begun.wait(60)
    threading.Timer(0.1, hanging.thaw).start()
    worker.close()
    while posted:
        posted.pop(0)()
    assert not ran and not first.done and not second.done
    assert dropped == [[1, None]]


def test_open_without_a_thread_to_be_had_fails_and_may_be_tried_again(
    posted: Posted, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    worker = DiskWorker("a disk")
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(OperatorError, match="TasksMax"):
            worker.open(posted.append)
    worker.close()
    worker.open(posted.append)
    done = worker.run(lambda: 3)
    settle(posted, done)
    worker.close()
    assert done.result() == 3


def test_first_job_needs_no_new_thread(
    worker: DiskWorker, posted: Posted, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    done = worker.run(lambda: 3)
    settle(posted, done)
    assert done.result() == 3


def test_a_step_that_raises_fails_its_own_job_only(
    worker: DiskWorker, posted: Posted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second job runs the failing step of the first, which comes before its own."""
    monkeypatch.setattr(disk_worker, "_TURN_S", 0)
    began = Hanging(None)
    failing = Hanging(DiskError("x", "broken"))
    failing.thaw()
    steps = [Step(["other"], began), Step(["more"], lambda: None), Step(["t"], failing)]
    steps.append(Step(["u"], lambda: None))
    first = worker.run_steps(steps, last=together)
    assert began.begun.wait(60)
    second = worker.run_steps([Step(["t"], lambda: 2)], last=together)
    began.thaw()
    settle(posted, first, second)
    assert isinstance(first.error, DiskError) and second.result() == [2]
    assert not worker._folders
