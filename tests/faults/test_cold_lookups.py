"""A lookup by time waits for the disk; nobody else waits for the lookup.

The reads are held up by strace, as those of a disk that is busy or asleep are.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.faults.scenes import injected
from tests.reference.crafted_batches import batch
from tests.support import wire
from tests.support.processes import BrokerProcess
from tests.support.wire import DELETE_TOPICS, FETCH, LIST_OFFSETS, PRODUCE, WireConnection
from tests.wire.test_connections import fetch_body, offsets_body, produce_body

HOLD_S = 10


@pytest.mark.timeout(120)
def test_a_lookup_that_waits_for_the_disk(
    start_kbroker: Callable[..., BrokerProcess], topic: str
) -> None:
    """Topics come and go meanwhile, which is when memory that a lookup may be reading is freed;
    the only network thread answers others."""
    broker = start_kbroker({"num.network.threads": "1"})
    wire.create_topic(broker.port, topic)
    wire.create_topic(broker.port, f"{topic}-old")
    wire.call_once(broker.port, PRODUCE, 9, produce_body(topic, batch(b"v")))
    with injected(broker, "pread64", f"delay_enter={HOLD_S}s"), WireConnection(broker.port) as one:
        waiting = one.send(LIST_OFFSETS, 7, offsets_body(topic, 0))
        assert one.is_silent(0.5)
        wire.create_topic(broker.port, f"{topic}-new")
        gone = {"topic_names": [f"{topic}-old"], "timeout": 30_000}
        (told,) = wire.call_once(broker.port, DELETE_TOPICS, 5, gone)["responses"]
        assert told["error_code"] == 0
        wire.call_once(broker.port, FETCH, 11, fetch_body(topic, 1))
        wire.call_once(broker.port, LIST_OFFSETS, 7, offsets_body(topic, -1))
        assert one.is_silent(0.05), "the lookup was over: nothing is shown"
        (part,) = one.receive(LIST_OFFSETS, 7, waiting)["topics"][0]["partitions"]
        assert (part["error_code"], part["offset"]) == (0, 0)
