"""Compaction of one log: beside a slow oracle, beside a dict, and while it is read."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kbroker.ext import cleaner, records
from kbroker.ext.cleaner import (
    Cleaner,
    CleaningInterruptedError,
    Throttle,
    UncleanableError,
    survey,
)
from tests.reference.cleaner_history import (
    CODECS,
    RETENTION_MS,
    START_MS,
    UNLIMITED,
    Clean,
    Data,
    End,
    History,
    Roll,
    random_steps,
    read_committed,
)
from tests.support.logs import batch, open_log, read_all

SETTINGS = {"cleanup_compact": 1, "cleanup_delete": 0, "delete_retention_ms": RETENTION_MS}
SMALL = SETTINGS | {"segment_bytes": 4000, "index_interval_bytes": 200}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "topic-0"


def small_cleaner() -> Cleaner:
    return Cleaner(Throttle(UNLIMITED), map_bytes=1 << 20, load_factor=0.9, io_bytes=1 << 16)


def clean(log, checkpoint=None, now_ms=START_MS):
    return small_cleaner().clean(log, survey(log, checkpoint, now_ms), now_ms)


def keyed(*rows, **header):
    return records.build([(START_MS, key, value) for key, value in rows], **header)


def stored(log):
    return [(one.offset, one.key, one.value) for one in records.read(read_all(log))]


def sequences(log):
    """(producer id, epoch, last sequence, first offset of its transaction) of each producer."""
    return [(one[0], one[1], one[2], one[5]) for one in log.producers()]


def live(folder, steps, *, bumps=False, **more):
    """Run a past on a new log; the readers' view must hold, and again after it was opened anew."""
    log = open_log(folder, **(SMALL | more))
    history = History(log, folder, bumps=bumps)
    history.segment_bytes = 4000
    history.run(steps)
    history.check()
    end, producers = log.log_end_offset, sequences(log)
    log.close()
    for clean_stop in (True, False):
        log = open_log(folder, clean=clean_stop, **(SMALL | more))
        assert log.log_end_offset == end
        assert sequences(log) == producers
        history.log = log
        history.check()
        assert log.recovery["bytes_cut"] == 0
        log.close()
    return history


class TestKeyHash:
    def test_is_siphash_of_128_bits(self):
        """The first vectors of the reference code."""
        secret = bytes(range(16))
        told = [cleaner.key_hash(bytes(range(n)), secret).hex() for n in range(3)]
        assert told == ["a3817f04ba25a8e66df67214c7550293", "da87c1d86b99af44347659119b22fc45",
                        "8177228da4a45dc7fca38bdef60affe4"]  # fmt: skip


class TestOracle:
    @pytest.mark.parametrize("seed", range(18))
    def test_a_random_past(self, folder, seed):
        steps = random_steps(seed, 120)
        end = [Roll(), Clean(3 * RETENTION_MS), Clean(3 * RETENTION_MS)]
        live(folder, [*steps, *end], bumps=seed >= 12)

    rows = st.lists(
        st.tuples(
            st.sampled_from([b"a", b"b", b"c", b"", None]),
            st.none() | st.binary(max_size=8),
            st.integers(0, 1000),
        ),
        min_size=1,
        max_size=5,
    )
    steps = st.lists(
        st.one_of(
            st.builds(Data, rows, st.integers(-1, 2), st.booleans(), st.sampled_from(CODECS)),
            st.builds(End, st.integers(0, 2), st.booleans()),
            st.builds(Roll),
            st.builds(Clean, st.sampled_from([0, 5000, 20_000]), st.sampled_from([1, 2, 100])),
        ),
        max_size=25,
    )

    @settings(
        max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
    )
    @given(steps, st.booleans())
    def test_any_past(self, tmp_path_factory, steps, bumps):
        folder = tmp_path_factory.mktemp("any") / "topic-0"
        live(folder, [*steps, Roll(), Clean(20_000)], bumps=bumps)


class TestRules:
    def test_only_the_last_of_a_key_stays_and_offsets_are_kept(self, folder):
        log = open_log(folder, **SETTINGS)
        for i in range(10):
            log.append(keyed((b"a", b"%d" % i), (b"b%d" % i, b"x")), leader_epoch=0)
        log.roll()
        log.append(keyed((b"a", b"active")), leader_epoch=0)
        done = clean(log)
        assert done.end_offset == 20
        assert stored(log) == [
            *((2 * i + 1, b"b%d" % i, b"x") for i in range(9)),
            (18, b"a", b"9"),
            (19, b"b9", b"x"),
            (20, b"a", b"active"),
        ]

    def test_many_keys(self, folder):
        """So many that the table grows, and gives back what it has moved, while it is in use."""
        log = open_log(folder, **SETTINGS)
        keys = [b"%d" % i for i in range(140_000)]
        for round_ in (b"old", b"new"):
            for at in range(0, len(keys), 10_000):
                rows = [(key, round_) for key in keys[at : at + 10_000]]
                log.append(keyed(*rows), leader_epoch=0)
        log.roll()
        roomy = Cleaner(Throttle(UNLIMITED), map_bytes=16 << 20, load_factor=0.9, io_bytes=1 << 16)
        done = roomy.clean(log, survey(log, None, START_MS), START_MS)
        assert done.end_offset == 2 * len(keys)
        found = [(one.key, one.value) for one in records.read(read_all(log, max_bytes=1 << 24))]
        assert found == [(key, b"new") for key in keys]

    def test_a_tombstone_goes_when_its_horizon_has_passed(self, folder):
        log = open_log(folder, **SETTINGS)
        log.append(keyed((b"a", b"1"), (b"b", b"1")), leader_epoch=0)
        log.append(keyed((b"a", None)), leader_epoch=0)
        log.append(keyed((b"c", b"1")), leader_epoch=0)
        log.roll()
        done = clean(log)
        assert stored(log) == [(1, b"b", b"1"), (2, b"a", None), (3, b"c", b"1")]
        (_, stone, _) = records.batches(read_all(log))
        assert stone.attributes & 0x40
        assert stone.base_timestamp == START_MS + RETENTION_MS
        assert stone.max_timestamp == START_MS
        for later, left in ((RETENTION_MS - 1, 3), (RETENTION_MS, 2)):
            log.append(keyed((b"d", b"%d" % later)), leader_epoch=0)
            log.roll()
            done = clean(log, done.end_offset, START_MS + later)
            assert len([row for row in stored(log) if row[1] in b"abc"]) == left

    def test_the_last_batch_of_the_range_stays_as_a_header(self, folder):
        log = open_log(folder, **SETTINGS)
        log.append(keyed((b"a", b"1")), leader_epoch=3)
        log.append(records.build([(START_MS, None, b"no key")]), leader_epoch=3)
        log.roll()
        assert clean(log).keyless_records == 1
        _, last = records.batches(read_all(log))
        assert (last.base_offset, last.count, last.leader_epoch) == (1, 0, 3)

    def test_what_lies_beyond_a_full_map_waits(self, folder):
        log = open_log(folder, **SETTINGS)
        for i in range(20):
            log.append(keyed((b"%d" % (i % 10), b"%d" % i)), leader_epoch=0)
        log.roll()
        tiny = Cleaner(Throttle(UNLIMITED), map_bytes=24 * 5, load_factor=0.9, io_bytes=4096)
        at, rounds = None, 0
        while at != 20:
            at = tiny.clean(log, survey(log, at, START_MS), START_MS).end_offset
            rounds += 1
            assert read_committed(log) == {b"%d" % (i % 10): b"%d" % i for i in range(10, 20)}
        assert rounds == 5
        # The second half superseded the first only where one map held both; the rest is dirty no
        # more, and goes when its key comes again.
        assert len(stored(log)) == 10

    def test_small_neighbours_become_one_segment(self, folder):
        log = open_log(folder, **SMALL)
        for i in range(40):
            log.append(keyed((b"%d" % i, b"x" * 100)), leader_epoch=0)
            if i % 4 == 3:
                log.roll()
        before = len(log.segments())
        done = clean(log)
        assert done.segments_before == before - 1
        assert done.segments_after == 2
        assert all(size <= 4000 for _, size, _ in log.segments())
        assert len(stored(log)) == 40

    def test_max_timestamps_are_of_what_stays(self, folder):
        log = open_log(folder, **SETTINGS)
        log.append(records.build([(5000, b"a", b"1"), (1000, b"b", b"1")]), leader_epoch=0)
        log.append(records.build([(2000, b"a", b"2")]), leader_epoch=0)
        log.roll()
        log.append(records.build([(10, b"z", b"1")]), leader_epoch=0)
        clean(log)
        assert [one.max_timestamp for one in records.batches(read_all(log))] == [1000, 2000, 10]
        assert log.segments()[0][2] == 2000
        assert log.offset_of_max_timestamp() == (2, 2000, 0)
        assert log.offset_for_timestamp(1500) == (2, 2000, 0)

    def test_min_lag_and_open_transactions_bound_the_range(self, folder):
        log = open_log(folder, min_compaction_lag_ms=1000, **SETTINGS)
        for i in range(3):
            log.append(records.build([(START_MS + 1000 * i, b"a", b"1")]), leader_epoch=0)
            log.roll()
        for later, end in ((0, 0), (1000, 1), (1999, 1), (3000, 3)):
            found = survey(log, None, START_MS + later)
            assert found.first_uncleanable == end
        open_txn = keyed((b"a", b"1"), producer_id=1, producer_epoch=0, base_sequence=0,
                         transactional=True)  # fmt: skip
        log.append(open_txn, leader_epoch=0)
        log.roll()
        log.roll()
        assert survey(log, None, START_MS + 9000).first_uncleanable == 3

    def test_max_lag_is_told(self, folder):
        log = open_log(folder, max_compaction_lag_ms=5000, **SETTINGS)
        log.append(keyed((b"a", b"1")), leader_epoch=0)
        log.roll()
        assert survey(log, None, START_MS + 5000).overdue_ms == 0
        assert survey(log, None, START_MS + 5007).overdue_ms == 7
        assert survey(log, 1, START_MS + 9000).overdue_ms == 0

    def test_a_checkpoint_that_cannot_be_begins_at_log_start(self, folder):
        log = open_log(folder, **SETTINGS)
        for _ in range(10):
            log.append(keyed((b"a", b"1")), leader_epoch=0)
        log.roll()
        assert survey(log, 11, START_MS).first_dirty == 0
        assert survey(log, 11, START_MS).reset
        log.set_log_start_offset(4)
        assert survey(log, 3, START_MS)[:2] == (4, 10)
        assert survey(log, None, START_MS).reset == ""

    def test_a_log_that_is_not_compacted_is_none_of_it(self, folder):
        assert survey(open_log(folder), None, START_MS) is None


class TestDamage:
    @pytest.mark.parametrize("at", [30, 70])
    def test_is_told_and_nothing_changes(self, folder, at):
        log = open_log(folder, **SETTINGS)
        for _ in range(3):
            log.append(keyed((b"a", b"value")), leader_epoch=0)
        log.roll()
        path = folder / f"{0:020}.log"
        data = bytearray(path.read_bytes())
        data[at] ^= 1
        path.write_bytes(data)
        with pytest.raises(UncleanableError):
            clean(log)
        assert path.read_bytes() == data
        assert not list(folder.glob("*.cleaned"))
        assert log.offline is None


class TestMeanwhile:
    def test_a_reader_goes_on_where_its_segment_was(self, folder):
        """Slices taken before and between swaps are whole, and what follows them has no gap."""
        log = open_log(folder, **SMALL)
        for i in range(200):
            log.append(keyed((b"%d" % (i % 60), b"%d" % i)), leader_epoch=0)
        log.roll()
        for start in range(0, 200, 7):
            log.append(keyed((b"%d" % (start % 60), b"again %d" % start)), leader_epoch=0)
            log.roll()
            first = log.read(start, 300)
            clean(log)
            seen = records.read(first)
            at = records.batches(first)[-1]
            at = at.base_offset + at.last_offset_delta + 1
            rest = records.read(read_all(log, at, 500))
            offsets = [one.offset for one in [*seen, *rest] if one.offset >= start]
            assert offsets == sorted(set(offsets))
            last = {one.key: one.value for one in [*records.read(read_all(log))]}
            assert {one.key: one.value for one in rest}.items() <= last.items()

    def test_retention_and_a_deletion_make_it_stand_back(self, folder):
        log = open_log(folder, **SETTINGS)
        for _ in range(4):
            log.append(keyed((b"a", b"1")), leader_epoch=0)
            log.roll()
        found = survey(log, None, START_MS)
        log.set_log_start_offset(2)
        assert log.delete_old_segments(START_MS) == [0, 1]
        assert small_cleaner().clean(log, found, START_MS).end_offset == 4
        assert log.log_start_offset == 2
        assert [row[0] for row in stored(log)] == [3]
        found = survey(log, None, START_MS)
        log.mark_deleted()
        with pytest.raises(CleaningInterruptedError):
            small_cleaner().clean(log, found, START_MS)
        assert survey(log, None, START_MS) is None

    def test_stopped_it_changes_nothing(self, folder):
        log = open_log(folder, **SETTINGS)
        log.append(batch(10), leader_epoch=0)
        log.roll()
        one = small_cleaner()
        one.stop()
        with pytest.raises(CleaningInterruptedError):
            one.clean(log, survey(log, None, START_MS), START_MS)
        assert not list(folder.glob("*.cleaned"))
