"""aiokafka: producer and assigned consumer."""

from __future__ import annotations

import asyncio

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from tests.clients.data import CODECS, Message, check_read, numbered
from tests.support import wire
from tests.support.processes import BrokerProcess


async def read_all(broker: BrokerProcess, topic: str, partitions: int) -> list[Message]:
    consumer = AIOKafkaConsumer(bootstrap_servers=broker.bootstrap, group_id=None, check_crcs=True)
    await consumer.start()
    try:
        parts = [TopicPartition(topic, index) for index in range(partitions)]
        consumer.assign(parts)
        await consumer.seek_to_beginning(*parts)
        ends = await consumer.end_offsets(parts)
        got: list[Message] = []
        while sum(ends.values()) > len(got):
            for records in (await consumer.getmany(timeout_ms=1000)).values():
                got += [Message(r.partition, r.offset, r.key, r.value) for r in records]
        return got
    finally:
        await consumer.stop()


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("idempotent", [True, False])
def test_producer(target: BrokerProcess, topic: str, codec: str, idempotent: bool) -> None:
    wire.create_topic(target.port, topic, 3)
    sent = numbered(2000)

    async def run() -> list[Message]:
        producer = AIOKafkaProducer(
            bootstrap_servers=target.bootstrap, acks="all", enable_idempotence=idempotent,
            compression_type=None if codec == "none" else codec, linger_ms=1,
        )  # fmt: skip
        await producer.start()
        try:
            futures = [await producer.send(topic, value, key=key) for key, value in sent]
            reports = await asyncio.wait_for(asyncio.gather(*futures), 30)
        finally:
            await producer.stop()
        assert len({(r.partition, r.offset) for r in reports}) == len(sent)
        return await asyncio.wait_for(read_all(target, topic, 3), 30)

    check_read(sent, asyncio.run(run()))


def test_waits_for_new_records(target: BrokerProcess, topic: str) -> None:
    """A consumer that waits at the end gets a record soon after it is produced."""
    wire.create_topic(target.port, topic)

    async def run() -> bytes | None:
        consumer = AIOKafkaConsumer(bootstrap_servers=target.bootstrap, fetch_max_wait_ms=5000)
        producer = AIOKafkaProducer(bootstrap_servers=target.bootstrap)
        await consumer.start()
        await producer.start()
        try:
            part = TopicPartition(topic, 0)
            consumer.assign([part])
            await consumer.seek_to_end(part)
            waiting = asyncio.ensure_future(consumer.getone())
            await producer.send_and_wait(topic, b"at last")
            record = await asyncio.wait_for(waiting, 10)
            return record.value
        finally:
            await consumer.stop()
            await producer.stop()

    assert asyncio.run(run()) == b"at last"
