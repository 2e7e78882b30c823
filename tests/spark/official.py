"""Records that tests of Spark write and read with a client that is not Spark's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

TIMEOUT_S = 60.0
#: A time in the past, in ms, from which the tests count.
TIME_MS = 1_357_034_400_000

Headers = tuple[tuple[str, bytes | None], ...]


class Row(NamedTuple):
    """A record as it is read, whoever reads it; headers that are not there are ()."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: Headers


def create_topic(bootstrap: str, name: str, partitions: int, **config: str) -> None:
    """A topic; settings by Kafka's names with underscores."""
    settings = {"retention.ms": "-1"}  # what they write is of 2013
    settings |= {key.replace("_", "."): value for key, value in config.items()}
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, partitions, 1, config=settings)])[name].result(TIMEOUT_S)


def delete_topic(bootstrap: str, name: str) -> None:
    """Deletes a topic, and waits for the answer."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics([name])[name].result(TIMEOUT_S)


def add_partitions(bootstrap: str, name: str, total: int) -> None:
    """Raises the number of partitions to `total`."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_partitions([NewPartitions(name, total)])[name].result(TIMEOUT_S)


def delete_records(bootstrap: str, name: str, partition: int, before: int) -> None:
    """Moves the start of a partition up to an offset."""
    wanted = TopicPartition(name, partition, before)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_records([wanted])[wanted].result(TIMEOUT_S)


def write(
    bootstrap: str, topic: str, partitions: int, numbers: Iterable[int], **config: Any
) -> list[Row]:
    """Numbered records, dealt out to the partitions in turn: a null key every 7th, a null value
    every 11th, headers every 3rd, one millisecond between them."""
    sent: list[Row] = []
    failed: list[Any] = []

    def told(headers: Headers, error: Any, message: Any) -> None:
        if error is not None:
            failed.append(error)
        else:  # the headers of a delivery report are not filled
            sent.append(row_of(message)._replace(headers=headers))

    producer = Producer(
        {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5, **config}
    )
    for number in numbers:
        headers: list[tuple[str, bytes | None]] = []
        if number % 3 == 0:
            headers = [("n", b"%d" % number), ("empty", b""), ("null", None), ("n", b"again")]
        producer.produce(
            topic,
            None if number % 11 == 0 else b"value-%d" % number,
            None if number % 7 == 0 else b"key-%d" % (number % 13),
            partition=number % partitions,
            timestamp=TIME_MS + number,
            headers=headers,
            on_delivery=partial(told, tuple(headers)),
        )
        producer.poll(0)
    producer.flush(TIMEOUT_S)
    assert not failed, failed[0]
    return sorted(sent)


def row_of(message: Any) -> Row:
    """A message of confluent-kafka."""
    headers = tuple(message.headers() or ())
    place = (message.topic(), message.partition(), message.offset())
    return Row(*place, message.key(), message.value(), message.timestamp()[1], headers)


def read(bootstrap: str, topic: str, partitions: int) -> list[Row]:
    """All that a topic holds, by partition and offset."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "nobody", "enable.partition.eof": True,
         "enable.auto.commit": False}
    )  # fmt: skip
    try:
        consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
        rows, ended = [], 0
        while ended < partitions:
            message = consumer.poll(TIMEOUT_S)
            assert message is not None, f"{topic}: nothing came within {TIMEOUT_S:g} s"
            if message.error() is None:
                rows.append(row_of(message))
            else:
                assert message.error().name() == "_PARTITION_EOF", message.error()
                ended += 1
        return sorted(rows)
    finally:
        consumer.close()


def rows_of(frame: Any) -> list[Row]:
    """What Spark read with includeHeaders, in the order of `read`."""
    return sorted(row_of_spark(row) for row in frame.collect())


def row_of_spark(row: Any) -> Row:
    """A row of Spark's connector."""
    headers = tuple(
        (header.key, None if header.value is None else bytes(header.value))
        for header in row.headers or ()
    )
    key = None if row.key is None else bytes(row.key)
    value = None if row.value is None else bytes(row.value)
    time_ms = round(row.timestamp.timestamp() * 1000)
    return Row(row.topic, row.partition, row.offset, key, value, time_ms, headers)


def places(rows: Sequence[Row]) -> list[tuple[str, int, int]]:
    """Topic, partition and offset of each."""
    return [row[:3] for row in rows]
