"""librdkafka through confluent-kafka: idempotent producer, assigned consumer, admin."""

from __future__ import annotations

import time
from typing import Any

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from tests.clients.data import CODECS, Message, check_read, numbered
from tests.support import wire
from tests.support.processes import BrokerProcess
from tests.support.waits import wait_for


def producer_of(broker: BrokerProcess, **settings: Any) -> Producer:
    return Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 1} | settings)


def consumer_of(broker: BrokerProcess, **settings: Any) -> Consumer:
    base = {"bootstrap.servers": broker.bootstrap, "group.id": "unused",
            "enable.auto.commit": False, "auto.offset.reset": "earliest",
            "enable.partition.eof": True, "check.crcs": True}  # fmt: skip
    return Consumer(base | settings)


def send_all(producer: Producer, topic: str, sent: list[tuple[bytes, bytes]]) -> list[Any]:
    """Produces and flushes; returns the delivery reports, none of them with an error."""
    reports: list[Any] = []

    def on_delivery(error: KafkaError | None, message: Any) -> None:
        assert error is None, error
        reports.append((message.partition(), message.offset()))

    for key, value in sent:
        producer.produce(topic, value, key, on_delivery=on_delivery)
        producer.poll(0)
    assert producer.flush(30) == 0
    return reports


def read_all(
    consumer: Consumer, topic: str, partitions: int, offset: int = OFFSET_BEGINNING
) -> list[Any]:
    """Reads every partition from `offset` to its end."""
    consumer.assign([TopicPartition(topic, index, offset) for index in range(partitions)])
    ended: set[int] = set()
    messages: list[Any] = []

    def step() -> bool:
        for message in consumer.consume(1000, timeout=0.5):
            if message.error() is None:
                messages.append(message)
            elif message.error().code() == KafkaError._PARTITION_EOF:
                ended.add(message.partition())
            else:
                raise KafkaException(message.error())
        return len(ended) == partitions

    wait_for(f"the ends of {topic}", step, 30, pause_s=0)
    return messages


def told(messages: list[Any]) -> list[Message]:
    return [Message(m.partition(), m.offset(), m.key(), m.value()) for m in messages]


@pytest.mark.parametrize("codec", CODECS)
def test_idempotent_producer(target: BrokerProcess, topic: str, codec: str) -> None:
    wire.create_topic(target.port, topic, 3)
    sent = numbered(5000)
    producer = producer_of(target, **{"enable.idempotence": True, "compression.type": codec})
    reports = send_all(producer, topic, sent)
    assert len(set(reports)) == len(sent)
    consumer = consumer_of(target)
    check_read(sent, told(read_all(consumer, topic, 3)))
    consumer.close()


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_acks(target: BrokerProcess, topic: str, acks: str) -> None:
    wire.create_topic(target.port, topic, 2)
    sent = numbered(2000)
    send_all(producer_of(target, acks=acks), topic, sent)
    consumer = consumer_of(target)

    def everything() -> list[Any] | None:
        messages = read_all(consumer, topic, 2)
        return messages if len(messages) == len(sent) else None

    check_read(sent, told(wait_for("all records", everything, 15)))
    consumer.close()


def test_headers_timestamps_and_nulls(target: BrokerProcess, topic: str) -> None:
    wire.create_topic(target.port, topic)
    producer = producer_of(target)
    now = int(time.time() * 1000)
    producer.produce(topic, None, b"k", timestamp=now)
    producer.produce(topic, b"", None, timestamp=now + 1, headers=[("h", b"1"), ("h", None)])
    assert producer.flush(15) == 0
    consumer = consumer_of(target)
    first, second = read_all(consumer, topic, 1)
    assert (first.key(), first.value(), first.timestamp()) == (b"k", None, (1, now))
    assert (second.key(), second.value(), second.timestamp()[1]) == (None, b"", now + 1)
    assert second.headers() == [("h", b"1"), ("h", None)]
    consumer.close()


def test_creates_topic_by_producing(target: BrokerProcess, topic: str) -> None:
    send_all(producer_of(target), topic, numbered(10))
    consumer = consumer_of(target)
    assert len(read_all(consumer, topic, 2)) == 10
    consumer.close()


def test_positions(target: BrokerProcess, topic: str) -> None:
    """Offsets by time, watermarks, seek, from the end, and beyond the end."""
    wire.create_topic(target.port, topic)
    producer = producer_of(target, **{"batch.num.messages": 10})
    now = int(time.time() * 1000)
    for number in range(100):
        producer.produce(topic, b"%d" % number, timestamp=now + number * 10)
    assert producer.flush(15) == 0
    consumer = consumer_of(target)
    part = TopicPartition(topic, 0)
    assert consumer.get_watermark_offsets(part, timeout=10) == (0, 100)
    (found,) = consumer.offsets_for_times([TopicPartition(topic, 0, now + 495)], timeout=10)
    assert found.offset == 50
    (found,) = consumer.offsets_for_times([TopicPartition(topic, 0, now + 5000)], timeout=10)
    assert found.offset in (-1, OFFSET_END)
    assert [m.offset() for m in read_all(consumer, topic, 1, 93)] == list(range(93, 100))
    assert read_all(consumer, topic, 1, OFFSET_END) == []
    assert len(read_all(consumer, topic, 1, 500)) == 100  # auto.offset.reset=earliest
    consumer.close()


def test_large_messages(target: BrokerProcess, topic: str) -> None:
    """Some at the limit pass; one over the limit of the broker is refused with its code."""
    wire.create_topic(target.port, topic, 1, {"max.message.bytes": "3000000"})
    producer = producer_of(target, **{"message.max.bytes": 5_000_000})
    errors: list[Any] = []
    for size in (2_900_000, 2_500_000, 3_100_000):
        producer.produce(topic, b"z" * size, on_delivery=lambda error, _: errors.append(error))
        assert producer.flush(30) == 0
    assert [error and error.code() for error in errors] == [
        None,
        None,
        KafkaError.MSG_SIZE_TOO_LARGE,
    ]
    consumer = consumer_of(target, **{"fetch.message.max.bytes": 100_000})
    assert [len(m.value()) for m in read_all(consumer, topic, 1)] == [2_900_000, 2_500_000]
    consumer.close()


def test_admin(target: BrokerProcess, topic: str) -> None:
    """Topics, partitions, settings, offsets, records and the cluster through AdminClient."""
    admin = AdminClient({"bootstrap.servers": target.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1, config={"retention.ms": "9999999"})])[topic].result(
        15
    )
    wire.wait_for_topic(target.port, topic)
    with pytest.raises(KafkaException) as refused:
        admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(15)
    assert refused.value.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
    admin.create_partitions([NewPartitions(topic, 4)])[topic].result(15)
    wire.wait_for_topic(target.port, topic, 4)
    assert len(admin.list_topics(topic, timeout=10).topics[topic].partitions) == 4

    resource = ConfigResource(ResourceType.TOPIC, topic)
    configs = admin.describe_configs([resource])[resource].result(15)
    assert configs["retention.ms"].value == "9999999"
    change = ConfigEntry("retention.ms", "77777", incremental_operation=AlterConfigOpType.SET)
    changed = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[change])
    admin.incremental_alter_configs([changed])[changed].result(15)

    def new_value() -> bool:
        got = admin.describe_configs([resource])[resource].result(15)
        return bool(got["retention.ms"].value == "77777")

    wait_for("the new setting", new_value, 10)
    send_all(producer_of(target), topic, numbered(1000))
    parts = [TopicPartition(topic, index) for index in range(4)]
    latest = admin.list_offsets({part: OffsetSpec.latest() for part in parts})
    assert sum(latest[part].result(15).offset for part in parts) == 1000
    trimmed = admin.delete_records([TopicPartition(topic, 0, 5)])
    assert next(iter(trimmed.values())).result(15).low_watermark == 5
    assert len(admin.describe_cluster().result(15).nodes) == 1
    admin.delete_topics([topic])[topic].result(15)
    wait_for("the topic is gone", lambda: topic not in admin.list_topics(timeout=10).topics, 15)
