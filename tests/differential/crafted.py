"""Batches that a broker must refuse, or take with care, by what is odd about them."""

from __future__ import annotations

from functools import partial
from typing import Any

from tests.reference.crafted_batches import (
    CONTROL,
    GZIP,
    LZ4,
    SNAPPY,
    TRANSACTIONAL,
    ZSTD,
    Batch,
    Record,
    encode_record,
    message_set,
)

HOUR_MS = 3_600_000


def crafted(now_ms: int) -> dict[str, bytes]:
    """All of them by name; `now_ms` is the time of their records where that is not the point."""
    two = [Record(b"one"), Record(b"two")]
    odd = partial(_odd, base_timestamp=now_ms, records=two)
    return framing(odd) | counts(odd) | attributes(odd) | records(odd) | timestamps(odd, now_ms)


def _odd(**fields: Any) -> bytes:
    return Batch(**fields).encode()


def framing(odd: partial[bytes]) -> dict[str, bytes]:
    """Lengths, magic and checksum."""
    good = odd()
    return {
        "bad crc": odd(crc=12345),
        "flipped bit": good[:-3] + bytes([good[-3] ^ 1]) + good[-2:],
        "magic 3": odd(magic=3),
        "magic -1": odd(magic=-1),
        "magic 0": message_set(0, b"old", b"older"),
        "magic 1": message_set(1, b"old", b"older"),
        "length short": odd(batch_length=20),
        "length 48": odd(batch_length=48),
        "length 0": odd(batch_length=0),
        "length -1": odd(batch_length=-1),
        "length long": odd(batch_length=1000),
        "length max": odd(batch_length=2**31 - 1),
        "cut off": good[:-5],
        "header only": good[:61],
        "60 bytes": good[:60],
        "11 bytes": good[:11],
        "1 byte": b"\0",
        "trailing byte": good + b"\0",
        "two batches": good + odd(),
        "base offset 77": odd(base_offset=77),
        "base offset -1": odd(base_offset=-1),
        "leader epoch 9": odd(leader_epoch=9),
    }


def counts(odd: partial[bytes]) -> dict[str, bytes]:
    """How many records the header tells."""
    return {
        "count 3 of 2": odd(record_count=3),
        "count 1 of 2": odd(record_count=1),
        "count 0": odd(record_count=0),
        "count -1": odd(record_count=-1),
        "count max": odd(record_count=2**31 - 1),
        "last delta 5": odd(last_offset_delta=5),
        "last delta 0": odd(last_offset_delta=0),
        "last delta -1": odd(last_offset_delta=-1),
        "no records": odd(records=[]),
    }


def attributes(odd: partial[bytes]) -> dict[str, bytes]:
    """Codecs, kinds of batch, producer fields."""
    return {
        "control": odd(attributes=CONTROL),
        "control key": odd(attributes=CONTROL, records=[Record(b"\0" * 6, key=b"\0\0\0\0")]),
        "transactional without producer": odd(attributes=TRANSACTIONAL),
        "delete horizon": odd(attributes=0x40),
        "unknown attributes": odd(attributes=0x7F80),
        "append time bit": odd(attributes=0x08),
        "codec 5": odd(attributes=5),
        "codec 6": odd(attributes=6),
        "codec 7": odd(attributes=7),
        "gzip of garbage": odd(codec=GZIP, payload=b"garbage" * 9),
        "snappy of garbage": odd(codec=SNAPPY, payload=b"garbage" * 9),
        "lz4 of garbage": odd(codec=LZ4, payload=b"garbage" * 9),
        "zstd of garbage": odd(codec=ZSTD, payload=b"garbage" * 9),
        "gzip": odd(codec=GZIP),
        "snappy": odd(codec=SNAPPY),
        "lz4": odd(codec=LZ4),
        "zstd": odd(codec=ZSTD),
        "producer epoch without id": odd(producer_epoch=3),
        "sequence without id": odd(base_sequence=3),
        "producer without sequence": odd(producer_id=5 << 40, producer_epoch=0),
        "producer without epoch": odd(producer_id=5 << 40, base_sequence=0),
        "producer id -2": odd(producer_id=-2, producer_epoch=0, base_sequence=0),
    }


def records(odd: partial[bytes]) -> dict[str, bytes]:
    """What is wrong inside, under a right checksum."""
    plain = b"".join(encode_record(Record(v), i) for i, v in enumerate((b"one", b"two")))
    return {
        "offset delta skips": odd(
            records=[Record(b"a", offset_delta=0), Record(b"b", offset_delta=2)]
        ),
        "offset delta repeats": odd(records=[Record(b"a"), Record(b"b", offset_delta=0)]),
        "offset delta -1": odd(records=[Record(b"a", offset_delta=-1), Record(b"b")]),
        "record attributes": odd(records=[Record(b"a", attributes=3), Record(b"b")]),
        "bytes after records": odd(payload=plain + b"\0\0"),
        "record length over": odd(payload=b"\x7e" + plain[1:]),
        "record length -1": odd(payload=b"\x01" + plain[1:]),
        "record length 5-byte varint": odd(payload=b"\xff\xff\xff\xff\x0f" + plain[1:]),
        "header count -1": odd(payload=b"\x0c\0\0\0\x01\x01\x01" * 2),
    }


def timestamps(odd: partial[bytes], now: int) -> dict[str, bytes]:
    """Times before, after, and against the limits."""
    return {
        "timestamp -1": odd(base_timestamp=-1),
        "timestamp -2": odd(base_timestamp=-2),
        "timestamp 0": odd(base_timestamp=0),
        "timestamp min": odd(base_timestamp=-(2**63)),
        "timestamp +2 h": odd(base_timestamp=now + 2 * HOUR_MS),
        "timestamp max": odd(base_timestamp=2**63 - 1),
        "record timestamp +2 h": odd(
            records=[Record(b"a"), Record(b"b", timestamp_delta=2 * HOUR_MS)]
        ),
        "max timestamp low": odd(max_timestamp=now - 5),
        "max timestamp high": odd(max_timestamp=now + 5),
        "max timestamp +2 h": odd(max_timestamp=now + 2 * HOUR_MS),
        "negative delta": odd(records=[Record(b"a"), Record(b"b", timestamp_delta=-5)]),
    }
