"""What the control thread has done on a disk: in order, and without it where the disk hangs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from kbroker.errors import DiskError
from kbroker.storage import disk_worker
from kbroker.storage.disk_worker import DiskWorker
from tests.support.waits import wait_for

Posted = list[Callable[[], None]]


@pytest.fixture
def posted() -> Posted:
    """What the worker wants done by the control thread, which is the test."""
    return []


@pytest.fixture
def worker(posted: Posted, monkeypatch: pytest.MonkeyPatch) -> Iterator[DiskWorker]:
    monkeypatch.setattr(disk_worker, "WAIT_S", 0.05)
    made = DiskWorker("a disk")
    made.open(posted.append)
    yield made
    made.close()


class Hanging:
    """Work that stands until `thaw`; then it gives `given`, or raises it."""

    def __init__(self, given: object) -> None:
        self.given = given
        self._thawed = threading.Event()

    def __call__(self) -> object:
        assert self._thawed.wait(60)
        if isinstance(self.given, Exception):
            raise self.given
        return self.given

    def thaw(self) -> None:
        self._thawed.set()


def run(posted: Posted, count: int) -> None:
    """What was posted, once there is so much of it."""
    wait_for("what is posted", lambda: len(posted) >= count, 60)
    while posted:
        posted.pop(0)()


def test_until_it_is_opened_the_caller_does_it() -> None:
    threads: list[threading.Thread] = []
    assert DiskWorker("a disk").do(threading.current_thread, threads.append)
    assert threads == [threading.current_thread()]


def test_it_is_done_by_another_thread_and_followed_by_the_caller(worker: DiskWorker) -> None:
    threads: list[threading.Thread] = []

    def then(done_by: threading.Thread) -> None:
        threads.extend((done_by, threading.current_thread()))

    assert worker.do(threading.current_thread, then) and not worker.late
    assert threads[0] is not threads[1] is threading.current_thread()


def test_an_error_is_the_callers(worker: DiskWorker) -> None:
    followed: list[object] = []
    failing = Hanging(DiskError("x", "broken"))
    failing.thaw()
    with pytest.raises(DiskError, match="broken"):
        worker.do(failing, followed.append)
    assert not followed and not worker.late


def test_what_hangs_is_not_waited_for_and_keeps_its_order(
    worker: DiskWorker, posted: Posted
) -> None:
    followed: list[object] = []
    first = Hanging(1)
    assert not worker.do(first, followed.append)
    assert not worker.do(lambda: 2, followed.append) and worker.late
    assert not followed and not posted
    first.thaw()
    run(posted, 2)
    assert followed == [1, 2] and not worker.late
    assert worker.do(lambda: 3, followed.append) and followed == [1, 2, 3]


def test_what_gets_on_is_waited_for(worker: DiskWorker) -> None:
    followed: list[object] = []

    def slow() -> int:
        for _ in range(20):
            threading.Event().wait(0.02)
            worker.steps += 1
        return 1

    assert worker.do(slow, followed.append) and followed == [1]


def test_but_not_for_ever(
    worker: DiskWorker, posted: Posted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_worker, "WAIT_ALL_S", 0.2)
    thawed = threading.Event()

    def slow() -> int:
        while not thawed.wait(0.01):
            worker.steps += 1
        return 1

    followed: list[object] = []
    assert not worker.do(slow, followed.append) and worker.late
    thawed.set()
    run(posted, 1)
    assert followed == [1]


def test_what_follows_may_want_more_done(worker: DiskWorker, posted: Posted) -> None:
    followed: list[object] = []
    first = Hanging(1)
    again = partial(worker.do, lambda: 2, followed.append)
    assert not worker.do(first, lambda _: again())
    first.thaw()
    run(posted, 1)
    assert followed == [2] and not worker.late


def test_a_late_error_is_told_and_the_next_goes_on(
    worker: DiskWorker, posted: Posted, caplog: pytest.LogCaptureFixture
) -> None:
    followed: list[object] = []
    first = Hanging(DiskError("x", "broken"))
    assert not worker.do(first, followed.append)
    assert not worker.do(lambda: 2, followed.append)
    first.thaw()
    run(posted, 2)
    assert followed == [2] and "a late change in a disk: x: broken" in caplog.text


def test_nor_does_a_mistake_keep_the_next_from_its_turn(
    worker: DiskWorker, posted: Posted, caplog: pytest.LogCaptureFixture
) -> None:
    followed: list[object] = []
    first = Hanging(KeyError("what"))
    assert not worker.do(first, followed.append)
    assert not worker.do(lambda: 2, followed.append)
    first.thaw()
    run(posted, 2)
    assert followed == [2] and "KeyError: 'what'" in caplog.text


def test_who_is_patient_comes_behind_what_is_late(worker: DiskWorker, posted: Posted) -> None:
    followed: list[object] = []
    first = Hanging(1)
    assert not worker.do(first, followed.append)
    threading.Timer(0.2, first.thaw).start()
    assert worker.do(lambda: 2, followed.append, patient=True)
    assert followed == [1, 2]
    run(posted, 1)
    assert followed == [1, 2]


def test_closing_waits_for_what_is_late(worker: DiskWorker, posted: Posted) -> None:
    followed: list[object] = []
    first = Hanging(1)
    assert not worker.do(first, followed.append)
    threading.Timer(0.2, first.thaw).start()
    worker.close()
    assert followed == [1] and not worker.late
    run(posted, 1)
    assert followed == [1]
