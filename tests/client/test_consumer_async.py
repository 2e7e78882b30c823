"""AsyncConsumer beside a broker: nothing waits on the event loop's thread."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kbroker.client import AsyncConsumer, OffsetAndMetadata, TopicPartition
from kbroker.client.errors import ClosedError, NoOffsetError
from tests.client.test_consumer import produce
from tests.support import wire
from tests.support.processes import BrokerProcess


def test_polls_end_where_the_consumer_stops(target: BrokerProcess, topic: str) -> None:
    """A loop of them leaves other tasks their turn, though none of them waits."""
    wire.create_topic(target.port, topic, 1)
    produce(target.port, topic, 10)

    async def main() -> None:
        async with AsyncConsumer(
            bootstrap_servers=target.bootstrap, auto_offset_reset="earliest"
        ) as consumer:
            await consumer.assign([(topic, 0)])
            await consumer.stop_at((topic, 0), 10)
            found = 0
            while found < 10:
                found += len(await consumer.poll(60))
            over = asyncio.Event()
            asyncio.get_running_loop().call_later(0.05, over.set)
            async with asyncio.timeout(30):
                while not over.is_set():
                    assert await consumer.poll(60) == []
                    assert not len(await consumer.poll_batch(60))

    asyncio.run(main())


def test_polling_and_iterating(target: BrokerProcess, topic: str) -> None:
    wire.create_topic(target.port, topic, 1)

    async def main() -> None:
        async with AsyncConsumer(
            bootstrap_servers=target.bootstrap, auto_offset_reset="earliest"
        ) as consumer:
            await consumer.assign([(topic, 0)])
            assert await consumer.position((topic, 0)) == 0
            ticks = 0
            waiting = asyncio.ensure_future(consumer.poll(60))
            while ticks < 10:
                await asyncio.sleep(0.01)
                ticks += 1
            assert not waiting.done()
            await asyncio.to_thread(produce, target.port, topic, 100)
            found = await waiting
            while len(found) < 100:
                found += await consumer.poll(60)
            assert [record.value for record in found] == [b"%d" % i for i in range(100)]
            await consumer.seek((topic, 0), 90)
            offsets = []
            async for record in consumer:
                offsets.append(record.offset)
                if record.offset == 99:
                    break
            assert offsets == list(range(90, 100))
            await consumer.seek((topic, 0), 50)
            async for record in consumer:
                if record.offset == 54:
                    break
            assert await consumer.position((topic, 0)) == 55, "what was not given out comes again"
            assert (await consumer.poll(60, 1))[0].offset == 55
            await consumer.seek_to_beginning()
            assert len(await consumer.poll_batch(60)) > 0
            with pytest.raises(TimeoutError):
                await consumer.seek_to_end()
                await asyncio.wait_for(consumer.poll(60), 0.1)
            assert await consumer.end_offsets([(topic, 0)]) == {(topic, 0): 100}
        with pytest.raises(ClosedError):
            await consumer.poll(0)

    asyncio.run(main())


def test_in_a_group(target: BrokerProcess, topic: str) -> None:
    wire.create_topic(target.port, topic, 2)
    produce(target.port, topic, 50)

    async def main() -> None:
        settings = {"bootstrap_servers": target.bootstrap, "group_id": topic}
        async with AsyncConsumer(**settings, auto_offset_reset="earliest") as consumer:
            await consumer.subscribe([topic])
            count = 0
            while count < 50:
                count += len(await consumer.poll(60))
            await consumer.commit()
            told = await consumer.committed([(topic, 0)])
            assert told[topic, 0].offset == 50
            assert consumer.subscription() == {topic}
            where = TopicPartition(topic, 0)
            seen: list[tuple[int, object]] = []

            async def called(offsets: Any, error: object) -> None:
                seen.append((offsets[where].offset, error))

            for offset in (7, 8):
                await consumer.commit_async({where: OffsetAndMetadata(offset)}, called)
            while len(seen) < 2:
                await consumer.poll(0.1)
            assert seen == [(7, None), (8, None)]
            metrics = consumer.metrics()
            assert metrics["commit-total"] >= 3 and metrics["rebalance-total"] == 1
            assert metrics["rebalance-latency-max"] > 0 and metrics["assigned-partitions"] == 2
            assert consumer.group_metadata().group_id == topic
        settings["group_id"] = f"other-{topic}"
        async with AsyncConsumer(**settings, auto_offset_reset="none") as late:
            await late.assign([(topic, 1)])
            with pytest.raises(NoOffsetError):
                await late.poll(60)

    asyncio.run(main())
