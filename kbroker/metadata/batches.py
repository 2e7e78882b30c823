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

from kbroker.ext.crc32c import checksum
from kbroker.limits import RECORD_BATCH_HEADER_BYTES, RECORD_BATCH_OVERHEAD_BYTES

BATCH_MAX_BYTES: Final = 8 << 20
"""Most that Kafka's raft takes as one batch."""

_HEADER = struct.Struct(">qiibIhiqqqhii")
_PREFIX = struct.Struct(">qiib")
_CRC = struct.Struct(">I")
_CRC_AT: Final = 17
_CHECKED_FROM: Final = 21
_MAGIC: Final = 2
_CONTROL: Final = 0x20
_COMPRESSION: Final = 0x07
_VARINT_BYTES_MAX: Final = 10

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
    """The bytes are no whole, sound batch; `torn` where they merely end too early."""

    def __init__(self, reason: str, *, torn: bool = False) -> None:
        super().__init__(reason)
        self.torn = torn


def build_batch(
    base_offset: int, epoch: int, timestamp: int, records: Sequence[Pair], *, control: bool = False
) -> bytes:
    """A batch of records that all have the same timestamp (ms)."""
    body = bytearray()
    for delta, (key, value) in enumerate(records):
        record = bytearray(b"\0\0")  # attributes, timestamp delta
        _write_varint(record, delta)
        for part in (key, value):
            _write_varint(record, -1 if part is None else len(part))
            record += part or b""
        record.append(0)  # headers
        _write_varint(body, len(record))
        body += record
    attributes = _CONTROL if control else 0
    out = bytearray(
        _HEADER.pack(
            base_offset, RECORD_BATCH_HEADER_BYTES - RECORD_BATCH_OVERHEAD_BYTES + len(body),
            epoch, _MAGIC, 0, attributes, len(records) - 1, timestamp, timestamp, -1, -1, -1,
            len(records),
        )
    )  # fmt: skip
    out += body
    _CRC.pack_into(out, _CRC_AT, checksum(memoryview(out)[_CHECKED_FROM:]))
    return bytes(out)


def read_batches(data: bytes, position: int = 0) -> Iterator[Batch]:
    """The batches from `position` on; BatchError at the first that is not whole and sound."""
    while position < len(data):
        batch = read_batch(data, position)
        yield batch
        position += batch.size


def read_batch(data: bytes, position: int) -> Batch:
    """The batch at `position`; BatchError where there is none that is whole and sound."""
    left = len(data) - position
    if left < RECORD_BATCH_HEADER_BYTES:
        raise BatchError(f"{left} bytes are too few for a batch", torn=True)
    base_offset, length, epoch, magic = _PREFIX.unpack_from(data, position)
    size = length + RECORD_BATCH_OVERHEAD_BYTES
    if magic != _MAGIC or size < RECORD_BATCH_HEADER_BYTES:
        raise BatchError(f"no batch of format 2 (magic {magic}, length {length})")
    if size > left:
        raise BatchError(f"a batch of {size} bytes, of which {left} are there", torn=True)
    end = position + size
    (_, _, _, _, crc, attributes, last_delta, _, timestamp, _, _, _, count) = _HEADER.unpack_from(
        data, position
    )
    if checksum(memoryview(data)[position + _CHECKED_FROM : end]) != crc:
        raise BatchError("the checksum of a batch is wrong")
    if attributes & _COMPRESSION:
        raise BatchError("a compressed batch, which a metadata log never has")
    if count < 1 or last_delta < count - 1:
        raise BatchError(f"a batch of {count} records with last offset delta {last_delta}")
    records = _read_records(data, position + RECORD_BATCH_HEADER_BYTES, end, count)
    return Batch(
        base_offset, base_offset + last_delta, epoch, timestamp,
        bool(attributes & _CONTROL), records, size,
    )  # fmt: skip


def _read_records(data: bytes, position: int, end: int, count: int) -> list[Pair]:
    records: list[Pair] = []
    try:
        for _ in range(count):
            size, position = _read_varint(data, position)
            behind = position + size
            position += 1  # attributes
            _, position = _read_varint(data, position)  # timestamp delta
            _, position = _read_varint(data, position)  # offset delta
            size, position = _read_varint(data, position)
            key = None
            if size >= 0:
                key = data[position : position + size]
                position += size
            size, position = _read_varint(data, position)
            value = None
            if size >= 0:
                value = data[position : position + size]
                position += size
            if position >= behind or behind > end:  # at least the count of headers is left
                raise BatchError("a record runs over its end")
            position = behind
            records.append((key, value))
    except IndexError:
        raise BatchError("a record runs over the end of its batch") from None
    if position != end:
        raise BatchError(f"{end - position} bytes behind the last record of a batch")
    return records


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    byte = data[position]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position + 1
    value = byte & 0x7F
    for index in range(1, _VARINT_BYTES_MAX):
        byte = data[position + index]
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position + index + 1
    raise BatchError("a varint of more than 10 bytes")


def _write_varint(out: bytearray, value: int) -> None:
    value = value << 1 if value >= 0 else (-value << 1) - 1
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
