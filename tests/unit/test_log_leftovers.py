"""Folders that a start finds without an owner, and partitions that it finds without a folder."""

from __future__ import annotations

import errno
import logging
from pathlib import Path

import pytest

from kbroker.clock import FakeClock
from kbroker.errors import DiskError
from kbroker.files import write_offset_checkpoint
from kbroker.server.upkeep import Upkeep, tasks_of
from kbroker.storage import dead_folders, leftovers
from kbroker.storage.checkpoints import (
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    PARTITION_METADATA,
    RECOVERY_POINTS,
    read_topic_id,
    write_topic_id,
)
from kbroker.storage.leftovers import count_strays
from kbroker.storage.log_directory import LogDirectory
from kbroker.storage.manager import LogManager, PartitionSpec
from tests.support.ports import FakeLog
from tests.support.waits import wait_for

A, B = b"A" * 16, b"B" * 16
TOPIC, GONE, OTHER = b"t" * 16, b"g" * 16, b"o" * 16
DELETED = {GONE: "gone"}
SEGMENT = f"{0:020}.log"


@pytest.fixture(autouse=True)
def _all_lines(caplog):
    caplog.set_level(logging.INFO, logger="kbroker.storage")


@pytest.fixture
def directory(tmp_path):
    return LogDirectory(tmp_path, 0, A)


def spec(partition=0, topic="t", topic_id=TOPIC, home=A):
    return PartitionSpec(topic, topic_id, partition, {}, 0, home)


def put(directory, name, topic_id=TOPIC, records=b"records"):
    folder = directory.path / name
    folder.mkdir()
    if topic_id is not None:
        write_topic_id(folder, topic_id)
    if records is not None:
        (folder / SEGMENT).write_bytes(records)
    return folder


def names(directory):
    """Folders, those set aside by their suffix."""
    found = [path.name for path in directory.path.iterdir() if path.is_dir()]
    return sorted(f"{one.partition('.')[0]}.{one.rpartition('-')[2]}" if "." in one else one
                  for one in found)  # fmt: skip


def start(directories, *specs, deleted=DELETED):
    manager = LogManager(directories, FakeLog)
    manager.start(specs, deleted)
    return manager


def lines(caplog, level):
    return [record.getMessage() for record in caplog.records if record.levelno >= level]


def test_folders_of_deleted_topics_are_renamed_and_removed_later(directory, caplog):
    for index in range(7):
        put(directory, f"gone-{index}", GONE)
    put(directory, "t-0")
    manager = start([directory], spec())
    assert names(directory) == [*(f"gone-{index}.delete" for index in range(7)), "t-0"]
    assert not lines(caplog, logging.WARNING) and directory.strays == 0
    assert "deleting 7 folders of deleted topics in" in caplog.text
    manager.dead.remove(0)
    assert names(directory) == ["t-0"]


def test_a_folder_of_an_unknown_topic_stays_stray(directory, caplog):
    for index in range(7):
        put(directory, f"old-{index}", OTHER)
    start([directory])
    assert names(directory) == [f"old-{index}.stray" for index in range(7)]
    assert directory.strays == 7
    (line,) = lines(caplog, logging.WARNING)
    assert line.startswith(f"7 folders in {directory} belong to no partition")
    assert "7 of them renamed by this start: old-0." in line and "old-4." in line
    assert "old-5." not in line
    caplog.clear()
    start([directory])
    (line,) = lines(caplog, logging.WARNING)
    assert "7 folders" in line and "0 of them renamed" in line and directory.strays == 7


def test_a_stray_folder_is_kept_whatever_was_deleted(directory):
    put(directory, f"gone-0.{'0' * 32}-stray", GONE)
    start([directory])
    assert names(directory) == ["gone-0.stray"] and directory.strays == 1


def test_a_topic_that_was_created_again_gets_an_empty_log(directory, caplog):
    """The crash came before the folder of the deleted topic was renamed; the checkpoints speak of
    that topic as well."""
    put(directory, "t-0", GONE)
    for name in (HIGH_WATERMARKS, RECOVERY_POINTS, LOG_START_OFFSETS):
        write_offset_checkpoint(directory.path / name, {("t", 0): 7, ("t", 1): 5})
    put(directory, "t-1")
    manager = start([directory], spec(), spec(1), deleted={GONE: "t"})
    assert names(directory) == ["t-0", "t-0.delete", "t-1"]
    assert read_topic_id(directory.path / "t-0") == TOPIC
    openings = [manager.get("t", index).opening for index in range(2)]
    assert [(one.log_start_offset, one.recovery_point) for one in openings] == [(0, 0), (5, 5)]
    assert not lines(caplog, logging.WARNING)


@pytest.mark.parametrize("made", ["nothing", "empty id", "files", "kafka's"])
def test_a_folder_that_a_creation_left_empty_is_removed(directory, caplog, made):
    folder = put(directory, "t-0", None, None)
    if made != "nothing":
        (folder / PARTITION_METADATA).touch()
    if made in ("files", "kafka's"):
        for suffix in (".log", ".index", ".timeindex"):
            (folder / SEGMENT).with_suffix(suffix).touch()
    if made == "kafka's":
        (folder / "leader-epoch-checkpoint").write_text("0\n0\n")
    start([directory])
    assert names(directory) == ["t-0.delete"] and not lines(caplog, logging.WARNING)


@pytest.mark.parametrize("file", [SEGMENT, f"{5:020}.log", "photo.jpg", "folder"])
def test_a_folder_without_an_id_that_holds_anything_stays(directory, file):
    folder = put(directory, "t-0", None, None)
    if file == "folder":
        (folder / file).mkdir()
    else:
        (folder / file).write_bytes(b"x" if file == SEGMENT else b"")
    start([directory])
    assert names(directory) == ["t-0.stray"] and directory.strays == 1


def test_a_folder_whose_id_is_damaged_stays(directory):
    folder = put(directory, "gone-0", None, b"")
    (folder / PARTITION_METADATA).write_text("version: 0\ntopic_id: nonsense")
    start([directory], deleted={GONE: "gone"})
    assert names(directory) == ["gone-0.stray"]


def test_a_folder_that_cannot_be_read_stays(directory, monkeypatch):
    """It says nothing of the directory, which is served."""
    put(directory, "gone-0", GONE)

    def read(folder):
        raise DiskError(folder, OSError(errno.EIO, "broken"))

    monkeypatch.setattr(leftovers, "read_topic_id", read)
    start([directory])
    assert names(directory) == ["gone-0.stray"] and directory.online


def test_interrupted_creations_are_completed_calmly(directory, caplog):
    put(directory, "t-0", None, None)
    (put(directory, "t-1", None, None) / PARTITION_METADATA).touch()
    put(directory, "t-2", TOPIC, None)
    start([directory], *(spec(index) for index in range(4)))
    assert names(directory) == [f"t-{index}" for index in range(4)]
    assert {read_topic_id(directory.path / name) for name in names(directory)} == {TOPIC}
    assert not lines(caplog, logging.WARNING)
    assert f"creating 1 partitions in {directory} whose creation was interrupted: t-3" \
        in caplog.messages  # fmt: skip


@pytest.mark.parametrize("checkpoint", [HIGH_WATERMARKS, RECOVERY_POINTS])
def test_a_folder_that_was_lost_is_warned_of(directory, caplog, checkpoint):
    write_offset_checkpoint(directory.path / checkpoint, {("t", 0): 0, ("t", 1): 0})
    put(directory, "t-1")
    start([directory], spec(), spec(1), spec(2))
    (line,) = lines(caplog, logging.WARNING)
    assert line.startswith(f"1 partitions in {directory} have lost their folder and start empty")
    assert "t-0." in line and "whose creation was interrupted: t-2" in caplog.text


def test_a_partition_without_a_directory_is_not_missing(directory, caplog):
    start([directory], spec(home=None))
    assert "creation was interrupted" not in caplog.text


def test_a_half_made_folder_elsewhere_is_no_copy(tmp_path, caplog):
    """A topic was deleted and created again, in another directory."""
    two = [LogDirectory(tmp_path / name, place, an_id)
           for place, (name, an_id) in enumerate((("a", A), ("b", B)))]  # fmt: skip
    for one in two:
        one.path.mkdir()
    put(two[0], "t-0", None, None)
    put(two[1], "t-0")
    start(two, spec(home=B))
    assert names(two[0]) == ["t-0.delete"] and names(two[1]) == ["t-0"]
    assert not lines(caplog, logging.WARNING)


def test_new_names_are_durable_before_the_start_goes_on(directory, monkeypatch):
    put(directory, "gone-0", GONE)
    synced = []
    monkeypatch.setattr(directory, "sync_names", lambda: synced.append(names(directory)))
    start([directory])
    assert synced == [["gone-0.delete"]]


def test_a_directory_whose_names_do_not_last_is_offline(tmp_path, monkeypatch):
    two = [LogDirectory(tmp_path / name, place, an_id)
           for place, (name, an_id) in enumerate((("a", A), ("b", B)))]  # fmt: skip
    for one in two:
        one.path.mkdir()

    def sync_names():
        raise DiskError(two[1].path, OSError(errno.EIO, "broken"))

    monkeypatch.setattr(two[1], "sync_names", sync_names)
    put(two[1], "gone-0", GONE)
    manager = start(two, spec(home=B))
    assert not two[1].online and "broken" in manager.offline["t", 0]
    manager.dead.remove(None)
    assert names(two[1]) == ["gone-0.delete"]


def test_a_start_on_a_full_disk_removes_at_once(directory, monkeypatch):
    put(directory, f"t-0.{'0' * 32}-delete")
    monkeypatch.setattr(dead_folders, "_FREE_LOW_BYTES", 1 << 62)
    start([directory])
    assert names(directory) == []


def test_removal_ends_in_time_and_is_taken_up_again(directory):
    for index in range(3):
        put(directory, f"t-{index}.{'0' * 32}-delete")
    manager = start([directory])
    for left in (2, 1):
        assert manager.dead.remove(0, directory, limit_s=0)
        assert len(manager.dead.paths()) == left == len(names(directory))
    assert not manager.dead.remove(0, directory, limit_s=0)
    assert names(directory) == []


def test_upkeep_goes_on_with_what_is_unfinished(directory, monkeypatch):
    """Within one period, which the clock does not reach."""
    monkeypatch.setattr("kbroker.server.upkeep._REMOVAL_S", 0)
    for index in range(5):
        put(directory, f"t-{index}.{'0' * 32}-delete")
    manager, clock = start([directory]), FakeClock()
    config = _Config()
    (task,) = [one for one in tasks_of(config, manager, clock, directory)
               if one[0] == "removal of deleted partitions"]  # fmt: skip
    upkeep = Upkeep("upkeep", [task], clock)
    upkeep.start()
    try:
        wait_for("all folders are removed", lambda: not names(directory), 20)
    finally:
        upkeep.stop()


class _Config:
    """Settings of which no value matters."""

    def integer(self, name: str) -> int:
        return 1_000


def test_strays_are_counted_again(directory):
    start([directory])
    for name in (f"t-0.{'0' * 32}-stray", f"t-1.{'0' * 32}-delete", "t-2"):
        put(directory, name)
    count_strays(directory)
    assert directory.strays == 1
    directory.path.joinpath(f"t-0.{'0' * 32}-stray").rename(Path(directory.path, "t-3"))
    count_strays(directory)
    assert directory.strays == 0
    directory.failure = "gone"
    directory.path = Path(directory.path, "none")
    count_strays(directory)
    directory.failure = None
    with pytest.raises(DiskError):
        count_strays(directory)
