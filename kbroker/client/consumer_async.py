"""AsyncConsumer: a Consumer for asyncio.

What has been fetched is taken on the event loop's thread, which never waits there: a descriptor of
the fetcher's wakes it. What may wait for a broker runs on one thread of the consumer's own, one
call at a time: a group's polls with their listeners and deserializers for one. Iterating gives
records out one by one, and deserializes them where it does.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import os
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar

from kbroker.client.beside import ended
from kbroker.client.cluster import PartitionInfo, TopicInfo
from kbroker.client.consumer import Consumer
from kbroker.client.consumer_inside import Inside, Listener, inside
from kbroker.client.consumer_queries import OffsetAndTimestamp
from kbroker.client.errors import ClosedError, CorruptDataError
from kbroker.client.group import GroupMetadata, RebalanceListener
from kbroker.client.partitions import OffsetAndMetadata, OffsetsGiven, TopicPartition
from kbroker.ext.client_clock import monotonic
from kbroker.ext.client_columns import Columns
from kbroker.ext.client_record import FetchedBatchError, Record

__all__ = ["AsyncConsumer"]

P = ParamSpec("P")
T = TypeVar("T")
_ASIDE = 4  # calls from inside a listener, and from inside what these call
_CLOSE_S = 30.0
_LOOK_S = 0.05  # how often a group is asked while nothing comes

Partitions = Iterable[tuple[str, int]]


class AsyncConsumer:
    """As Consumer, with `await`; `async for record in consumer`, `async with`. One task at a
    time; cancelling a poll loses no record. Leaving the block commits as Consumer's does."""

    def __init__(self, config: Mapping[str, Any] | None = None, **more: Any) -> None:
        self._consumer = Consumer(config, **more)
        self._fetcher = self._consumer._fetcher
        self._lock = self._consumer._lock
        self._thread = ThreadPoolExecutor(1, "kbroker-async-consumer")
        self._aside = ThreadPoolExecutor(_ASIDE, "kbroker-async-consumer-aside")
        self._busy = asyncio.Lock()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._close(_CLOSE_S, error)

    async def _call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """On the consumer's thread, or beside it from inside a listener; waited for to its end even
        when cancelled."""
        call = functools.partial(function, *args, **kwargs)
        within = inside(self._lock)
        if within is not None:
            with contextlib.suppress(Inside.Over):
                return await self._ended(self._aside, functools.partial(within.run, call))
        async with self._busy:
            return await self._ended(self._thread, call)

    async def _ended(self, threads: Executor, call: Callable[[], T]) -> T:
        if self._lock.closed:
            raise ClosedError("the consumer was closed")
        future = asyncio.get_running_loop().run_in_executor(threads, call)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            self._fetcher.wake()
            await ended(future)
            raise

    # ---- records

    async def poll(self, timeout_s: float = 1.0, max_records: int | None = None) -> list[Record]:
        """See Consumer.poll. Positions move when it returns: records that it took when its task is
        cancelled are returned by the next call."""
        consumer = self._consumer
        records = await self._until(
            timeout_s, lambda: consumer._take_records(max_records), ends=True
        )
        self._fetcher.returned = True
        return records

    async def poll_batch(self, timeout_s: float = 1.0, max_records: int | None = None) -> Columns:
        """See Consumer.poll_batch, and poll for cancelled tasks."""
        consumer = self._consumer
        columns = await self._until(
            timeout_s, lambda: consumer._take_columns(max_records), ends=True
        )
        self._fetcher.returned = True
        return columns

    async def __aiter__(self) -> AsyncIterator[Record]:
        """Iterate over records, without an end; see Consumer.__iter__."""
        consumer = self._consumer
        while True:
            if consumer._interceptors:
                for record in await self.poll(1.0, 1):
                    yield record
            elif await self._until(1.0, consumer._ready):
                try:
                    for record in self._fetcher.allow(consumer.config.max_poll_records):
                        yield record
                except FetchedBatchError as error:
                    raise CorruptDataError(str(error)) from error

    async def __anext__(self) -> Record:
        """Return the next record, however long it takes to come."""
        return await anext(aiter(self))

    async def _until(self, timeout_s: float, take: Callable[[], T], *, ends: bool = False) -> T:
        """What `take` gives, once that is something or the time is over; with `ends`, also once
        all is read up to where it stops. Without a group nothing in it waits; with one, callbacks
        may."""
        deadline = monotonic() + timeout_s
        while True:
            await asyncio.sleep(0)  # a loop of polls that need not wait leaves others their turn
            if self._consumer._group is not None:
                found = await self._call(take)
            else:
                async with self._busy:
                    found = take()
            left_s = deadline - monotonic()
            if ends and not found:
                left_s = self._consumer._assignment.left_s(deadline)
            if found or left_s <= 0:
                return found
            if self._consumer._group is not None:
                left_s = min(left_s, _LOOK_S)
            descriptor = self._fetcher.watch()
            if descriptor >= 0:
                await _readable(descriptor, left_s)

    # ---- what to read

    async def subscribe(self, topics: Any, listener: RebalanceListener | None = None) -> None:
        """See Consumer.subscribe; the listener is called on the consumer's thread. What of it is a
        coroutine function is awaited on this loop, and may await this consumer's methods."""
        told = listener
        if listener is not None:
            told = Listener(listener, self._lock, asyncio.get_running_loop())
        await self._call(self._consumer.subscribe, topics, told)

    async def unsubscribe(self) -> None:
        """See Consumer.unsubscribe."""
        await self._call(self._consumer.unsubscribe)

    def subscription(self) -> frozenset[str]:
        """See Consumer.subscription."""
        return self._consumer.subscription()

    async def assign(self, partitions: Partitions) -> None:
        """See Consumer.assign."""
        await self._call(self._consumer.assign, partitions)

    def assignment(self) -> frozenset[TopicPartition]:
        """See Consumer.assignment."""
        return self._consumer.assignment()

    async def pause(self, partitions: Partitions) -> None:
        """See Consumer.pause."""
        await self._call(self._consumer.pause, partitions)

    async def resume(self, partitions: Partitions) -> None:
        """See Consumer.resume."""
        await self._call(self._consumer.resume, partitions)

    def paused(self) -> frozenset[TopicPartition]:
        """See Consumer.paused."""
        return self._consumer.paused()

    def wakeup(self) -> None:
        """See Consumer.wakeup; any thread."""
        self._consumer.wakeup()

    # ---- positions and questions

    async def seek(self, where: tuple[str, int], offset: int | OffsetAndMetadata) -> None:
        """See Consumer.seek."""
        await self._call(self._consumer.seek, where, offset)

    async def seek_to_beginning(self, partitions: Partitions = ()) -> None:
        """See Consumer.seek_to_beginning."""
        await self._call(self._consumer.seek_to_beginning, partitions)

    async def seek_to_end(self, partitions: Partitions = ()) -> None:
        """See Consumer.seek_to_end."""
        await self._call(self._consumer.seek_to_end, partitions)

    async def seek_to_timestamp(self, timestamp_ms: int, partitions: Partitions = ()) -> None:
        """See Consumer.seek_to_timestamp."""
        await self._call(self._consumer.seek_to_timestamp, timestamp_ms, partitions)

    async def stop_at(self, where: tuple[str, int], offset: int) -> None:
        """See Consumer.stop_at."""
        await self._call(self._consumer.stop_at, where, offset)

    async def position(self, where: tuple[str, int], timeout_s: float | None = None) -> int:
        """See Consumer.position."""
        return await self._call(self._consumer.position, where, timeout_s)

    def lag(self, where: tuple[str, int]) -> int | None:
        """See Consumer.lag."""
        return self._consumer.lag(where)

    async def beginning_offsets(
        self, partitions: Partitions, timeout_s: float | None = None
    ) -> dict[TopicPartition, int]:
        """See Consumer.beginning_offsets."""
        return await self._call(self._consumer.beginning_offsets, partitions, timeout_s)

    async def end_offsets(
        self, partitions: Partitions, timeout_s: float | None = None
    ) -> dict[TopicPartition, int]:
        """See Consumer.end_offsets."""
        return await self._call(self._consumer.end_offsets, partitions, timeout_s)

    async def offsets_for_times(
        self, times_ms: Mapping[tuple[str, int], int], timeout_s: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """See Consumer.offsets_for_times."""
        return await self._call(self._consumer.offsets_for_times, times_ms, timeout_s)

    async def partitions_for(self, topic: str) -> tuple[PartitionInfo, ...]:
        """See Consumer.partitions_for."""
        return await self._call(self._consumer.partitions_for, topic)

    async def list_topics(self) -> dict[str, TopicInfo]:
        """See Consumer.list_topics."""
        return await self._call(self._consumer.list_topics)

    # ---- the group

    async def commit(
        self,
        offsets: OffsetsGiven | None = None,
        timeout_s: float | None = None,
    ) -> None:
        """See Consumer.commit."""
        await self._call(self._consumer.commit, offsets, timeout_s)

    async def commit_async(
        self,
        offsets: OffsetsGiven | None = None,
        callback: Any = None,
    ) -> None:
        """See Consumer.commit_async: sent, and not waited for. callback(offsets, error) is called
        in a later poll, on the consumer's thread; a coroutine is run on the event loop."""
        loop, lock = asyncio.get_running_loop(), self._lock

        def told(offsets: Any, error: Any) -> None:
            if inspect.iscoroutinefunction(callback):
                asyncio.run_coroutine_threadsafe(callback(offsets, error), loop)
            else:
                with Inside(lock):
                    callback(offsets, error)

        await self._call(self._consumer.commit_async, offsets, told if callback else None)

    def group_metadata(self) -> GroupMetadata:
        """See Consumer.group_metadata."""
        return self._consumer.group_metadata()

    async def enforce_rebalance(self, reason: str = "") -> None:
        """See Consumer.enforce_rebalance."""
        await self._call(self._consumer.enforce_rebalance, reason)

    async def committed(
        self, partitions: Collection[tuple[str, int]], timeout_s: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """See Consumer.committed."""
        return await self._call(self._consumer.committed, partitions, timeout_s)

    def metrics(self) -> dict[str, float]:
        """See Consumer.metrics."""
        return self._consumer.metrics()

    async def close(self, timeout_s: float = _CLOSE_S) -> None:
        """See Consumer.close."""
        await self._close(timeout_s, None)

    async def _close(self, timeout_s: float, error: BaseException | None) -> None:
        if self._lock.closed or self._lock.forked:
            return
        try:
            await self._call(self._consumer._close, timeout_s, error)
        except ClosedError:
            if not self._lock.closed:  # by another task, meanwhile
                raise
        finally:
            if self._lock.closed:
                self._thread.shutdown(wait=False)
                self._aside.shutdown(wait=False)


async def _readable(descriptor: int, timeout_s: float) -> bool:
    """An eventfd was written to; it is read empty."""
    loop = asyncio.get_running_loop()
    told = loop.create_future()

    def tell() -> None:
        if not told.done():
            told.set_result(None)

    loop.add_reader(descriptor, tell)
    try:
        async with asyncio.timeout(timeout_s):  # wait_for may swallow a cancellation
            await told
        os.eventfd_read(descriptor)
    except TimeoutError:
        return False
    finally:
        loop.remove_reader(descriptor)
    return True
