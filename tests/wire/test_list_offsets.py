"""ListOffsets: by meaning and by time, in all versions; partitions named twice; broken requests.

Each special timestamp on logs of all kinds is compared with Apache Kafka by
tests/differential/test_offsets.py.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest
from kio.index import load_request_schema

from tests.reference.crafted_batches import GZIP, Batch, Record
from tests.support import messages, wire
from tests.support.fixtures import BrokerFactory
from tests.support.kbroker import KbrokerProcess
from tests.support.processes import BrokerProcess
from tests.support.transactional import WireProducer
from tests.support.waits import wait_for
from tests.support.wire import DELETE_RECORDS, LIST_OFFSETS, PRODUCE, WireConnection
from tests.wire.test_connections import produce_body, still_serves

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -4, -5, -6
NONE, UNKNOWN, UNSUPPORTED, INVALID_REQUEST = 0, 3, 35, 42
FENCED, UNKNOWN_EPOCH = 74, 75
TIMES = (100, 200, 300, 700, 500, 600)  # of the records 0 to 5
START = 1

Result = tuple[int, int, int]


def body(*topics: tuple[str, list[tuple[int, int]]], **fields: Any) -> dict[str, Any]:
    """Of names with (partition, timestamp) each."""
    rows = [
        {"name": name, "partitions": [{"partition_index": p, "timestamp": t} for p, t in wanted]}
        for name, wanted in topics
    ]
    return {"replica_id": -1, "topics": rows} | fields


def results(connection: WireConnection, version: int, asked: dict[str, Any]) -> list[Result]:
    """(error, offset, timestamp) of each partition."""
    answer = connection.call(LIST_OFFSETS, version, asked)
    return [(one["error_code"], one["offset"], one["timestamp"])
            for topic in answer["topics"] for one in topic["partitions"]]  # fmt: skip


def fill(broker: BrokerProcess, topic: str) -> None:
    """Partition 0 gets the records, the second half in one compressed batch, and loses the first;
    partition 1 gets none."""
    wire.create_topic(broker.port, topic, 2)
    spread = [Record(b"v", timestamp_delta=at - TIMES[3]) for at in TIMES[3:]]
    batches = [Batch(records=[Record(b"v")], base_timestamp=at) for at in TIMES[:3]]
    batches.append(Batch(records=spread, base_timestamp=TIMES[3], codec=GZIP))
    with WireConnection(broker.port) as connection:
        for one in batches:
            answer = connection.call(PRODUCE, 9, produce_body(topic, one.encode()))
            assert answer["responses"][0]["partition_responses"][0]["error_code"] == NONE
        parts = [{"partition_index": 0, "offset": START}]
        cut = {"topics": [{"name": topic, "partitions": parts}], "timeout": 30_000}
        assert messages.error_codes(connection.call(DELETE_RECORDS, 2, cut))


@pytest.mark.parametrize("version", range(1, 12))
def test_by_meaning_and_by_time(target: BrokerProcess, topic: str, version: int) -> None:
    fill(target, topic)
    with WireConnection(target.port) as connection:

        def at(partition: int, timestamp: int, **fields: Any) -> Result:
            asked = body((topic, [(partition, timestamp)]), **fields)
            (found,) = results(connection, version, asked)
            return found

        assert at(0, LATEST) == (NONE, 6, -1)
        assert at(0, EARLIEST) == (NONE, START, -1)
        assert at(0, 0) == at(0, 200) == (NONE, 1, 200), "what was deleted is not found"
        assert at(0, 201) == (NONE, 2, 300)
        assert at(0, 301) == at(0, 700) == (NONE, 3, 700)
        assert at(0, 701) == at(0, 2**63 - 1) == (NONE, -1, -1)
        assert at(1, LATEST) == at(1, EARLIEST) == (NONE, 0, -1)
        assert at(1, 5) == (NONE, -1, -1)
        assert at(2, LATEST) == at(-1, 5) == (UNKNOWN, -1, -1)
        assert at(0, -7) == at(0, -(2**63)) == (UNSUPPORTED, -1, -1)
        for timestamp, since, expected in (
            (MAX_TIMESTAMP, 7, (NONE, 3, 700)),
            (EARLIEST_LOCAL, 8, (NONE, START, -1)),
            (LATEST_TIERED, 9, (NONE, -1, -1)),
            (EARLIEST_PENDING_UPLOAD, 11, (NONE, -1, -1)),
        ):
            assert at(0, timestamp) == (expected if version >= since else (UNSUPPORTED, -1, -1))


def test_many_partitions_at_once(target: BrokerProcess, topic: str) -> None:
    """By time and by meaning in one request, known and unknown; each in its place."""
    fill(target, topic)
    asked = body((topic, [(0, 300), (7, 300), (1, LATEST)]), ("no-such-topic", [(0, 5)]),
                 ("x" * 250, [(0, LATEST)]))  # fmt: skip
    with WireConnection(target.port) as connection:
        topics = connection.call(LIST_OFFSETS, 6, asked)["topics"]
    told = {
        (row["name"], one["partition_index"]): (one["error_code"], one["offset"])
        for row in topics
        for one in row["partitions"]
    }
    assert told == {
        (topic, 0): (NONE, 2), (topic, 7): (UNKNOWN, -1), (topic, 1): (NONE, 0),
        ("no-such-topic", 0): (UNKNOWN, -1), ("x" * 250, 0): (UNKNOWN, -1),
    }  # fmt: skip


@pytest.mark.parametrize("version", [2, 7, 11])
def test_an_open_transaction_ends_what_read_committed_sees(
    target: BrokerProcess, topic: str, version: int
) -> None:
    wire.create_topic(target.port, topic)
    with WireConnection(target.port) as connection:

        def at(timestamp: int, level: int, replica: int = -1) -> Result:
            asked = body((topic, [(0, timestamp)]), isolation_level=level, replica_id=replica)
            (found,) = results(connection, version, asked)
            return found

        before = Batch(records=[Record(b"v")], base_timestamp=100).encode()
        connection.call(PRODUCE, 9, produce_body(topic, before))
        producer = WireProducer(target, topic)
        producer.init()
        producer.send(topic, 0, b"open")
        assert at(LATEST, 0) == (NONE, 2, -1) and at(LATEST, 1) == (NONE, 1, -1)
        assert at(101, 0)[:2] == (NONE, 1) and at(101, 1) == (NONE, -1, -1)
        assert at(100, 1) == (NONE, 0, 100)
        if version >= 7:
            assert at(MAX_TIMESTAMP, 0)[:2] == (NONE, 1)
            assert at(MAX_TIMESTAMP, 1) == (NONE, -1, -1)
        producer.end(commit=True)
        wait_for("the marker is seen", lambda: at(LATEST, 1) == (NONE, 3, -1), 60)
        assert at(101, 1)[:2] == (NONE, 1)


@pytest.mark.parametrize("version", [2, 7, 11])
def test_the_end_of_the_log_is_told_to_replicas_alone(tmp_path: Path, version: int) -> None:
    """At once, where a consumer waits until the disk has the record (test_own_writes.py, and
    tests/faults/test_visibility.py for what nobody is told before)."""
    broker = KbrokerProcess(tmp_path, {"kbroker.flush.interval.ms.max": "60000"})
    try:
        broker.start()
        wire.create_topic(broker.port, "t")
        with WireConnection(broker.port) as connection:
            record = Batch(records=[Record(b"v")], base_timestamp=100).encode()
            answer = connection.call(PRODUCE, 9, produce_body("t", record, acks=1))
            assert answer["responses"][0]["partition_responses"][0]["error_code"] == NONE
            asked = body(("t", [(0, LATEST)]), replica_id=1)
            assert results(connection, version, asked) == [(NONE, 1, -1)]
    finally:
        broker.stop()


@pytest.mark.parametrize("version", [4, 6])
def test_leader_epochs(target: BrokerProcess, topic: str, version: int) -> None:
    wire.create_topic(target.port, topic)
    with WireConnection(target.port) as connection:
        for epoch, code in ((-1, NONE), (0, NONE), (1, UNKNOWN_EPOCH), (-2, FENCED)):
            for timestamp in (LATEST, 5):
                asked = body((topic, [(0, timestamp)]))
                asked["topics"][0]["partitions"][0]["current_leader_epoch"] = epoch
                (found,) = results(connection, version, asked)
                assert found[0] == code


def test_the_epoch_of_what_is_found(start_target: BrokerFactory) -> None:
    """Each offset comes with the epoch in which it was written, the end with the one of now."""
    broker = start_target()
    wire.create_topic(broker.port, "t")

    def append() -> None:
        batch = Batch(records=[Record(b"v")], base_timestamp=100).encode()
        answer = wire.call_once(broker.port, PRODUCE, 9, produce_body("t", batch))
        assert answer["responses"][0]["partition_responses"][0]["error_code"] == NONE

    def epoch_of(timestamp: int) -> int:
        answer = wire.call_once(broker.port, LIST_OFFSETS, 4, body(("t", [(0, timestamp)])))
        return int(answer["topics"][0]["partitions"][0]["leader_epoch"])

    append()
    first = epoch_of(LATEST)
    assert epoch_of(EARLIEST) == epoch_of(100) == first
    broker.kill()
    broker.start()
    wait_for("the partition has its leader", lambda: epoch_of(LATEST) > first, 30)
    second = epoch_of(LATEST)
    assert epoch_of(EARLIEST) == epoch_of(100) == first
    append()
    parts = [{"partition_index": 0, "offset": 1}]
    cut = {"topics": [{"name": "t", "partitions": parts}], "timeout": 30_000}
    wire.call_once(broker.port, DELETE_RECORDS, 2, cut)
    assert epoch_of(EARLIEST) == epoch_of(100) == epoch_of(LATEST) == second


@pytest.mark.parametrize("version", [1, 5, 11])
def test_a_partition_that_is_named_twice_is_refused_once(
    target: BrokerProcess, topic: str, version: int
) -> None:
    """In one entry of a topic or in two, of a topic that is there or not."""
    wire.create_topic(target.port, topic, 3)
    asked = body(
        (topic, [(0, LATEST), (1, LATEST), (0, EARLIEST), (0, 7)]), ("absent", [(0, 7), (0, 7)]),
        (topic, [(1, LATEST), (2, LATEST)]),
    )  # fmt: skip
    with WireConnection(target.port) as connection:
        topics = connection.call(LIST_OFFSETS, version, asked)["topics"]
    told = sorted(
        (row["name"], one["partition_index"], one["error_code"])
        for row in topics
        for one in row["partitions"]
    )
    assert told == sorted(
        [(topic, 0, INVALID_REQUEST), (topic, 1, INVALID_REQUEST), (topic, 2, NONE),
         ("absent", 0, INVALID_REQUEST)]
    )  # fmt: skip


def test_tagged_fields_are_passed_over(target: BrokerProcess, topic: str) -> None:
    fill(target, topic)
    tags = b"\x02\x09\x03abc\x63\x00"
    name = topic.encode()
    partition = struct.pack(">iiq", 0, -1, 300) + tags
    data = struct.pack(">ib", -1, 0) + b"\x02" + bytes([len(name) + 1]) + name
    data += b"\x02" + partition + tags + tags
    with WireConnection(target.port) as connection:
        connection.send_bytes(messages.request_frame(LIST_OFFSETS, 6, data, 7))
        answer = connection.receive(LIST_OFFSETS, 6, 7)
    (part,) = answer["topics"][0]["partitions"]
    assert (part["error_code"], part["offset"], part["timestamp"]) == (NONE, 2, 300)


def is_refused(broker: BrokerProcess, version: int, data: bytes) -> None:
    with WireConnection(broker.port) as connection:
        connection.send_bytes(messages.request_frame(LIST_OFFSETS, version, data, 1))
        connection.wait_closed()


@pytest.mark.parametrize("version", [1, 2, 4, 6, 10])
def test_a_request_that_ends_too_soon(kbroker: BrokerProcess, version: int) -> None:
    """At every byte: the connection is closed, and the log says why."""
    asked = body(("some", [(0, LATEST), (1, 5)]), ("other", [(0, EARLIEST)]))
    data = messages.encode(load_request_schema(LIST_OFFSETS, version), asked)
    told = kbroker.log_text().count("malformed ListOffsets request")
    for end in range(len(data)):
        is_refused(kbroker, version, data[:end])
    with WireConnection(kbroker.port) as connection:
        connection.send_bytes(messages.request_frame(LIST_OFFSETS, version, data, 1))
        connection.receive(LIST_OFFSETS, version, 1)
    wait_for(
        "the reason is told",
        lambda: kbroker.log_text().count("malformed ListOffsets request") > told,
        60,
    )


@pytest.mark.parametrize("count", [2**31 - 1, 1_000_001, 1_000, -1, -(2**31)])
def test_counts_of_what_is_not_there(kbroker: BrokerProcess, count: int) -> None:
    """Of topics, and of partitions; compact and not."""
    number = struct.pack(">i", count)
    compact = bytearray()
    messages.write_uvarint(compact, (count + 1) % 2**32)
    topic, few = struct.pack(">h", 4) + b"some", bytes(60)
    is_refused(kbroker, 1, struct.pack(">i", -1) + number + few)
    is_refused(kbroker, 1, struct.pack(">ii", -1, 1) + topic + number + few)
    is_refused(kbroker, 6, struct.pack(">ib", -1, 0) + compact + few)
    is_refused(kbroker, 6, struct.pack(">ib", -1, 0) + b"\x02\x05some" + compact + few)
    still_serves(kbroker)
