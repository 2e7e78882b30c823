"""Producers with a transactional id, and what readers, coordinators and the log tell of them."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

import pytest

from kbroker.client.admin_client import Admin
from kbroker.client.async_producer import AsyncProducer
from kbroker.client.consumer import Consumer
from kbroker.client.producer import Producer
from tests.support.processes import BrokerProcess
from tests.support.waits import wait_for

DECIDED = ("PrepareCommit", "PrepareAbort")


def producer_of(broker: BrokerProcess, name: str, **settings: Any) -> Producer:
    fixed = {"bootstrap_servers": broker.bootstrap, "transactional_id": name, "linger_ms": 0}
    producer = Producer(fixed | settings)
    producer.init_transactions(60)
    return producer


def values_of(broker: BrokerProcess, topic: str, isolation: str, partitions: int = 2) -> Counter:
    """What a reader of this isolation sees up to the end that it has now. A commit is answered when
    it is decided; what it wrote counts from its markers on, a moment later."""
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        wait_for("the markers", lambda: not admin.list_transactions(states=DECIDED), 30)
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


def state_of(broker: BrokerProcess, name: str) -> str:
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        return admin.describe_transactions([name])[name].state


def async_producer_of(broker: BrokerProcess, name: str) -> AsyncProducer:
    return AsyncProducer(bootstrap_servers=broker.bootstrap, transactional_id=name, linger_ms=0)


def not_aborted(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the log tells of aborts that failed."""
    return [line for line in caplog.messages if "not aborted" in line]
