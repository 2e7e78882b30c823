"""Record batches of magic 2, the slow and obvious way: build, read and judge.

Written from KIP-98's layout and from what Apache Kafka 4.3 answers.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

from crc32c import crc32c

HEADER = struct.Struct(">qiibIhiqqqhii")
NO_TIMESTAMP = -1


class RefusedError(Exception):
    """Refused: Kafka's error code, and the index of the first bad record or -1."""

    def __init__(self, error_code: int, why: str, record: int = -1) -> None:
        super().__init__(why)
        self.error_code = error_code
        self.record = record


CORRUPT_MESSAGE = 2
MESSAGE_TOO_LARGE = 10
INVALID_TIMESTAMP = 32
UNSUPPORTED_COMPRESSION_TYPE = 76
INVALID_RECORD = 87


@dataclass
class Record:
    key: bytes | None = None
    value: bytes | None = None
    headers: Sequence[tuple[bytes, bytes | None]] = ()
    timestamp: int = 0


@dataclass
class Batch:
    """Every header field may be made to lie; None is computed."""

    records: list[Record] = field(default_factory=list)
    base_offset: int = 0
    length: int | None = None
    leader_epoch: int = -1
    magic: int = 2
    crc: int | None = None
    attributes: int = 0
    last_offset_delta: int | None = None
    base_timestamp: int | None = None
    max_timestamp: int | None = None
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    count: int | None = None
    body: bytes | None = None

    def encode(self) -> bytes:
        base = self.base_timestamp
        if base is None:
            base = self.records[0].timestamp if self.records else NO_TIMESTAMP
        latest = self.max_timestamp
        if latest is None:
            latest = max((r.timestamp for r in self.records), default=NO_TIMESTAMP)
        body = self.body
        if body is None:
            body = b"".join(encode_record(r, i, base) for i, r in enumerate(self.records))
        count = len(self.records) if self.count is None else self.count
        delta = max(count, 0) - 1 if self.last_offset_delta is None else self.last_offset_delta
        covered = struct.pack(
            ">hiqqqhii", self.attributes, delta, base, latest, self.producer_id,
            self.producer_epoch, self.base_sequence, count,
        ) + body  # fmt: skip
        crc = crc32c(covered) if self.crc is None else self.crc
        length = len(covered) + 9 if self.length is None else self.length
        head = struct.pack(">qiibI", self.base_offset, length, self.leader_epoch, self.magic, crc)
        return head + covered


def varint(value: int) -> bytes:
    """Zigzag LEB128; varlongs are written alike."""
    raw = value * 2 if value >= 0 else -value * 2 - 1
    out = bytearray()
    while raw >= 0x80:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    return bytes([*out, raw])


def nullable(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def encode_record(record: Record, index: int, base_timestamp: int) -> bytes:
    delta = (record.timestamp - base_timestamp + 2**63) % 2**64 - 2**63
    body = b"\0" + varint(delta) + varint(index)
    body += nullable(record.key) + nullable(record.value) + varint(len(record.headers))
    for key, value in record.headers:
        body += nullable(key) + nullable(value)
    return varint(len(body)) + body


class Reader:
    """Takes bytes off the front; IndexError when there are none. `lenient` as Kafka is: any length
    below 0 is null, and nobody looks at offset deltas."""

    lenient = False

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    @property
    def left(self) -> int:
        return len(self.data) - self.at

    def take(self, n: int) -> bytes:
        if n < 0 or n > self.left:
            raise IndexError
        self.at += n
        return self.data[self.at - n : self.at]

    def varint(self, bytes_max: int = 5) -> int:
        bits = 32 if bytes_max == 5 else 64
        raw = 0
        for i in range(bytes_max):
            byte = self.take(1)[0]
            raw |= (byte & 0x7F) << 7 * i
            if byte < 0x80:
                raw %= 2**bits
                return raw // 2 if raw % 2 == 0 else -(raw // 2) - 1
        raise IndexError

    def nullable(self) -> bytes | None:
        n = self.varint()
        return None if n == -1 or (self.lenient and n < 0) else self.take(n)


def read_record(reader: Reader) -> tuple[int, int, Record]:
    """Timestamp delta, offset delta and the rest of the next record."""
    body = Reader(reader.take(reader.varint()))
    body.take(1)
    timestamp_delta = body.varint(10)
    offset_delta = body.varint()
    key, value = body.nullable(), body.nullable()
    headers = []
    count = body.varint()
    if count < 0 or count > body.left:
        raise IndexError
    for _ in range(count):
        name = body.nullable()
        if name is None:
            raise IndexError
        headers.append((name, body.nullable()))
    if body.left:
        raise IndexError
    return timestamp_delta, offset_delta, Record(key, value, headers)


@dataclass
class Rules:
    now_ms: int = 0
    timestamp_before_max_ms: int = 2**63 - 1
    timestamp_after_max_ms: int = 2**63 - 1
    max_message_bytes: int = 2**31 - 1
    log_append_time: bool = False
    compacted: bool = False
    zstd_allowed: bool = True


def wrap(value: int) -> int:
    """As a 64-bit signed integer overflows."""
    return (value + 2**63) % 2**64 - 2**63


def timestamp_ok(timestamp: int, rules: Rules) -> bool:
    if timestamp == NO_TIMESTAMP or rules.log_append_time:
        return True
    age = wrap(rules.now_ms - timestamp)
    return age <= rules.timestamp_before_max_ms and wrap(-age) <= rules.timestamp_after_max_ms


def judge(data: bytes, rules: Rules) -> int:
    """The max timestamp to store, or RefusedError: what a client's batch is checked for before it
    is appended, in Kafka's order."""
    fields = judge_frame(data, rules)
    (base_offset, length, _, _, crc, attributes, last_delta, base_timestamp, max_timestamp,
     producer_id, _, base_sequence, count) = fields  # fmt: skip
    codec = attributes & 7
    if base_offset != 0:
        raise RefusedError(INVALID_RECORD, "base offset")
    if length + 12 > rules.max_message_bytes:
        raise RefusedError(MESSAGE_TOO_LARGE, "size")
    if crc32c(data[21:]) != crc:
        raise RefusedError(CORRUPT_MESSAGE, "crc")
    if codec > 4:
        raise RefusedError(UNSUPPORTED_COMPRESSION_TYPE, "codec")
    if last_delta < 0 or count <= 0 or last_delta + 1 != count:
        raise RefusedError(INVALID_RECORD, "count")
    if attributes & 0x20:
        raise RefusedError(INVALID_RECORD, "control")
    if producer_id >= 0 and base_sequence < 0:
        raise RefusedError(INVALID_RECORD, "sequence")
    if attributes & 8:
        raise RefusedError(INVALID_TIMESTAMP, "LogAppendTime")
    if codec:
        if timestamp_ok(base_timestamp, rules) and timestamp_ok(max_timestamp, rules):
            return max_timestamp
        raise RefusedError(INVALID_TIMESTAMP, "header timestamps")
    latest = judge_records(data[61:], count, base_timestamp, rules)
    return max_timestamp if rules.log_append_time else latest


def judge_frame(data: bytes, rules: Rules) -> tuple[int, ...]:
    """Exactly one batch of magic 2."""
    if len(data) < 12:
        raise RefusedError(INVALID_RECORD, "no batch")
    length = struct.unpack_from(">i", data, 8)[0]
    if length < 14:
        raise RefusedError(CORRUPT_MESSAGE, "length")
    if len(data) < 17:
        raise RefusedError(INVALID_RECORD, "no batch")
    if data[16] > 2:
        raise RefusedError(CORRUPT_MESSAGE, "magic")
    if len(data) < length + 12:
        raise RefusedError(INVALID_RECORD, "no whole batch")
    if data[16] < 2:
        raise RefusedError(INVALID_RECORD, "old magic")
    if length < 49:
        if data[:8] != bytes(8) and len(data) == length + 12:
            raise RefusedError(INVALID_RECORD, "base offset")
        raise RefusedError(CORRUPT_MESSAGE, "length")
    fields = HEADER.unpack_from(data)
    if fields[5] & 7 == 4 and not rules.zstd_allowed:
        raise RefusedError(UNSUPPORTED_COMPRESSION_TYPE, "zstd")
    if len(data) != length + 12:
        raise RefusedError(INVALID_RECORD, "trailing")
    return fields


def judge_records(body: bytes, count: int, base_timestamp: int, rules: Rules) -> int:
    reader = Reader(body)
    latest = NO_TIMESTAMP
    bad: list[tuple[int, int]] = []
    for i in range(count):
        try:
            timestamp_delta, offset_delta, record = read_record(reader)
        except IndexError:
            raise RefusedError(INVALID_RECORD, "structure", i) from None
        if offset_delta != i and not Reader.lenient:
            raise RefusedError(INVALID_RECORD, "offset delta", i)
        timestamp = wrap(base_timestamp + timestamp_delta)
        latest = max(latest, timestamp)
        if rules.compacted and record.key is None:
            bad.append((INVALID_RECORD, i))
        elif not timestamp_ok(timestamp, rules):
            bad.append((INVALID_TIMESTAMP, i))
    if reader.left:
        raise RefusedError(INVALID_RECORD, "bytes left")
    if bad:
        codes = [code for code, _ in bad]
        raise RefusedError(
            max(codes) if INVALID_TIMESTAMP not in codes else 32, "records", bad[0][1]
        )
    return latest
