"""Produce: what is taken, what is refused, and with which code."""

from __future__ import annotations

import random
import struct
import uuid
from collections.abc import Callable
from typing import Any

import lz4.frame
import pytest

from tests.differential.crafted import crafted
from tests.differential.harness import Differ, Script, same
from tests.reference.crafted_batches import (
    GZIP,
    LZ4,
    SNAPPY,
    ZSTD,
    Record,
)
from tests.support.messages import ZERO_UUID

VERSIONS = range(3, 14)
SOME = (3, 8, 9, 13)
HOUR_MS = 3_600_000


@same(VERSIONS)
def test_good_batches(s: Script, version: int) -> None:
    """Offsets count on, whatever the acks; what was written reads back the same."""
    topic = s.topic(partitions=2)
    s.produce(topic, s.batch(b"a", b"b", b"c"), version)
    s.produce(topic, s.batch(b"d"), version, acks=1)
    s.offset(topic, -1)
    records = [
        Record(None, key=b"k", headers=(("h", b"1"), ("h", None), ("", b""))),
        Record(b"", key=b"", timestamp_delta=5),
    ]
    s.produce(topic, s.batch(records=records), version, partition=1)
    s.fetch(topic, 0)
    s.fetch(topic, 0, partition=1)


@same(VERSIONS)
def test_many_partitions_good_and_bad(s: Script, version: int) -> None:
    """One request: good partitions are written though others of it are refused."""
    first, second = s.topic("a", 2), s.topic("b", 1)
    good, bad = s.batch(b"ok"), s.batch(b"bad", crc=1)
    body = s.produce_body({first: {0: good, 1: bad, 7: good}, second: {0: good}}, version)
    s.call(0, version, body)
    s.fetch(first, 0)
    s.fetch(first, 0, partition=1)
    s.fetch(second, 0)


@same(SOME)
def test_unknown_topic(s: Script, version: int) -> None:
    data = s.batch(b"x")
    if version >= 13:
        topic: dict[str, Any] = {"topic_id": uuid.UUID(int=0x1234)}
    else:
        topic = {"name": s.name("bad name!")}
    parts = [{"index": 0, "records": data}]
    s.call(0, version, {"acks": -1, "topic_data": [topic | {"partition_data": parts}]})
    if version >= 13:
        zero = {"topic_id": ZERO_UUID, "partition_data": parts}
        s.call(0, version, {"acks": -1, "topic_data": [zero]})


@same(SOME)
def test_bad_partition(s: Script, version: int) -> None:
    topic = s.topic(partitions=1)
    for partition in (1, -1, 2**31 - 1):
        s.produce(topic, s.batch(b"x"), version, partition=partition)


@same(SOME)
def test_bad_acks(s: Script, version: int) -> None:
    topic = s.topic()
    for acks in (2, -2, 32767):
        s.produce(topic, s.batch(b"x"), version, acks=acks)
    s.offset(topic, -1)


@same(SOME)
def test_no_data(s: Script, version: int) -> None:
    topic = s.topic()
    s.produce(topic, b"", version)
    s.call(0, version, {"acks": -1, "topic_data": []})
    s.offset(topic, -1)


CRAFTED = tuple(crafted(0))

# Where kbroker's answer is another one on purpose, and why.
CODEC = "UNSUPPORTED_COMPRESSION_TYPE, where Kafka has an internal error (-1)"
GARBAGE = "stored unread: a compressed batch is decompressed only where settings ask for it"
HEADER = "refused by the header's timestamps, records unread, so none of them is named"
DELTAS = "INVALID_RECORD, where Kafka stores offsets that no reader can make sense of"
DIFFERS = {
    "lz4, linked": "INVALID_RECORD, where Kafka has an internal error (-1)",
    "lz4, skippable": "INVALID_RECORD, where Kafka has an internal error (-1)",
    "length max": "INVALID_RECORD, where Kafka has an internal error (-1)",
    "trailing byte": "INVALID_RECORD, where Kafka drops what is behind the batch without a word",
    "append time bit": "INVALID_TIMESTAMP, where Kafka takes the producer's word for the broker's",
    "codec 5": CODEC,
    "codec 6": CODEC,
    "codec 7": CODEC,
    "gzip of garbage": GARBAGE,
    "snappy of garbage": GARBAGE,
    "lz4 of garbage": GARBAGE,
    "zstd of garbage": GARBAGE,
    "timestamps, codec 1": HEADER,
    "timestamps, codec 4": HEADER,
    "offset delta skips": DELTAS,
    "offset delta repeats": DELTAS,
    "offset delta -1": DELTAS,
}


def compare(differ: Differ, script: Callable[[Script], None], now_ms: int, name: str) -> None:
    """A difference that is listed must be there: when it goes, so does its line."""
    if name in DIFFERS and differ.against_kbroker:
        with pytest.raises(AssertionError):
            differ.compare(script, now_ms)
    else:
        differ.compare(script, now_ms)


@pytest.mark.parametrize("name", CRAFTED)
def test_crafted(differ: Differ, now_ms: int, name: str) -> None:
    """Between two good batches, so that what was taken shows in the offsets and the fetch."""

    def run(s: Script) -> None:
        topic = s.topic()
        s.produce(topic, s.batch(b"before"))
        s.produce(topic, crafted(s.now_ms)[name])
        s.produce(topic, s.batch(b"after"))
        s.offset(topic, -1)
        s.fetch(topic, 0)

    compare(differ, run, now_ms, name)


@pytest.mark.parametrize("name", ["bad crc", "count 3 of 2", "magic 1", "codec 5", "control"])
@pytest.mark.parametrize("version", [3, 7, 10, 13])
def test_crafted_at_versions(differ: Differ, now_ms: int, name: str, version: int) -> None:
    """The refusal says the same in every version of the answer."""

    def run(s: Script) -> None:
        s.produce(s.topic(), crafted(s.now_ms)[name], version)

    compare(differ, run, now_ms, name)


@same()
def test_too_large(s: Script, version: int) -> None:
    topic = s.topic(max_message_bytes="1000")
    for size in (900, 931, 932, 1000, 5000):
        s.produce(topic, s.batch(b"x" * size))
    s.produce(topic, s.batch(b"x" * 600) + s.batch(b"x" * 600))
    s.produce(topic, s.batch(b"x" * 5000, codec=ZSTD))
    big = s.topic("big")
    s.produce(big, s.batch(b"x" * 1_048_500))
    s.produce(big, s.batch(b"x" * 1_049_000))
    s.offset(topic, -1)
    s.offset(big, -1)


@pytest.mark.parametrize("codec", [0, GZIP, SNAPPY, LZ4, ZSTD])
def test_compacted_needs_keys(differ: Differ, now_ms: int, codec: int) -> None:
    """A record without a key on a compacted topic is INVALID_RECORD, told per record."""

    def run(s: Script) -> None:
        topic = s.topic(cleanup_policy="compact")
        keyed, keyless = Record(b"v", key=b"k"), Record(b"v")
        s.produce(topic, s.batch(records=[keyed, keyed], codec=codec))
        s.produce(topic, s.batch(records=[keyed, keyless, keyless], codec=codec))
        s.produce(topic, s.batch(records=[keyless], codec=codec))
        s.produce(topic, s.batch(records=[Record(None, key=b"")], codec=codec))
        s.offset(topic, -1)

    differ.compare(run, now_ms)


def lz4_frame(plain: bytes, **options: Any) -> bytes:
    return bytes(lz4.frame.compress(plain, block_size=lz4.frame.BLOCKSIZE_MAX64KB, **options))


@pytest.mark.parametrize("kind", ["whole", "checksums", "linked", "two frames", "skippable"])
def test_lz4_frames_where_batches_are_opened(differ: Differ, now_ms: int, kind: str) -> None:
    """Only one frame of independent blocks is what Java reads, and so what a compacted topic takes.
    """

    def run(s: Script) -> None:
        topic = s.topic(cleanup_policy="compact")
        records = [Record(random.Random(i).randbytes(40) * 200, key=b"k") for i in range(40)]
        plain = s.batch(records=records)[61:]
        half = len(plain) // 2
        payload = {
            "whole": lz4_frame(plain, block_linked=False),
            "checksums": lz4_frame(plain, block_linked=False, block_checksum=True,
                                   content_checksum=True),
            "linked": lz4_frame(plain, block_linked=True),
            "two frames": lz4_frame(plain[:half], block_linked=False)
            + lz4_frame(plain[half:], block_linked=False),
            "skippable": struct.pack("<II", 0x184D2A50, 4) + b"skip"
            + lz4_frame(plain, block_linked=False),
        }[kind]  # fmt: skip
        s.produce(topic, s.batch(records=records, codec=LZ4, payload=payload))
        s.fetch(topic, 0)

    compare(differ, run, now_ms, f"lz4, {kind}")


@pytest.mark.parametrize("wanted", ["producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_compression_type(differ: Differ, now_ms: int, wanted: str) -> None:
    """A batch of another codec is rewritten as the topic asks; its records stay."""

    def run(s: Script) -> None:
        topic = s.topic(compression_type=wanted)
        for codec in (0, GZIP, SNAPPY, LZ4, ZSTD):
            values = [b"%d" % i * 50 for i in range(20)]
            s.produce(topic, s.batch(*values, codec=codec))
        s.fetch(topic, 0)
        s.offset(topic, s.now_ms)

    differ.compare(run, now_ms)


@pytest.mark.parametrize("codec", [0, GZIP, ZSTD])
def test_timestamp_limits(differ: Differ, now_ms: int, codec: int) -> None:
    def run(s: Script) -> None:
        limits = {"message_timestamp_before_max_ms": "60000",
                  "message_timestamp_after_max_ms": "60000"}  # fmt: skip
        topic = s.topic(**limits)
        for shift in (0, -30_000, -90_000, 30_000, 90_000):
            s.produce(topic, s.batch(b"x", base_timestamp=s.now_ms + shift, codec=codec))
        late = [Record(b"a"), Record(b"b", timestamp_delta=90_000), Record(b"c")]
        s.produce(topic, s.batch(records=late, codec=codec))
        s.produce(topic, s.batch(b"x", base_timestamp=-1, codec=codec))
        s.fetch(topic, 0)

    compare(differ, run, now_ms, f"timestamps, codec {codec}")


@pytest.mark.parametrize("codec", [0, GZIP, LZ4])
def test_log_append_time(differ: Differ, now_ms: int, codec: int) -> None:
    def run(s: Script) -> None:
        topic = s.topic(message_timestamp_type="LogAppendTime")
        s.produce(topic, s.batch(b"a", b"b", codec=codec))
        s.produce(topic, s.batch(b"c", base_timestamp=0, codec=codec), 5)
        s.produce(topic, s.batch(b"d", base_timestamp=2**62, codec=codec), 13)
        s.produce(topic, s.batch(b"e", base_timestamp=-1, codec=codec), 13)
        s.fetch(topic, 0)

    differ.compare(run, now_ms)


@same()
def test_log_full_of_batches_reads_by_offset(s: Script, version: int) -> None:
    topic = s.topic(segment_bytes="1048576", index_interval_bytes="4096")
    for number in range(60):
        s.produce(topic, s.batch(b"%d" % number * 9000))
    for offset in (0, 1, 29, 58, 59, 60):
        s.fetch(topic, offset, partition_max_bytes=100_000)
