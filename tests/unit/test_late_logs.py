"""Logs whose disk hangs while they are made or deleted, and what happens to them meanwhile."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kbroker.errors import DiskError, ErrorCode
from kbroker.protocol import ApiKey
from kbroker.storage import disk_worker
from kbroker.storage.log_directory import LogDirectory
from kbroker.storage.log_port import Opening
from kbroker.storage.manager import LogManager, PartitionSpec
from tests.support.control import ControlPlane
from tests.support.ports import FakeLog
from tests.support.waits import wait_for

Posted = list[Callable[[], None]]


class Hanging:
    """The opening of logs, which stands from `hang` to `thaw`."""

    def __init__(self) -> None:
        self._free = threading.Event()
        self._free.set()
        self.hang, self.thaw = self._free.clear, self._free.set

    def __call__(self, opening: Opening) -> FakeLog:
        assert self._free.wait(60)
        return FakeLog(opening)


class FakeCleaner:
    """What the log cleaner was told."""

    def __init__(self) -> None:
        self.told: list[object] = []

    def forget(self, keys: list[tuple[str, int]]) -> None:
        self.told.append(list(keys))

    def write_checkpoint(self, directory: LogDirectory) -> None:
        self.told.append(directory)

    def reconfigure(self) -> None: ...


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_worker, "WAIT_S", 0.05)


@pytest.fixture
def opening() -> Iterator[Hanging]:
    made = Hanging()
    yield made
    made.thaw()


@pytest.fixture
def logs(tmp_path: Path, opening: Hanging, posted: Posted) -> Iterator[LogManager]:
    """On three directories, which nobody answers for but this thread."""
    homes = [LogDirectory(tmp_path / name, place, name.encode() * 16)
             for place, name in enumerate("abc")]  # fmt: skip
    for one in homes:
        one.path.mkdir()
    made = LogManager(homes, opening)
    made.start([])
    for one in homes:
        one.worker.open(posted.append)
    yield made
    opening.thaw()
    for one in homes:
        one.worker.close()


@pytest.fixture
def posted() -> Posted:
    return []


def spec(partition: int, home: LogDirectory) -> PartitionSpec:
    return PartitionSpec("t", b"t" * 16, partition, {}, 0, home.id or b"")


def settle(logs: LogManager, posted: Posted) -> None:
    def is_over() -> bool:
        while posted:
            posted.pop(0)()
        return not any(one.worker.late for one in logs.directories)

    wait_for("all is over", is_over, 60)


def test_a_late_log_of_a_directory_that_has_failed_is_offline(
    logs: LogManager, opening: Hanging, posted: Posted
) -> None:
    home = logs.directories[1]
    offered: list[object] = []
    opening.hang()
    assert logs.create([spec(0, home)], lambda: offered.append(logs.get("t", 0))) == [None]
    assert logs.fail(home, "it is gone") == []
    opening.thaw()
    settle(logs, posted)
    assert offered == [None] and logs.offline == {("t", 0): "it is gone"}
    ((_, log),) = logs.items()
    assert isinstance(log, FakeLog) and log.offline_errno == errno.EIO


def test_one_that_is_deleted_meanwhile_keeps_no_other_from_being_made(
    logs: LogManager, opening: Hanging, posted: Posted
) -> None:
    home = logs.directories[1]
    opening.hang()
    logs.create([spec(0, home), spec(1, home)])
    assert logs.delete("t", [0], 0) == []
    opening.thaw()
    settle(logs, posted)
    assert [key for key, _ in logs.items()] == [("t", 1)]
    assert [path.suffix for path in logs.dead.paths()] == [
        path.suffix for path in home.path.iterdir() if path.name.endswith("-delete")
    ] != []


def test_names_that_are_not_durable_keep_no_other_directory_from_its_logs(
    logs: LogManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, good = logs.directories[1:]

    def sync_names() -> None:
        raise DiskError(bad.path, OSError(errno.EIO, "broken"))

    monkeypatch.setattr(bad, "sync_names", sync_names)
    made: list[object] = []
    with pytest.raises(DiskError, match="broken"):
        logs.create([spec(0, bad), spec(1, good)], lambda: made.append(1))
    assert made == [1] and logs.get("t", 1) is not None


def test_the_cleaner_forgets_at_once_and_writes_when_the_disk_answers(
    logs: LogManager, opening: Hanging, posted: Posted
) -> None:
    """A topic of the same name has nothing of the one before, wherever it is placed."""
    home = logs.directories[1]
    logs.create([spec(0, home)])
    cleaner = logs.cleaner = FakeCleaner()
    opening.hang()
    logs.create([spec(1, home)])
    logs.delete("t", [0], 0)
    assert cleaner.told == [[("t", 0)]]
    opening.thaw()
    settle(logs, posted)
    assert cleaner.told == [[("t", 0)], home]


# ---- as clients see it; the disk of the metadata answers


@pytest.fixture
def late(control: ControlPlane, opening: Hanging) -> Iterator[ControlPlane]:
    """A topic `a.b` is created whose logs are not made yet."""
    control.logs._open_log = opening
    control.logs.main.worker.open(control.posted.append)
    opening.hang()
    control.create("a.b", 2)
    assert control.logs.get("a.b", 0) is None
    yield control
    opening.thaw()
    control.logs.main.worker.close()


def arrive(control: ControlPlane, opening: Hanging) -> None:
    opening.thaw()
    settle(control.logs, control.posted)


def alter(control: ControlPlane, name: str, value: str) -> None:
    config: dict[str, Any] = {"name": name, "config_operation": 0, "value": value}
    asked = {"resource_type": 2, "resource_name": "a.b", "configs": [config]}
    answer = control.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[asked])
    assert answer["responses"][0]["error_code"] == 0


def test_late_logs_have_the_settings_that_hold_when_they_come(
    late: ControlPlane, opening: Hanging
) -> None:
    alter(late, "retention.ms", "77000")
    arrive(late, opening)
    assert [late.log("a.b", index).config["retention_ms"] for index in range(2)] == [77_000] * 2


def test_a_name_is_taken_before_its_logs_are_there(late: ControlPlane, opening: Hanging) -> None:
    asked = {"name": "a_b", "num_partitions": 1, "replication_factor": 1}
    answer = late.call(ApiKey.CREATE_TOPICS, 7, topics=[asked])
    assert answer["topics"][0]["error_code"] == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_late_logs_are_offered_when_they_come(late: ControlPlane, opening: Hanging) -> None:
    assert "a.b" not in late.data_plane.topics
    arrive(late, opening)
    assert "a.b" in late.data_plane.topics
