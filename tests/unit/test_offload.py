"""Computations on another thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from kbroker import offload as module
from kbroker.offload import Asker, Offload
from kbroker.operations import Completion, GoneError
from tests.support.waits import wait_for


def test_offload_computes_on_its_thread_and_posts_the_outcome() -> None:
    posted: list[Callable[[], None]] = []
    offload = Offload()
    assert offload.run(lambda: 1).result() == 1
    offload.open(posted.append)
    try:
        where = offload.run(threading.current_thread)
        failed = offload.run(lambda: {}["missing"])
        wait_for("two outcomes", lambda: len(posted) == 2, 30)
        assert not where.done
        for each in posted:
            each()
        assert where.result() is not threading.current_thread()
        assert isinstance(failed.error, KeyError)
    finally:
        offload.close()


class Bench:
    """An offload thread that is held until `go`, and what it computes meanwhile."""

    def __init__(self) -> None:
        self.posted: list[Callable[[], None]] = []
        self.order: list[str] = []
        self.offload = Offload()
        self._may_go = threading.Event()
        self.offload.open(self.posted.append)
        begun = threading.Event()
        self.offload.run(lambda: (begun.set(), self._may_go.wait(60)))
        assert begun.wait(60)

    def ask(self, name: str, asker: Asker, **options: int) -> Completion[None]:
        return self.offload.run(lambda: self.order.append(name), asker, **options)  # type: ignore[arg-type]

    def go(self) -> None:
        self._may_go.set()

    def settle(self, *completions: Completion[None]) -> None:
        def is_done() -> bool:
            while self.posted:
                self.posted.pop(0)()
            return all(each.done for each in completions)

        wait_for("the outcomes", is_done, 30)


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.go()
    made.offload.close()


def test_clients_take_turns_however_much_each_asks_for(bench: Bench) -> None:
    many = [bench.ask("many", Asker("a")) for _ in range(5)]
    other = bench.ask("other", Asker("b"))
    bench.go()
    bench.settle(*many, other)
    assert bench.order.index("other") == 1


def test_encodings_go_first_and_let_a_decoding_through(bench: Bench) -> None:
    asked = [bench.ask("decode", Asker("a")) for _ in range(2)]
    asked += [bench.ask("encode", Asker("a"), encodes=True) for _ in range(6)]
    bench.go()
    bench.settle(*asked)
    assert bench.order == ["encode"] * 4 + ["decode"] + ["encode"] * 2 + ["decode"]


def test_work_for_a_client_that_is_gone_is_not_done(bench: Bench) -> None:
    gone: set[str] = set()
    first = bench.ask("a", Asker("a", lambda: "a" in gone))
    second = bench.ask("b", Asker("a", lambda: "b" in gone))
    third = bench.ask("c", Asker("a", lambda: "c" in gone))
    gone.add("a")
    bench.offload.drop_gone()
    assert isinstance(first.error, GoneError) and not second.done
    gone.add("b")  # found when its turn comes
    bench.go()
    bench.settle(second, third)
    assert isinstance(second.error, GoneError) and third.error is None
    assert bench.order == ["c"]


def test_requests_that_are_held_keep_others_from_being_decoded(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "HELD_MAX_BYTES", 10)
    first = [bench.ask(name, Asker(name), holds=6) for name in "ab"]
    third = bench.ask("c", Asker("c"), holds=6)
    bench.go()
    bench.settle(*first)
    encoded = bench.ask("answer", Asker("a"), encodes=True)
    bench.settle(encoded)
    assert not third.done and bench.order == ["a", "b", "answer"]
    bench.offload.release(6)
    bench.settle(third)


def test_without_a_thread_to_be_had_the_caller_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    offload = Offload()
    offload.open(lambda do: do())
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        assert offload.run(threading.current_thread).result() is threading.current_thread()
    offload.close()
