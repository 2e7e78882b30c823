"""Idempotent and transactional producers on one log, against the rules spelt out slowly."""

from __future__ import annotations

import os
import resource
import shutil
from contextlib import contextmanager
from pathlib import Path

import crc32c
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbroker.ext import testing_log
from tests.reference.log import (
    INT32_MAX,
    Producers,
    RefusedError,
    decode_snapshot,
    decode_txn_index,
)
from tests.support.logs import batch, marker, open_log
from tests.support.rounds import rounds

CLIENT, COORDINATOR = 0, 1
OK, DUPLICATE, SEQUENCE, EPOCH, STORAGE, TXN_STATE, FENCED = 0, 2, -1, -2, -5, -7, -8
WHY = {"sequence": SEQUENCE, "epoch": EPOCH}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "topic-0"


@contextmanager
def no_descriptor():
    """Nothing can be opened meanwhile."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.open("/dev/null", os.O_RDONLY)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def send(log, producer_id, epoch, sequence, count=1, *, timestamp=1000, **header):
    """A client's append: code, base and last offset."""
    data = batch(
        count,
        timestamp=timestamp,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        **header,
    )
    return testing_log.append(log, data, CLIENT, 0)[:3]


class TestSequences:
    def test_in_order(self, folder):
        log = open_log(folder)
        assert send(log, 1, 0, 0, 3) == (OK, 0, 2)
        assert send(log, 1, 0, 3) == (OK, 3, 3)
        assert send(log, 1, 0, 5)[0] == SEQUENCE
        assert send(log, 1, 0, 4) == (OK, 4, 4)

    def test_the_last_five_are_known_again(self, folder):
        log = open_log(folder)
        for i in range(7):
            assert send(log, 1, 0, i) == (OK, i, i)
        assert send(log, 1, 0, 1)[0] == SEQUENCE
        for i in range(2, 7):
            assert send(log, 1, 0, i) == (DUPLICATE, i, i)
        assert log.log_end_offset == 7

    def test_a_batch_of_another_length_is_no_duplicate(self, folder):
        log = open_log(folder)
        send(log, 1, 0, 0, 3)
        assert send(log, 1, 0, 0, 2)[0] == SEQUENCE

    def test_sequences_wrap(self, folder):
        log = open_log(folder)
        assert send(log, 1, 0, INT32_MAX - 1, 2) == (OK, 0, 1)
        assert send(log, 1, 0, 0) == (OK, 2, 2)
        assert send(log, 2, 0, INT32_MAX, 3) == (OK, 3, 5)
        assert send(log, 2, 0, 2) == (OK, 6, 6)
        assert send(log, 2, 0, INT32_MAX, 3) == (DUPLICATE, 3, 5)

    def test_an_unknown_producer_may_begin_anywhere(self, folder):
        log = open_log(folder)
        assert send(log, 1, 5, 100)[0] == OK
        assert send(log, 1, 5, 101)[0] == OK

    def test_epochs(self, folder):
        log = open_log(folder)
        send(log, 1, 3, 0)
        assert send(log, 1, 2, 1)[0] == EPOCH
        assert send(log, 1, 4, 1)[0] == SEQUENCE
        assert send(log, 1, 4, 0)[0] == OK
        assert send(log, 1, 3, 1)[0] == EPOCH

    def test_a_duplicate_has_the_time_of_the_first(self, folder):
        log = open_log(folder, timestamp_type=1)
        data = batch(producer_id=1, producer_epoch=0, base_sequence=0)
        assert testing_log.append(log, data, CLIENT, 5_000)[3] == 5_000
        assert testing_log.append(log, data, CLIENT, 9_000)[3] == 5_000

    def test_ids_below_none_are_none(self, folder):
        log = open_log(folder)
        for i in range(3):
            assert send(log, -2, 0, 0) == (OK, i, i)
        assert not log.producers()
        log.close(clean=False)
        assert not open_log(folder).producers()

    def test_producers_expire(self, folder):
        log = open_log(folder, producer_id_expiration_ms=100)
        send(log, 1, 0, 0, timestamp=1000)
        send(log, 2, 0, 0, timestamp=1050)
        assert log.expire_producers(1099) == 0
        assert log.expire_producers(1100) == 1
        assert [p[0] for p in log.producers()] == [2]
        assert send(log, 1, 0, 77)[0] == OK

    def test_many_producers(self, folder):
        log = open_log(folder, producer_id_expiration_ms=100)
        for i in range(3000):
            assert send(log, i, 0, 0, timestamp=1000 + i % 7)[0] == OK
        assert len(log.producers()) == 3000
        assert log.expire_producers(1103) == sum(i % 7 <= 3 for i in range(3000))
        for i in range(3000):
            expected = OK if i % 7 <= 3 else DUPLICATE
            assert send(log, i, 0, 0, timestamp=1010)[0] == expected


@st.composite
def schedules(draw):
    """Appends around the last few sequences of few producers; None is a restart."""
    step = st.tuples(
        st.integers(0, 2), st.integers(0, 2), st.integers(-8, 4), st.integers(1, 3), st.booleans()
    )
    return draw(st.lists(st.one_of(step, step, step, step, st.none()), max_size=60))


@pytest.mark.parametrize("examples", rounds(150, long=2_000, full=10_000))
@pytest.mark.timeout(3600)
def test_against_the_model(tmp_path_factory, tally, examples):
    tried = 0

    @settings(max_examples=examples, deadline=None)
    @given(schedule=schedules(), start=st.sampled_from([0, 5, INT32_MAX - 6]))
    def run(schedule, start):
        nonlocal tried
        follow_schedule(tmp_path_factory, schedule, start)
        tried += 1

    run()
    tally("F23", tried=tried)


def follow_schedule(tmp_path_factory, schedule, start):
    """The log and the model, step by step."""
    folder = tmp_path_factory.mktemp("producers") / "topic-0"
    log, model = open_log(folder, segment_bytes=900), Producers()
    following: dict[tuple[int, int], int] = {}
    for step in schedule:
        if step is None:
            log.close()
            log = open_log(folder, segment_bytes=900)
            model.restart()
            continue
        producer_id, epoch, distance, count, exact = step
        sequence = following.get((producer_id, epoch), start)
        if not exact:
            sequence = (sequence + distance) % (INT32_MAX + 1)
        got = send(log, producer_id, epoch, sequence, count)
        offset = log.log_end_offset - (count if got[0] == OK else 0)
        try:
            repeated = model.append(producer_id, epoch, sequence, count, offset)
        except RefusedError as refused:
            assert got[0] == WHY[str(refused)]
        else:
            assert got == (
                (OK, offset, offset + count - 1) if repeated is None else (DUPLICATE, *repeated)
            )
            if repeated is None:
                following[producer_id, epoch] = (sequence + count) % (INT32_MAX + 1)
    log.close()
    shutil.rmtree(folder.parent)


class TestSnapshots:
    def test_format(self, folder):
        log = open_log(folder)
        send(log, 9, 2, 0, 3, timestamp=500)
        send(log, 4, 0, INT32_MAX, 2, timestamp=600)
        log.close()
        data = (folder / f"{5:020}.snapshot").read_bytes()
        crc, entries = decode_snapshot(data)
        assert crc == crc32c.crc32c(data[6:])
        assert sorted(entries) == [
            (4, 0, 0, 4, 1, 601, -1, -1),
            (9, 2, 2, 2, 2, 502, -1, -1),
        ]

    def test_written_at_rolls_and_kept_at_segment_bases(self, folder):
        log = open_log(folder)
        for i in range(4):
            send(log, 1, 0, i)
            log.roll()
        log.close()
        log = open_log(folder)
        send(log, 1, 0, 4)
        log.close()
        log = open_log(folder)
        send(log, 1, 0, 5)
        log.close()
        open_log(folder).close()
        assert sorted(int(p.stem) for p in folder.glob("*.snapshot")) == [1, 2, 3, 4, 6]

    @pytest.mark.parametrize("damage", ["cut", "flip", "empty", "version", "gone"])
    def test_a_broken_one_costs_only_time(self, folder, damage):
        log = open_log(folder)
        for i in range(3):
            send(log, 1, 0, i)
            log.roll()
        send(log, 1, 0, 3)
        log.close()
        for path in sorted(folder.glob("*.snapshot"))[1:]:
            data = bytearray(path.read_bytes())
            if damage == "gone":
                path.unlink()
                continue
            if damage == "flip":
                data[20] ^= 4
            if damage == "version":
                data[1] = 2
            size = {"cut": -3, "empty": 0}.get(damage, len(data))
            path.write_bytes(data[:size])
        for clean in (True, False):
            log = open_log(folder, clean=clean)
            assert log.producers()[0][:3] == (1, 0, 3)
            assert send(log, 1, 0, 3)[0] == DUPLICATE
            log.close(clean=False)

    def test_a_crash_without_any_reads_the_log(self, folder):
        log = open_log(folder)
        for i in range(7):
            send(log, 1, 0, i)
        log.close(clean=False)
        assert list(folder.glob("*.snapshot")) == []
        log = open_log(folder, clean=False)
        for i in range(2, 7):
            assert send(log, 1, 0, i) == (DUPLICATE, i, i)
        assert send(log, 1, 0, 7)[0] == OK

    def test_one_at_a_flush_after_much_data(self, folder):
        """So that a crash does not cost the headers of a whole segment."""
        log = open_log(folder)
        half = batch(1, 34 << 20)
        for expected in ([], [2], [2], [4]):
            log.append(half, leader_epoch=0)
            point = log.flush()
            assert [int(p.stem) for p in folder.glob("*.snapshot")] == expected
        send(log, 1, 0, 0)
        log.close(clean=False)
        log = open_log(folder, clean=False, recovery_point=point)
        assert [p[:3] for p in log.producers()] == [(1, 0, 0)]

    def test_go_with_their_segment(self, folder):
        log = open_log(folder)
        for i in range(4):
            send(log, 1, 0, i)
            log.roll()
        log.set_log_start_offset(3)
        log.delete_old_segments(0)
        log.unlink_deleted(at_once=True)
        assert sorted(int(p.stem) for p in folder.glob("*.snapshot")) == [3, 4]


class TestTransactions:
    def begin(self, log, producer_id, sequence, epoch=0):
        return send(log, producer_id, epoch, sequence, 2, transactional=True)

    def end(self, log, producer_id, commit, epoch=0, coordinator_epoch=0):
        data = marker(producer_id, epoch, commit=commit, coordinator_epoch=coordinator_epoch)
        return testing_log.append(log, data, COORDINATOR, 0)[0]

    def test_last_stable_offset_waits_for_the_first_open_transaction(self, folder):
        log = open_log(folder)
        log.append(batch(3), leader_epoch=0)
        assert log.last_stable_offset == 3
        self.begin(log, 1, 0)
        self.begin(log, 2, 0)
        assert (log.last_stable_offset, log.high_watermark) == (3, 7)
        self.end(log, 1, commit=True)
        assert log.last_stable_offset == 5
        self.end(log, 2, commit=False)
        assert log.last_stable_offset == log.high_watermark == 9

    def test_readers_of_committed_records_stop_there(self, folder):
        log = open_log(folder)
        log.append(batch(3), leader_epoch=0)
        self.begin(log, 1, 0)
        log.append(batch(3), leader_epoch=0)
        whole = testing_log.read(log, 0, 1 << 20, 0, True)
        stable = testing_log.read(log, 0, 1 << 20, 1, True)
        assert stable[3] == len(batch(3)) < whole[3]
        assert testing_log.read(log, 3, 1 << 20, 1, True)[:2] == (0, -1)

    def test_aborted_ones_are_told(self, folder):
        log = open_log(folder)
        self.begin(log, 1, 0)
        self.begin(log, 2, 0)
        self.end(log, 2, commit=False)
        self.end(log, 1, commit=True)
        self.begin(log, 1, 2)
        self.end(log, 1, commit=False)
        assert testing_log.read(log, 0, 1 << 20, 1, True)[5] == [(2, 2), (1, 6)]
        assert testing_log.read(log, 6, 1 << 20, 1, True)[5] == [(1, 6)]
        log.close()
        entries = decode_txn_index((folder / f"{0:020}.txnindex").read_bytes())
        assert entries == [(0, 2, 2, 4, 0), (0, 1, 6, 8, 9)]

    def test_aborted_ones_are_found_in_later_segments(self, folder):
        log = open_log(folder)
        self.begin(log, 1, 0)
        log.roll()
        log.append(batch(), leader_epoch=0)
        log.roll()
        self.end(log, 1, commit=False)
        assert testing_log.read(log, 0, 1 << 20, 1, True)[5] == [(1, 0)]

    def test_an_abort_without_room_for_its_entry_is_refused_and_taken_later(self, folder):
        log = open_log(folder)
        self.begin(log, 1, 0)
        with no_descriptor():
            assert self.end(log, 1, commit=False) == STORAGE
            assert self.end(log, 2, commit=False) == OK
        assert log.last_stable_offset == 0
        assert self.end(log, 1, commit=False) == OK
        assert log.last_stable_offset == log.log_end_offset
        assert testing_log.read(log, 0, 1 << 20, 1, True)[5] == [(1, 0)]

    def test_what_may_not_be(self, folder):
        log = open_log(folder)
        self.begin(log, 1, 0, epoch=2)
        assert send(log, 1, 2, 2)[0] == TXN_STATE
        assert self.end(log, 1, True, epoch=1) == EPOCH
        assert self.end(log, 1, True, epoch=2, coordinator_epoch=5) == OK
        self.begin(log, 1, 2, epoch=2)
        assert self.end(log, 1, True, epoch=2, coordinator_epoch=4) == FENCED

    @pytest.mark.parametrize("clean", [True, False])
    def test_open_transactions_survive_a_restart(self, folder, clean):
        log = open_log(folder)
        log.append(batch(3), leader_epoch=0)
        self.begin(log, 1, 0)
        log.roll()
        log.append(batch(3), leader_epoch=0)
        log.close(clean=clean)
        log = open_log(folder, clean=clean)
        assert log.last_stable_offset == 3
        assert log.producers()[0][5] == 3
        assert testing_log.read(log, 0, 1 << 20, 1, True)[3] == len(batch(3))
        self.end(log, 1, commit=False)
        assert log.last_stable_offset == log.high_watermark
        assert testing_log.read(log, 0, 1 << 20, 1, True)[5] == [(1, 3)]


class TestVerification:
    """KIP-890: a client's batch opens a transaction only with the guard that was drawn for it."""

    def opens(self, log, guard, *, epoch=0, sequence=0, **header):
        data = batch(producer_id=1, producer_epoch=epoch, base_sequence=sequence,
                     transactional=True, **header)  # fmt: skip
        return testing_log.append(log, data, CLIENT, 0, guard=guard)[0]

    def test_only_with_its_guard(self, folder):
        log = open_log(folder)
        assert self.opens(log, 0) == TXN_STATE
        code, guard = testing_log.verify(log, 1, 0, 0, True, 0)
        assert code == OK
        assert guard > 0
        assert testing_log.verify(log, 1, 0, 0, True, 0) == (OK, guard)
        assert self.opens(log, guard + 1) == TXN_STATE
        assert self.opens(log, guard) == OK
        assert testing_log.verify(log, 1, 0, 1, True, 0) == (OK, 0)
        assert self.opens(log, 0, sequence=1) == OK
        assert log.in_transaction(1, 0)

    def test_an_end_takes_the_guard_away(self, folder):
        """The coordinator's answer comes after it has aborted: it opens nothing."""
        log = open_log(folder)
        _, guard = testing_log.verify(log, 1, 0, 0, False, 0)
        log.append(marker(1, 0, commit=False), leader_epoch=0)
        assert self.opens(log, guard) == TXN_STATE
        _, later = testing_log.verify(log, 1, 0, 0, False, 0)
        assert later != guard
        assert self.opens(log, later) == OK

    def test_but_not_that_of_the_next_epoch(self, folder):
        log = open_log(folder)
        _, guard = testing_log.verify(log, 1, 1, 0, True, 0)
        log.append(marker(1, 1, commit=True), leader_epoch=0, transaction_version=2)
        assert self.opens(log, guard, epoch=1) == OK

    def test_an_old_epoch_is_fenced_before(self, folder):
        log = open_log(folder)
        log.append(marker(1, 3, commit=True), leader_epoch=0)
        assert testing_log.verify(log, 1, 2, 0, True, 0)[0] == EPOCH
        assert self.opens(log, 0, epoch=2) == EPOCH

    def test_nothing_above_the_lowest_sequence_comes_first(self, folder):
        log = open_log(folder)
        _, guard = testing_log.verify(log, 1, 0, 4, False, 0)
        assert testing_log.verify(log, 1, 0, 2, False, 0) == (OK, guard)
        assert self.opens(log, guard, sequence=4) == SEQUENCE
        assert self.opens(log, guard, sequence=2) == OK

    def test_an_epoch_of_its_own_begins_at_zero(self, folder):
        log = open_log(folder)
        _, guard = testing_log.verify(log, 1, 0, 3, True, 0)
        assert self.opens(log, guard, sequence=3) == SEQUENCE

    def test_verifying_is_forgotten_after_a_while(self, folder):
        log = open_log(folder, producer_id_expiration_ms=100)
        _, guard = testing_log.verify(log, 1, 0, 0, True, 1_000)
        log.expire_producers(1_050)
        assert testing_log.verify(log, 1, 0, 0, True, 1_060) == (OK, guard)
        log.expire_producers(1_200)
        assert self.opens(log, guard) == TXN_STATE
        assert log.producers() == []

    def test_it_is_in_no_snapshot(self, folder):
        log = open_log(folder)
        testing_log.verify(log, 1, 0, 0, True, 0)
        send(log, 2, 0, 0)
        log.close()
        assert [one[0] for one in open_log(folder).producers()] == [2]


class TestMarkersOfVersion2:
    """KIP-1228: the epoch of a marker is a new one, or the marker is written a second time."""

    def end(self, log, epoch, **settings):
        data = marker(1, epoch, commit=True)
        return testing_log.append(log, data, COORDINATOR, 0, transaction_version=2, **settings)[0]

    def test_epochs(self, folder):
        log = open_log(folder)
        send(log, 1, 4, 0, transactional=True)
        assert self.end(log, 3) == EPOCH
        assert self.end(log, 4) == EPOCH
        assert self.end(log, 5) == OK
        assert self.end(log, 5) == OK
        assert self.end(log, 4) == EPOCH
        assert log.last_stable_offset == log.log_end_offset

    def test_the_next_transaction_is_not_ended_by_the_last(self, folder):
        log = open_log(folder)
        send(log, 1, 4, 0, transactional=True)
        assert self.end(log, 5) == OK
        send(log, 1, 5, 0, transactional=True)
        assert self.end(log, 5) == EPOCH
        assert log.last_stable_offset < log.log_end_offset

    def test_at_the_limit(self, folder):
        log = open_log(folder)
        send(log, 1, 32767, 0, transactional=True)
        assert self.end(log, 32767) == OK
