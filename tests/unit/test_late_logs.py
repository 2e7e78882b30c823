"""Logs whose disk hangs while they are made or deleted, and what happens to them meanwhile."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from kbroker.errors import DiskError, ErrorCode
from kbroker.operations import Completion
from kbroker.protocol import ApiKey
from kbroker.storage import partition_lifecycle
from kbroker.storage.checkpoints import read_topic_id
from kbroker.storage.folder_work import Gone
from kbroker.storage.log_directory import LogDirectory
from kbroker.storage.log_port import LogPort, Opening
from kbroker.storage.manager import LogManager, PartitionSpec, State
from tests.support.control import ControlPlane
from tests.support.ports import FakeLog
from tests.support.waits import wait_for

Posted = list[Callable[[], None]]


class Hanging:
    """The opening of logs, which hangs from `hang` to `thaw`."""

    def __init__(self) -> None:
        self._free = threading.Event()
        self._free.set()
        self.hang, self.thaw = self._free.clear, self._free.set
        self.begun = threading.Event()
        self.opened: list[PartitionSpec] = []

    def __call__(self, opening: Opening) -> FakeLog:
        self.opened.append(opening.spec)
        self.begun.set()
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


@pytest.fixture
def opening() -> Iterator[Hanging]:
    made = Hanging()
    yield made
    made.thaw()


@pytest.fixture
def logs(tmp_path: Path, opening: Hanging, posted: Posted) -> Iterator[LogManager]:
    """On three directories; this thread is the control thread."""
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


def settle(posted: Posted, *completions: Completion[None]) -> None:
    """Run what is posted until the completions are set."""

    def is_done() -> bool:
        while posted:
            posted.pop(0)()
        return all(each.done for each in completions)

    wait_for("the completions", is_done, 60)


def test_a_log_made_after_its_directory_failed_is_offline(
    logs: LogManager, opening: Hanging, posted: Posted
) -> None:
    home = logs.directories[1]
    opening.hang()
    created = logs.create([spec(0, home)])
    assert logs.state("t", 0) is State.CREATING and logs.get("t", 0) is None
    assert logs.fail(home, "it is gone") == []
    opening.thaw()
    settle(posted, created)
    assert logs.state("t", 0) is State.OFFLINE and logs.offline == {("t", 0): "it is gone"}
    ((_, log),) = logs.items()
    assert isinstance(log, FakeLog) and log.offline_errno == errno.EIO


def test_a_partition_deleted_while_it_is_made_leaves_no_folder(
    logs: LogManager, opening: Hanging, posted: Posted
) -> None:
    home = logs.directories[1]
    opening.hang()
    created = logs.create([spec(0, home), spec(1, home)])
    wait_for("the first log", opening.begun.is_set, 60)
    deleted = logs.delete([("t", [0], 0)])
    opening.thaw()
    settle(posted, created, deleted)
    assert [key for key, _ in logs.items()] == [("t", 1)]
    assert logs.state("t", 1) is State.READY
    assert [path.suffix for path in logs.dead.paths()] == [
        path.suffix for path in home.path.iterdir() if path.name.endswith("-delete")
    ] != []


def test_a_partition_deleted_before_it_is_made_is_not_made(
    logs: LogManager, opening: Hanging, posted: Posted, monkeypatch: pytest.MonkeyPatch
) -> None:
    def create(openings: Sequence[Opening]) -> list[FakeLog]:
        assert openings, "nothing to create"
        for each in openings:
            Path(each.directory).mkdir()
        return [opening(each) for each in openings]

    monkeypatch.setattr(logs, "_create_logs", create)
    monkeypatch.setattr(partition_lifecycle, "PIECE", 1)
    home = logs.directories[1]
    opening.hang()
    created = logs.create([spec(0, home), spec(1, home)])
    wait_for("the first log", opening.begun.is_set, 60)
    deleted = logs.delete([("t", [1], 0)])
    opening.thaw()
    settle(posted, created, deleted)
    assert [path.name for path in home.path.iterdir()] == ["t-0"]
    assert [opened.partition for opened in opening.opened] == [0]


def test_a_topic_created_again_comes_after_the_deletion_of_its_namesake(
    logs: LogManager, opening: Hanging, posted: Posted
) -> None:
    home = logs.directories[1]
    first = logs.create([spec(0, home)])
    settle(posted, first)
    opening.hang()
    busy = logs.create([spec(7, home)])
    deleted = logs.delete([("t", [0], 0)])
    again = logs.create([spec(0, home)._replace(topic_id=b"n" * 16)])
    opening.thaw()
    settle(posted, busy, deleted, again)
    assert read_topic_id(home.path / "t-0") == b"n" * 16
    assert len(logs.dead.paths()) == 1


def test_deleted_folders_are_renamed_when_every_disk_has_answered(
    logs: LogManager, opening: Hanging, posted: Posted
) -> None:
    settle(posted, logs.create([spec(index, home) for index, home in enumerate(logs.directories)]))
    opening.hang()
    busy = logs.create([spec(5, logs.directories[1])])
    deleted = logs.delete([("t", range(3), 0)])
    assert not deleted.done
    opening.thaw()
    settle(posted, busy, deleted)
    assert deleted.error is None and len(logs.dead.paths()) == 3


@pytest.mark.parametrize("trouble", ["offline", "not renamed", "not synced", "away"])
def test_deleted_folders_may_keep_their_names_in_a_bad_directory(
    logs: LogManager, posted: Posted, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    home = logs.directories[1]
    settle(posted, logs.create([spec(0, home), spec(1, logs.directories[2])]))
    if trouble == "offline":
        logs.fail(home, "it is gone")
    elif trouble == "not renamed":
        monkeypatch.setattr(partition_lifecycle, "rename_piece", denied)
    elif trouble == "not synced":
        monkeypatch.setattr(home, "sync_names", lambda: fault(home.path))
    else:
        del logs.homes["t", 0]
    deleted = logs.delete([("t", range(2), 0)])
    settle(posted, deleted)
    assert isinstance(deleted.error, DiskError)


def fault(path: Path) -> None:
    raise DiskError(path, OSError(errno.EIO, "broken"))


def denied(folders: Sequence[tuple[Path, LogPort | None]]) -> list[Gone]:
    return [Gone(folder, error=OSError(errno.EIO, "broken")) for folder, _ in folders]


def test_a_failed_sync_of_names_keeps_no_other_directory_from_its_logs(
    logs: LogManager, posted: Posted, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, good = logs.directories[1:]

    def sync_names() -> None:
        raise DiskError(bad.path, OSError(errno.EIO, "broken"))

    monkeypatch.setattr(bad, "sync_names", sync_names)
    created = logs.create([spec(0, bad), spec(1, good)])
    settle(posted, created)
    assert isinstance(created.error, DiskError) and logs.get("t", 1) is not None


def test_the_cleaner_forgets_at_once_and_writes_when_the_disk_answers(
    logs: LogManager, opening: Hanging, posted: Posted
) -> None:
    """A topic of the same name inherits nothing, wherever it is placed."""
    home = logs.directories[1]
    settle(posted, logs.create([spec(0, home)]))
    cleaner = logs.cleaner = FakeCleaner()
    opening.hang()
    created = logs.create([spec(1, home)])
    wait_for("the log", opening.begun.is_set, 60)
    deleted = logs.delete([("t", [0], 0)])
    assert cleaner.told == [[("t", 0)]]
    opening.thaw()
    settle(posted, created, deleted)
    assert cleaner.told == [[("t", 0)], home]


# ---- as clients see it; the disk of the metadata answers


@pytest.fixture
def late(control: ControlPlane, opening: Hanging) -> Iterator[ControlPlane]:
    """A topic `a.b` whose logs are not made yet."""
    control.logs._open_log = opening
    control.logs.main.worker.open(control.posted.append)
    opening.hang()
    asked = {"name": "a.b", "num_partitions": 2, "replication_factor": 1}
    request = control.send(ApiKey.CREATE_TOPICS, 7, topics=[asked])
    assert request.answer is None and "a.b" in control.store.image.topics
    assert control.logs.get("a.b", 0) is None
    yield control
    opening.thaw()
    control.logs.main.worker.close()
    while control.posted:
        control.run_posted()


def arrive(control: ControlPlane, opening: Hanging) -> None:
    opening.thaw()

    def is_done() -> bool:
        control.run_posted()
        return not control.services.operations and not control.logs.main.worker

    wait_for("the logs", is_done, 60)


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


# ---- coordinators whose topic has no logs yet


def heartbeat(control: ControlPlane) -> int:
    answer = control.call(
        ApiKey.HEARTBEAT, 4, group_id="g", generation_id=1, member_id="m"
    )  # fmt: skip
    return int(answer["error_code"])


def init_producer(control: ControlPlane) -> int:
    answer = control.call(
        ApiKey.INIT_PRODUCER_ID, 4, transactional_id="x", transaction_timeout=1_000
    )  # fmt: skip
    return int(answer["error_code"])


@pytest.mark.parametrize(("key_type", "probe", "loading", "works"), [
    (0, heartbeat, ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID),
    (1, init_producer, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NONE),
])  # fmt: skip
def test_coordinator_comes_when_the_logs_of_its_topic_do(  # noqa: PLR0917
    late: ControlPlane,
    opening: Hanging,
    key_type: int,
    probe: Any,
    loading: ErrorCode,
    works: ErrorCode,
) -> None:
    """Its topic is created while the logs of another one are being made by a slow disk. A heartbeat
    during loading is answered with NONE, as by Apache Kafka."""
    request = late.send(ApiKey.FIND_COORDINATOR, 4, coordinator_keys=["g"], key_type=key_type)
    assert request.answer is None  # it waits for the logs, but no longer than a second
    late.clock.advance(1_000)
    late.services.operations.run_due()
    late.run_operations()
    answer = late.decoded(request)
    assert answer["coordinators"][0]["error_code"] == ErrorCode.NONE
    assert probe(late) == loading
    arrive(late, opening)
    request_loads(late)
    assert probe(late) == works


def request_loads(control: ControlPlane) -> None:
    """Run what the loading thread posts until no partition is being loaded."""

    def is_loaded() -> bool:
        control.run_posted()
        return not control.services.groups.loading

    wait_for("the coordinators", is_loaded, 60)


def test_deleted_coordinator_topic_that_is_created_again_works(
    control: ControlPlane, opening: Hanging
) -> None:
    control.call(ApiKey.FIND_COORDINATOR, 4, coordinator_keys=["g"], key_type=0)
    assert heartbeat(control) == ErrorCode.UNKNOWN_MEMBER_ID
    control.call(ApiKey.DELETE_TOPICS, 6, topics=[{"name": "__consumer_offsets"}])
    assert heartbeat(control) == ErrorCode.NOT_COORDINATOR
    control.call(ApiKey.FIND_COORDINATOR, 4, coordinator_keys=["g"], key_type=0)
    assert heartbeat(control) == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("key", [
    (ApiKey.CREATE_TOPICS, 7, {"topics": [{"name": "t", "num_partitions": 1,
                                           "replication_factor": 1}]}),
    (ApiKey.CREATE_PARTITIONS, 3, {"topics": [{"name": "old", "count": 3}]}),
    (ApiKey.DELETE_TOPICS, 6, {"topics": [{"name": "old"}]}),
    (ApiKey.ELECT_LEADERS, 2, {"election_type": 0, "topic_partitions": None}),
    (ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, {"topics": []}),
])  # fmt: skip
def test_change_with_no_time_left_is_not_carried_out(control: ControlPlane, key: Any) -> None:
    """As Apache Kafka's controller, whose deadline is over when the change would begin."""
    control.create("old")
    api, version, fields = key
    before = dict(control.store.image.topics)
    answer = control.call(api, version, timeout=0, **fields)
    codes = {value for name, value in answer.items() if name == "error_code"}
    codes |= {
        entry["error_code"]
        for name in ("topics", "results", "responses")
        for entry in answer.get(name, ())
    }
    assert codes == {ErrorCode.REQUEST_TIMED_OUT}
    assert control.store.image.topics == before
    assert len(control.store.image.topics["old"]) == 1


def test_creation_is_answered_at_the_timeout_of_its_client(
    control: ControlPlane, opening: Hanging
) -> None:
    control.logs._open_log = opening
    control.logs.main.worker.open(control.posted.append)
    opening.hang()
    asked = {"name": "slow", "num_partitions": 1, "replication_factor": 1}
    request = control.send(ApiKey.CREATE_TOPICS, 7, topics=[asked], timeout=5_000)
    control.clock.advance(4_999)
    control.services.operations.run_due()
    control.run_operations()
    assert request.answer is None
    control.clock.advance(1)
    control.services.operations.run_due()
    control.run_operations()
    answer = control.decoded(request)
    assert answer["topics"][0]["error_code"] == ErrorCode.REQUEST_TIMED_OUT
    arrive(control, opening)
    assert control.logs.state("slow", 0) is State.READY
    control.logs.main.worker.close()
