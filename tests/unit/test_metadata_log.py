"""Batches and segments of the metadata log: torn tails, damage, full disks."""

from __future__ import annotations

import errno
import os
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker.errors import BugError, CorruptFileError, DiskError
from kbroker.ext.crc32c import checksum
from kbroker.metadata.batches import Batch, BatchError, build_batch, read_batch, read_batches
from kbroker.metadata.log import MetadataLog

PART = st.none() | st.binary(max_size=300)


RECORDS = st.lists(st.tuples(PART, PART), min_size=1)


@given(st.integers(0, 2**40), st.integers(0, 2**31 - 1), RECORDS, st.booleans())
def test_a_batch_is_read_as_it_was_built(
    base: int, epoch: int, records: list[tuple[bytes | None, bytes | None]], control: bool
) -> None:
    data = build_batch(base, epoch, 77, records, control=control)
    expected = Batch(base, base + len(records) - 1, epoch, 77, control, records, len(data))
    assert read_batch(data, 0) == expected
    assert list(read_batches(data + data)) == [expected, expected]


def test_a_batch_has_kafkas_bytes() -> None:
    """The footer of a snapshot that Kafka 4.3's format tool wrote."""
    kafka = bytes.fromhex(
        "00000000000000030000003f000000000261507cfb002000000000000001a1fec7f72c000001a1fec7f72c"
        "ffffffffffffffffffffffffffff000000011a00000008000000040600000000"
    )
    batch = read_batch(kafka, 0)
    assert batch.control and batch.base_offset == 3
    again = build_batch(3, 0, batch.timestamp, batch.records, control=True)
    assert again == kafka


def test_every_changed_bit_and_every_cut_is_seen() -> None:
    data = build_batch(5, 1, 9, [(None, b"value"), (b"key", None)])
    for size in range(len(data)):
        with pytest.raises(BatchError):
            read_batch(data[:size], 0)
    for bit in range(8 * 12, 8 * len(data)):  # offset and length lie outside of the checksum
        spoilt = bytearray(data)
        spoilt[bit // 8] ^= 1 << bit % 8
        try:
            assert read_batch(bytes(spoilt), 0).epoch != 1  # nor does the epoch lie inside
        except BatchError:
            continue


def test_any_bytes_are_a_batch_or_refused() -> None:
    """Invariant tested: the walk over records ends with BatchError, whatever they say."""
    rng = random.Random(2)
    data = bytearray(build_batch(0, 0, 0, [(b"k", b"v" * 20), (None, b"w")]))
    for _ in range(3000):
        spoilt = bytearray(data)
        for _ in range(rng.randrange(1, 4)):
            spoilt[rng.randrange(61, len(spoilt))] = rng.randrange(256)
        spoilt[17:21] = checksum(spoilt[21:]).to_bytes(4)
        try:
            read_batch(bytes(spoilt), 0)
        except BatchError:
            continue


def opened(folder: Path, from_offset: int = 0) -> tuple[MetadataLog, list[Batch]]:
    log = MetadataLog(folder)
    return log, list(log.open(from_offset))


def append(log: MetadataLog, values: list[bytes], epoch: int = 1) -> None:
    offset = log.end_offset
    data = build_batch(offset, epoch, 1000 + offset, [(None, value) for value in values])
    log.append([data], offset + len(values), epoch, 1000 + offset)


def test_what_is_appended_is_read_by_the_next(tmp_path: Path) -> None:
    log, batches = opened(tmp_path)
    assert batches == [] and log.end_offset == 0
    append(log, [b"a", b"b"])
    append(log, [b"c"], epoch=2)
    log.close()
    log, batches = opened(tmp_path)
    assert [batch.records for batch in batches] == [[(None, b"a"), (None, b"b")], [(None, b"c")]]
    assert (log.end_offset, log.last_epoch, log.last_timestamp) == (3, 2, 1002)
    log.close()
    assert [batch.base_offset for batch in opened(tmp_path, 2)[1]] == [2]


def test_every_torn_tail_is_cut(tmp_path: Path) -> None:
    log, _ = opened(tmp_path)
    append(log, [b"first"])
    whole = log.size_bytes
    append(log, [b"second", b"of two"])
    log.close()
    path = tmp_path / f"{0:020}.log"
    data = path.read_bytes()
    for size in range(whole, len(data)):
        for tail in (b"", b"\1" * 30, b"\xff" * 200):
            path.write_bytes(data[:size] + tail)
            log, batches = opened(tmp_path)
            assert len(batches) == 1 and path.stat().st_size == whole == log.size_bytes
            append(log, [b"third"])
            log.close()
            assert [batch.base_offset for batch in opened(tmp_path)[1]] == [0, 1]


def test_reading_changes_nothing(tmp_path: Path) -> None:
    log, _ = opened(tmp_path)
    append(log, [b"first"])
    log.close()
    path = tmp_path / f"{0:020}.log"
    path.write_bytes(path.read_bytes() + b"torn")
    before = path.read_bytes()
    assert len(list(MetadataLog(tmp_path).read(0))) == 1
    assert path.read_bytes() == before


def test_segments_follow_each_other_and_old_ones_go(tmp_path: Path) -> None:
    log, _ = opened(tmp_path)
    for number in range(4):
        append(log, [b"%d" % number])
        log.roll()
        log.roll()  # nothing to roll
    assert len(list(tmp_path.glob("*.log"))) == 5
    log.drop_before(2)
    assert (log.start_offset, log.end_offset) == (2, 4)
    log.close()
    log, batches = opened(tmp_path, 3)
    assert [batch.base_offset for batch in batches] == [3]
    assert log.start_offset == 2
    log.close()
    with pytest.raises(CorruptFileError, match="no snapshot"):
        opened(tmp_path, 0)


def test_a_gap_or_damage_before_the_last_segment_is_refused(tmp_path: Path) -> None:
    log, _ = opened(tmp_path)
    append(log, [b"a" * 50])
    log.roll()
    append(log, [b"b"])
    log.close()
    path = tmp_path / f"{0:020}.log"
    data = path.read_bytes()
    path.write_bytes(data[:-1] + b"?")
    with pytest.raises(CorruptFileError, match="checksum"):
        opened(tmp_path)
    path.write_bytes(b"")
    with pytest.raises(CorruptFileError, match="ends at 0"):
        opened(tmp_path)


def test_damage_before_a_sound_batch_is_no_torn_tail(tmp_path: Path) -> None:
    """Invariant tested: nothing that was acknowledged is cut, whichever bit before it flips."""
    log, _ = opened(tmp_path)
    append(log, [b"first"])
    whole = log.size_bytes
    append(log, [b"second", b"\2" * 40])
    last = log.size_bytes
    append(log, [b"third"])
    log.close()
    path = tmp_path / f"{0:020}.log"
    data = path.read_bytes()
    for at in range(whole, last):
        spoilt = bytearray(data)
        spoilt[at] ^= 1 << at % 8
        path.write_bytes(spoilt)
        with pytest.raises(CorruptFileError, match="a sound batch stands at byte"):
            opened(tmp_path)
        assert path.read_bytes() == spoilt


def test_a_change_of_several_batches_is_synced_batch_by_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Invariant tested: a crash leaves at most one batch torn, and it is the last."""
    log, _ = opened(tmp_path)
    path = tmp_path / f"{0:020}.log"
    synced: list[int] = []
    sync = os.fdatasync

    def counted(descriptor: int) -> None:
        sync(descriptor)
        synced.append(path.stat().st_size)

    monkeypatch.setattr(os, "fdatasync", counted)
    batches = [build_batch(offset, 1, 0, [(None, b"x" * 50)]) for offset in range(3)]
    log.append(batches, 3, 1, 0)
    log.close()
    size = len(batches[0])
    assert synced == [size, 2 * size, 3 * size] and log.size_bytes == 3 * size
    assert len(opened(tmp_path)[1]) == 3


def test_of_several_batches_all_or_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, _ = opened(tmp_path)
    append(log, [b"first"])
    write = os.pwrite

    def full(descriptor: int, data: bytes, at: int) -> int:
        if at > log.size_bytes:
            raise OSError(errno.ENOSPC, "no room")
        return write(descriptor, data, at)

    monkeypatch.setattr(os, "pwrite", full)
    batches = [build_batch(offset, 1, 0, [(None, b"x")]) for offset in (1, 2)]
    with pytest.raises(DiskError):
        log.append(batches, 3, 1, 0)
    monkeypatch.undo()
    assert (tmp_path / f"{0:020}.log").stat().st_size == log.size_bytes
    append(log, [b"second"])
    log.close()
    assert [batch.base_offset for batch in opened(tmp_path)[1]] == [0, 1]


def test_a_sound_batch_in_the_wrong_place_is_damage(tmp_path: Path) -> None:
    log, _ = opened(tmp_path)
    append(log, [b"a"], epoch=5)
    log.close()
    path = tmp_path / f"{0:020}.log"
    data = path.read_bytes()
    for offset, epoch in ((7, 5), (1, 4)):
        path.write_bytes(data + build_batch(offset, epoch, 0, [(None, b"x")]))
        with pytest.raises(CorruptFileError, match=f"sound batch stands at byte {len(data)}"):
            opened(tmp_path)


def test_a_log_behind_its_snapshot_begins_anew(tmp_path: Path) -> None:
    log, _ = opened(tmp_path)
    append(log, [b"a"])
    log.close()
    log, batches = opened(tmp_path, 10)
    assert batches == [] and (log.start_offset, log.end_offset) == (10, 10)
    assert [path.name for path in tmp_path.glob("*.log")] == [f"{10:020}.log"]
    append(log, [b"b"], epoch=3)
    log.close()


def test_what_kafka_derives_is_removed(tmp_path: Path) -> None:
    for name in (".index", ".timeindex", ".snapshot", ".txnindex", ".log.deleted"):
        (tmp_path / f"{0:020}{name}").touch()
    (tmp_path / "partition.metadata").touch()
    opened(tmp_path)[0].close()
    assert sorted(os.listdir(tmp_path)) == [f"{0:020}.log", "partition.metadata"]


def test_a_full_disk_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, _ = opened(tmp_path)
    append(log, [b"a"])
    real = os.pwrite

    def half(descriptor: int, data: bytes, at: int) -> int:
        if len(data) > 40:
            return real(descriptor, bytes(data)[:40], at)
        raise OSError(errno.ENOSPC, "no room")

    monkeypatch.setattr(os, "pwrite", half)
    with pytest.raises(DiskError, match="no room"):
        append(log, [b"b"])
    monkeypatch.setattr(os, "pwrite", real)
    append(log, [b"c"])
    log.close()
    assert [batch.records for batch in opened(tmp_path)[1]] == [[(None, b"a")], [(None, b"c")]]


def test_a_write_that_fails_for_no_lack_of_room_is_final(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though it can be taken back: what else is on such a disk?"""
    log, _ = opened(tmp_path)
    append(log, [b"a"])

    def fail(descriptor: int, data: bytes, at: int) -> int:
        raise OSError(errno.EIO, "gone")

    monkeypatch.setattr(os, "pwrite", fail)
    with pytest.raises(DiskError, match="gone"):
        append(log, [b"b"])
    monkeypatch.undo()
    assert log.failure is not None and log.failure.errno == errno.EIO
    with pytest.raises(DiskError, match="gone"):
        append(log, [b"c"])
    log.close()
    assert [batch.records for batch in opened(tmp_path)[1]] == [[(None, b"a")]]


def test_a_failed_sync_is_final(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, _ = opened(tmp_path)

    def fail(descriptor: int) -> None:
        raise OSError(errno.EIO, "gone")

    monkeypatch.setattr(os, "fdatasync", fail)
    with pytest.raises(DiskError, match="gone"):
        append(log, [b"a"])
    monkeypatch.undo()
    with pytest.raises(DiskError, match="gone"):
        append(log, [b"a"])
    log.close()


def test_a_closed_log_takes_nothing(tmp_path: Path) -> None:
    log, _ = opened(tmp_path)
    log.close()
    log.close()
    with pytest.raises(BugError, match="not open"):
        append(log, [b"a"])
