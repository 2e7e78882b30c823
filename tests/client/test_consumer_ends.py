"""A consumer that is told where to stop, and the types of timestamps as a column."""

from __future__ import annotations

import time

from kbroker.client import Consumer
from tests.client.test_consumer import produce
from tests.support import wire
from tests.support.processes import BrokerProcess


def test_reads_up_to_where_it_stops(target: BrokerProcess, topic: str) -> None:
    """A batch that reaches beyond comes whole; then there is nothing to wait for."""
    wire.create_topic(target.port, topic, 1)
    for _ in range(3):
        produce(target.port, topic, 10)
    with Consumer(bootstrap_servers=target.bootstrap, auto_offset_reset="none") as consumer:
        consumer.assign([(topic, 0)])
        consumer.seek((topic, 0), 3)
        consumer.stop_at((topic, 0), 12)
        offsets: list[int] = []
        while consumer.position((topic, 0)) < 12:
            batch = consumer.poll_batch(60)
            offsets += batch.offsets
            assert [*batch.timestamp_types] == [0] * len(batch)
        assert offsets == [*range(3, len(offsets) + 3)]
        begun = time.monotonic()
        assert not len(consumer.poll_batch(60))
        assert consumer.poll(60) == []
        assert time.monotonic() - begun < 60
        consumer.stop_at((topic, 0), 30)
        while len(offsets) < 27:
            offsets += consumer.poll_batch(60).offsets
        assert offsets == [*range(3, 30)]
