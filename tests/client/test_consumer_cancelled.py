"""Tasks cancelled at each await of an AsyncConsumer's methods."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from kbroker.client import AsyncConsumer, TopicPartition
from tests.client.test_consumer import produce
from tests.client.test_consumer_interrupted import COUNT, SOME, Counting, settings_of
from tests.support import wire
from tests.support.cancellations import EARLY, LATE, Cancelled, cancel_at
from tests.support.processes import BrokerProcess

AWAITS = 8  # more than any of the calls here have while records are there
ROUNDS = 3


async def polled(consumer: AsyncConsumer) -> list[int]:
    return [record.offset for record in await consumer.poll(10, SOME)]


async def batched(consumer: AsyncConsumer) -> list[int]:
    return list((await consumer.poll_batch(10, SOME)).offsets)


async def iterated(consumer: AsyncConsumer) -> list[int]:
    async for record in consumer:
        return [record.offset]
    return []


WAYS = [polled, batched, iterated]


def limited(main: Coroutine[Any, Any, None]) -> None:
    async def run() -> None:
        async with asyncio.timeout(120):
            await main

    asyncio.run(run())


@pytest.fixture
def filled(target: BrokerProcess, topic: str) -> str:
    wire.create_topic(target.port, topic, 1)
    produce(target.port, topic, COUNT)
    return topic


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("intercepted", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_cancelled_call_loses_no_record(
    target: BrokerProcess,
    filled: str,
    way: Callable[[AsyncConsumer], Coroutine[Any, Any, list[int]]],
    intercepted: bool,
    grouped: bool,
) -> None:
    """What it took is returned by the next call, and no offset is committed past what was."""
    where = TopicPartition(filled, 0)
    more: dict[str, Any] = {"interceptor_classes": [Counting()]} if intercepted else {}
    if grouped:
        more |= {"group_id": filled, "auto_commit_interval_ms": 1}

    async def main() -> None:
        async with AsyncConsumer(settings_of(target, **more)) as consumer:
            if grouped:
                await consumer.subscribe([filled])
            else:
                await consumer.assign([where])
            found = await polled(consumer)
            cancelled = 0
            for round_ in range(2 * AWAITS * ROUNDS):
                at, late = round_ // 2 % AWAITS + 1, (EARLY, LATE)[round_ % 2]
                try:
                    found += await cancel_at(way(consumer), at, late)
                except Cancelled:
                    cancelled += 1
                if grouped:
                    committed = (await consumer.committed([where]))[where]
                    assert committed is None or committed.offset <= len(found)
                assert await consumer.position(where) == len(found)
            assert cancelled > ROUNDS
            for _ in range(ROUNDS):
                found += await polled(consumer)
            assert found == [*range(len(found))], "lost, doubled or out of order"

    limited(main())
