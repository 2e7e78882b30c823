"""The bound of open segment files holds whatever opened them."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbroker.ext.cleaner import survey
from kbroker.ext.open_files import close_excess_files, limit_open_files, open_files
from tests.support.logs import batch, open_log
from tests.unit.test_cleaner import SETTINGS, START_MS, clean, keyed

MOST = 10


def segment_files(folder: Path) -> int:
    """The descriptors of this process for segment files below the folder."""
    count = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            path = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue
        count += path.startswith(str(folder)) and path.endswith(".log")
    return count


@pytest.fixture
def bound() -> Iterator[int]:
    """The count before, without what earlier tests left to the collector: it opened first, and
    would be closed first."""
    gc.collect()
    before = open_files()
    limit_open_files(before + MOST)
    yield before
    limit_open_files(None)


@pytest.mark.parametrize("is_clean", [True, False], ids=["clean start", "after a crash"])
def test_appends_after_a_start(tmp_path: Path, bound: int, is_clean: bool) -> None:
    paths = [tmp_path / f"t-{index}" for index in range(3 * MOST)]
    for path in paths:
        log = open_log(path)
        log.append(batch(1, 10, 1), leader_epoch=0)
        log.close()
    logs = [open_log(path, clean=is_clean) for path in paths]
    for log in logs:
        log.append(batch(1, 10, 1), leader_epoch=0)
        assert segment_files(tmp_path) == open_files() - bound <= MOST
    for log in logs:
        log.close()
    assert segment_files(tmp_path) == 0 == open_files() - bound


def test_files_above_the_bound_are_closed_when_they_are_not_used(
    tmp_path: Path, bound: int
) -> None:
    limit_open_files(None)
    logs = [open_log(tmp_path / f"t-{index}") for index in range(3 * MOST)]
    for log in logs:
        log.append(batch(1, 10, 1), leader_epoch=0)
    assert segment_files(tmp_path) == 3 * MOST
    limit_open_files(bound + MOST)
    close_excess_files()
    assert 0 < segment_files(tmp_path) == open_files() - bound <= MOST
    for log in logs:
        log.append(batch(1, 10, 1), leader_epoch=0)
        log.close()


def test_compaction_counts_what_it_opens(tmp_path: Path, bound: int) -> None:
    settings = SETTINGS | {"segment_bytes": 4000, "max_compaction_lag_ms": 1000}
    log = open_log(tmp_path / "t-0", **settings)
    for _ in range(4):
        for number in range(100):
            log.append(keyed((b"k%d" % (number % 7), b"v" * 50)), leader_epoch=0)
        log.roll()
        log.flush()
        clean(log, None, START_MS + 10**6)
        log.unlink_deleted(at_once=True)
        assert segment_files(tmp_path) == open_files() - bound
    log.close()
    assert segment_files(tmp_path) == 0 == open_files() - bound


def test_survey_for_compaction_leaves_files_as_they_were(tmp_path: Path, bound: int) -> None:
    log = open_log(tmp_path / "t-0", segment_bytes=300)
    for number in range(200):
        log.append(batch(1, 10, 1000 + number), leader_epoch=0)
    log.close()
    log = open_log(tmp_path / "t-0", segment_bytes=300, max_compaction_lag_ms=1000, **SETTINGS)
    before = open_files()
    survey(log, None, START_MS + 10**9)
    assert open_files() == before and segment_files(tmp_path) == before - bound
    log.close()
