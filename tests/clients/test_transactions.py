"""Transactions by real clients: the outcome is seen whole or not at all, offsets go with it."""

from __future__ import annotations

import asyncio
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka import TopicPartition as AioPartition
from aiokafka.errors import ProducerFenced
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as PythonPartition
from kafka.structs import OffsetAndMetadata

from tests.support import wire
from tests.support.java import java_command
from tests.support.processes import BrokerProcess
from tests.support.transactional import values_of


def transactional(broker: BrokerProcess, name: str, **settings: Any) -> Producer:
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap, "transactional.id": name} | settings
    )
    producer.init_transactions(60)
    return producer


def test_confluent_kafka(target: BrokerProcess, topic: str) -> None:
    """Twenty transactions, every third aborted."""
    wire.create_topic(target.port, topic, 2)
    producer = transactional(target, topic)
    kept, dropped = [], []
    for number in range(20):
        producer.begin_transaction()
        values = [b"%d-%d" % (number, n) for n in range(10)]
        for n, value in enumerate(values):
            producer.produce(topic, value, partition=n % 2)
        if number % 3 == 2:
            producer.flush(30)
            producer.abort_transaction(60)
            dropped += values
        else:
            producer.commit_transaction(60)
            kept += values
    assert Counter(values_of(target, topic, "read_committed")) == Counter(kept)
    assert Counter(values_of(target, topic, "read_uncommitted")) == Counter(kept + dropped)


def test_confluent_kafka_zombie(target: BrokerProcess, topic: str) -> None:
    """Who was fenced writes nothing more, and what it had open is gone."""
    wire.create_topic(target.port, topic, 2)
    zombie = transactional(target, topic)
    zombie.begin_transaction()
    zombie.produce(topic, b"lost", partition=0)
    zombie.flush(30)
    heir = transactional(target, topic)
    heir.begin_transaction()
    heir.produce(topic, b"kept", partition=0)
    heir.commit_transaction(60)
    with pytest.raises(KafkaException) as caught:
        zombie.produce(topic, b"late", partition=1)
        zombie.commit_transaction(60)
    assert caught.value.args[0].fatal()
    assert values_of(target, topic, "read_committed") == [b"kept"]


def fill(broker: BrokerProcess, topic: str, count: int) -> list[bytes]:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    values = [b"%d" % n for n in range(count)]
    for n, value in enumerate(values):
        producer.produce(topic, value, b"%d" % (n % 7))
    assert producer.flush(30) == 0
    return values


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_confluent_kafka_copies(target: BrokerProcess, topic: str, protocol: str) -> None:
    """Consume, transform, produce: each record once, offsets included."""
    source, sink = f"{topic}-in", f"{topic}-out"
    wire.create_topic(target.port, source, 2)
    wire.create_topic(target.port, sink, 2)
    values = fill(target, source, 500)
    consumer = Consumer(
        {
            "bootstrap.servers": target.bootstrap, "group.id": topic, "group.protocol": protocol,
            "auto.offset.reset": "earliest", "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )  # fmt: skip
    consumer.subscribe([source])
    producer = transactional(target, topic)
    left, turn = len(values), 0
    while left:
        messages = consumer.consume(60, 1.0)
        if not messages:
            continue
        turn += 1
        producer.begin_transaction()
        for message in messages:
            assert message.error() is None
            producer.produce(sink, message.value(), message.key())
        positions = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), 60)
        if turn % 3 == 0:
            producer.abort_transaction(60)
            for part in consumer.committed(consumer.assignment(), 30):
                part.offset = max(part.offset, 0)
                consumer.seek(part)
        else:
            producer.commit_transaction(60)
            left -= len(messages)
    consumer.close()
    assert Counter(values_of(target, sink, "read_committed")) == Counter(values)


def test_kafka_python(target: BrokerProcess, topic: str) -> None:
    wire.create_topic(target.port, topic, 2)
    wire.create_topic(target.port, f"{topic}-in", 2)
    producer = KafkaProducer(bootstrap_servers=target.bootstrap, transactional_id=topic)
    producer.init_transactions()
    source = PythonPartition(f"{topic}-in", 1)
    for number in range(6):
        producer.begin_transaction()
        for n in range(4):
            producer.send(topic, b"%d" % number, partition=n % 2)
        offsets = {source: OffsetAndMetadata(number, "", -1)}
        producer.send_offsets_to_transaction(offsets, topic)
        if number % 2:
            producer.abort_transaction()
        else:
            producer.commit_transaction()
    producer.close()
    kept = [b"0", b"2", b"4"] * 4
    assert Counter(values_of(target, topic, "read_committed")) == Counter(kept)
    consumer = KafkaConsumer(
        bootstrap_servers=target.bootstrap, group_id=topic, isolation_level="read_committed"
    )
    assert consumer.committed(source) == 4
    consumer.close()


def test_aiokafka(target: BrokerProcess, topic: str) -> None:
    """Committed, aborted by an error, aborted by hand; then another one with the same id."""
    wire.create_topic(target.port, topic, 2)
    wire.create_topic(target.port, f"{topic}-in", 2)
    source = AioPartition(f"{topic}-in", 1)

    def producer() -> AIOKafkaProducer:
        return AIOKafkaProducer(bootstrap_servers=target.bootstrap, transactional_id=topic)

    async def send(to: AIOKafkaProducer, number: int) -> None:
        for n in range(4):
            await to.send(topic, b"%d" % number, partition=n % 2)
        await to.send_offsets_to_transaction({source: number}, topic)

    async def run() -> None:
        zombie = producer()
        await zombie.start()
        for number in range(6):
            if number % 2:
                with pytest.raises(ZeroDivisionError):
                    async with zombie.transaction():
                        await send(zombie, number)
                        raise ZeroDivisionError
            else:
                async with zombie.transaction():
                    await send(zombie, number)
        await zombie.begin_transaction()
        await send(zombie, 6)
        async with producer() as heir, heir.transaction():
            await send(heir, 7)
        with pytest.raises(ProducerFenced):
            await zombie.commit_transaction()
        await zombie.stop()

    asyncio.run(asyncio.wait_for(run(), 120))
    kept = [b"0", b"2", b"4", b"7"] * 4
    assert Counter(values_of(target, topic, "read_committed")) == Counter(kept)
    consumer = Consumer({"bootstrap.servers": target.bootstrap, "group.id": topic,
                         "isolation.level": "read_committed"})  # fmt: skip
    (found,) = consumer.committed([TopicPartition(*source)], 60)
    consumer.close()
    assert found.offset == 7


def test_java_copies(target: BrokerProcess, topic: str, java_classes: Path) -> None:
    """In version 2 of the protocol partitions are added by Produce, and each transaction has an
    epoch of its own; version 1 is a client's of before."""
    source, sink = f"{topic}-in", f"{topic}-out"
    wire.create_topic(target.port, source, 2)
    wire.create_topic(target.port, sink, 2)
    values = fill(target, source, 1000)
    done = subprocess.run(
        java_command(
            "Copier", target.bootstrap, source, sink, topic, topic, "1000", classes=java_classes
        ),
        check=False, capture_output=True, text=True, timeout=180,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.strip() == "copied 1000 aborting"
    assert Counter(values_of(target, sink, "read_committed")) == Counter(values)
