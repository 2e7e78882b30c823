"""Record batches of the metadata log and its snapshots: format version 2, never compressed.

The 61 bytes of header are those of every batch (see ext/batch.pxd); the partition leader epoch
is the epoch of the KRaft leader. A metadata record has no key, a control record has its type as
key, and neither has headers. One batch is what raft writes and replicates in one piece, at most
8 MiB of it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from kbroker.ext import records as ext
from kbroker.limits import RECORD_BATCH_OVERHEAD_BYTES

BATCH_MAX_BYTES: Final = 8 << 20
"""Most that Kafka's raft takes as one batch."""

_LENGTH = struct.Struct(">i")
_LENGTH_AT: Final = 8
_MAGIC_AT: Final = 16
_MAGIC: Final = b"\x02"

Pair = tuple[bytes | None, bytes | None]
"""Key and value of a record."""


class Batch(NamedTuple):
    """A batch as read: where it is, whose epoch it is of, and its records."""

    base_offset: int
    last_offset: int
    epoch: int
    timestamp: int  # ms; the greatest of its records
    control: bool
    records: list[Pair]
    size: int  # bytes


class BatchError(Exception):
    """The bytes are no whole, sound batch."""


def build_batch(
    base_offset: int, epoch: int, timestamp: int, records: Sequence[Pair], *, control: bool = False
) -> bytes:
    """A batch of records that all have the same timestamp (ms)."""
    return ext.build(
        [(timestamp, key, value) for key, value in records],
        base_offset=base_offset,
        leader_epoch=epoch,
        control=control,
    )


def read_batches(data: bytes) -> Iterator[Batch]:
    """Every batch of `data`; BatchError at the first that is not whole and sound."""
    position = 0
    while position < len(data):
        batch = read_batch(data, position)
        yield batch
        position += batch.size


def read_batch(data: bytes, position: int) -> Batch:
    """The batch at `position`; BatchError where there is none that is whole and sound."""
    left = len(data) - position
    try:
        (length,) = _LENGTH.unpack_from(data, position + _LENGTH_AT)
        view = memoryview(data)[position : position + RECORD_BATCH_OVERHEAD_BYTES + max(length, 0)]
        found = ext.batches(view)
        if not found:
            raise BatchError(f"{left} bytes are not the whole of a batch")
        head = found[0]
        if head.compression:
            raise BatchError("a compressed batch, which a metadata log never has")
        records = [(record.key, record.value) for record in ext.records(view)]
    except struct.error:
        raise BatchError(f"{left} bytes are too few for a batch") from None
    except ext.BatchError as error:
        raise BatchError(str(error)) from error
    return Batch(
        head.base_offset, head.base_offset + head.last_offset_delta, head.leader_epoch,
        head.max_timestamp, head.control, records, head.length,
    )  # fmt: skip


def find_batch(data: bytes, position: int) -> int | None:
    """Where, from `position` on, the first batch begins that is whole and sound, whatever the
    bytes before it are; None where there is none."""
    magic = data.find(_MAGIC, position + _MAGIC_AT)
    while magic >= 0:
        if _is_batch(data, magic - _MAGIC_AT):
            return magic - _MAGIC_AT
        magic = data.find(_MAGIC, magic + 1)
    return None


def _is_batch(data: bytes, position: int) -> bool:
    try:
        read_batch(data, position)
    except BatchError:
        return False
    return True
