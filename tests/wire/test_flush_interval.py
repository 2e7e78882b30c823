"""kbroker.flush.interval.ms.max: how long a record of acks=1 may wait for its sync.

Where the partition ends on disk is asked for meanwhile by an answer that hurries no flush: it has
records of another partition, so it waits for nothing.
"""

from __future__ import annotations

from tests.reference.crafted_batches import batch, values_of
from tests.support import wire
from tests.support.waits import passes, wait_for
from tests.support.wire import FETCH, PRODUCE
from tests.wire.test_broker_life import running
from tests.wire.test_connections import fetch_body, produce_body

LONGEST_MS = 60_000
SHORT_MS = 20
READER_WAITS_MS = 30_000


def durable_end(port: int) -> int:
    parts = [
        {"partition": number, "fetch_offset": 0, "partition_max_bytes": 1} for number in (1, 0)
    ]
    asked = fetch_body("a", 0, topics=[{"topic": "a", "partitions": parts}])
    told = wire.call_once(port, FETCH, 11, asked)["responses"][0]["partitions"]
    assert told[0]["records"]
    return int(told[1]["high_watermark"])


def produce_without_waiting(port: int) -> None:
    wire.create_topic(port, "a", 2)
    beside = {"index": 1, "records": batch(b"beside")}
    topics = [{"name": "a", "partition_data": [beside]}]
    wire.call_once(port, PRODUCE, 9, {"acks": -1, "timeout": 10_000, "topic_data": topics})
    wire.call_once(port, PRODUCE, 9, produce_body("a", batch(b"held"), acks=1))


def test_a_record_that_nobody_waits_for_is_flushed_within_the_bound(tmp_path):
    with running(tmp_path, kbroker_flush_interval_ms_max=str(SHORT_MS)) as port:
        produce_without_waiting(port)
        wait_for("the flush", lambda: durable_end(port) == 1, LONGEST_MS / 4000)


def test_within_the_bound_a_record_waits_until_a_reader_does(tmp_path):
    """The reader's answer would be empty, had it not hurried the flush: its wait is shorter."""
    with running(tmp_path, kbroker_flush_interval_ms_max=str(LONGEST_MS)) as port:
        produce_without_waiting(port)
        passes(25 * SHORT_MS)
        assert durable_end(port) == 0
        waits = fetch_body("a", 0, max_wait=READER_WAITS_MS, min_bytes=1)
        answer = wire.call_once(port, FETCH, 11, waits)
        assert values_of(answer["responses"][0]["partitions"][0]["records"]) == [(0, b"held")]
        assert durable_end(port) == 1
