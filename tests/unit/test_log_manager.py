"""The set of logs: folders, checkpoints, deletion, and what a crash leaves of them."""

from __future__ import annotations

import errno
import logging
import threading
from pathlib import Path

import pytest

from kbroker.errors import DiskError
from kbroker.ext import log_folders
from kbroker.files import read_offset_checkpoint
from kbroker.storage import progress
from kbroker.storage.checkpoints import (
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    PARTITION_METADATA,
    RECOVERY_POINTS,
    read_topic_id,
    take_clean_shutdown,
)
from kbroker.storage.manager import LogManager, PartitionSpec
from tests.support.partitions import created, deleted
from tests.support.ports import FakeLog
from tests.support.waits import wait_for

IDS = {"a": b"a" * 16, "b": b"b" * 16}


def spec(topic="a", partition=0, topic_id=None):
    return PartitionSpec(topic, topic_id or IDS[topic], partition, {})


@pytest.fixture
def manager(tmp_path):
    made = LogManager(tmp_path, FakeLog)
    made.start([])
    return made


def folders(manager):
    return sorted(path.name for path in manager.directory.iterdir() if path.is_dir())


def test_new_logs_get_a_folder_with_the_topic_id(manager):
    logs = created(manager, [spec(), spec(partition=1)])
    assert folders(manager) == ["a-0", "a-1"]
    assert read_topic_id(manager.directory / "a-1") == IDS["a"]
    assert [log.opening.clean for log in logs] == [True, True]
    assert manager.get("a", 1) is logs[1] and manager.get("b", 0) is None


def test_a_log_that_the_disk_denies_is_offline_and_the_others_are_not(tmp_path):
    def open_log(opening):
        if opening.spec.partition == 1:
            raise DiskError(opening.directory, "Input/output error")
        return FakeLog(opening)

    manager = LogManager(tmp_path, open_log)
    manager.start([spec(partition=index) for index in range(3)])
    assert len(manager) == 2 and set(manager.offline) == {("a", 1)}
    assert created(manager, [spec("b", 1)]) == [None]


def test_an_opening_that_takes_long_tells_how_far_it_is(tmp_path, caplog, monkeypatch):
    """By partitions and bytes: a log may hold more than a disk reads in minutes."""
    monkeypatch.setattr(progress, "_EVERY_S", 0.01)
    for index, megabytes in enumerate((3, 4)):
        folder = tmp_path / f"a-{index}"
        folder.mkdir()
        (folder / f"{0:020d}.log").write_bytes(b"x" * (megabytes * 1_000_000 + 100_000))
        (folder / f"{0:020d}.index").write_bytes(b"x" * 1_000_000)
        (folder / PARTITION_METADATA).write_text("version: 0\ntopic_id: YWFhYWFhYWFhYWFhYWFhYQ")

    def open_log(opening):
        done = opening.spec.partition
        told = f"opened {done} of 2 partitions, {3 * done} of 7 MB"
        wait_for(told, lambda: told in caplog.messages, 20)
        return FakeLog(opening)

    manager = LogManager(tmp_path, open_log)
    with caplog.at_level(logging.INFO, logger="kbroker.storage"):
        manager.start([spec(), spec(partition=1)])
    assert len(manager) == 2
    assert caplog.messages[0] == "recovering 2 partitions after an unclean stop"


def test_a_clean_stop_leaves_checkpoints_that_the_next_start_opens_with(manager, tmp_path):
    first, second = created(manager, [spec(), spec(partition=1)])
    first.hold(2, 9, 9, 9)
    assert manager.stop(17)
    assert first.closed is True and second.closed is True
    assert read_offset_checkpoint(tmp_path / RECOVERY_POINTS) == {("a", 0): 9, ("a", 1): 0}
    assert read_offset_checkpoint(tmp_path / LOG_START_OFFSETS) == {("a", 0): 2}
    assert read_offset_checkpoint(tmp_path / HIGH_WATERMARKS) == {("a", 0): 9, ("a", 1): 0}
    again = LogManager(tmp_path, FakeLog)
    again.start([spec(), spec(partition=1)])
    opening = again.get("a", 0).opening
    assert (opening.log_start_offset, opening.recovery_point, opening.clean) == (2, 9, True)
    assert again.started_clean and take_clean_shutdown(tmp_path) is None


def test_a_topic_that_is_made_again_inherits_no_offsets(manager, tmp_path):
    """Else its new log would begin where the old one did, and lose what it holds, after a crash
    before the next checkpoint."""
    log, other = created(manager, [spec(), spec("b")])
    for one in (log, other):
        one.hold(7, 9, 9, 9)
    manager.checkpoint_log_starts()
    manager.checkpoint_recovery_points()
    again = LogManager(tmp_path, FakeLog)  # it knows the checkpoints of those before it
    again.start([spec(), spec("b")])
    again.get("b", 0).hold(7, 9, 9, 9)
    deleted(again, "a", [0], 0)
    again.create([spec(topic_id=b"c" * 16)])
    assert read_offset_checkpoint(tmp_path / LOG_START_OFFSETS) == {("b", 0): 7}
    assert ("a", 0) not in read_offset_checkpoint(tmp_path / RECOVERY_POINTS)


def test_without_the_mark_every_log_is_recovered(manager, tmp_path):
    (log,) = created(manager, [spec()])
    log.recovery_point = 5
    manager.checkpoint_recovery_points()
    again = LogManager(tmp_path, FakeLog)
    again.start([spec()])
    opening = again.get("a", 0).opening
    assert (opening.clean, opening.recovery_point) == (False, 5) and not again.started_clean


def test_a_log_that_cannot_be_closed_leaves_no_mark(manager, tmp_path, monkeypatch):
    bad, good = created(manager, [spec(), spec(partition=1)])
    monkeypatch.setattr(bad, "close", lambda **_: 1 / 0)
    assert not manager.stop(1)
    assert good.closed and take_clean_shutdown(tmp_path) is None


def test_deleted_partitions_go_out_of_the_way_at_once_and_away_later(manager):
    logs = created(manager, [spec(), spec(partition=1), spec("b")])
    assert deleted(manager, "a", range(2), 100) == logs[:2]
    assert logs[0].deleted and not logs[2].deleted
    assert len([name for name in folders(manager) if name.endswith("-delete")]) == 2
    manager.dead.remove(99)
    assert len(folders(manager)) == 3
    manager.create([spec(topic_id=b"n" * 16)])
    manager.dead.remove(100)
    assert folders(manager) == ["a-0", "b-0"]


def test_the_next_start_removes_what_was_marked_and_sets_strays_aside(manager, tmp_path):
    manager.create([spec(), spec(partition=1), spec("b")])
    deleted(manager, "a", [1], 10**9)
    (tmp_path / "a-0" / "kept").write_text("x")
    (tmp_path / "not a partition").mkdir()
    (tmp_path / "__cluster_metadata-0").mkdir()
    again = LogManager(tmp_path, FakeLog)
    again.start([spec("b")])
    again.dead.remove(0)
    names = folders(again)
    (stray,) = [name for name in names if name.endswith("-stray")]
    assert stray.startswith("a-0.") and (tmp_path / stray / "kept").exists()
    assert names == sorted([stray, "b-0", "not a partition", "__cluster_metadata-0"])


def test_a_folder_of_an_earlier_topic_of_that_name_is_a_stray(manager, tmp_path):
    manager.create([spec()])
    again = LogManager(tmp_path, FakeLog)
    again.start([spec(topic_id=b"z" * 16)])
    assert read_topic_id(tmp_path / "a-0") == b"z" * 16
    assert [name for name in folders(again) if name.endswith("-stray")]


def test_a_broken_partition_metadata_is_written_anew(manager, tmp_path):
    manager.create([spec()])
    (tmp_path / "a-0" / PARTITION_METADATA).write_text("")
    again = LogManager(tmp_path, FakeLog)
    again.start([spec()])
    assert folders(again) == ["a-0"] and read_topic_id(tmp_path / "a-0") == IDS["a"]


def test_the_longest_topic_name_can_be_deleted(manager):
    name = "n" * 249
    manager.create([PartitionSpec(name, b"l" * 16, 7, {})])
    deleted(manager, name, [7], 0)
    (folder,) = folders(manager)
    assert folder.endswith("-delete") and len(folder) == 255


def test_logs_are_opened_by_several_threads_each_once(tmp_path):
    seen = []
    meeting = threading.Barrier(3, timeout=10)

    def open_log(opening):
        seen.append((opening.spec.partition, threading.current_thread().name))
        if len(seen) <= 3:
            meeting.wait()
        return FakeLog(opening)

    manager = LogManager(tmp_path, open_log, threads=3)
    manager.start([spec(partition=index) for index in range(20)])
    assert sorted(partition for partition, _ in seen) == list(range(20))
    assert len({name for _, name in seen}) == 3


def test_checkpoints_are_written_when_they_changed(manager, tmp_path):
    (log,) = created(manager, [spec()])
    manager.checkpoint_high_watermarks()
    path = tmp_path / HIGH_WATERMARKS
    path.write_text("as it was")
    manager.checkpoint_high_watermarks()
    assert path.read_text() == "as it was"
    log.high_watermark = 4
    manager.checkpoint_high_watermarks()
    assert read_offset_checkpoint(path) == {("a", 0): 4}


def test_upkeep_goes_on_where_one_log_fails(manager, monkeypatch, caplog):
    bad, good = created(manager, [spec(), spec(partition=1)])
    monkeypatch.setattr(bad, "delete_old_segments", lambda now_ms: 1 / 0)
    good.old_segments = [0, 10]
    assert manager.retain(0) == 2
    assert manager.retain(0) == 0
    assert len([line for line in caplog.records if "a-0" in line.message]) == 1
    good.log_end_offset = 3
    assert manager.flush_what_is_due(0, 0) == 1 and good.recovery_point == 3


@pytest.fixture
def refusing(monkeypatch):
    """Renames of folders to names of deleted ones, and of strays, are refused with these errors."""
    refusals = {}
    end_logs, rename = log_folders.end_logs, Path.rename

    def end(wanted):
        if not refusals:
            return end_logs(wanted)
        return [refusals["errno"]] * len(wanted)

    def rename_checked(path, target):
        if refusals:
            raise OSError(refusals["errno"], "refused", str(path))
        return rename(path, target)

    monkeypatch.setattr(log_folders, "end_logs", end)
    monkeypatch.setattr(Path, "rename", rename_checked)
    return refusals


@pytest.mark.parametrize("code", [errno.EBUSY, errno.EACCES, errno.ENOSPC])
def test_refused_rename_of_a_deleted_folder_is_tried_again(manager, refusing, code):
    created(manager, [spec()])
    refusing["errno"] = code
    renamed = manager.delete([("a", [0], 0)])
    assert isinstance(renamed.error, DiskError)
    manager.rename_again()
    assert folders(manager) == ["a-0"] and manager.main.met is None
    refusing.clear()
    manager.rename_again()
    (folder,) = folders(manager)
    assert folder.endswith("-delete") and not manager.unrenamed
    manager.dead.remove(1)
    assert folders(manager) == []


def test_topic_anew_behind_a_refused_rename_gets_its_own_folder(manager, refusing):
    created(manager, [spec()])
    refusing["errno"] = errno.EBUSY
    manager.delete([("a", [0], 0)])
    new = spec(topic_id=IDS["b"])
    manager.create([new])
    assert manager.get("a", 0) is None and set(manager.denied) == {("a", 0)}
    assert manager.main.met is None  # one folder's refusal fails no disk
    refusing.clear()
    manager.rename_again()
    (log,) = created(manager, [new])
    assert log is not None and read_topic_id(manager.directory / "a-0") == IDS["b"]
    assert [name[-7:] for name in folders(manager)] == ["a-0", "-delete"]


def test_creation_renames_the_old_folder_that_was_refused(manager, refusing):
    created(manager, [spec()])
    refusing["errno"] = errno.EBUSY
    manager.delete([("a", [0], 0)])
    refusing.clear()
    created(manager, [spec(topic_id=IDS["b"])])
    manager.rename_again()  # the folder is the new partition's
    assert read_topic_id(manager.directory / "a-0") == IDS["b"]
    assert [name[-7:] for name in folders(manager)] == ["a-0", "-delete"]


def test_rename_that_a_failed_disk_denies_is_not_tried_again(manager, refusing):
    created(manager, [spec()])
    refusing["errno"] = errno.EIO
    manager.delete([("a", [0], 0)])
    assert manager.main.met is not None and not manager.unrenamed
