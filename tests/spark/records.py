"""Records for the data source to read: written and read by librdkafka, which is the judge."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeVar

import confluent_kafka
from pyspark.errors import StreamingQueryException

from kbroker.client import Admin
from tests.support.waits import wait_for

T = TypeVar("T")


class Sent(NamedTuple):
    """A record to be written."""

    value: bytes | None
    key: bytes | None = None
    partition: int = 0
    timestamp_ms: int = 0
    headers: list[tuple[str, bytes | None]] | None = None


def fill(bootstrap: str, topic: str, records: Iterable[Sent], **settings: Any) -> None:
    """Writes them in order; each call makes at least one batch a partition."""
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap, "enable.idempotence": True, **settings}
    )
    failed: list[Any] = []

    def told(error: Any, _: Any) -> None:
        if error is not None:
            failed.append(error)

    for one in records:
        producer.produce(
            topic,
            value=one.value,
            key=one.key,
            partition=one.partition,
            timestamp=one.timestamp_ms,
            headers=one.headers or [],
            on_delivery=told,
        )
        producer.poll(0)
    assert producer.flush(60) == 0
    assert not failed, failed[:3]


def patient(run: Callable[[], T], tries: int = 6) -> T:
    """What `run` gives. Spark waits ten seconds for a Python process of a stream to start, whatever
    its settings; on a machine with much else to do that is run again."""
    while True:
        tries -= 1
        try:
            return run()
        except StreamingQueryException as error:
            if tries <= 0 or "failed to connect back" not in str(error):
                raise


def numbered(count: int, *, partition: int = 0, first: int = 0, start_ms: int = 0) -> list[Sent]:
    """Values "0", "1" ...; with start_ms a second between two of them."""
    return [
        Sent(b"%d" % n, b"k%d" % (n % 3), partition, start_ms + 1000 * n if start_ms else 0)
        for n in range(first, first + count)
    ]


def make(bootstrap: str, topic: str, partitions: int = 1, **configs: str) -> None:
    """A topic, there to be used when this returns. Old records stay."""
    configs = {"retention.ms": "-1", **configs}
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topic(topic, partitions=partitions, configs=configs)

        def served() -> bool:
            told = admin.describe_topics([topic])
            return not told.errors and all(p.leader >= 0 for p in told[topic].partitions)

        wait_for(f"topic {topic}", served, 60)
