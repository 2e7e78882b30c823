"""The producer under asyncio."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable

import pytest

from kbroker.client.async_admin import AsyncAdmin
from kbroker.client.async_producer import AsyncDelivery, AsyncProducer
from kbroker.client.consumer import Consumer
from kbroker.client.errors import KafkaError, UndeliveredError
from kbroker.client.partitions import OffsetAndMetadata, TopicPartition
from tests.client.between import silent as standing_still
from tests.client.reading import read_all
from tests.support import wire
from tests.support.kbroker import KbrokerProcess
from tests.support.waits import wait_for


class Sent:
    """A Delivery whose outcome the test gives; all have the id of one batch."""

    batch_id = 7

    def __init__(self) -> None:
        self.told: list[Callable[[object], None]] = []
        self.is_done = False

    def done(self) -> bool:
        return self.is_done

    def add_done_callback(self, call: Callable[[object], None]) -> None:
        self.told.append(call)

    def settle(self) -> None:
        self.is_done = True
        for call in self.told:
            call(self)

    def result(self, timeout: float) -> str:
        assert self.is_done and timeout == 0
        return "there"


def test_a_batch_with_the_id_of_one_that_is_gone(kbroker: KbrokerProcess) -> None:
    """Who waits for it is not told by the other's outcome."""

    async def work() -> None:
        async with AsyncProducer(bootstrap_servers=kbroker.bootstrap) as producer:
            first, second = Sent(), Sent()
            waits = asyncio.ensure_future(AsyncDelivery(producer, first))  # type: ignore[arg-type]
            await asyncio.sleep(0)
            first.settle()
            later = asyncio.ensure_future(AsyncDelivery(producer, second))  # type: ignore[arg-type]
            assert await waits == "there"
            for _ in range(10):
                await asyncio.sleep(0)
            assert not later.done()
            second.settle()
            assert await asyncio.wait_for(later, 60) == "there"

    asyncio.run(work())


def test_records_in_order_and_one_wake_up_for_a_batch(kbroker: KbrokerProcess, topic: str) -> None:
    wire.create_topic(kbroker.port, topic, 1)

    async def work() -> None:
        woken = 0
        loop = asyncio.get_running_loop()
        wake = loop.call_soon_threadsafe

        def counted(*arguments: object) -> asyncio.Handle:
            nonlocal woken
            woken += 1
            return wake(*arguments)  # type: ignore[arg-type]

        async with AsyncProducer(bootstrap_servers=kbroker.bootstrap) as producer:
            await producer.send_and_wait(topic, b"first")
            sent = [await producer.send(topic, b"%d" % i) for i in range(1000)]
            loop.call_soon_threadsafe = counted  # type: ignore[assignment, method-assign]
            told = await asyncio.gather(*sent)
            del loop.call_soon_threadsafe  # type: ignore[method-assign]
            assert [t.offset for t in told] == list(range(1, 1001))
            assert all(each.done() for each in sent)
            assert woken <= producer.metrics()["batch-total"]
            batch = await producer.send_batch(topic, [b"x"] * 100)
            assert sum(each.records for each in await batch) == 100

    asyncio.run(work())
    assert len(read_all(kbroker.bootstrap, topic, 1101)) == 1101


@pytest.mark.parametrize("created", [True, False])
def test_a_record_that_waits_is_seen_once(
    kbroker: KbrokerProcess, topic: str, created: bool
) -> None:
    """By interceptors, serializers and the partitioner: for memory, and for a topic."""
    if created:
        wire.create_topic(kbroker.port, topic, 1)
    seen: list[str] = []

    class Counting:
        def on_send(self, *_record: object) -> None:
            seen.append("interceptor")

    def serializer(_topic: str, value: bytes) -> bytes:
        seen.append("serializer")
        return value

    def partitioner(*_record: object) -> int:
        seen.append("partitioner")
        return 0

    async def work() -> None:
        async with AsyncProducer(
            bootstrap_servers=kbroker.bootstrap, buffer_memory=20_000, batch_size=5000,
            interceptor_classes=[Counting()], value_serializer=serializer,
            partitioner_class=partitioner,
        ) as producer:  # fmt: skip
            for _ in range(300):
                await producer.send(topic, b"." * 1000)
            assert producer.metrics()["bufferpool-wait-total"] > 0

    asyncio.run(work())
    assert Counter(seen) == dict.fromkeys(("interceptor", "serializer", "partitioner"), 300)
    assert len(read_all(kbroker.bootstrap, topic, 300)) == 300


def test_memory_is_waited_for_elsewhere(kbroker: KbrokerProcess, topic: str) -> None:
    wire.create_topic(kbroker.port, topic, 1)

    async def work() -> None:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                await asyncio.sleep(0)
                ticks += 1

        async with AsyncProducer(
            bootstrap_servers=kbroker.bootstrap, buffer_memory=20_000, batch_size=5000
        ) as producer:
            ticking = asyncio.create_task(tick())
            sent = [await producer.send(topic, b"." * 1000) for _ in range(500)]
            await producer.flush()
            ticking.cancel()
            assert [(await each).offset for each in sent] == list(range(500))
            # The others of its batch do not go with one who is not waited for any more.
            pair = [await producer.send(topic, b"."), await producer.send(topic, b".")]
            first, second = (asyncio.ensure_future(_outcome(each)) for each in pair)
            await asyncio.sleep(0)
            first.cancel()
            assert await second == 501
            with pytest.raises(KafkaError):
                await producer.send("no such/topic", b"")
        assert ticks > 0

    async def _outcome(each: object) -> int:
        return (await each).offset  # type: ignore[misc, no-any-return]

    asyncio.run(work())


def test_a_task_that_is_cancelled_delivers(
    start_kbroker: Callable[[], KbrokerProcess], topic: str
) -> None:
    """While its `async with` delivers as well; until it is cancelled once more."""
    broker = start_kbroker()
    wire.create_topic(broker.port, topic, 1)
    taken: list[AsyncDelivery] = []

    async def send(waits: bool) -> None:
        async with AsyncProducer(bootstrap_servers=broker.bootstrap, linger_ms=60_000) as producer:
            taken.append(await producer.send(topic, b"x"))
            if waits:
                await asyncio.sleep(600)

    async def sender(waits: bool) -> asyncio.Task[None]:
        count = len(taken)
        task = asyncio.create_task(send(waits))
        while len(taken) == count:
            await asyncio.sleep(0)
        return task

    async def delivered() -> None:
        for waits in (True, False):
            task = await sender(waits)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asyncio.wait_for(task, 60)
            assert taken[-1].delivery.result(0).offset == len(taken) - 1

    async def given_up() -> None:
        task = await sender(True)
        broker.kill()
        for _ in range(2):
            assert not task.done()
            task.cancel()
            await asyncio.sleep(0.2)
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, 60)
        assert isinstance(taken[-1].delivery.exception(0), UndeliveredError)

    asyncio.run(delivered())
    asyncio.run(given_up())


def test_transactions(kbroker: KbrokerProcess, topic: str) -> None:
    """Whole or not at all, offsets of a group along; and a task that is cancelled aborts."""
    wire.create_topic(kbroker.port, topic, 1)
    where = TopicPartition(topic, 0)

    async def cancelled(producer: AsyncProducer) -> None:
        async with producer.transaction():
            await producer.send_and_wait(topic, b"cancelled")
            await asyncio.sleep(600)

    async def work() -> None:
        async with AsyncProducer(
            bootstrap_servers=kbroker.bootstrap, transactional_id=topic
        ) as producer:
            await producer.init_transactions(60)
            async with producer.transaction():
                sent = [await producer.send(topic, b"%d" % i) for i in range(10)]
                await producer.send_offsets_to_transaction({where: 7}, f"{topic}-group")
            assert [(await one).offset for one in sent] == list(range(10))
            with pytest.raises(ZeroDivisionError):
                async with producer.transaction():
                    await producer.send_and_wait(topic, b"lost")
                    raise ZeroDivisionError
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(cancelled(producer), 0.5)
            await producer.begin()
            await producer.send(topic, b"aborted")
            await producer.abort(60)
            await producer.begin()
            await producer.send(topic, b"last")
            left = await producer.leave_open(60)
        async with AsyncAdmin(bootstrap_servers=kbroker.bootstrap) as admin:
            assert left is not None
            await admin.end_transaction(left, commit=True)

    asyncio.run(work())
    with Consumer(
        bootstrap_servers=kbroker.bootstrap, group_id=f"{topic}-group",
        isolation_level="read_committed", enable_auto_commit=False,
    ) as consumer:  # fmt: skip
        assert consumer.committed([where]) == {where: OffsetAndMetadata(7)}
        consumer.assign([where])
        consumer.seek(where, 0)
        found: list[bytes] = []
        wait_for(
            "all is read",
            lambda: found.extend(r.value for r in consumer.poll(0.5)) or found[-1:] == [b"last"],
            60,
        )
        assert found == [b"%d" % i for i in range(10)] + [b"last"]


def test_deliveries_are_futures_of_asyncio(kbroker: KbrokerProcess, topic: str) -> None:
    wire.create_topic(kbroker.port, topic, 1)

    async def work() -> None:
        async with AsyncProducer(bootstrap_servers=kbroker.bootstrap, linger_ms=100) as producer:
            sent = [await producer.send(topic, b"x") for _ in range(3)]
            sent.append(await producer.send_batch(topic, [b"x", b"y"]))
            with pytest.raises(asyncio.InvalidStateError):
                sent[0].result()
            with pytest.raises(asyncio.InvalidStateError):
                sent[0].exception()
            assert not sent[0].cancel() and not sent[0].cancelled()
            called: list[object] = []
            sent[0].add_done_callback(called.append)
            sent[0].add_done_callback(print)
            assert sent[0].remove_done_callback(print) == 1
            done, pending = await asyncio.wait(sent, timeout=30)
            assert done == {*sent} and not pending
            assert [one.result().offset for one in sent[:3]] == [0, 1, 2]
            assert sent[3].result()[0].offset == 3 and sent[3].exception() is None
            assert called == [sent[0]]
            sent[0].add_done_callback(called.append)
            await asyncio.sleep(0.05)
            assert called == [sent[0]] * 2, "at once, on the loop"
            assert await asyncio.gather(*sent) == [one.result() for one in sent]
            refused = await producer.send(topic, b"x", partition=0, timestamp_ms=1)
            await asyncio.wait([refused], return_when=asyncio.FIRST_EXCEPTION)
            assert refused.exception() is None

    asyncio.run(work())


def test_close_is_bounded_by_wait_for(kbroker: KbrokerProcess, topic: str) -> None:
    wire.create_topic(kbroker.port, topic, 1)

    async def work() -> None:
        producer = AsyncProducer(bootstrap_servers=kbroker.bootstrap, delivery_timeout_ms=100_000)
        sent = await producer.send(topic, b"x")
        await sent
        with standing_still(kbroker):
            sent = await producer.send(topic, b"y")
            began_s = time.monotonic()
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(producer.close(), 0.5)
            assert time.monotonic() - began_s < 10
            assert isinstance(sent.exception(), UndeliveredError)

    asyncio.run(work())
