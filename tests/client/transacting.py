"""Producers with a transactional id, and what readers see of what they wrote."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

from kbroker.client.consumer import Consumer
from kbroker.client.producer import Producer
from tests.support.processes import BrokerProcess


def producer_of(broker: BrokerProcess, name: str, **settings: Any) -> Producer:
    producer = Producer(
        bootstrap_servers=broker.bootstrap, transactional_id=name, linger_ms=0, **settings
    )
    producer.init_transactions(60)
    return producer


def values_of(broker: BrokerProcess, topic: str, isolation: str, partitions: int = 2) -> Counter:
    """What a reader of this isolation sees up to the end that it has now."""
    with Consumer(
        bootstrap_servers=broker.bootstrap, isolation_level=isolation, check_crcs=True
    ) as consumer:
        parts = [(topic, n) for n in range(partitions)]
        consumer.assign(parts)
        consumer.seek_to_beginning(parts)
        ends = consumer.end_offsets(parts)
        found: Counter = Counter()
        until = time.monotonic() + 30
        while any(consumer.position(part) < ends[part] for part in parts):
            assert time.monotonic() < until, "the end was not reached within 30 s"
            found.update(record.value for record in consumer.poll(0.5))
        return found
