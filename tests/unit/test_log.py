"""A partition's log as its callers see it: append, read, roll, find, trim, retain."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from kbroker.errors import ClientError, DiskError, ErrorCode
from kbroker.ext import records, testing_log
from kbroker.ext.log_flush import sync_file_system
from tests.support.logs import CONFIG, batch, open_log, read_all
from tests.support.waits import wait_for

HW, LSO, LEO = 0, 1, 2
OUT_OF_RANGE = -4


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "topic-0"


def fill(log, batches, count=2, size=100, step=10):
    """Batches of `count` records; the timestamps of batch i begin at 1000 + i * step."""
    for i in range(batches):
        log.append(batch(count, size, 1000 + i * step), leader_epoch=0)


class TestAppend:
    def test_offsets_follow_each_other(self, folder):
        log = open_log(folder)
        assert log.append(batch(3), leader_epoch=0) == (0, 2)
        assert log.append(batch(1) + batch(2), leader_epoch=0) == (3, 5)
        assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (0, 6, 6)

    def test_offset_and_epoch_are_patched_in_and_the_crc_holds(self, folder):
        log = open_log(folder)
        log.append(batch(2), leader_epoch=7)
        log.append(batch(2), leader_epoch=8)
        found = records.batches(read_all(log))
        assert [(b.base_offset, b.leader_epoch) for b in found] == [(0, 7), (2, 8)]

    def test_log_append_time_replaces_timestamps(self, folder):
        log = open_log(folder, timestamp_type=1)
        code, base, last, appended, moved, _ = testing_log.append(log, batch(2), 0, 5_000)
        assert (code, base, last, appended, moved) == (0, 0, 1, 5_000, 1)
        (stored,) = records.batches(read_all(log))
        assert (stored.log_append_time, stored.max_timestamp) == (True, 5_000)

    def test_a_batch_larger_than_a_segment_is_refused(self, folder):
        log = open_log(folder, segment_bytes=200)
        with pytest.raises(ClientError) as refused:
            log.append(batch(1, 300), leader_epoch=0)
        assert refused.value.code == ErrorCode.RECORD_LIST_TOO_LARGE
        assert log.log_end_offset == 0

    def test_bytes_that_are_no_batch_are_refused_whole(self, folder):
        log = open_log(folder)
        good, bad = batch(1), bytearray(batch(1))
        bad[70] ^= 1
        with pytest.raises(ClientError):
            log.append(good + bytes(bad), leader_epoch=0)
        with pytest.raises(ClientError):
            log.append(good + good[:-1], leader_epoch=0)
        assert log.log_end_offset == 0

    def test_a_closed_log_says_so(self, folder):
        log = open_log(folder)
        log.close()
        with pytest.raises(DiskError, match="closed"):
            log.append(batch(), leader_epoch=0)
        with pytest.raises(DiskError, match="closed"):
            log.read(0, 100)

    def test_flush_messages_is_kept_before_the_answer(self, folder):
        log = open_log(folder, flush_messages=3)
        points = []
        for _ in range(7):
            log.append(batch(), leader_epoch=0)
            points.append(log.recovery_point)
        assert points == [0, 0, 3, 3, 3, 6, 6]


class TestRead:
    def test_begins_with_the_batch_that_holds_the_offset(self, folder):
        log = open_log(folder)
        fill(log, 50, count=4)
        for offset in range(200):
            first = records.batches(log.read(offset, 1000))[0]
            assert first.base_offset == offset // 4 * 4

    def test_a_slice_may_cut_its_last_batch_but_not_its_first(self, folder):
        log = open_log(folder)
        fill(log, 3)
        size = log.size_bytes // 3
        assert testing_log.read(log, 0, size + 5, HW, True)[:4] == (0, 0, 0, size + 5)
        assert testing_log.read(log, 2, 10, HW, True)[:4] == (0, 0, size, size)
        assert testing_log.read(log, 2, 10, HW, False)[:2] == (0, -1)
        assert testing_log.read(log, 4, 1 << 20, HW, False)[:4] == (0, 0, 2 * size, size)

    def test_goes_on_in_the_next_segment(self, folder):
        log = open_log(folder, segment_bytes=1000)
        fill(log, 30)
        assert len(log.segments()) > 3
        assert [b.base_offset for b in records.batches(read_all(log))] == list(range(0, 60, 2))

    def test_out_of_range(self, folder):
        log = open_log(folder)
        fill(log, 5)
        log.set_log_start_offset(4)
        assert testing_log.read(log, 3, 100, HW, True)[0] == OUT_OF_RANGE
        assert testing_log.read(log, 11, 100, HW, True)[0] == OUT_OF_RANGE
        assert testing_log.read(log, 10, 100, HW, True)[:2] == (0, -1)
        assert testing_log.read(log, 3, 100, HW, True)[4] == (4, 10, 10, 10)

    def test_offsets_within_a_trimmed_batch_give_the_batch(self, folder):
        log = open_log(folder)
        log.append(batch(5), leader_epoch=0)
        log.set_log_start_offset(3)
        assert records.batches(log.read(3, 100))[0].base_offset == 0

    def test_a_slice_outlives_the_segment(self, folder):
        log = open_log(folder, segment_bytes=500)
        fill(log, 20)
        log.set_log_start_offset(30)
        log.delete_old_segments(0)
        log.unlink_deleted(at_once=True)
        assert len(read_all(log)) > 0


class TestSegments:
    def test_roll_by_size_and_by_hand(self, folder):
        log = open_log(folder, segment_bytes=1000)
        fill(log, 10)
        sizes = [size for _, size, _ in log.segments()]
        assert all(size <= 1000 for size in sizes)
        before = len(sizes)
        log.roll()
        log.roll()
        assert [base for base, _, _ in log.segments()][-1] == 20
        assert len(log.segments()) == before + 1

    def test_roll_by_age_of_the_first_batch(self, folder):
        log = open_log(folder, segment_ms=100)
        log.append(batch(timestamp=1000), leader_epoch=0)
        log.append(batch(timestamp=1100), leader_epoch=0)
        log.append(batch(timestamp=1101), leader_epoch=0)
        assert [base for base, _, _ in log.segments()] == [0, 2]

    def test_age_is_known_after_a_restart(self, folder):
        log = open_log(folder, segment_ms=100)
        log.append(batch(timestamp=1000), leader_epoch=0)
        log.close()
        log = open_log(folder, segment_ms=100)
        log.append(batch(timestamp=1101), leader_epoch=0)
        assert [base for base, _, _ in log.segments()] == [0, 1]

    def test_roll_by_age_of_the_file_whatever_the_timestamps(self, folder):
        log = open_log(folder, segment_age_ms=10**7)
        for day in range(3):
            log.append(batch(timestamp=day * 86_400_000), leader_epoch=0)
        assert len(log.segments()) == 1
        log.configure(CONFIG | {"segment_age_ms": 10})

        def rolled():
            log.append(batch(timestamp=1000), leader_epoch=0)
            return len(log.segments()) > 1

        wait_for("a roll", rolled, 20, 0.005)
        log.configure(CONFIG)
        count = len(log.segments())
        log.append(batch(timestamp=1000), leader_epoch=0)
        assert len(log.segments()) == count

    @pytest.mark.parametrize("clean", [True, False])
    @pytest.mark.parametrize(("age_ms", "segments"), [(120_000, 2), (10_000, 1), (-120_000, 1)])
    def test_the_age_of_the_file_does_not_begin_anew_with_a_start(
        self, folder, clean, age_ms, segments
    ):
        """Else a broker that is often started would close none."""
        log = open_log(folder, segment_age_ms=60_000)
        log.append(batch(timestamp=time.time_ns() // 10**6 - age_ms), leader_epoch=0)
        log.close(clean)
        log = open_log(folder, clean=clean, segment_age_ms=60_000)
        for _ in range(3):
            log.append(batch(timestamp=1000), leader_epoch=0)
        assert len(log.segments()) == segments

    def test_partitions_do_not_roll_for_their_age_at_once(self, folder):
        """Those that a start finds old enough would, at their first append."""
        jitter = {"segment_age_ms": 1_000_000, "segment_jitter_ms": 400_000}
        log = open_log(folder, **jitter)
        log.append(batch(timestamp=time.time_ns() // 10**6 - 800_000), leader_epoch=0)
        for _ in range(60):
            log.close()
            log = open_log(folder, **jitter)
            log.append(batch(timestamp=1000), leader_epoch=0)
            if len(log.segments()) > 1:
                break
        assert len(log.segments()) == 2

    def test_jitter_is_taken_off(self, folder):
        log = open_log(folder, segment_ms=1_000_000, segment_jitter_ms=900_000)
        for _ in range(40):
            log.append(batch(timestamp=1000), leader_epoch=0)
            log.append(batch(timestamp=1000 + 999_999), leader_epoch=0)
            if len(log.segments()) > 1:
                break
            log.roll()
        assert len(log.segments()) > 1

    def test_roll_when_an_index_is_full(self, folder):
        log = open_log(folder, index_interval_bytes=1, segment_index_bytes=48)
        fill(log, 20)
        for base, _, _ in log.segments()[:-1]:
            assert (folder / f"{base:020}.index").stat().st_size <= 48
            assert (folder / f"{base:020}.timeindex").stat().st_size <= 48
        assert len(log.segments()) > 2

    def test_indexes_exist_where_kafka_looks_for_them(self, folder):
        log = open_log(folder)
        log.append(batch(2), leader_epoch=0)
        for offset in (0, 2):
            stem = folder / f"{offset:020}"
            assert stem.with_suffix(".index").stat().st_size == 0
            assert stem.with_suffix(".timeindex").stat().st_size == 0
            log.roll()
            log.append(batch(2), leader_epoch=0)
        log.close()
        assert stem.with_suffix(".timeindex").stat().st_size == 12

    def test_many_are_closed_with_one_sync(self, tmp_path):
        logs = [open_log(tmp_path / f"topic-{i}", index_interval_bytes=50) for i in range(3)]
        for log in logs:
            fill(log, 20)
            log.close(sync=False)
        sync_file_system(str(tmp_path))
        for i in range(3):
            log = open_log(tmp_path / f"topic-{i}")
            assert (log.log_end_offset, log.leader_epochs()) == (40, [(0, 0)])
        with pytest.raises(DiskError):
            sync_file_system(str(tmp_path / "nowhere"))

    def test_prepared_blocks_are_given_back(self, folder):
        log = open_log(folder)
        fill(log, 200, count=1, size=10_000)
        path = folder / ("0" * 20 + ".log")
        assert path.stat().st_size == log.size_bytes
        assert path.stat().st_blocks * 512 > log.size_bytes + 65536
        log.close()
        assert path.stat().st_blocks * 512 < log.segments()[0][1] + 65536

    def test_let_go_closes_files_and_everything_still_works(self, folder):
        log = open_log(folder, segment_bytes=20_000, index_interval_bytes=100)
        fill(log, 200)
        held = count_descriptors(folder)
        assert held > 1
        log.flush()
        log.let_go(10_000, 5_000)
        assert log.let_go(20_000, 5_000) == len(log.segments())
        assert count_descriptors(folder) == 0
        assert len(records.batches(read_all(log))) == 200
        fill(log, 1)
        assert log.log_end_offset == 402


def count_descriptors(folder):
    links = (os.path.join("/proc/self/fd", fd) for fd in os.listdir("/proc/self/fd"))
    return sum(os.readlink(link).startswith(str(folder)) for link in links if os.path.islink(link))


class TestFind:
    def test_by_time(self, folder):
        log = open_log(folder, segment_bytes=3000, index_interval_bytes=200)
        fill(log, 100, count=2, step=10)
        assert log.offset_for_timestamp(0) == (0, 1000, 0)
        assert log.offset_for_timestamp(1001) == (1, 1001, 0)
        assert log.offset_for_timestamp(1002) == (2, 1010, 0)
        assert log.offset_for_timestamp(1990) == (198, 1990, 0)
        assert log.offset_for_timestamp(1991) == (199, 1991, 0)
        assert log.offset_for_timestamp(1992) is None

    def test_by_time_from_log_start(self, folder):
        log = open_log(folder)
        fill(log, 10)
        log.set_log_start_offset(5)
        assert log.offset_for_timestamp(0) == (5, 1021, 0)

    def test_by_time_behind_what_was_deleted(self, folder):
        """Of segments that are still there: all of one, and of another what reaches the time."""
        log = open_log(folder)
        for at in (900, 500, 100, 600):
            if at != 100:
                log.roll()
            log.append(batch(1, 100, at), leader_epoch=0)
        assert [log.offset_for_timestamp(at) for at in (800, 400)] == [(0, 900, 0)] * 2
        log.set_log_start_offset(1)
        assert log.offset_for_timestamp(400) == (1, 500, 0)
        log.set_log_start_offset(2)
        assert log.offset_for_timestamp(400) == (3, 600, 0)
        assert log.offset_for_timestamp(100) == (2, 100, 0)
        assert log.offset_for_timestamp(700) is None

    @pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
    def test_by_time_within_a_compressed_batch(self, folder, codec):
        log = open_log(folder)
        log.append(batch(10, 100, 1000, codec=codec), leader_epoch=3)
        assert log.offset_for_timestamp(1004) == (4, 1004, 3)
        assert log.offset_of_max_timestamp() == (9, 1009, 3)

    def test_largest_timestamp_is_the_first_of_its_kind(self, folder):
        log = open_log(folder, segment_bytes=400)
        for timestamp in (5, 9, 7, 9, 3):
            log.append(batch(1, 100, timestamp), leader_epoch=0)
        assert log.offset_of_max_timestamp() == (1, 9, 0)
        assert open_log(folder.parent / "empty-0").offset_of_max_timestamp() is None

    def test_leader_epochs(self, folder):
        log = open_log(folder)
        for epoch, count in ((2, 3), (5, 2), (6, 1)):
            log.append(batch(count), leader_epoch=epoch)
        assert log.leader_epochs() == [(2, 0), (5, 3), (6, 5)]
        asked = {epoch: log.end_offset_for_epoch(epoch) for epoch in range(-1, 8)}
        assert asked == {
            -1: (-1, -1),
            0: (0, 0),
            1: (1, 0),
            2: (2, 3),
            3: (2, 3),
            4: (2, 3),
            5: (5, 5),
            6: (6, 6),
            7: (-1, -1),
        }
        log.close()
        assert (folder / "leader-epoch-checkpoint").read_text() == "0\n3\n2 0\n5 3\n6 5\n"
        assert open_log(folder).leader_epochs() == [(2, 0), (5, 3), (6, 5)]


class TestTrim:
    def test_log_start_moves_up_only_and_not_beyond_hw(self, folder):
        log = open_log(folder)
        fill(log, 5)
        log.set_log_start_offset(6)
        log.set_log_start_offset(2)
        assert log.log_start_offset == 6
        with pytest.raises(ClientError) as refused:
            log.set_log_start_offset(11)
        assert refused.value.code == ErrorCode.OFFSET_OUT_OF_RANGE

    def test_segments_below_log_start_go(self, folder):
        log = open_log(folder, segment_bytes=1000)
        fill(log, 30)
        bases = [base for base, _, _ in log.segments()]
        log.set_log_start_offset(bases[2] + 1)
        assert log.delete_old_segments(time.time_ns() // 1_000_000) == bases[:2]
        assert (folder / f"{bases[0]:020}.log.deleted").exists()
        assert not (folder / f"{bases[0]:020}.log").exists()
        assert log.unlink_deleted() == 0
        assert log.unlink_deleted(at_once=True) == 2
        assert not list(folder.glob("*.deleted"))

    def test_log_start_beyond_what_is_left_begins_anew(self, folder):
        log = open_log(folder)
        fill(log, 3)
        log.close()
        log = open_log(folder, log_start=100)
        assert (log.log_start_offset, log.log_end_offset) == (100, 100)
        assert log.append(batch(), leader_epoch=0) == (100, 100)


class TestRetention:
    def test_by_age(self, folder):
        log = open_log(folder, segment_bytes=1000, retention_ms=100)
        fill(log, 30, step=10)
        ages = log.segments()
        now = ages[2][2] + 101
        assert log.delete_old_segments(now) == [base for base, _, _ in ages[:3]]
        assert log.log_start_offset == ages[3][0]

    def test_all_of_it_leaves_an_empty_segment(self, folder):
        log = open_log(folder, retention_ms=100)
        fill(log, 3)
        assert log.delete_old_segments(1 << 40) == [0]
        assert [(base, size) for base, size, _ in log.segments()] == [(6, 0)]
        assert (log.log_start_offset, log.log_end_offset) == (6, 6)
        assert log.delete_old_segments(1 << 40) == []

    def test_by_size_keeps_at_least_the_bytes_asked_for(self, folder):
        log = open_log(folder, segment_bytes=1000)
        fill(log, 30)
        log.configure(CONFIG | {"segment_bytes": 1000, "retention_bytes": 2500})
        log.delete_old_segments(0)
        assert 2500 <= log.size_bytes < 3500

    def test_no_cleanup_policy_deletes_nothing_but_what_was_trimmed(self, folder):
        log = open_log(folder, segment_bytes=1000, retention_ms=0, cleanup_delete=0)
        fill(log, 30)
        assert log.delete_old_segments(1 << 40) == []
        log.set_log_start_offset(20)
        assert log.delete_old_segments(1 << 40) != []


class TestTruncate:
    @pytest.mark.parametrize("offset", [0, 1, 7, 20, 33, 58, 59, 60, 70])
    def test_drops_batches_from_the_offset_on(self, folder, offset):
        log = open_log(folder, segment_bytes=1000, index_interval_bytes=150)
        fill(log, 30)
        before = records.batches(read_all(log))
        log.truncate_to(offset)
        kept = [b for b in before if b.base_offset + b.last_offset_delta < offset]
        assert len(records.batches(read_all(log))) == len(kept)
        assert log.log_end_offset == log.high_watermark == min(offset, 60)
        assert log.append(batch(), leader_epoch=1) == (min(offset, 60), min(offset, 60))
        log.close()
        assert open_log(folder, segment_bytes=1000).log_end_offset == min(offset, 60) + 1


class TestHighWatermark:
    @pytest.fixture
    def journal(self, tmp_path):
        """A journal that makes nothing durable: the test says what is."""
        journal = testing_log.TestLogJournal(str(tmp_path), started=False)
        yield journal
        journal.stop()

    def test_readers_stop_at_what_is_durable(self, folder, journal):
        log = open_log(folder, segment_bytes=1000)
        journal.attach(log)
        fill(log, 20)
        assert (log.high_watermark, log.log_end_offset) == (0, 40)
        assert log.read(0, 100) == b""
        assert testing_log.read(log, 40, 100, HW, True)[:2] == (0, -1)
        for end in (2, 6, 22, 40):
            assert testing_log.advance_hw(log, end) == 1
            assert log.high_watermark == log.last_stable_offset == end
            assert [b.base_offset for b in records.batches(read_all(log))] == [*range(0, end, 2)]
        assert len(records.batches(log.read(38, 1000, up_to="log_end_offset"))) == 1

    def test_hw_never_goes_back_or_beyond_the_end(self, folder, journal):
        log = open_log(folder)
        journal.attach(log)
        fill(log, 3)
        assert testing_log.advance_hw(log, 4) == 1
        assert testing_log.advance_hw(log, 4) == 0
        assert testing_log.advance_hw(log, 2) == 0
        assert testing_log.advance_hw(log, 7) == 0
        assert log.high_watermark == 4

    def test_more_appends_in_flight_than_ends_are_noted(self, folder, journal):
        """Then the position of hw is searched for."""
        log = open_log(folder, segment_bytes=100_000)
        journal.attach(log)
        fill(log, 5000, count=1, size=1)
        for end in (1, 3000, 4095, 4096, 4500, 4999, 5000):
            assert testing_log.advance_hw(log, end) == 1
            first = records.batches(log.read(end - 1, 1))[0]
            assert first.base_offset == end - 1
            assert log.read(end, 100) == b""

    def test_retention_leaves_what_is_not_durable(self, folder, journal):
        log = open_log(folder, segment_bytes=1000, retention_ms=0)
        journal.attach(log)
        fill(log, 30)
        assert log.delete_old_segments(1 << 40) == []
        testing_log.advance_hw(log, 20)
        log.delete_old_segments(1 << 40)
        assert log.log_start_offset <= 20 < log.log_end_offset

    def test_a_flusher_moves_it(self, folder, tmp_path):
        log = open_log(folder, segment_bytes=2000)
        journal = testing_log.TestLogJournal(str(tmp_path))
        journal.attach(log)
        fill(log, 100)
        journal.stop()
        assert log.high_watermark == 200
        assert len(records.batches(read_all(log))) == 100

    def test_a_journal_without_room_stalls_without_a_trace(self, folder, tmp_path):
        log = open_log(folder)
        journal = testing_log.TestLogJournal(str(tmp_path), started=False, group_bytes=65536)
        journal.attach(log)
        stall = 1
        codes = [testing_log.append(log, batch(1, 10_000), 0, 0)[0] for _ in range(20)]
        taken = codes.index(stall)
        assert set(codes[taken:]) == {stall}
        assert log.log_end_offset == taken
        assert log.size_bytes == taken * len(batch(1, 10_000))
        journal.stop()
