"""AsyncProducer: the producer under asyncio.

The same native producer; a coroutine waits only where send() would: for a topic that is not known
yet, and for memory. The event loop is woken once for each batch, not for each record.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Generator, Mapping
from typing import Any, TypeVar

from kbroker.client.admin_transactions import OpenTransaction
from kbroker.client.group.room import GroupMetadata
from kbroker.client.producer import Producer, exit_timeout
from kbroker.client.transactions import Offsets
from kbroker.ext.client_delivery import BatchDelivery, Delivery, OffsetRange, RecordMetadata

__all__ = ["AsyncBatchDelivery", "AsyncDelivery", "AsyncProducer"]

T = TypeVar("T")


class AsyncDelivery:
    """The future of one record; `await` gives RecordMetadata or raises what became of it."""

    __slots__ = ("_producer", "delivery")

    def __init__(self, producer: AsyncProducer, delivery: Delivery) -> None:
        self._producer = producer
        self.delivery = delivery

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        while not self.delivery.done():  # a batch that is gone may have had this one's id
            yield from self._producer.settled(self.delivery).__await__()
        return self.delivery.result(0)

    def done(self) -> bool:
        """True once the record is delivered or has failed."""
        return self.delivery.done()


class AsyncBatchDelivery:
    """The future of one send_batch(); `await` gives the offset ranges."""

    __slots__ = ("delivery",)

    def __init__(self, delivery: BatchDelivery) -> None:
        self.delivery = delivery

    def __await__(self) -> Generator[Any, None, list[OffsetRange]]:
        if not self.delivery.done():
            future = asyncio.get_running_loop().create_future()
            self.delivery.add_done_callback(lambda _: _settle_from_outside(future))
            yield from future.__await__()
        return self.delivery.result(0)

    def done(self) -> bool:
        """True once every record is delivered or has failed."""
        return self.delivery.done()


class AsyncProducer:
    """Sends records to topics of a cluster; takes the settings of Producer. An asynchronous
    context manager: leaving it delivers what was sent, and aborts a transaction that is open, when
    its task is cancelled as well: within delivery.timeout.ms, or until it is cancelled once more.
    Callbacks run on the control thread."""

    def __init__(self, config: Mapping[str, Any] | None = None, **more: Any) -> None:
        self._producer = Producer(config, **more)
        self._batches: dict[int, asyncio.Future[None]] = {}

    async def __aenter__(self) -> AsyncProducer:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        cancelled = kind is not None and issubclass(kind, asyncio.CancelledError)
        await self._close(exit_timeout(kind), cancelled)

    async def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        partition: int | None = None,
        headers: Any = None,
        timestamp_ms: int | None = None,
        on_delivery: Callable[[Delivery], object] | None = None,
    ) -> AsyncDelivery:
        """Takes a record, as Producer.send(); awaiting what it returns waits for the outcome."""
        sent = self._producer.try_send(
            topic, value, key, partition, headers, timestamp_ms, on_delivery
        )
        while not isinstance(sent, Delivery):
            sent = await _elsewhere(sent)
        return AsyncDelivery(self, sent)

    async def send_and_wait(self, topic: str, *given: Any, **more: Any) -> RecordMetadata:
        """send() and its outcome."""
        return await (await self.send(topic, *given, **more))

    async def send_batch(self, topic: str, values: Any, *given: Any, **more: Any
                         ) -> AsyncBatchDelivery:  # fmt: skip
        """Producer.send_batch(), on another thread: it may wait for memory in the middle."""
        sent = await _elsewhere(lambda: self._producer.send_batch(topic, values, *given, **more))
        return AsyncBatchDelivery(sent)

    # ---- transactions

    async def init_transactions(self, timeout: float | None = None) -> None:
        """See Producer.init_transactions."""
        await _to_its_end(lambda: self._producer.init_transactions(timeout))

    async def begin(self) -> None:
        """See Producer.begin."""
        self._producer.begin()

    async def send_offsets_to_transaction(
        self, offsets: Offsets, group: GroupMetadata | str, timeout: float | None = None
    ) -> None:
        """See Producer.send_offsets_to_transaction."""
        await _to_its_end(
            lambda: self._producer.send_offsets_to_transaction(offsets, group, timeout)
        )

    async def commit(self, timeout: float | None = None) -> None:
        """See Producer.commit."""
        await _to_its_end(lambda: self._producer.commit(timeout))

    async def abort(self, timeout: float | None = None) -> None:
        """See Producer.abort."""
        await _to_its_end(lambda: self._producer.abort(timeout))

    async def leave_open(self, timeout: float | None = None) -> OpenTransaction | None:
        """See Producer.leave_open."""
        return await _to_its_end(lambda: self._producer.leave_open(timeout))

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """`async with producer.transaction():` commits at the end, and aborts where an exception
        leaves the block, or the task is cancelled. See Producer.transaction."""
        inner = self._producer.transaction()
        inner.__enter__()
        try:
            yield
        except BaseException as error:
            told = (type(error), error, error.__traceback__)
            await _to_its_end(lambda: inner.__exit__(*told))
            raise
        await _to_its_end(lambda: inner.__exit__(None, None, None))

    # ---- ends

    async def flush(self, timeout: float | None = None) -> None:
        """Waits until all that was sent before has its outcome."""
        await _elsewhere(lambda: self._producer.flush(timeout))

    async def purge(self, *, queued: bool = True, in_flight: bool = True) -> None:
        """Gives records up, with PurgedError."""
        await _elsewhere(lambda: self._producer.purge(queued=queued, in_flight=in_flight))

    async def close(self, timeout: float | None = None) -> None:
        """Delivers what was sent, for at most `timeout` seconds; the rest fails. A transaction that
        is open is aborted: see Producer.close. A task that is cancelled here still waits for that;
        cancelled once more, it gives up what is left."""
        await self._close(timeout, False)

    async def _close(self, timeout: float | None, cancelled: bool) -> None:
        """cancelled: once before."""
        loop = asyncio.get_running_loop()
        closing = loop.run_in_executor(None, lambda: self._producer.close(timeout))
        told: asyncio.CancelledError | None = None
        while not closing.done():
            try:
                await asyncio.wait([closing])
            except asyncio.CancelledError as error:
                if cancelled:
                    self._producer.close(0)
                cancelled = True
                told = error
        if told is not None:
            raise told
        closing.result()

    def metrics(self) -> dict[str, float]:
        """As Producer.metrics()."""
        return self._producer.metrics()

    def settled(self, delivery: Delivery) -> asyncio.Future[None]:
        """Done when the delivery's batch has its outcome; one future for all of that batch."""
        batch = delivery.batch_id
        future = self._batches.get(batch)
        if future is None or future.done():
            made = future = self._batches[batch] = asyncio.get_running_loop().create_future()

            def forget(_: object) -> None:
                if self._batches.get(batch) is made:
                    del self._batches[batch]

            future.add_done_callback(forget)
            delivery.add_done_callback(lambda _: _settle_from_outside(made))
        return asyncio.shield(future)


def _settle_from_outside(future: asyncio.Future[None]) -> None:
    """On the control thread, or on the loop's own."""
    with contextlib.suppress(RuntimeError):  # the loop was closed: nobody waits any more
        future.get_loop().call_soon_threadsafe(_settle, future)


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


async def _to_its_end(work: Callable[[], T]) -> T:
    """As _elsewhere, and waited for even when cancelled: the next call must not meet it."""
    future = asyncio.get_running_loop().run_in_executor(None, work)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        await asyncio.wait([future])
        raise


async def _elsewhere(work: Callable[[], T]) -> T:
    return await asyncio.get_running_loop().run_in_executor(None, work)
