"""ListOffsets, OffsetForLeaderEpoch and DeleteRecords."""

from __future__ import annotations

from typing import Any

from tests.differential.harness import Script, list_offsets_body, same
from tests.reference.crafted_batches import GZIP, Record

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -4, -5, -6


def at_times(s: Script, *shifts: int, short: str = "t", **configs: str) -> str:
    """A topic of one-record batches whose timestamps are now plus each of these."""
    topic = s.topic(short, **configs)
    for shift in shifts:
        s.produce(topic, s.batch(b"x", base_timestamp=s.now_ms + shift))
    return topic


@same(range(1, 12))
def test_special_timestamps(s: Script, version: int) -> None:
    """Each special timestamp on an empty, a filled and a trimmed log."""
    empty = s.topic("empty")
    filled = at_times(s, 0, 500, 100, 500, 200, short="filled")
    trimmed = at_times(s, 0, 1, 2, short="trimmed")
    delete_records(s, trimmed, 2)
    for topic in (empty, filled, trimmed):
        for special in (-1, -2, -3, -4, -5, -6, -7, -100, -(2**63)):
            s.call(2, version, list_offsets_body(topic, special))


@same((1, 4, 7, 10, 11))
def test_by_time(s: Script, version: int) -> None:
    """The first record at or after a time, within batches too, plain or compressed."""
    topic = at_times(s, 0, 1000, 500, 3000, 2000)
    spread = [Record(b"%d" % i, timestamp_delta=i * 100) for i in range(10)]
    s.produce(topic, s.batch(records=spread, base_timestamp=s.now_ms + 4000))
    s.produce(topic, s.batch(records=spread, base_timestamp=s.now_ms + 6000, codec=GZIP))
    shifts = (-1, 0, 1, 499, 501, 1001, 2500, 3000, 3001, 4250, 4900, 4901, 6199, 6900, 6901)
    for shift in shifts:
        s.call(2, version, list_offsets_body(topic, s.now_ms + shift))
    for absolute in (0, 1, 2**63 - 1):
        s.call(2, version, list_offsets_body(topic, absolute))


@same((1, 7))
def test_by_time_over_segments(s: Script, version: int) -> None:
    """The time index leads to the right segment and to a place near the record."""
    topic = s.topic(segment_bytes="1048576", index_interval_bytes="4096")
    for number in range(40):
        data = s.batch(b"z" * 60_000, base_timestamp=s.now_ms + number * 10)
        s.produce(topic, data)
    for shift in (-5, 0, 5, 10, 171, 200, 333, 389, 390, 391):
        s.call(2, version, list_offsets_body(topic, s.now_ms + shift))
    s.call(2, max(version, 7), list_offsets_body(topic, MAX_TIMESTAMP))


def without_the_time(answer: dict[str, Any]) -> dict[str, Any]:
    part = answer["topics"][0]["partitions"][0]
    return part | {"timestamp": part["timestamp"] > 0}


@same((1, 4, 7, 11))
def test_log_append_time(s: Script, version: int) -> None:
    topic = s.topic(message_timestamp_type="LogAppendTime")
    s.produce(topic, s.batch(b"a", b"b"))
    for timestamp in (s.now_ms, 2**62):
        s.call(2, version, list_offsets_body(topic, timestamp), keep=without_the_time)


@same(range(1, 12))
def test_unknown(s: Script, version: int) -> None:
    topic = s.topic()
    s.call(2, version, list_offsets_body(topic, LATEST, LATEST, EARLIEST))
    s.call(2, version, list_offsets_body(s.name("unknown"), LATEST))
    s.call(2, version, list_offsets_body("", LATEST))
    s.call(2, version, {"replica_id": -1, "topics": []})
    twice = [{"partition_index": 0, "timestamp": t} for t in (LATEST, EARLIEST)]
    s.call(2, version, {"replica_id": -1, "topics": [{"name": topic, "partitions": twice}]})


@same((4, 5, 11))
def test_leader_epochs(s: Script, version: int) -> None:
    topic = at_times(s, 0)
    for epoch in (-1, 0, 1, 9):
        s.call(2, version, list_offsets_body(topic, LATEST, current_leader_epoch=epoch))


@same((2, 7, 11))
def test_isolation_and_replicas(s: Script, version: int) -> None:
    topic = at_times(s, 0)
    for level in (0, 1):
        s.call(2, version, list_offsets_body(topic, LATEST) | {"isolation_level": level})
    for replica in (-2, 0, 1, 7):
        s.call(2, version, list_offsets_body(topic, LATEST) | {"replica_id": replica})


# --- OffsetForLeaderEpoch -----------------------------------------------------------------------


def epoch_body(topic: str, leader_epoch: int, **fields: Any) -> dict[str, Any]:
    part = {"partition": 0, "leader_epoch": leader_epoch} | fields
    return {"topics": [{"topic": topic, "partitions": [part]}]}


@same((2, 3, 4))
def test_end_of_epochs(s: Script, version: int) -> None:
    empty, topic = s.topic("empty"), at_times(s, 0, 1, 2)
    for name in (empty, topic, s.name("unknown")):
        for epoch in (-1, 0, 1, 5, -2):
            s.call(23, version, epoch_body(name, epoch))
    for current in (-1, 0, 1, 8):
        s.call(23, version, epoch_body(topic, 0, current_leader_epoch=current))
    s.call(23, version, epoch_body(topic, 0, partition=4))
    if version >= 3:
        for replica in (-1, -2, 6):
            s.call(23, version, epoch_body(topic, 0) | {"replica_id": replica})
    s.call(23, version, {"topics": []})


# --- DeleteRecords ------------------------------------------------------------------------------


def delete_records(
    s: Script, topic: str, offset: int, version: int = 2, partition: int = 0
) -> dict[str, Any]:
    parts = [{"partition_index": partition, "offset": offset}]
    return s.call(21, version, {"topics": [{"name": topic, "partitions": parts}], "timeout": 5000})


@same((0, 1, 2))
def test_delete_records(s: Script, version: int) -> None:
    topic = at_times(s, *range(10))
    for offset in (0, 3, 3, 2, 5, 11, -2, 10, -1):
        delete_records(s, topic, offset, version)
        s.offset(topic, EARLIEST)
    s.produce(topic, s.batch(b"more"))
    delete_records(s, topic, -1, version)
    s.offset(topic, EARLIEST)
    s.offset(topic, LATEST)


@same((0, 2))
def test_delete_records_within_a_batch(s: Script, version: int) -> None:
    """A cut within a batch: the batch is still served whole from there on."""
    topic = s.topic()
    s.produce(topic, s.batch(b"a", b"b", b"c", b"d"))
    delete_records(s, topic, 2, version)
    for offset in (0, 1, 2, 3, 4):
        s.fetch(topic, offset)
    s.offset(topic, EARLIEST)
    s.offset(topic, s.now_ms)


@same((0, 1, 2))
def test_delete_records_refused(s: Script, version: int) -> None:
    topic, compacted = s.topic(), s.topic("compacted", cleanup_policy="compact")
    delete_records(s, topic, 0, version, partition=3)
    delete_records(s, s.name("unknown"), 0, version)
    s.produce(compacted, s.batch(records=[Record(b"v", key=b"k")]))
    delete_records(s, compacted, 1, version)
    s.call(21, version, {"topics": [], "timeout": 1000})
