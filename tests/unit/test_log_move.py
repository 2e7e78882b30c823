"""What moves a log to another directory: the copy of its segments."""

from __future__ import annotations

import os
from pathlib import Path

from kbroker.ext import log_move
from kbroker.ext.log import Log
from tests.support.logs import batch, open_log

SEGMENTS = 40


def open_many(folder: Path) -> Log:
    """A log of many segments, and none of their files open."""
    folder.mkdir()
    made = open_log(folder, segment_bytes=1000)
    for _ in range(SEGMENTS):
        made.append(batch(size=900), leader_epoch=0)
    made.close(clean=True)
    return open_log(folder, segment_bytes=1000)


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.glob("*.log"))}


def test_one_file_of_a_log_is_open_at_a_time(tmp_path: Path) -> None:
    """A log may have more segments than a process may have files."""
    log, target = open_many(tmp_path / "topic-0"), tmp_path / "copy"
    target.mkdir()
    before = len(os.listdir("/proc/self/fd"))
    seen: set[int] = set()
    log_move.copy_segments(
        log, str(target), lambda _: seen.add(len(os.listdir("/proc/self/fd")) - before)
    )
    assert len(files(target)) == SEGMENTS and files(target) == files(tmp_path / "topic-0")
    assert seen == {2}  # the segment and its copy


def test_what_retention_takes_meanwhile_is_left_out(tmp_path: Path) -> None:
    log, target = open_many(tmp_path / "topic-0"), tmp_path / "copy"
    target.mkdir()
    kept = 10

    def once(_: int) -> None:
        if log.log_start_offset == 0:
            log.set_log_start_offset(SEGMENTS - kept)
            log.delete_old_segments(1 << 50)

    log_move.copy_segments(log, str(target), once)
    copied, there = files(target), files(tmp_path / "topic-0")
    assert len(there) == kept and there.items() <= copied.items()
    assert len(copied) == kept + 1  # the first one was copied before
