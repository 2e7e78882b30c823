"""AsyncProducer: the producer under asyncio.

The same native producer; a coroutine waits only where send() would: for a topic that is not known
yet, and for memory. The event loop is woken once for each batch, not for each record.

However many wait, there is one thread for each thing that is waited for, none of which is of the
application's: for topics (`TopicWaits`), for memory, which goes to who has waited longest anyway,
for what a flush delivers, and for a transaction's coordinator. An end waits for none of them.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Generator, Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from functools import partial
from typing import Any, ParamSpec, TypeVar

from kbroker.client.admin_transactions import OpenTransaction
from kbroker.client.async_delivery import DeliveryFuture, call_from_outside
from kbroker.client.beside import beside, ended
from kbroker.client.group.room import GroupMetadata
from kbroker.client.producer import Held, Producer
from kbroker.client.transactions import Offsets
from kbroker.ext.client_clock import monotonic_ns
from kbroker.ext.client_delivery import BatchDelivery, Delivery, OffsetRange, RecordMetadata
from kbroker.ext.client_send_batch import ColumnsIn

__all__ = ["AsyncBatchDelivery", "AsyncDelivery", "AsyncProducer"]

P = ParamSpec("P")
T = TypeVar("T")


class AsyncDelivery(DeliveryFuture[Delivery]):
    """The future of one record; `await` gives RecordMetadata or raises what became of it."""

    __slots__ = ("_producer",)

    def __init__(self, producer: AsyncProducer, delivery: Delivery) -> None:
        super().__init__(delivery)
        self._producer = producer

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        while not self.delivery.done():  # a batch that is gone may have had this one's id
            yield from self._producer.settled(self.delivery).__await__()
        return self.delivery.result(0)


class AsyncBatchDelivery(DeliveryFuture[BatchDelivery]):
    """The future of one send_batch(); `await` gives the offset ranges."""

    __slots__ = ()

    def __await__(self) -> Generator[Any, None, list[OffsetRange]]:
        if not self.delivery.done():
            future = asyncio.get_running_loop().create_future()
            self.delivery.add_done_callback(lambda _: _settle_from_outside(future))
            yield from future.__await__()
        return self.delivery.result(0)


class AsyncProducer:
    """Sends records to topics of a cluster; takes the settings of Producer. An asynchronous
    context manager: leaving it delivers what was sent, and aborts a transaction that is open, when
    its task is cancelled as well: within delivery.timeout.ms, or until it is cancelled once more.
    Callbacks run on the control thread."""

    def __init__(self, config: Mapping[str, Any] | None = None, **more: Any) -> None:
        self._producer = Producer(config, **more)
        self._batches: dict[int, asyncio.Future[None]] = {}
        self._topics = self._producer.topic_waits()
        self._memory = ThreadPoolExecutor(1, "kbroker-async-memory")
        self._line = 0  # who waits for that thread, or is on it
        self._held = 0  # those of them that are single records
        self._asking: Counter[str] = Counter()  # who waits for a topic, or has not gone on since
        self._flushing = ThreadPoolExecutor(1, "kbroker-async-flush")
        self._flush: Future[None] | None = None
        self._coordinator = ThreadPoolExecutor(1, "kbroker-async-transactions")
        self._has_ended = False

    async def __aenter__(self) -> AsyncProducer:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        cancelled = kind is not None and issubclass(kind, asyncio.CancelledError)
        await self._close(None, cancelled)

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
        record = topic, value, key, partition, headers, timestamp_ms, on_delivery
        if self._held or self._asking:
            sent = self._behind(self._producer.hold(*record))
        else:
            sent = self._producer.try_send(*record)
        if isinstance(sent, Held):
            sent = await self._waited_for(sent)
        return AsyncDelivery(self, sent)

    def _behind(self, held: Held) -> Delivery | Held:
        """Others wait: those for its topic, though it may be known by now, and those for memory go
        first."""
        topic = held.record[0]
        if held.missing is None and isinstance(topic, str) and topic in self._asking:
            return held._replace(missing=-1)
        if held.missing is None and not self._held:
            return self._producer.go_on(held, 0)
        return held

    async def _waited_for(self, sent: Delivery | Held) -> Delivery:
        """All within max.block.ms."""
        producer = self._producer
        until_ns = monotonic_ns() + producer.max_block_ns
        while isinstance(sent, Held):
            held = sent
            if held.missing is None:
                sent = await self._for_memory(held, until_ns)
                continue
            try:
                await self._known(held.record[0], held.missing, until_ns)
            except Exception as error:
                producer.give_up(held, error)
                raise
            sent = producer.prepared(held) if self._held else producer.go_on(held, 0)
        return sent

    async def _for_memory(self, held: Held, until_ns: int) -> Delivery | Held:
        """Until the loop knows of it, whoever comes stands behind: memory may be there before the
        thread has asked for it, and a smaller record may fit in a batch that is open."""
        self._held += 1
        try:
            return await self._in_line(self._go_on, held, until_ns)
        finally:
            self._held -= 1

    def _go_on(self, held: Held, until_ns: int) -> Delivery | Held:
        return self._producer.go_on(held, _left_ns(until_ns))

    async def _known(self, topic: str, partition: int, until_ns: int) -> None:
        self._producer._check()
        self._asking[topic] += 1
        try:
            await asyncio.wrap_future(self._topics.find(topic, partition, until_ns / 1e9))
        finally:
            self._asking[topic] -= 1
            if not self._asking[topic]:
                del self._asking[topic]

    async def _in_line(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """On the thread that waits for memory, in the order of asking."""
        self._line += 1
        try:
            return await self._on(self._memory, partial(work, *args, **kwargs))
        finally:
            self._line -= 1

    async def send_and_wait(self, topic: str, *given: Any, **more: Any) -> RecordMetadata:
        """send() and its outcome."""
        return await (await self.send(topic, *given, **more))

    async def send_batch(  # noqa: PLR0917 - as Producer's
        self,
        topic: str,
        values: Any,
        keys: Any = None,
        headers: Any = None,
        timestamps_ms: Any = None,
        partition: Any = None,
    ) -> AsyncBatchDelivery:
        """Producer.send_batch(), on another thread: it may wait for memory in the middle. Where
        others wait for that as well, they take turns."""
        producer = self._producer
        until_ns = monotonic_ns() + producer.max_block_ns
        missing = producer.missing(topic, None if hasattr(partition, "__len__") else partition)
        if missing is not None:
            await self._known(topic, missing, until_ns)
        columns = await self._in_line(
            producer._begin_batch, topic, values, keys, headers, timestamps_ms, partition
        )
        taken = await self._in_line(self._take, columns, until_ns)
        while taken is None:
            until_ns = monotonic_ns() + producer.max_block_ns
            taken = await self._in_line(self._take, columns, until_ns)
        return AsyncBatchDelivery(taken)

    def _take(self, columns: ColumnsIn, until_ns: int) -> BatchDelivery | None:
        """A turn of send_batch(), to the end where nobody else waits."""
        producer = self._producer
        taken = producer._take_chunk(columns, _left_ns(until_ns))
        while taken is None and self._line == 1:
            taken = producer._take_chunk(columns, producer.max_block_ns)
        return taken

    # ---- transactions

    async def init_transactions(self, timeout_s: float | None = None) -> None:
        """See Producer.init_transactions."""
        await self._to_its_end(lambda: self._producer.init_transactions(timeout_s))

    async def begin(self) -> None:
        """See Producer.begin."""
        self._producer.begin()

    async def send_offsets_to_transaction(
        self, offsets: Offsets, group: GroupMetadata | str, timeout_s: float | None = None
    ) -> None:
        """See Producer.send_offsets_to_transaction."""
        await self._to_its_end(
            lambda: self._producer.send_offsets_to_transaction(offsets, group, timeout_s)
        )

    async def commit(self, timeout_s: float | None = None) -> None:
        """See Producer.commit."""
        await self._to_its_end(lambda: self._producer.commit(timeout_s))

    async def abort(self, timeout_s: float | None = None) -> None:
        """See Producer.abort."""
        await self._to_its_end(lambda: self._producer.abort(timeout_s))

    async def leave_open(self, timeout_s: float | None = None) -> OpenTransaction | None:
        """See Producer.leave_open."""
        return await self._to_its_end(lambda: self._producer.leave_open(timeout_s))

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
            await self._to_its_end(lambda: inner.__exit__(*told))
            raise
        await self._to_its_end(lambda: inner.__exit__(None, None, None))

    async def _to_its_end(self, work: Callable[[], T]) -> T:
        """Waited for even when cancelled: the next call must not meet it."""
        future = asyncio.ensure_future(self._on(self._coordinator, work))
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            await ended(future)
            raise

    # ---- ends

    async def flush(self, timeout_s: float | None = None) -> None:
        """Waits until all that was sent before has its outcome."""
        if timeout_s is not None and timeout_s <= 0:
            return self._producer.flush(0)
        if self._has_ended:
            return self._producer.flush(timeout_s)
        if self._flush is None or self._flush.running() or self._flush.done():
            self._flush = self._flushing.submit(self._producer.flush)  # of all who come until then
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.shield(asyncio.wrap_future(self._flush))
        except TimeoutError:
            raise TimeoutError(f"records are not delivered after {timeout_s:g} s") from None

    async def purge(self, *, queued: bool = True, in_flight: bool = True) -> None:
        """Gives records up, with PurgedError."""
        await beside(lambda: self._producer.purge(queued=queued, in_flight=in_flight))

    async def close(self, timeout_s: float | None = None) -> None:
        """Deliver what was sent, for at most `timeout_s`; the rest fails. A transaction that
        is open is aborted: see Producer.close. A task that is cancelled here gives up what is left,
        so that `asyncio.wait_for(producer.close(), 5)` takes no longer."""
        await self._close(timeout_s, True)

    async def _close(self, timeout_s: float | None, gives_up: bool) -> None:
        """gives_up: cancelling the task gives up what is left; else cancelling it twice does."""
        closing = beside(lambda: self._producer.close(timeout_s))
        told: asyncio.CancelledError | None = None
        while not closing.done():
            try:
                await asyncio.wait([closing])
            except asyncio.CancelledError as error:
                if gives_up:
                    self._producer.close(0)
                gives_up = True
                told = error
        self._has_ended = True
        self._topics.close()
        for threads in (self._memory, self._flushing, self._coordinator):
            threads.shutdown(wait=False)
        if told is not None:
            raise told
        closing.result()

    async def _on(self, threads: Executor, work: Callable[[], T]) -> T:
        if self._has_ended:  # nothing is waited for any more
            return work()
        return await asyncio.get_running_loop().run_in_executor(threads, work)

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
    call_from_outside(future.get_loop(), partial(_settle, future))


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _left_ns(until_ns: int) -> int:
    """At least a moment: who may not wait at all is told by other means."""
    return max(until_ns - monotonic_ns(), 1)
