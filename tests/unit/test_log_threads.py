"""One log, many threads: producers, readers and maintenance at once, in every order that comes."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from kbroker.errors import ClientError
from kbroker.ext import records, testing_log
from tests.support.logs import batch, open_log, read_all

APPENDS = 3000
PRODUCERS = 3
SETTINGS = {"segment_bytes": 50_000, "index_interval_bytes": 300}


class Crowd:
    """Threads whose first exception is the test's."""

    def __init__(self):
        self.threads, self.errors = [], []
        self.over = threading.Event()

    def start(self, work, *arguments):
        def run():
            try:
                work(*arguments)
            except BaseException as error:
                self.errors.append(error)
                self.over.set()

        self.threads.append(threading.Thread(target=run))
        self.threads[-1].start()
        return self.threads[-1]

    def join(self, first):
        for thread in first:
            thread.join()
        self.over.set()
        for thread in self.threads:
            thread.join()
        if self.errors:
            raise self.errors[0]


def produce(log, producer_id):
    """Every batch is taken once, and known again when it comes twice."""
    for i in range(APPENDS):
        data = batch(3, 40, i, producer_id=producer_id, producer_epoch=0, base_sequence=i * 3)
        code, base, last, *_ = testing_log.append(log, data, 0, 0)
        while code == 1:
            code, base, last, *_ = testing_log.append(log, data, 0, 0)
        assert code == 0
        if i % 50 == 0:
            assert testing_log.append(log, data, 0, 0)[:3] == (2, base, last)


def consume(log, crowd, from_start):
    """Offsets follow each other without a gap, from wherever the log begins."""
    at = 0 if from_start else log.high_watermark
    while not crowd.over.is_set() or at < log.high_watermark:
        try:
            piece = log.read(at, 20_000)
        except ClientError:
            at = max(at, log.log_start_offset)
            continue
        for one in records.batches(piece):
            assert one.base_offset <= at <= one.base_offset + one.last_offset_delta
            at = one.base_offset + one.last_offset_delta + 1


def maintain(log, crowd, trims):
    now = 0
    while not crowd.over.is_set():
        now += 1
        log.flush()
        log.let_go(now, 0)
        log.segments()
        log.offset_for_timestamp(now % APPENDS)
        log.offset_of_max_timestamp()
        if now % 7 == 0:
            log.roll()
        if trims and now % 5 == 0:
            log.set_log_start_offset(log.log_start_offset + (log.high_watermark // 50))
            log.delete_old_segments(0)
            log.unlink_deleted(at_once=True)


@pytest.mark.parametrize("journaled", [False, True])
@pytest.mark.parametrize("trims", [False, True])
def test_all_at_once(tmp_path: Path, journaled, trims):
    folder = tmp_path / "topic-0"
    log = open_log(folder, **SETTINGS)
    journal = None
    if journaled:
        journal = testing_log.TestLogJournal(str(tmp_path))
        journal.attach(log)
    crowd = Crowd()
    producers = [crowd.start(produce, log, i) for i in range(PRODUCERS)]
    crowd.start(consume, log, crowd, True)
    crowd.start(consume, log, crowd, False)
    crowd.start(maintain, log, crowd, trims)
    crowd.join(producers)
    if journal is not None:
        journal.stop()
    total = PRODUCERS * APPENDS * 3
    assert log.log_end_offset == log.high_watermark == total
    kept = records.batches(read_all(log))
    assert kept[-1].base_offset + 3 == total
    assert [p[:3] for p in log.producers()] == [(i, 0, APPENDS * 3 - 1) for i in range(PRODUCERS)]
    if not trims:
        assert len(kept) == PRODUCERS * APPENDS
    log.close()
    assert open_log(folder, clean=False, **SETTINGS).log_end_offset == total


def test_sync_of_a_segment_that_is_opened_meanwhile(tmp_path: Path) -> None:
    """Compaction opens and closes a segment under the lock of the log, a flush syncs it without:
    the flush neither syncs nor closes that descriptor, which may be another file's by then."""
    log = open_log(tmp_path, **SETTINGS)
    for i in range(3):
        assert testing_log.append(log, batch(3, 40, i), 0, 0)[0] == 0
        log.roll()
    assert testing_log.load_first(log, 0, 1) == 0
    crowd = Crowd()
    errors = []
    crowd.start(lambda: errors.append(testing_log.load_first(log, 0, 20_000)))
    crowd.start(lambda: errors.append(testing_log.sync_segment(log, 0, 20_000)))
    crowd.join([])
    assert errors == [0, 0]
    log.close()
