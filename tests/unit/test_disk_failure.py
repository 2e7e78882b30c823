"""What takes the log directory offline, beside the logs, the journal and the metadata log."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kbroker.changes import Changes
from kbroker.clock import FakeClock
from kbroker.config import BrokerConfig
from kbroker.errors import DiskError
from kbroker.ext import log_folders
from kbroker.ext.log import Log
from kbroker.ext.log_folders import end_logs
from kbroker.operations import Completion, Operations
from kbroker.server import disk_failure
from kbroker.server.disk_failure import DiskWatch, FlushesPutOff
from kbroker.storage.cleaner import LogCleaner
from kbroker.storage.disk import DiskLimits
from kbroker.storage.disk_worker import DiskWorker
from kbroker.storage.disks import DiskGuards
from kbroker.storage.log_directory import LogDirectory
from kbroker.storage.manager import LogManager, PartitionSpec
from tests.support.partitions import deleted
from tests.support.ports import FakeDataPlane, FakeLog


def changes() -> Changes:
    return Changes(Operations(lambda: 0), lambda: 0)


class FakeStore:
    """The metadata log."""

    image: Any = None

    failure: DiskError | None = None
    worker = DiskWorker("its disk")

    def fail(self, error: DiskError) -> None:
        self.failure = error


class Room:
    """Logs on a disk where one kind of call fails once it is told to."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self._failing = ("", 0)
        patch.setattr(os, "fsync", self._checked("fsync", os.fsync))
        patch.setattr(log_folders, "end_logs", self._end_logs)
        self.logs = LogManager(folder, self._checked("open", FakeLog))
        self.store = FakeStore()
        store: Any = self.store
        data_plane: Any = FakeDataPlane()
        self.data_plane = data_plane
        self.watch = DiskWatch(store, self.logs, data_plane, 1, changes())

    def _checked(self, call: str, do: Callable[..., Any]) -> Callable[..., Any]:
        def checked(*arguments: Any) -> Any:
            if self._failing[0] == call:
                raise OSError(self._failing[1], os.strerror(self._failing[1]))
            return do(*arguments)

        return checked

    def _end_logs(self, wanted: list[tuple[Log | None, str, str]]) -> list[int]:
        if self._failing[0] == "rename":
            return [self._failing[1]] * len(wanted)
        return end_logs(wanted)

    def create(self, partition: int) -> None:
        self.logs.create([PartitionSpec("a", b"a" * 16, partition, {})])

    def clean(self) -> None:
        config = BrokerConfig({"log.dirs": str(self.logs.directory)})
        LogCleaner(config, self.logs, FakeClock()).write_checkpoint(self.logs.main)

    def fail(self, call: str, error: int, do: Callable[[Room], object]) -> None:
        """What meets the error, and the look behind it."""
        self._failing = call, error
        with contextlib.suppress(DiskError):
            do(self)
        self._failing = "", 0
        self.watch.look()


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Room:
    made = Room(tmp_path, monkeypatch)
    made.logs.start([])
    made.create(0)
    made.watch.look()
    assert made.logs.failure is None
    return made


MET: dict[str, tuple[str, Callable[[Room], object]]] = {
    "the names of new folders": ("fsync", lambda room: room.create(1)),
    "a new log": ("open", lambda room: room.create(1)),
    "the names of deleted folders": ("fsync", lambda room: deleted(room.logs, "a", [0], 0)),
    "the folder of a deleted topic": ("rename", lambda room: deleted(room.logs, "a", [0], 0)),
    "a checkpoint": ("fsync", lambda room: room.logs.checkpoint_high_watermarks()),
    "the cleaner's checkpoint": ("fsync", lambda room: room.clean()),
}
WITHOUT_FAILURE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EMFILE, errno.ENFILE)


@pytest.mark.parametrize("what", MET)
def test_whatever_meets_the_error_first(room: Room, what: str) -> None:
    room.fail(MET[what][0], errno.EIO, MET[what][1])
    assert "Input/output error (errno 5)" in (room.logs.failure or "")
    assert room.store.failure is not None
    assert all(log.offline_errno == errno.EIO for _, log in room.logs.items())


@pytest.mark.parametrize("error", WITHOUT_FAILURE)
@pytest.mark.parametrize("what", MET)
def test_a_lack_is_no_failure(room: Room, what: str, error: int) -> None:
    room.fail(MET[what][0], error, MET[what][1])
    assert room.logs.failure is None and room.store.failure is None


def test_a_log_that_a_start_cannot_open_is_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others are served: what a start reads, it has read from the disk."""
    made = Room(tmp_path, monkeypatch)
    made.fail("open", errno.EIO, lambda r: r.logs.start([PartitionSpec("a", b"a" * 16, 0, {})]))
    assert made.logs.failure is None and set(made.logs.offline) == {("a", 0)}


def test_flushes_that_are_put_off_are_told_once_a_minute(
    room: Room, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    counts = [3]
    monkeypatch.setattr(disk_failure, "flushes_put_off", lambda: (counts[-1], errno.EMFILE))
    clock = FakeClock()
    told = FlushesPutOff(room.logs, clock)
    caplog.set_level(logging.INFO)

    def lines() -> list[str]:
        found = [record.getMessage() for record in caplog.records]
        caplog.clear()
        return found

    told.tick()
    assert not lines()
    counts.append(5)
    told.tick()
    (line,) = lines()
    assert line.startswith("2 flushes of logs") and "Too many open files (errno 24)" in line
    for count in range(6, 66):
        assert not lines()
        counts.append(count)
        clock.advance(1000)
        told.tick()
    (line,) = lines()
    assert line.startswith("60 flushes")


def test_nobody_waits_for_the_room_of_a_disk_that_has_failed(room: Room) -> None:
    room.fail("open", errno.EIO, lambda room: room.create(1))
    assert room.data_plane.rooms == {0: None}


def test_nor_after_a_look_that_was_going_on(tmp_path: Path) -> None:
    both = [LogDirectory(tmp_path / name, place) for place, name in enumerate("ab")]
    data_plane: Any = FakeDataPlane()
    guards = DiskGuards(
        DiskLimits(bytes_max=1 << 40), LogManager(both, FakeLog), data_plane, (), FakeClock()
    )
    both[1].failure = "gone"
    guards.check(1)
    assert data_plane.rooms == {1: None}


def three_of_them(tmp_path: Path) -> LogManager:
    """A partition in each of three directories."""
    homes = [LogDirectory(tmp_path / name, place, name.encode() * 16)
             for place, name in enumerate("abc")]  # fmt: skip
    for one in homes:
        one.path.mkdir()
    logs = LogManager(homes, FakeLog)
    logs.start([PartitionSpec("t", b"t" * 16, index, {}, 0, one.id)
                for index, one in enumerate(homes)])  # fmt: skip
    return logs


def test_second_failure_during_a_slow_record_of_the_first_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = three_of_them(tmp_path)
    recorded: list[set[tuple[str, int]]] = []
    written: list[Completion[None]] = []

    class SlowStore(FakeStore):
        def append(self, records: set[tuple[str, int]]) -> Completion[None]:
            recorded.append(records)
            written.append(Completion())
            return written[-1]

    monkeypatch.setattr(disk_failure, "change_directories", lambda *given: given[-1])
    store: Any = SlowStore()
    data_plane: Any = FakeDataPlane()
    operations = Operations(lambda: 0)
    watch = DiskWatch(store, logs, data_plane, 1, Changes(operations, lambda: 0))
    offline = [0]
    monkeypatch.setattr(disk_failure, "logs_taken_offline", lambda: offline[0])
    for index in (1, 2):
        log = logs.get("t", index)
        assert isinstance(log, FakeLog)
        log.take_offline(errno.EIO)
        offline[0] += 1
        watch.look()
    assert recorded == [{("t", 1)}]
    written[0].resolve(None)
    while operations.ready:
        operations.run_slice()
    assert recorded == [{("t", 1)}, {("t", 1), ("t", 2)}]


def test_what_fails_during_a_look_is_seen_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = three_of_them(tmp_path)
    both = logs.directories
    store, data_plane = FakeStore(), FakeDataPlane()
    watch = DiskWatch(store, logs, data_plane, 1, changes())  # type: ignore[arg-type]
    offline = [0]

    def fails(index: int) -> None:
        log = logs.get("t", index)
        assert log is not None
        log.take_offline(errno.EIO)
        offline[0] += 1

    monkeypatch.setattr(disk_failure, "logs_taken_offline", lambda: offline[0])
    monkeypatch.setattr(watch, "_tell_metadata", lambda: both[1].online and fails(1))
    fails(2)
    watch.look()
    assert [one.online for one in both] == [True, True, False]
    watch.look()
    assert [one.online for one in both] == [True, False, False]
