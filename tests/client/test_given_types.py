"""What callers may give: subclasses of str, buffers, partitions that are not assigned."""

from __future__ import annotations

import asyncio
import enum

import pytest

from kbroker.client import AsyncConsumer, AsyncProducer, Consumer, KafkaError, Producer
from kbroker.client.errors import NotAssignedError
from tests.client.test_consumer import produce
from tests.support import wire
from tests.support.processes import BrokerProcess


def test_members_of_str_enum_are_topics(target: BrokerProcess, topic: str) -> None:
    wire.create_topic(target.port, topic, 1)

    class Topics(enum.StrEnum):
        ORDERS = topic

    class Name(str):
        __slots__ = ()

        def __str__(self) -> str:
            return "another"

    with Producer(bootstrap_servers=target.bootstrap) as producer:
        told = [producer.send(name, b"x").result(30) for name in (Topics.ORDERS, Name(topic))]
        (batch,) = producer.send_batch(Topics.ORDERS, [b"x"]).result(30)
        assert [(type(one.topic), one.topic) for one in (*told, batch)] == [(str, topic)] * 3
        with pytest.raises(TypeError, match="topic: bytes is not str"):
            producer.send(topic.encode(), b"x")  # type: ignore[arg-type]

    async def work() -> None:
        async with AsyncProducer(bootstrap_servers=target.bootstrap) as producer:
            assert (await producer.send_and_wait(Topics.ORDERS, b"x")).offset == 3

    asyncio.run(work())
    with Consumer(bootstrap_servers=target.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([(Topics.ORDERS, 0)])
        assert consumer.position((Topics.ORDERS, 0)) == 0
        assert [type(record.topic) for record in consumer.poll(30, 1)] == [str]


def test_buffers_are_values_keys_and_headers(target: BrokerProcess, topic: str) -> None:
    wire.create_topic(target.port, topic, 1)
    buffer = bytearray(b"value")
    with Producer(bootstrap_servers=target.bootstrap, linger_ms=200) as producer:
        sent = producer.send(
            topic, buffer, memoryview(b"a key")[2:], headers=[("h", memoryview(b"1"))]
        )
        batch = producer.send_batch(topic, [bytearray(b"b"), memoryview(b"c"), None], [buffer] * 3)
        buffer[:] = b"later"  # what was sent is what it was
        assert sent.result(30).offset == 0 and batch.result(30)[0].offset == 1
        with pytest.raises(TypeError, match="value: str is not bytes"):
            producer.send(topic, "text")
    with Consumer(bootstrap_servers=target.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, 0)])
        found = [next(consumer) for _ in range(4)]
        assert [(one.key, one.value) for one in found] == [
            (b"key", b"value"), (b"value", b"b"), (b"value", b"c"), (b"value", None)
        ]  # fmt: skip
        assert found[0].headers == (("h", b"1"),)


def test_partition_that_is_not_assigned_is_a_kafka_error(
    target: BrokerProcess, topic: str
) -> None:
    """Also a KeyError; and no reason for a member to join anew."""
    wire.create_topic(target.port, topic, 1)
    with Consumer(bootstrap_servers=target.bootstrap, group_id=topic) as consumer:
        consumer.subscribe([topic])
        where = f"{topic}-none", 0
        for call in (
            lambda: consumer.seek(where, 0),
            lambda: consumer.seek_to_end([where]),
            lambda: consumer.pause([where]),
            lambda: consumer.resume([where]),
            lambda: consumer.position(where),
            lambda: consumer.lag(where),
            lambda: consumer.stop_at(where, 1),
        ):
            with pytest.raises(NotAssignedError) as raised:
                call()
            assert isinstance(raised.value, KafkaError) and isinstance(raised.value, KeyError)
            assert str(raised.value) == f"{topic}-none-0 is not assigned"
        assert not consumer._lock.broken


def test_next_and_anext_give_the_next_record(target: BrokerProcess, topic: str) -> None:
    produce(target.port, topic, 5)
    settings = {"bootstrap_servers": target.bootstrap, "auto_offset_reset": "earliest"}
    with Consumer(settings) as consumer:
        consumer.assign([(topic, 0)])
        assert [next(consumer).offset for _ in range(3)] == [0, 1, 2]
        assert consumer.position((topic, 0)) == 3

    async def work() -> None:
        async with AsyncConsumer(settings) as consumer:
            await consumer.assign([(topic, 0)])
            assert [(await anext(consumer)).offset for _ in range(3)] == [0, 1, 2]
            assert await consumer.position((topic, 0)) == 3

    asyncio.run(work())
