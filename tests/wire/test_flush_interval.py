"""kbroker.flush.interval.ms.max: how long a record of acks=1 may wait for its sync.

Where the offsets of a partition end is asked for meanwhile, which hurries no flush.
"""

from __future__ import annotations

from tests.reference.crafted_batches import batch, values_of
from tests.support import wire
from tests.support.waits import passes, wait_for
from tests.support.wire import FETCH, LIST_OFFSETS, PRODUCE
from tests.wire.test_broker_life import running
from tests.wire.test_connections import fetch_body, produce_body

LONGEST_MS = 60_000
SHORT_MS = 20
READER_WAITS_MS = 30_000


def durable_end(port: int) -> int:
    part = {"partition_index": 0, "timestamp": -1}
    body = {"replica_id": -1, "topics": [{"name": "a", "partitions": [part]}]}
    answer = wire.call_once(port, LIST_OFFSETS, 7, body)
    return int(answer["topics"][0]["partitions"][0]["offset"])


def produce_without_waiting(port: int) -> None:
    wire.create_topic(port, "a")
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
