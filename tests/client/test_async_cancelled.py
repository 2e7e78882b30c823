"""Tasks cancelled at each await of the methods of AsyncProducer and AsyncAdmin: both go on."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from kbroker.client import AsyncAdmin, AsyncProducer
from kbroker.client.errors import KafkaError
from kbroker.client.transactions import State
from kbroker.ext.client_clock import monotonic
from tests.client.test_consumer_cancelled import limited
from tests.support import wire
from tests.support.cancellations import EARLY, LATE, Cancelled, cancel_at
from tests.support.processes import BrokerProcess
from tests.support.waits import wait_for

SLOW_S = 60.0
Call = Callable[[AsyncProducer, str], Coroutine[Any, Any, Any]]


async def send_to_new_topic(producer: AsyncProducer, topic: str) -> None:
    await producer.send(f"{topic}-new", b"some")


async def send_and_wait(producer: AsyncProducer, topic: str) -> None:
    await producer.send_and_wait(topic, b"some")


async def send_batch(producer: AsyncProducer, topic: str) -> None:
    await (await producer.send_batch(topic, [b"some"] * 3))


async def flush(producer: AsyncProducer, topic: str) -> None:
    await producer.send(topic, b"some")
    await producer.flush()


async def purge(producer: AsyncProducer, topic: str) -> None:
    await producer.purge()


CALLS = [send_to_new_topic, send_and_wait, send_batch, flush, purge]


async def cancelled(make: Callable[[], Coroutine[Any, Any, Any]], at: int, late: bool) -> bool:
    try:
        await cancel_at(make(), at, late)
    except Cancelled:
        return True
    return False


@pytest.mark.parametrize("call", CALLS)
def test_cancelled_call_leaves_a_producer_that_sends(
    target: BrokerProcess, topic: str, call: Call
) -> None:
    wire.create_topic(target.port, topic, 1)
    wire.create_topic(target.port, f"{topic}-new", 1)

    async def main() -> None:
        for late in (EARLY, LATE):
            for at in (1, 2, 3):
                async with AsyncProducer(
                    bootstrap_servers=target.bootstrap, linger_ms=20
                ) as producer:
                    was_cancelled = await cancelled(lambda: call(producer, topic), at, late)
                    assert was_cancelled or at > 1
                    await producer.send_and_wait(topic, b"last")
                    assert (producer._held, producer._line, +producer._asking) == (0, 0, {})

    limited(main())


async def run_transactions(producer: AsyncProducer, topic: str) -> None:
    await producer.init_transactions(SLOW_S)
    await producer.begin()
    await producer.send(topic, b"some")
    await producer.send_offsets_to_transaction({(topic, 0): 1}, topic)
    await producer.commit()
    async with producer.transaction():
        await producer.send(topic, b"some")
    await producer.begin()
    await producer.send(topic, b"aborted")
    await producer.abort()


@pytest.mark.usefixtures("protocol")
def test_cancelled_transaction_can_be_ended(target: BrokerProcess, topic: str) -> None:
    wire.create_topic(target.port, topic, 1)

    async def end(producer: AsyncProducer) -> None:
        transactions = producer._producer._transactions
        assert transactions is not None
        if transactions.state is State.NEW:
            await producer.init_transactions(SLOW_S)
        elif transactions.is_open:
            await producer.abort()

    async def main() -> None:
        for late in (EARLY, LATE):
            for at in range(1, 20):
                async with AsyncProducer(
                    bootstrap_servers=target.bootstrap, transactional_id=f"{topic}-{at}-{late}"
                ) as producer:
                    was_cancelled = await cancelled(
                        lambda: run_transactions(producer, topic), at, late
                    )
                    await end(producer)
                    async with producer.transaction():
                        await producer.send(topic, b"last")
                if not was_cancelled:
                    break
            assert at > 4

    limited(main())


def ended_threads(prefix: str) -> bool:
    return not any(thread.name.startswith(prefix) for thread in threading.enumerate())


@pytest.mark.parametrize("late", [EARLY, LATE])
@pytest.mark.parametrize("at", [1, 2])
def test_cancelled_close_leaves_no_thread(target: BrokerProcess, at: int, late: bool) -> None:
    async def main() -> None:
        producer = AsyncProducer(bootstrap_servers=target.bootstrap)
        await cancelled(producer.close, at, late)
        await producer.close()
        admin = AsyncAdmin(bootstrap_servers=target.bootstrap)
        await admin.list_topics()
        await cancelled(admin.close, at, late)
        await admin.close()

    limited(main())
    for prefix in ("kbroker-admin", "kbroker-async", "kbroker-producer"):
        wait_for(f"{prefix} ends", lambda prefix=prefix: ended_threads(prefix), SLOW_S)


def test_time_limit_of_asyncio_bounds_close(
    start_kbroker: Callable[[], BrokerProcess], topic: str
) -> None:
    """What is not delivered by then fails."""
    broker = start_kbroker()
    wire.create_topic(broker.port, topic, 1)

    async def main() -> None:
        producer = AsyncProducer(bootstrap_servers=broker.bootstrap, linger_ms=60_000)
        delivery = await producer.send(topic, b"some")
        broker.kill()
        began = monotonic()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(producer.close(), 0.5)
        assert monotonic() - began < SLOW_S
        with pytest.raises(KafkaError):
            await delivery

    limited(main())
