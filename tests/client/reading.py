"""What a foreign client reads of a topic: the judge of what a producer wrote."""

from __future__ import annotations

from dataclasses import dataclass

import confluent_kafka

from tests.support.waits import wait_for


@dataclass(frozen=True, slots=True)
class Read:
    """A record as librdkafka tells it."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    timestamp_ms: int


def read_all(bootstrap: str, topic: str, count: int, partitions: int = 1) -> list[Read]:
    """`count` records of a topic from the first on, partition by partition in order."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False}
    )
    found: list[Read] = []

    def enough() -> bool:
        for message in consumer.consume(10_000, 0.2):
            assert message.error() is None, message.error()
            found.append(
                Read(
                    message.partition(),
                    message.offset(),
                    message.key(),
                    message.value(),
                    message.headers() or [],
                    message.timestamp()[1],
                )
            )
        return len(found) >= count

    try:
        consumer.assign(
            [confluent_kafka.TopicPartition(topic, part, 0) for part in range(partitions)]
        )
        wait_for(f"{count} records of {topic}", enough, 60)
    finally:
        consumer.close()
    return sorted(found, key=lambda record: (record.partition, record.offset))
