"""AsyncConsumer beside a broker: nothing waits on the event loop's thread."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine
from typing import Any

import pytest

from kbroker.client import (
    AsyncConsumer,
    Consumer,
    OffsetAndMetadata,
    RebalanceListener,
    TopicPartition,
)
from kbroker.client.errors import ClosedError, KafkaError, NoOffsetError
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


class Committing(RebalanceListener):
    """Begins where it seeks to, and commits what it gives up."""

    def __init__(self, consumer: AsyncConsumer) -> None:
        self.story: list[str] = []
        self._consumer = consumer

    async def on_assigned(self, partitions: Collection[TopicPartition]) -> None:
        await asyncio.gather(*(self._consumer.seek(where, 5) for where in partitions))
        self.story.append("assigned")

    async def on_revoked(self, partitions: Collection[TopicPartition]) -> None:
        await asyncio.create_task(self._consumer.commit())
        self.story.append("revoked")


class Waiting(RebalanceListener):
    """The same from functions that are none of the loop's."""

    def __init__(self, consumer: AsyncConsumer) -> None:
        self.story: list[str] = []
        self._consumer = consumer
        self._loop = asyncio.get_running_loop()

    def _wait(self, call: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(call, self._loop).result(60)

    def on_assigned(self, partitions: Collection[TopicPartition]) -> None:
        for where in partitions:
            self._wait(self._consumer.seek(where, 5))
        self.story.append("assigned")

    def on_revoked(self, partitions: Collection[TopicPartition]) -> None:
        self._wait(self._consumer.commit())
        self.story.append("revoked")


@pytest.mark.parametrize("listening", [Committing, Waiting])
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_listeners_may_call_their_consumer(
    target: BrokerProcess, topic: str, protocol: str, listening: type[Committing | Waiting]
) -> None:
    wire.create_topic(target.port, topic, 1)
    produce(target.port, topic, 10)
    where = TopicPartition(topic, 0)

    async def main() -> None:
        async with AsyncConsumer(
            bootstrap_servers=target.bootstrap, group_id=topic, group_protocol=protocol,
            auto_offset_reset="earliest", enable_auto_commit=False,
        ) as consumer:  # fmt: skip
            listener = listening(consumer)
            await consumer.subscribe([topic], listener)
            found = 0
            while found < 5:
                records = await consumer.poll(60)
                assert records[0].offset == 5 + found
                found += len(records)
            assert listener.story == ["assigned"]
            await consumer.unsubscribe()
            assert listener.story == ["assigned", "revoked"]
            committed = await consumer.committed([where])
            assert committed[where] is not None and committed[where].offset == 10
            await consumer.subscribe([topic], listener)
            assert (await consumer.poll(60))[0].offset == 5
        assert listener.story == ["assigned", "revoked"] * 2

    async def limited() -> None:
        async with asyncio.timeout(120):
            await main()

    asyncio.run(limited())


def test_what_a_listener_raises_is_told(target: BrokerProcess, topic: str) -> None:
    class Faulty(RebalanceListener):
        async def on_assigned(self, partitions: Collection[TopicPartition]) -> None:
            raise RuntimeError("not today")

    wire.create_topic(target.port, topic, 1)

    async def main() -> None:
        settings = {"bootstrap_servers": target.bootstrap, "group_id": topic}
        async with AsyncConsumer(**settings) as consumer:
            await consumer.subscribe([topic], Faulty())
            with pytest.raises(KafkaError, match="not today"):
                while True:
                    await consumer.poll(1)
        with Consumer(**settings) as waits, pytest.raises(TypeError, match="on_assigned"):
            waits.subscribe([topic], Faulty())

    asyncio.run(main())


@pytest.mark.parametrize("grouped", [False, True])
def test_it_is_closed_once(target: BrokerProcess, topic: str, grouped: bool) -> None:
    wire.create_topic(target.port, topic, 1)

    async def main() -> None:
        settings = {"group_id": topic} if grouped else {}
        consumer = AsyncConsumer(bootstrap_servers=target.bootstrap, **settings)
        await consumer.assign([(topic, 0)])
        await asyncio.gather(consumer.close(), consumer.close())
        await consumer.close()
        for call in (
            consumer.poll(0),
            consumer.assign([]),
            consumer.end_offsets([(topic, 0)]),
            consumer.subscribe([topic]),
        ):
            with pytest.raises(ClosedError):
                await call

    asyncio.run(main())
