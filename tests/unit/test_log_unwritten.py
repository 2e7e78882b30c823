"""A log before its first append: what it costs, and that it is the same log in every other way."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Callable
from pathlib import Path

import pytest

from kbroker.errors import DiskError
from kbroker.ext import debug, log_move
from kbroker.ext.log import Log
from kbroker.ext.log_append import appends_without_room
from tests.support.logs import CONFIG, TOPIC_ID, batch, open_log, read_all

MakeLog = Callable[[], Log]
FIRST_FILES = [f"{0:020}.{kind}" for kind in ("index", "log", "timeindex")]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "topic-0"


@pytest.fixture(params=["opened", "created", "recovered"])
def make(folder: Path, request: pytest.FixtureRequest) -> MakeLog:
    """Makes a log without records, by each way that leads to one."""

    def made() -> Log:
        folder.mkdir()
        log = Log(
            str(folder), "topic", TOPIC_ID, 0, CONFIG, clean=request.param != "recovered",
            durable=False, fresh=request.param == "created",
        )  # fmt: skip
        log.leader_epoch = 0
        return log

    return made


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_an_unwritten_log_has_no_file_and_no_descriptor(folder: Path) -> None:
    folder.mkdir()
    before = descriptors(), debug.live_objects().get("file", 0)
    log = Log(str(folder), "topic", TOPIC_ID, 0, CONFIG, clean=True, durable=False, fresh=True)
    assert (descriptors(), debug.live_objects().get("file", 0)) == before
    log.let_go(0, 0)
    log.close()
    assert os.listdir(folder) == []


def test_an_unwritten_log_answers_as_an_empty_one(make: MakeLog) -> None:
    log = make()
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (0, 0, 0)
    assert log.segments() == [(0, 0, -1)] and log.size_bytes == 0
    assert log.leader_epochs() == [(0, 0)] and log.end_offset_for_epoch(0) == (0, 0)
    assert log.read(0, 1000) == b"" and log.offset_for_timestamp(0) is None
    assert log.offset_of_max_timestamp() is None and log.producers() == []
    log.roll()
    log.truncate_to(0)
    log.set_log_start_offset(0)
    assert log.delete_old_segments(2**60) == [] and log.flush() == 0
    assert not log.flush_due(2**60, 0)


def test_the_first_append_creates_the_files(make: MakeLog, folder: Path) -> None:
    log = make()
    assert log.append(batch(3), leader_epoch=2) == (0, 2)
    assert sorted(os.listdir(folder)) == FIRST_FILES
    log.flush()
    log.close()
    again = open_log(folder)
    assert again.log_end_offset == 3 and again.leader_epochs() == [(2, 0)]


def test_unclean_log_with_one_append_is_recovered(make: MakeLog, folder: Path) -> None:
    log = make()
    log.append(batch(3), leader_epoch=0)
    log.close(clean=False)
    assert open_log(folder, clean=False).log_end_offset == 3


def test_a_closed_unwritten_log_opens_again(make: MakeLog, folder: Path) -> None:
    log = make()
    for clean in (True, False):
        log.close(clean=clean)
        assert os.listdir(folder) == []
        log = open_log(folder, clean=clean)
        log.leader_epoch = 3
        assert log.leader_epochs() == [(3, 0)]
    log.append(batch(), leader_epoch=3)
    assert sorted(os.listdir(folder)) == FIRST_FILES


def test_first_append_without_descriptor_can_be_repeated(make: MakeLog, folder: Path) -> None:
    log = make()
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.dup(0)
    os.close(lowest)
    for room in range(2):  # the .log takes one for good, each index one while it is created
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest + room, limit[1]))
        try:
            with pytest.raises(DiskError):
                log.append(batch(), leader_epoch=0)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limit)
        assert log.offline is None and log.log_end_offset == 0
    assert log.append(batch(), leader_epoch=0) == (0, 0)
    assert sorted(os.listdir(folder)) == FIRST_FILES


def test_first_append_into_missing_folder_takes_log_offline(
    make: MakeLog, folder: Path
) -> None:
    log = make()
    before = appends_without_room()
    folder.rmdir()
    with pytest.raises(DiskError):
        log.append(batch(), leader_epoch=0)
    assert log.offline_errno == errno.ENOENT and appends_without_room() == before


def test_a_log_that_begins_later_has_its_files_at_once(folder: Path) -> None:
    folder.mkdir()
    open_log(folder, log_start=7)
    assert sorted(os.listdir(folder)) == [name.replace("0.", "7.") for name in FIRST_FILES]


def test_indexes_without_a_log_are_dropped(folder: Path) -> None:
    folder.mkdir()
    for kind in ("index", "timeindex", "txnindex"):
        (folder / f"{0:020}.{kind}").write_bytes(b"\1" * 24)
    log = open_log(folder)
    assert os.listdir(folder) == []
    log.append(batch(2), leader_epoch=0)
    assert (folder / FIRST_FILES[0]).stat().st_size == 0 and len(read_all(log)) > 0


def test_a_deleted_unwritten_log_takes_no_append(make: MakeLog, folder: Path) -> None:
    log = make()
    log.mark_deleted()
    folder.rmdir()
    with pytest.raises(DiskError):
        log.append(batch(), leader_epoch=0)
    assert not folder.exists()


def test_an_unwritten_log_moves_to_another_directory(make: MakeLog, tmp_path: Path) -> None:
    log = make()
    target = tmp_path / "topic-0.future"
    target.mkdir()
    log_move.copy_segments(log, str(target), lambda _: None)
    assert os.listdir(target) == []
    future = open_log(target, clean=False)
    assert log_move.follow(log, future, 1 << 20) == 0
    log_move.freeze(log)
    assert log_move.match(log, future)
    log_move.thaw(log)
    log.append(batch(2), leader_epoch=0)
    assert log_move.follow(log, future, 1 << 20) > 0 and future.log_end_offset == 2
