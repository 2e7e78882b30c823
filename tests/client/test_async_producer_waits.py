"""What waits in an AsyncProducer: within its own time, in nobody's way, on no thread of others."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from kbroker.client.async_admin import AsyncAdmin
from kbroker.client.async_producer import AsyncProducer
from kbroker.client.errors import (
    BufferExhaustedError,
    ClosedError,
    ConnectError,
    SerializationError,
)
from tests.client.reading import read_all
from tests.support import wire
from tests.support.kbroker import KbrokerProcess

MANY = 128
LONG_MS = 600_000  # no test waits for so long
WITHIN_S = 60.0


class Refusing(ThreadPoolExecutor):
    """The application's pool, which nobody else is to use."""

    def submit(self, *call: Any, **_more: Any) -> Any:
        raise AssertionError(f"{call} on the application's threads")


def run(work: Coroutine[Any, Any, None]) -> None:
    async def alone() -> None:
        asyncio.get_running_loop().set_default_executor(Refusing())
        await asyncio.wait_for(work, 4 * WITHIN_S)

    asyncio.run(alone())


async def outcomes(sends: list[Coroutine[Any, Any, Any]]) -> list[Any]:
    return await asyncio.gather(*sends, return_exceptions=True)


async def until(what: Callable[[], bool]) -> None:
    async with asyncio.timeout(WITHIN_S):
        while not what():
            await asyncio.sleep(0.01)


def test_every_send_ends_by_its_own_time_where_nobody_is_there() -> None:
    """One after the other on a few threads they would take a minute and more."""

    async def work(port: int) -> None:
        producer = AsyncProducer(bootstrap_servers=f"127.0.0.1:{port}", max_block_ms=1000)
        began = time.monotonic()
        found = await outcomes([producer.send(f"topic-{i % 8}", b"x") for i in range(MANY)])
        batch = await outcomes([producer.send_batch("topic", [b"x"])])
        assert time.monotonic() - began < MANY / 8
        assert {type(each) for each in (*found, *batch)} == {ConnectError}
        assert len({id(each) for each in found}) == MANY
        with pytest.raises(SerializationError):
            await producer.send("\ud800", b"x")
        await producer.close()

    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))  # and does not listen
        run(work(silent.getsockname()[1]))


def test_every_send_ends_by_its_own_time_where_memory_is_full(
    start_kbroker: Callable[[], KbrokerProcess], topic: str
) -> None:
    broker = start_kbroker()
    wire.create_topic(broker.port, topic, 1)

    async def work() -> None:
        producer = AsyncProducer(
            bootstrap_servers=broker.bootstrap, max_block_ms=1000, buffer_memory=100_000,
            linger_ms=60_000,
        )  # fmt: skip
        await producer.send_batch(topic, [b"first"])
        await producer.flush()
        broker.kill()
        began = time.monotonic()
        batches = [producer.send_batch(topic, [b"." * 20_000] * 2) for _ in range(MANY // 2)]
        sends = [producer.send(topic, b"." * 20_000) for _ in range(MANY)]
        found = await outcomes([*sends, *batches])
        assert time.monotonic() - began < MANY / 8
        failed = [each for each in found if isinstance(each, Exception)]
        assert len(failed) > MANY and {type(each) for each in failed} == {BufferExhaustedError}
        await producer.close(0)

    run(work())


def test_an_end_waits_for_no_send(
    start_kbroker: Callable[[], KbrokerProcess], topic: str
) -> None:
    """Nor do flush() and cancelling."""
    broker = start_kbroker()
    wire.create_topic(broker.port, topic, 1)

    async def work() -> None:
        producer = AsyncProducer(
            bootstrap_servers=broker.bootstrap, max_block_ms=LONG_MS, buffer_memory=100_000,
            delivery_timeout_ms=LONG_MS,
        )  # fmt: skip
        await producer.send_and_wait(topic, b"first")
        broker.kill()
        tasks = [asyncio.create_task(producer.send(topic, b"." * 20_000)) for _ in range(MANY)]
        tasks += [asyncio.create_task(producer.send(f"{topic}-{i}", b"x")) for i in range(MANY)]
        await until(lambda: producer.metrics()["waiting-threads"] > 0)
        flushing = asyncio.create_task(producer.flush())
        for timeout in (0, 0.01):
            with pytest.raises(TimeoutError, match="not delivered after"):
                await producer.flush(timeout)
        for task in (tasks[-1], tasks[MANY - 1]):
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        waiting = [task for task in tasks if not task.done()]
        assert len(waiting) > MANY
        async with asyncio.timeout(WITHIN_S):
            await producer.close(0)
            await flushing
            await asyncio.wait(waiting)
        assert {type(task.exception()) for task in waiting} == {ClosedError}
        for call in (producer.send(topic, b"x"), producer.send("another", b"x"),
                     producer.send_batch(topic, [b"x"])):  # fmt: skip
            with pytest.raises(ClosedError):
                await call
        await producer.flush()
        await producer.close()

    run(work())


def test_a_topic_that_is_not_there_holds_up_no_other(
    start_kbroker: Callable[..., KbrokerProcess], topic: str
) -> None:
    broker = start_kbroker({"auto.create.topics.enable": "false"})

    async def work() -> None:
        async with AsyncProducer(
            bootstrap_servers=broker.bootstrap, max_block_ms=LONG_MS
        ) as producer:
            absent = asyncio.create_task(producer.send(f"{topic}-absent", b"x"))
            later = asyncio.create_task(producer.send(topic, b"x"))
            async with AsyncAdmin(bootstrap_servers=broker.bootstrap) as admin:
                await admin.create_topic(topic, partitions=2)
            await (await asyncio.wait_for(later, WITHIN_S))
            gate = threading.Event()
            held_up = producer._memory.submit(gate.wait, WITHIN_S)
            await (await producer.send(topic, b"x"))
            assert not held_up.done()
            gate.set()
            with pytest.raises(ValueError, match="has 2, so none 2"):
                await producer.send(topic, b"x", partition=2)
            for partition in (-1, 1.5, "1"):
                with pytest.raises(ValueError, match="is no partition"):
                    await producer.send(topic, b"x", partition=partition)  # type: ignore[arg-type]
            assert not absent.done()
            absent.cancel()

    run(work())


def test_what_waits_is_sent_in_the_order_of_asking(kbroker: KbrokerProcess, topic: str) -> None:
    """For a topic, and for memory."""

    async def work() -> None:
        async with AsyncProducer(
            bootstrap_servers=kbroker.bootstrap, buffer_memory=20_000, batch_size=1000
        ) as producer:
            tasks = [asyncio.create_task(producer.send(topic, b"%04d" % i + b"." * 1000))
                     for i in range(MANY)]  # fmt: skip
            sent = [await task for task in tasks]
            assert [(await each).offset for each in sent] == list(range(MANY))
            assert producer.metrics()["bufferpool-wait-total"] > 0

    wire.create_topic(kbroker.port, topic, 1)
    run(work())


def test_nobody_overtakes_what_waits_for_memory(kbroker: KbrokerProcess, topic: str) -> None:
    """Not when there is some again before the thread that waits for it has asked."""
    wire.create_topic(kbroker.port, topic, 1)
    gate = threading.Event()

    async def work() -> None:
        async with AsyncProducer(
            bootstrap_servers=kbroker.bootstrap, buffer_memory=20_000, batch_size=1000
        ) as producer:
            await producer.send_and_wait(topic, b"known")
            producer._memory.submit(gate.wait, WITHIN_S)
            tasks = [asyncio.create_task(producer.send(topic, b"." * 1000)) for _ in range(MANY)]
            await until(tasks[0].done)
            for task in [each for each in tasks if each.done()]:
                await task.result()
            assert not tasks[-1].done()
            tasks.append(asyncio.create_task(producer.send(topic, b"small")))
            await asyncio.sleep(0)
            gate.set()
            found = [(await (await task)).offset for task in tasks]
            assert found == list(range(1, MANY + 2))

    try:
        run(work())
    finally:
        gate.set()


def test_nobody_overtakes_what_waits_for_a_topic(kbroker: KbrokerProcess, topic: str) -> None:
    """Not when it is known before the event loop has heard of that."""
    wire.create_topic(kbroker.port, topic, 1)

    async def work() -> None:
        async with AsyncProducer(bootstrap_servers=kbroker.bootstrap) as producer:
            tasks = [asyncio.create_task(producer.send(topic, b"first")) for _ in range(MANY)]
            await asyncio.sleep(0)
            end_s = time.monotonic() + WITHIN_S
            while not producer._producer._knows(topic):  # the loop stands
                assert time.monotonic() < end_s
            tasks += [asyncio.create_task(producer.send(topic, b"later")) for _ in range(MANY)]
            found = [(await (await task)).offset for task in tasks]
            assert found == list(range(2 * MANY))
            await producer.send_and_wait(topic, b"last")
            assert not producer._asking and not producer._held

    run(work())


def test_large_batches_take_turns(kbroker: KbrokerProcess, topic: str) -> None:
    """A single record that waits for memory does not wait for the end of theirs."""
    wire.create_topic(kbroker.port, topic, 1)
    count = 20_000

    async def work() -> None:
        async with AsyncProducer(
            bootstrap_servers=kbroker.bootstrap, buffer_memory=20_000, batch_size=5000
        ) as producer:
            await producer.send_and_wait(topic, b"known")
            batches = [
                asyncio.create_task(producer.send_batch(topic, [b"." * 100] * count))
                for _ in range(2)
            ]
            await until(lambda: producer.metrics()["bufferpool-wait-total"] > 0)
            await producer.send(topic, b"single")
            assert not all(task.done() for task in batches)
            for task in batches:
                assert sum(each.records for each in await (await task)) == count

    run(work())
    assert len(read_all(kbroker.bootstrap, topic, 2 * count + 2)) == 2 * count + 2
