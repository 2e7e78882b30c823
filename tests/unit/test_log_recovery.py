"""A log after a crash: whatever lies in its folder, what comes back is whole and in order."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbroker.ext import records, testing_log
from tests.reference.log import decode_offset_index, decode_time_index
from tests.support.logs import batch, marker, open_log, read_all

SMALL = {"segment_bytes": 2000, "index_interval_bytes": 200}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "topic-0"


def log_file(folder, base=0):
    return folder / f"{base:020}.log"


def filled(folder, batches=20, **settings):
    """A log with batches of one to three records, closed as a crash leaves it: their bytes."""
    log = open_log(folder, **settings)
    for i in range(batches):
        log.append(batch(1 + i % 3, 10 + i, 1000 + i), leader_epoch=i // 8)
    written = read_all(log)
    log.close(clean=False)
    return written


def indexes(folder):
    names = sorted(p for p in folder.iterdir() if p.suffix in (".index", ".timeindex"))
    return {p.name: p.read_bytes() for p in names if p.read_bytes()}


class TestTornTail:
    def test_cut_at_every_byte_of_the_last_batches(self, folder, tmp_path):
        written = filled(folder, 12)
        ends = [b.position + b.length for b in records.batches(written)]
        for size in range(ends[-4], len(written) + 1):
            copy = tmp_path / "copy-0"
            shutil.copytree(folder, copy)
            os.truncate(log_file(copy), size)
            log = open_log(copy, clean=False)
            whole = max((end for end in ends if end <= size), default=0)
            assert read_all(log) == written[:whole]
            assert log_file(copy).stat().st_size == whole
            assert log.recovery["bytes_cut"] == size - whole
            log.append(batch(), leader_epoch=5)
            del log
            shutil.rmtree(copy)

    @settings(max_examples=60, deadline=None)
    @given(tail=st.binary(min_size=1, max_size=300))
    def test_garbage_behind_the_end(self, tmp_path_factory, tail):
        folder = tmp_path_factory.mktemp("garbage") / "topic-0"
        written = filled(folder, 5)
        with log_file(folder).open("ab") as file:
            file.write(tail)
        log = open_log(folder, clean=False)
        assert read_all(log) == written
        log.close()
        shutil.rmtree(folder.parent)

    @pytest.mark.parametrize("size", [1, 60, 61, 4096, 100_000])
    def test_zeros_behind_the_end(self, folder, size):
        written = filled(folder)
        with log_file(folder).open("ab") as file:
            file.write(bytes(size))
        log = open_log(folder, clean=False)
        assert read_all(log) == written
        assert log.recovery["bytes_cut"] == size

    @settings(max_examples=60, deadline=None)
    @given(data=st.data())
    def test_a_flipped_bit_cuts_there(self, tmp_path_factory, data):
        folder = tmp_path_factory.mktemp("flip") / "topic-0"
        written = bytearray(filled(folder, 8))
        at = data.draw(st.integers(0, len(written) - 1))
        ends = [b.position + b.length for b in records.batches(bytes(written))]
        damaged = next(i for i, end in enumerate(ends) if at < end)
        start = ([0, *ends])[damaged]
        # Base offset and leader epoch are not covered by the CRC: offsets must ascend, an epoch
        # is taken as it is.
        if 12 <= at - start < 16 or at - start < 8:
            return
        written[at] ^= 1 << data.draw(st.integers(0, 7))
        log_file(folder).write_bytes(written)
        log = open_log(folder, clean=False)
        assert read_all(log) == written[:start]
        shutil.rmtree(folder.parent)

    def test_holes_where_pages_did_not_reach_the_disk(self, folder):
        written = filled(folder, 60, segment_bytes=1 << 20)
        hole = bytearray(written)
        hole[4096:8192] = bytes(len(hole[4096:8192]))
        log_file(folder).write_bytes(hole)
        log = open_log(folder, clean=False)
        kept = read_all(log)
        assert len(kept) <= 4096
        assert written.startswith(kept)


class TestOldBytes:
    def test_an_old_batch_exactly_where_the_next_would_begin(self, folder):
        """Its CRC is good, its offset is not: it was written before."""
        written = filled(folder, 10)
        first = records.batches(written)[0]
        for old in (first, records.batches(written)[-1]):
            log_file(folder).write_bytes(
                written + written[old.position : old.position + old.length]
            )
            log = open_log(folder, clean=False)
            assert read_all(log) == written
            log.close(clean=False)

    def test_what_is_truncated_cannot_come_back(self, folder):
        """The file gives its blocks back: growing it again shows zeros, never the old batches."""
        log = open_log(folder)
        for i in range(100):
            log.append(batch(1, 2000, i), leader_epoch=0)
        log.truncate_to(50)
        size = log.size_bytes
        log.close(clean=False)
        os.truncate(log_file(folder), size + 200_000)
        assert not any(log_file(folder).read_bytes()[size:])
        log = open_log(folder, clean=False)
        assert log.log_end_offset == 50

    def test_gaps_are_compactions_and_stay(self, folder):
        written = filled(folder, 10)
        cut = [b for i, b in enumerate(records.batches(written)) if i % 3]
        compacted = b"".join(written[b.position : b.position + b.length] for b in cut)
        log_file(folder).write_bytes(compacted)
        log = open_log(folder, clean=False)
        assert read_all(log) == compacted


class TestSegmentsBehindACut:
    def test_are_dropped(self, folder):
        written = filled(folder, 60, **SMALL)
        bases = sorted(int(p.stem) for p in folder.glob("*.log"))
        assert len(bases) > 3
        damaged = bytearray(log_file(folder, bases[1]).read_bytes())
        damaged[-1] ^= 1
        log_file(folder, bases[1]).write_bytes(damaged)
        log = open_log(folder, clean=False, **SMALL)
        assert log.recovery["segments_dropped"] == len(bases) - 2
        assert written.startswith(read_all(log))
        assert [base for base, _, _ in log.segments()] == bases[:2]
        assert list(folder.glob("*.log.deleted"))

    def test_below_the_recovery_point_nothing_is_walked(self, folder):
        filled(folder, 60, **SMALL)
        log = open_log(folder, clean=False, **SMALL)
        end = log.flush()
        log.append(batch(), leader_epoch=9)
        log.close(clean=False)
        log = open_log(folder, clean=False, recovery_point=end, **SMALL)
        assert log.recovery["bytes_walked"] < 2 * SMALL["index_interval_bytes"] + 400
        assert log.log_end_offset == end + 1

    def test_epochs_that_cannot_be_read_are_found_below_the_recovery_point_too(self, folder):
        log = open_log(folder)
        for epoch in range(3):
            log.append(batch(2), leader_epoch=epoch)
        end = log.flush()
        log.append(batch(), leader_epoch=3)
        log.close(clean=False)
        (folder / "leader-epoch-checkpoint").write_text("0\n1\n0 x\n")
        log = open_log(folder, clean=False, recovery_point=end)
        assert log.leader_epochs() == [(0, 0), (1, 2), (2, 4), (3, 6)]


class TestIndexes:
    def test_rebuilt_as_they_were_written(self, folder):
        log = open_log(folder, **SMALL)
        for i in range(80):
            log.append(batch(1 + i % 3, 10 + i, 1000 + (i * 7) % 50), leader_epoch=0)
        log.close()
        good = indexes(folder)
        for path in folder.glob("*index"):
            path.unlink()
        open_log(folder, **SMALL).close()
        assert indexes(folder) == good
        for path in folder.glob("*index"):
            path.write_bytes(os.urandom(240))
        log = open_log(folder, clean=False, **SMALL)
        log.close()
        assert indexes(folder) == good

    def test_recovery_from_the_middle_gives_the_same(self, folder):
        log = open_log(folder, segment_bytes=1 << 20, index_interval_bytes=200)
        points = []
        for i in range(100):
            log.append(batch(1 + i % 3, 10 + i, 1000 + i), leader_epoch=i // 30)
            if i % 10 == 9:
                points.append(log.flush())
        log.close(clean=False)
        shutil.copytree(folder, folder.parent / "whole-0")
        open_log(folder.parent / "whole-0", clean=False, index_interval_bytes=200).close()
        for point in points:
            copy = folder.parent / f"from{point}-0"
            shutil.copytree(folder, copy)
            log = open_log(copy, clean=False, recovery_point=point, index_interval_bytes=200)
            assert log.leader_epochs() == [
                (e, log.end_offset_for_epoch(e - 1)[1] if e else 0) for e in range(4)
            ]
            log.close()
            assert indexes(copy) == indexes(folder.parent / "whole-0")

    def test_an_index_that_lies_is_found_out(self, folder):
        """Lookups that lead to no batch, or to another one: the index is written anew."""
        log = open_log(folder, segment_bytes=1 << 20, index_interval_bytes=200)
        for i in range(100):
            log.append(batch(2, 50, 1000 + i), leader_epoch=0)
        log.close()
        path = folder / f"{0:020}.index"
        good = path.read_bytes()
        for damage in (
            good[8:] + good[:8],
            bytes(len(good)),
            good[:16] + os.urandom(len(good) - 16),
        ):
            path.write_bytes(damage)
            log = open_log(folder, segment_bytes=1 << 20, index_interval_bytes=200)
            assert log.log_end_offset == 200
            for offset in range(0, 200, 2):
                assert records.batches(log.read(offset, 1000))[0].base_offset == offset
            log.close()
            assert path.read_bytes() == good

    def test_a_damaged_batch_is_told_and_the_rest_is_read(self, folder):
        """Rot in a quiet segment: the index leads around it, and stays as it is."""
        log = open_log(folder, segment_bytes=1 << 20, index_interval_bytes=100)
        for i in range(60):
            log.append(batch(1, 150, 1000 + i), leader_epoch=0)
        log.roll()
        log.append(batch(), leader_epoch=0)
        log.close()
        index = (folder / f"{0:020}.index").read_bytes()
        data = bytearray(log_file(folder).read_bytes())
        size = len(data) // 60
        data[30 * size : 30 * size + 61] = bytes(61)
        log_file(folder).write_bytes(data)
        log = open_log(folder, segment_bytes=1 << 20, index_interval_bytes=100)
        codes = [testing_log.read(log, offset, 100, 0, True)[0] for offset in range(60)]
        assert [offset for offset, code in enumerate(codes) if code] == [30]
        assert codes[30] == -11
        assert (folder / f"{0:020}.index").read_bytes() == index

    @pytest.mark.parametrize("entry", range(5))
    @pytest.mark.parametrize("flip", [1 << 63, 1 << 50, 1 << 31, 1 << 18, 1 << 8])
    def test_an_entry_that_lies_does_not_skip_what_lies_before(self, folder, entry, flip):
        """A bit of an offset or of a position: neither leads beyond what is asked for."""
        log = open_log(folder, segment_bytes=3000, index_interval_bytes=200)
        for i in range(60):
            log.append(batch(2, 50, 1000 + 10 * i), leader_epoch=0)
        log.close()
        path = folder / f"{0:020}.index"
        good = path.read_bytes()
        at = slice(8 * entry, 8 * entry + 8)
        rotten = bytearray(good)
        rotten[at] = (int.from_bytes(good[at]) ^ flip).to_bytes(8)
        path.write_bytes(rotten)
        log = open_log(folder, segment_bytes=3000, index_interval_bytes=200)
        for offset in range(0, 120, 2):
            assert log.offset_for_timestamp(1000 + 5 * offset) == (offset, 1000 + 5 * offset, 0)
        for offset in range(0, 120, 2):
            assert records.batches(log.read(offset, 1000))[0].base_offset == offset
        log.close()

    def test_mapped_zeros_of_a_crash_are_no_entries(self, folder):
        log = open_log(folder, segment_bytes=1 << 20, index_interval_bytes=200)
        for i in range(50):
            log.append(batch(2, 50, 1000 + i), leader_epoch=0)
        end = log.flush()
        crash = folder.parent / "crash-0"
        shutil.copytree(folder, crash)
        log.close()
        assert (crash / f"{0:020}.index").stat().st_size == 4096
        log = open_log(crash, clean=False, recovery_point=end, index_interval_bytes=200)
        log.close()
        assert indexes(crash) == indexes(folder)
        entries = decode_offset_index((crash / f"{0:020}.index").read_bytes(), 0)
        assert entries == sorted(entries)
        assert decode_time_index((crash / f"{0:020}.timeindex").read_bytes(), 0)[-1] == (1050, 99)


class TestLeftovers:
    @pytest.mark.parametrize("clean", [True, False])
    @pytest.mark.parametrize("segment_bytes", [600, 1 << 20])
    def test_an_empty_segment_of_a_roll_that_failed(self, folder, clean, segment_bytes):
        """Appends went on in the segment before it, and further."""
        written = filled(folder, 10, segment_bytes=segment_bytes)
        bases = sorted(int(path.stem) for path in folder.glob("*.log"))
        log_file(folder, bases[0] + 1).touch()
        log = open_log(folder, clean=clean, segment_bytes=segment_bytes)
        assert read_all(log) == written
        assert [base for base, _, _ in log.segments()] == bases
        log.append(batch(), leader_epoch=5)

    def test_such_a_segment_behind_one_that_was_active_in_the_crash(self, folder):
        """Its indexes end in zeros, so nothing is to be learned from them."""
        log = open_log(folder, index_interval_bytes=200)
        for i in range(20):
            log.append(batch(1, 100, i), leader_epoch=0)
        written, crash = read_all(log), folder.with_name("crash-0")
        shutil.copytree(folder, crash)
        log_file(crash, 12).touch()
        again = open_log(crash, clean=False, index_interval_bytes=200)
        assert read_all(again) == written
        assert again.log_end_offset == 20

    def test_files_of_interrupted_work(self, folder):
        written = filled(folder, 10)
        for name in (f"{3:020}.log.deleted", f"{3:020}.index.deleted", f"{0:020}.log.cleaned"):
            (folder / name).write_bytes(b"x")
        (folder / f"{77:020}.index").write_bytes(b"12345678")
        log = open_log(folder)
        assert read_all(log) == written
        assert (
            sorted(p.name for p in folder.iterdir() if p.suffix in (".deleted", ".cleaned")) == []
        )
        assert not (folder / f"{77:020}.index").exists()

    def test_a_swap_takes_the_place_of_what_it_covers(self, folder):
        log = open_log(folder, segment_bytes=600)
        for i in range(20):
            log.append(batch(1, 100, i), leader_epoch=0)
        bases = [base for base, _, _ in log.segments()]
        log.close()
        old = [log_file(folder, base).read_bytes() for base in bases[:2]]
        merged = b"".join(old)
        (folder / f"{0:020}.log.swap").write_bytes(merged)
        log = open_log(folder)
        assert [base for base, _, _ in log.segments()] == [0, *bases[2:]]
        assert log_file(folder).read_bytes() == merged

    def test_an_unfinished_set_of_swaps_is_dropped(self, folder):
        written = filled(folder, 5)
        (folder / f"{0:020}.log.swap").write_bytes(b"garbage")
        (folder / f"{0:020}.log.cleaned").write_bytes(b"garbage")
        assert read_all(open_log(folder)) == written

    def test_a_broken_epoch_checkpoint_is_rebuilt(self, folder):
        filled(folder, 20)
        (folder / "leader-epoch-checkpoint").write_text("0\n2\nnonsense\n")
        assert open_log(folder).leader_epochs() == [(0, 0), (1, 15), (2, 31)]

    def test_an_epoch_beyond_the_end_is_dropped(self, folder):
        filled(folder, 20)
        (folder / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n9 500\n")
        assert (9, 500) not in open_log(folder, clean=False).leader_epochs()


class TestReplay:
    def test_the_journal_brings_back_what_the_cache_lost(self, folder):
        written = filled(folder, 20)
        found = records.batches(written)
        lost = found[12]
        os.truncate(log_file(folder), lost.position + 30)
        log = open_log(folder, clean=False)
        for one in found[8:]:
            data = written[one.position : one.position + one.length]
            assert testing_log.append_as_is(log, data, 0) == 0
        assert read_all(log) == written
        assert log.high_watermark == log.log_end_offset

    def test_a_log_that_begins_within_a_lost_batch(self, folder):
        """Records were deleted up to the middle of a batch that only the journal still has."""
        log = open_log(folder)
        for _ in range(3):
            log.append(batch(10), leader_epoch=0)
        written = read_all(log)
        log.close(clean=False)
        last = records.batches(written)[2]
        os.truncate(log_file(folder), last.position)
        log = open_log(folder, clean=False, log_start=25)
        assert (log.log_start_offset, log.log_end_offset) == (25, 25)
        for one in records.batches(written):
            data = written[one.position : one.position + one.length]
            assert testing_log.append_as_is(log, data, 0) == 0
        assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (25, 30, 30)
        assert read_all(log) == written[last.position :]
        log.close()
        log = open_log(folder, log_start=25)
        assert read_all(log) == written[last.position :]

    def test_a_gap_is_refused(self, folder):
        written = filled(folder, 5)
        found = records.batches(written)
        log = open_log(folder.parent / "other-0")
        last = written[found[3].position : found[3].position + found[3].length]
        assert testing_log.append_as_is(log, last, 0) == -4


class TestTransactions:
    def test_the_transaction_index_is_written_anew(self, folder):
        log = open_log(folder)
        for i in range(5):
            log.append(
                batch(2, transactional=True, producer_id=7, producer_epoch=0, base_sequence=4 * i),
                leader_epoch=0,
            )
            log.append(marker(7, 0, commit=i % 2 == 0), leader_epoch=0)
        log.close()
        path = folder / f"{0:020}.txnindex"
        good = path.read_bytes()
        assert len(good) == 2 * 34
        for damage in (good[:40], good + good, b""):
            path.write_bytes(damage)
            log = open_log(folder, clean=False)
            log.close()
            assert path.read_bytes() == good
