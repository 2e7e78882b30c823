"""Record batches built field by field, right or wrong as a test asks, and read back slowly.

Magic 2 (KIP-98), big-endian:

    base_offset i64 | batch_length i32 | partition_leader_epoch i32 | magic i8 | crc u32 |
    attributes i16 | last_offset_delta i32 | base_timestamp i64 | max_timestamp i64 |
    producer_id i64 | producer_epoch i16 | base_sequence i32 | record_count i32 | records

`batch_length` counts what follows it; the CRC-32C covers attributes to the end. Attributes: bits
0-2 codec, 3 timestamp type, 4 transactional, 5 control, 6 delete horizon. A record is

    length varint | attributes i8 | timestamp_delta varlong | offset_delta varint |
    key length varint, key | value length varint, value | header count varint, headers

The message sets of magic 0 and 1, which a broker of today refuses, are here for that refusal.
"""

from __future__ import annotations

import gzip
import struct
import time
import zlib
from dataclasses import dataclass, field
from typing import Any

import cramjam
import crc32c
import lz4.frame
import zstandard

HEADER_BYTES = 61
_AFTER_CRC = ">hiqqqhii"

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
TIMESTAMP_TYPE, TRANSACTIONAL, CONTROL = 0x08, 0x10, 0x20


@dataclass(frozen=True)
class Record:
    """One record; deltas left out are counted from the batch's first record."""

    value: bytes | None = b"value"
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_delta: int = 0
    offset_delta: int | None = None
    attributes: int = 0


@dataclass
class Batch:
    """One batch. What is None is worked out from the records; what is given is written as it is."""

    records: list[Record] = field(default_factory=lambda: [Record()])
    base_offset: int = 0
    leader_epoch: int = -1
    magic: int = 2
    codec: int = NONE
    attributes: int = 0  # or-ed with the codec
    base_timestamp: int | None = None  # now
    max_timestamp: int | None = None
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    last_offset_delta: int | None = None
    record_count: int | None = None
    batch_length: int | None = None
    crc: int | None = None
    payload: bytes | None = None  # in place of the encoded records

    def encode(self) -> bytes:
        payload = self.payload
        if payload is None:
            plain = b"".join(encode_record(r, i) for i, r in enumerate(self.records))
            payload = compress(self.codec, plain)
        base = int(time.time() * 1000) if self.base_timestamp is None else self.base_timestamp
        newest = base + max((r.timestamp_delta for r in self.records), default=0)
        tail = struct.pack(
            _AFTER_CRC, self.attributes | self.codec,
            _or(self.last_offset_delta, len(self.records) - 1), base,
            _or(self.max_timestamp, newest), self.producer_id, self.producer_epoch,
            self.base_sequence, _or(self.record_count, len(self.records)),
        ) + payload  # fmt: skip
        length = _or(self.batch_length, 4 + 1 + 4 + len(tail))
        crc = _or(self.crc, crc32c.crc32c(tail))
        return (
            struct.pack(">qiibI", self.base_offset, length, self.leader_epoch, self.magic, crc)
            + tail
        )


def _or(given: int | None, computed: int) -> int:
    return computed if given is None else given


def batch(*values: bytes, **fields: Any) -> bytes:
    """A right batch of these values, with `fields` of Batch put in as they are."""
    return Batch(records=[Record(value) for value in values or (b"value",)], **fields).encode()


def compress(codec: int, data: bytes) -> bytes:
    """What a producer puts after the header: whole, or as one stream of the codec."""
    if codec == GZIP:
        return gzip.compress(data)
    if codec == SNAPPY:
        return xerial(data)
    if codec == LZ4:
        return lz4.frame.compress(data)
    if codec == ZSTD:
        return zstandard.compress(data)
    return data


def decompress(codec: int, data: bytes) -> bytes:
    if codec == GZIP:
        return gzip.decompress(data)
    if codec == SNAPPY:
        return unxerial(data)
    if codec == LZ4:
        return lz4.frame.decompress(data)
    if codec == ZSTD:
        return zstandard.ZstdDecompressor().decompressobj().decompress(data)
    return data


_XERIAL = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)


def xerial(data: bytes) -> bytes:
    """The framing of snappy-java: a magic, two versions, then blocks with their lengths."""
    out = bytearray(_XERIAL)
    for start in range(0, len(data), 32768):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + 32768]))
        out += struct.pack(">i", len(block)) + block
    return bytes(out)


def unxerial(data: bytes) -> bytes:
    if not data.startswith(_XERIAL[:8]):
        return bytes(cramjam.snappy.decompress_raw(data))
    out, position = bytearray(), len(_XERIAL)
    while position < len(data):
        (size,) = struct.unpack_from(">i", data, position)
        out += bytes(cramjam.snappy.decompress_raw(data[position + 4 : position + 4 + size]))
        position += 4 + size
    return bytes(out)


def varint(value: int) -> bytes:
    """Zigzag LEB128; a negative length (null) is -1."""
    number = (value << 1) ^ (value >> 63)
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def encode_record(record: Record, index: int) -> bytes:
    body = bytearray(struct.pack(">b", record.attributes))
    body += varint(record.timestamp_delta)
    body += varint(_or(record.offset_delta, index))
    body += _sized(record.key) + _sized(record.value) + varint(len(record.headers))
    for name, value in record.headers:
        body += _sized(name.encode()) + _sized(value)
    return varint(len(body)) + bytes(body)


def _sized(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def message_set(magic: int, *values: bytes, key: bytes | None = None) -> bytes:
    """A message set of magic 0 or 1, uncompressed."""
    out = bytearray()
    for offset, value in enumerate(values):
        body = struct.pack(">bb", magic, 0)
        if magic == 1:
            body += struct.pack(">q", int(time.time() * 1000))
        for part in (key, value):
            body += struct.pack(">i", -1 if part is None else len(part)) + (part or b"")
        message = struct.pack(">I", zlib.crc32(body)) + body
        out += struct.pack(">qi", offset, len(message)) + message
    return bytes(out)


# --- read back --------------------------------------------------------------------------------


def parse_batches(data: bytes) -> list[dict[str, Any]]:
    """Whole batches of magic 2 with their records; a cut-off batch at the end is told as such."""
    batches, position = [], 0
    while position < len(data):
        if len(data) - position < HEADER_BYTES:
            batches.append({"cut_off_after": len(data) - position})
            break
        base, length, epoch, magic, crc = struct.unpack_from(">qiibI", data, position)
        end = position + 12 + length
        if end > len(data):
            batches.append({"base_offset": base, "cut_off_after": len(data) - position})
            break
        batches.append(_parse_batch(data[position:end], base, epoch, magic, crc))
        position = end
    return batches


def _parse_batch(data: bytes, base: int, epoch: int, magic: int, crc: int) -> dict[str, Any]:
    names = ("attributes", "last_offset_delta", "base_timestamp", "max_timestamp", "producer_id",
             "producer_epoch", "base_sequence", "record_count")  # fmt: skip
    parsed: dict[str, Any] = dict(zip(names, struct.unpack_from(_AFTER_CRC, data, 21), strict=True))
    parsed |= {"base_offset": base, "leader_epoch": epoch, "magic": magic}
    parsed["crc_is_right"] = crc == crc32c.crc32c(data[21:])
    plain = decompress(parsed["attributes"] & 7, data[HEADER_BYTES:])
    parsed["records"] = parse_records(plain, parsed["record_count"])
    return parsed


def parse_records(data: bytes, count: int) -> list[dict[str, Any]]:
    records, position = [], 0
    for _ in range(count):
        length, position = read_varint(data, position)
        end = position + length
        attributes, position = data[position], position + 1
        timestamp_delta, position = read_varint(data, position)
        offset_delta, position = read_varint(data, position)
        key, position = _read_sized(data, position)
        value, position = _read_sized(data, position)
        header_count, position = read_varint(data, position)
        headers = []
        for _ in range(header_count):
            name, position = _read_sized(data, position)
            content, position = _read_sized(data, position)
            headers.append((name, content))
        assert position == end, f"record of {length} bytes ends at {position}, not {end}"
        records.append({
            "attributes": attributes, "timestamp_delta": timestamp_delta,
            "offset_delta": offset_delta, "key": key, "value": value, "headers": headers,
        })  # fmt: skip
    assert position == len(data), f"{len(data) - position} bytes after the last record"
    return records


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    shift = number = 0
    while True:
        byte = data[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), position
        shift += 7


def _read_sized(data: bytes, position: int) -> tuple[bytes | None, int]:
    length, position = read_varint(data, position)
    if length < 0:
        return None, position
    return data[position : position + length], position + length


def values_of(data: bytes) -> list[tuple[int, bytes | None]]:
    """(offset, value) of every record of whole batches."""
    return [
        (batch["base_offset"] + record["offset_delta"], record["value"])
        for batch in parse_batches(data)
        if "records" in batch
        for record in batch["records"]
    ]
