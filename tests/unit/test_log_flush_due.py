"""When a log on disk asks for a flush: flush.messages, flush.ms, a rolled segment, or silence."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from kbroker.ext import testing_log
from kbroker.ext.log import Log
from tests.support.logs import FOREVER, batch, open_log

FLUSH_MS = 60_000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "topic-0"


def now_ms() -> int:
    return int(time.time() * 1000)


def is_due(log: Log, at_ms: int) -> bool:
    """Whether a flush is due, however long the log has been silent."""
    return log.flush_due(at_ms, FOREVER)


def test_flush_ms_counts_from_the_last_flush(folder):
    """The flush reads the clock itself, somewhere between the two readings here."""
    log = open_log(folder, flush_ms=FLUSH_MS)
    log.append(batch(), leader_epoch=0)
    before = now_ms()
    log.flush()
    after = now_ms()
    assert not is_due(log, after + FLUSH_MS), "nothing was appended since"
    log.append(batch(), leader_epoch=0)
    assert not is_due(log, before + FLUSH_MS - 1)
    assert is_due(log, after + FLUSH_MS)


def test_flush_ms_counts_from_the_start_before_the_first_flush(folder):
    before = now_ms()
    log = open_log(folder, flush_ms=FLUSH_MS)
    after = now_ms()
    log.append(batch(), leader_epoch=0)
    assert not is_due(log, before + FLUSH_MS - 1)
    assert is_due(log, after + FLUSH_MS)


def test_flush_messages_of_a_log_whose_appends_go_through_a_journal(folder, tmp_path):
    """Its appends are durable without: the flush that is due is upkeep's."""
    log = open_log(folder, flush_messages=3)
    journal = testing_log.TestLogJournal(str(tmp_path), started=False)
    journal.attach(log)
    due = []
    for _ in range(4):
        log.append(batch(), leader_epoch=0)
        due.append(is_due(log, now_ms()))
    assert due == [False, False, True, True]
    assert log.recovery_point == 0
    log.flush()
    assert not is_due(log, now_ms())
    journal.stop()


def test_a_rolled_segment_is_flushed_at_once(folder):
    log = open_log(folder)
    log.append(batch(), leader_epoch=0)
    assert not is_due(log, now_ms())
    log.roll()
    assert is_due(log, now_ms())
    log.flush()
    assert not is_due(log, now_ms())


def test_a_log_without_appends_for_a_while_is_flushed(folder):
    log = open_log(folder)
    testing_log.append(log, batch(), 0, 5_000)
    assert not log.flush_due(5_000 + 299, 300)
    assert log.flush_due(5_000 + 300, 300)
    log.flush()
    assert not log.flush_due(5_000 + 300, 300)


def test_a_closed_log_asks_for_nothing(folder):
    log = open_log(folder, flush_ms=0)
    log.append(batch(), leader_epoch=0)
    assert is_due(log, now_ms())
    log.close()
    assert not is_due(log, now_ms())
