"""Which log is cleaned next, what is remembered of it, and what happens when it cannot be."""

from __future__ import annotations

import logging
import os
import resource
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kbroker.clock import FakeClock
from kbroker.config import BrokerConfig
from kbroker.ext import records
from kbroker.ext.log import Log
from kbroker.files import read_offset_checkpoint, write_offset_checkpoint
from kbroker.storage.checkpoints import CLEANER_OFFSETS
from kbroker.storage.cleaner import CleanerSettings, LogCleaner
from kbroker.storage.manager import LogManager, PartitionSpec
from tests.support.logs import CONFIG
from tests.support.partitions import created, deleted
from tests.support.waits import wait_for

COMPACT = {"cleanup_compact": 1, "cleanup_delete": 0}
NOW_MS = 1_700_000_000_000


class Room:
    """A directory with logs and a cleaner of its own; no threads unless it is started."""

    def __init__(self, directory, **settings):
        self.directory = directory
        self.clock = FakeClock(NOW_MS)
        self.config = BrokerConfig({"log.dirs": str(directory), "log.cleaner.backoff.ms": "50"}
                                   | settings)  # fmt: skip
        self.logs = LogManager(directory, open_one)
        self.logs.start([])
        self.cleaner = self.logs.cleaner = LogCleaner(self.config, self.logs, self.clock)

    def add(self, name, dirty=4, **settings):
        """A log of one partition with closed segments that hold one key again and again."""
        config = CONFIG | COMPACT | settings
        (log,) = created(self.logs, [PartitionSpec(name, os.urandom(16), 0, config)])
        self.dirty(log, dirty)
        return log

    def dirty(self, log, batches):
        for _ in range(batches):
            row = (NOW_MS, b"key", b"v" * 100)
            log.append(records.build([row]), leader_epoch=0)
        log.roll()

    def once(self):
        """The name of the topic that was cleaned, or None."""
        work = self.cleaner.take()
        if work is None:
            return None
        return work.key[0] if self.cleaner.clean(self.cleaner.new_cleaner(), work) else None

    def checkpoint(self):
        return read_offset_checkpoint(self.directory / CLEANER_OFFSETS)


def times_waited(thread):
    """How often it gave its processor up by itself."""
    lines = Path(f"/proc/self/task/{thread.native_id}/status").read_text().splitlines()
    return next(int(one.split()[1]) for one in lines if one.startswith("voluntary_"))


def open_one(opening):
    spec = opening.spec
    return Log(
        opening.directory, spec.topic, spec.topic_id, spec.partition, spec.config,
        log_start_offset=opening.log_start_offset, recovery_point=opening.recovery_point,
        clean=opening.clean, durable=False,
    )  # fmt: skip


@pytest.fixture
def room(tmp_path):
    made = Room(tmp_path)
    yield made
    made.cleaner.stop()
    vars(made).clear()  # pytest keeps the room; logs are counted when the test is over


class TestWhichIsNext:
    def test_the_dirtiest_first_and_none_below_its_ratio(self, room):
        room.add("small", 2)
        half = room.add("half", 4)
        assert [room.once(), room.once(), room.once()] == ["small", "half", None]
        room.add("plain", cleanup_compact=0)
        # One record is clean; as large a dirty part is no more than half.
        room.dirty(half, 1)
        assert room.once() is None
        room.dirty(half, 1)
        room.add("dirtier", 1)
        assert [room.once(), room.once(), room.once()] == ["dirtier", "half", None]

    def test_max_lag_comes_before_the_ratio(self, room):
        log = room.add("a", 20, max_compaction_lag_ms=1000, min_cleanable_ppb=1_000_000_000)
        assert room.once() is None
        room.clock.advance(1001)
        assert room.once() == "a"
        assert log.log_end_offset == 20

    def test_what_is_taken_is_nobody_elses(self, room):
        room.add("a")
        work = room.cleaner.take()
        assert work.key == ("a", 0)
        assert room.cleaner.take() is None
        room.cleaner.clean(room.cleaner.new_cleaner(), work)
        done = room.cleaner.cleanings
        assert done.runs == 1 and done.read_bytes > done.written_bytes > 0
        room.dirty(room.logs.get("a", 0), 9)
        assert room.cleaner.take().key == ("a", 0)

    def test_retention_of_compacted_logs(self, room):
        log = room.add("a", cleanup_delete=1, retention_ms=1000, file_delete_delay_ms=0)
        room.clock.advance(2000)
        room.cleaner.run_once(room.cleaner.new_cleaner())
        assert log.log_start_offset == 4
        assert not list((room.directory / "a-0").glob(f"{0:020}.*"))


class TestCheckpoint:
    def test_is_kafkas_and_read_at_the_next_start(self, room):
        room.add("a", 5)
        room.once()
        assert room.checkpoint() == {("a", 0): 5}
        assert (room.directory / CLEANER_OFFSETS).read_text() == "0\n1\na 0 5\n"
        again = LogCleaner(room.config, room.logs, room.clock)
        again.start()
        again.stop()
        assert again.take() is None

    def test_a_deleted_topic_is_forgotten(self, room):
        room.add("a")
        room.add("b")
        room.once()
        room.once()
        deleted(room.logs, "a", [0], 0)
        assert room.checkpoint() == {("b", 0): 4}

    def test_a_disk_that_hangs_holds_up_no_other_and_no_order(self, room, monkeypatch):
        """A topic is deleted while a write of the checkpoint, with it, hangs."""
        room.add("a", 8)
        room.add("b", 4)
        hangs, goes_on, written = threading.Event(), threading.Event(), []

        def write(path, offsets):
            if not hangs.is_set():
                hangs.set()
                assert goes_on.wait(30)
            written.append(sorted(offsets))
            write_offset_checkpoint(path, offsets)

        monkeypatch.setattr("kbroker.storage.log_directory.write_offsets", write)
        with ThreadPoolExecutor(2) as pool:
            try:
                cleaned = pool.submit(room.once)
                assert hangs.wait(30)
                deletion = pool.submit(deleted, room.logs, "a", [0], 0)
                wait_for("a forgotten", lambda: not room.cleaner._checkpoint, 30)
                work = room.cleaner.take()
                assert work.key == ("b", 0) and not written and not deletion.done()
            finally:
                goes_on.set()
            assert cleaned.result(30) == "a" and len(deletion.result(30)) == 1
        assert written == [[("a", 0)], []]
        assert room.checkpoint() == {}

    def test_one_beyond_the_log_begins_anew(self, room):
        room.add("a")
        write_offset_checkpoint(room.directory / CLEANER_OFFSETS, {("a", 0): 99, ("b", 0): 1})
        room.cleaner.start()
        room.cleaner.stop()
        assert room.once() in {"a", None}
        assert room.checkpoint() == {("a", 0): 4}

    def test_a_broken_one_is_passed_over(self, room):
        (room.directory / CLEANER_OFFSETS).write_text("?")
        room.cleaner.start()
        room.cleaner.stop()


class TestFailures:
    def test_a_full_disk_is_told_once_and_tried_again(self, room, caplog):
        log = room.add("a", 50)
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (10, before[1]))
        try:
            assert room.once() is None
            assert room.cleaner.take() is None
            for _ in range(3):
                room.clock.advance(300_000)
                assert room.once() is None
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert log.offline is None
        assert not list((room.directory / "a-0").glob("*.cleaned"))
        told = [one for one in caplog.records if one.levelno >= logging.ERROR]
        assert len(told) == 1 and "tried again later" in told[0].getMessage()
        told.clear()
        caplog.clear()  # the errors told hold on to frames, and those to logs
        room.clock.advance(300_000)
        assert room.once() == "a"

    def test_a_damaged_log_is_left_alone(self, room, caplog):
        room.add("a")
        path = room.directory / "a-0" / f"{0:020}.log"
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        path.write_bytes(data)
        room.add("b", 1)
        assert [room.once(), room.once(), room.once()].count("b") == 1
        assert room.cleaner.take() is None
        assert sum("not compacted any more" in one.getMessage() for one in caplog.records) == 1
        caplog.clear()  # as above
        # A new topic of the name is cleaned again.
        deleted(room.logs, "a", [0], 0)
        room.add("a")
        assert room.once() == "a"

    def test_a_topic_that_is_deleted_meanwhile(self, room):
        room.add("a")
        work = room.cleaner.take()
        deleted(room.logs, "a", [0], 0)
        new = room.add("a", 6)
        assert room.cleaner.take() is None
        assert not room.cleaner.clean(room.cleaner.new_cleaner(), work)
        assert new.log_end_offset == 6
        assert room.once() == "a"
        assert room.checkpoint() == {("a", 0): 6}


class TestThreads:
    def test_clean_in_the_background_and_stop(self, room):
        for name in "abcdef":
            room.add(name)
        room.cleaner.start()
        try:
            wait_for("all logs cleaned", lambda: len(room.checkpoint()) == 6, 10)
        finally:
            room.cleaner.stop()

    def test_settings_change_while_they_run(self, room):
        room.cleaner.start()
        try:
            room.config.set_dynamic({}, {"log.cleaner.threads": "3",
                                         "log.cleaner.io.buffer.load.factor": "0.5",
                                         "log.cleaner.io.max.bytes.per.second": "1e6"})  # fmt: skip
            room.cleaner.reconfigure()
            assert CleanerSettings.of(room.config).bytes_per_second == 1e6
            room.add("a")
            wait_for("the log cleaned", lambda: room.checkpoint() == {("a", 0): 4}, 10)
        finally:
            room.cleaner.stop()

    def test_a_stored_zero_is_told_and_taken_as_one(self, room, caplog):
        """As an earlier version let it become."""
        room.config.set_dynamic({"log.cleaner.threads": "0"}, {})
        room.cleaner = LogCleaner(room.config, room.logs, room.clock)
        room.cleaner.start()
        room.add("a")
        wait_for("the log cleaned", lambda: room.checkpoint() == {("a", 0): 4}, 10)
        assert "log.cleaner.threads=0" in caplog.text and len(room.cleaner._workers) == 1

    def test_a_rate_that_is_raised_holds_for_a_cleaning_that_waits(self, room):
        """It would wait for hours at the old rate, and the next one for what it has taken."""
        writes = threading.Event()
        rate = "log.cleaner.io.max.bytes.per.second"

        def slow_down(*_):
            if writes.is_set():
                return
            room.config.set_dynamic({}, {rate: "10"})
            room.cleaner.reconfigure()
            writes.set()

        room.cleaner = LogCleaner(room.config, room.logs, room.clock, slow_down)
        room.add("a", 500)
        room.cleaner.start()
        assert writes.wait(10)
        (worker,) = room.cleaner._workers
        before = times_waited(worker)
        wait_for("naps", lambda: times_waited(worker) > before + 20, 10)
        assert room.checkpoint() == {}
        room.config.set_dynamic({}, {rate: "1e9"})
        room.cleaner.reconfigure()
        wait_for("the log cleaned", lambda: room.checkpoint() == {("a", 0): 500}, 10)
        room.add("b")
        wait_for("the next", lambda: ("b", 0) in room.checkpoint(), 10)

    def test_a_throttled_cleaning_ends_when_it_is_told_to(self, tmp_path):
        room = Room(tmp_path, **{"log.cleaner.io.max.bytes.per.second": "10"})
        room.add("a", 5000)
        room.cleaner.start()
        wait_for("the log taken", lambda: room.cleaner._busy, 10)
        room.cleaner.stop()
        assert room.checkpoint() == {}

    def test_disabled_it_does_nothing(self, tmp_path):
        room = Room(tmp_path, **{"log.cleaner.enable": "false"})
        room.add("a")
        room.cleaner.start()
        room.cleaner.stop()
        assert room.checkpoint() == {}


def test_the_rate_holds_on_average(tmp_path):
    """100 KB read twice and 1 KB written at 400 KB/s, of which the first 0.3 s are granted."""
    room = Room(tmp_path, **{"log.cleaner.io.max.bytes.per.second": "400000"})
    room.add("a", 0, segment_bytes=50_000)
    log = room.logs.get("a", 0)
    room.dirty(log, 600)
    size = log.size_bytes
    began = os.times().elapsed
    assert room.once() == "a"
    took = os.times().elapsed - began
    assert took >= 2 * size / 400_000 - 0.35
