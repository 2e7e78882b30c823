"""Consumer: reads records of topics, alone or as a member of a group.

Fetching, decoding and prefetching are kbroker.ext's and go on while the application works on what
it was given. One thread at a time may use a consumer; `wakeup` may be called from any.
"""

from __future__ import annotations

import inspect
import itertools
import logging
import os
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from kbroker.client.block_exits import interrupted_producer
from kbroker.client.cluster import Cluster, PartitionInfo, TopicInfo
from kbroker.client.config_consumer import consumer_config
from kbroker.client.consumer_assignment import Assignment
from kbroker.client.consumer_control import Control
from kbroker.client.consumer_lock import UseLock
from kbroker.client.consumer_poll import Poller
from kbroker.client.consumer_queries import OffsetAndTimestamp, Queries
from kbroker.client.deserializers import converter, deserializer_of
from kbroker.client.errors import (
    CorruptDataError,
    KafkaError,
    NotAssignedError,
    RequestTimeoutError,
)
from kbroker.client.offsets import EARLIEST, LATEST, checked_time
from kbroker.client.partitions import (
    OffsetAndMetadata,
    OffsetsGiven,
    TopicPartition,
    checked_partition,
    checked_partitions,
)
from kbroker.ext.client_clock import monotonic
from kbroker.ext.client_columns import Columns
from kbroker.ext.client_fetch import Fetcher
from kbroker.ext.client_heartbeat import HeartbeatDriver
from kbroker.ext.client_loop import ClientLoop
from kbroker.ext.client_record import FetchedBatchError, Record

if TYPE_CHECKING:
    from kbroker.client.group import Group, GroupMetadata, RebalanceListener

__all__ = ["Consumer"]

_DECOMPRESSED_BYTES_MAX = 256 << 20  # of one batch: what no broker takes plain either
_CLOSE_S = 30.0
_EITHER = "assign() and subscribe() exclude each other; unsubscribe() first"
_numbers = itertools.count(1)
_log = logging.getLogger("kbroker.client.consumer")


def _shut(pid: int, loop: ClientLoop, control: Control, fetcher: Fetcher, cluster: Cluster) -> None:
    """The end of a consumer's machinery; also of one that was dropped or left to the exit."""
    if pid != os.getpid():
        return
    if control.group is not None:
        control.group.stop()
    cluster.close()
    loop.close()
    control.join(_CLOSE_S)
    control.group = None
    fetcher.clear()


def _teller(told: list[Any]) -> Callable[[Any], None] | None:
    """Tells each of what was committed; None: nobody wants to know."""

    def tell(offsets: Any) -> None:
        for one in told:
            try:
                one(offsets)
            except Exception:  # an onlooker must not undo a commit
                _log.exception("an interceptor's on_commit failed")

    return tell if told else None


def _checked(max_records: int | None) -> int | None:
    if max_records is not None and max_records < 1:
        raise ValueError(f"max_records: {max_records}; 1 is the least")
    return max_records


class Consumer:
    """Reads records of a cluster.

    Settings are Kafka's, in a dict with dots or as keyword arguments with underscores:
    `Consumer(bootstrap_servers="localhost:9092", group_id="g")`. Iterating over it gives records
    without an end. It is a context manager, and leaving the block closes the consumer:

    - The end of the block commits the positions, where commits are automatic, as close() does.
    - KeyboardInterrupt, SystemExit and the like commit the positions before the last call that
      returned records (poll, poll_batch, or a step of an iteration). The application has finished
      with the records of earlier calls; those of the last call are returned again.
    - Any other exception commits nothing.

    In `with Consumer(...) as c, Producer(...) as p` the producer is closed first: it delivers what
    was sent before the consumer commits. An exception in that close, such as a second Ctrl-C, gives
    up what is not delivered yet; the consumer commits nothing then.
    """

    def __init__(self, config: Mapping[str, Any] | None = None, **more: Any) -> None:
        self.config = settings = consumer_config(config, more)
        convert = converter(
            deserializer_of(settings.key_deserializer, "key.deserializer"),
            deserializer_of(settings.value_deserializer, "value.deserializer"),
        )
        self._interceptors = tuple(settings.interceptor_classes)
        self._cluster = Cluster.of(settings)
        self._fetcher = Fetcher(
            max_wait_ms=settings.fetch_max_wait_ms,
            min_bytes=settings.fetch_min_bytes,
            max_bytes=settings.fetch_max_bytes,
            partition_bytes=settings.max_partition_fetch_bytes,
            queue_bytes=settings.queued_max_messages_kbytes << 10,
            request_timeout_ms=max(settings.request_timeout_ms, settings.fetch_max_wait_ms + 1000),
            backoff_ms=settings.retry_backoff_ms,
            check_crcs=settings.check_crcs,
            read_committed=settings.isolation_level == "read_committed",
            rack=settings.client_rack,
            decompressed_bytes_max=_DECOMPRESSED_BYTES_MAX,
            convert=convert,
        )
        self._fetcher.unassigned = NotAssignedError
        name = f"kbroker-consumer-{next(_numbers)}"
        self._loop = ClientLoop(self._fetcher, client_id=settings.client_id, name=name)
        self._control = Control(settings, self._cluster, self._fetcher, self._loop)
        grouped = settings.group_id is not None
        self._assignment = Assignment(self._fetcher, self._control, grouped=grouped)
        self._group: Group | None = None
        if grouped:
            from kbroker.client.group import ClusterBrokers, Group

            heartbeat = HeartbeatDriver()
            self._loop.add_driver(heartbeat)
            brokers = ClusterBrokers(self._cluster, self._loop)
            told = [one.on_commit for one in self._interceptors if hasattr(one, "on_commit")]
            self._group = Group(
                settings, brokers, self._assignment, heartbeat=heartbeat, on_commit=_teller(told)
            )
            self._control.group = self._group
        self._queries = Queries(self._cluster, settings, self._fetcher)
        self._lock = UseLock(self._fetcher)
        self._poller = Poller(
            self._fetcher, self._control, self._assignment, self._lock,
            interceptors=self._interceptors,
        )  # fmt: skip
        self._poller.group = self._group
        self._loop.start()
        self._control.start()
        self._end = weakref.finalize(
            self, _shut, os.getpid(), self._loop, self._control, self._fetcher, self._cluster
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._close(_CLOSE_S, error)

    # ---- what to read

    def subscribe(self, topics: Any, listener: RebalanceListener | None = None) -> None:
        """Names, a compiled pattern, or a SubscriptionPattern; replaces what was before."""
        for name in ("on_assigned", "on_revoked", "on_lost"):
            if inspect.iscoroutinefunction(getattr(listener, name, None)):
                raise TypeError(f"nobody awaits {name} of this listener; an AsyncConsumer would")
        with self._lock.change():
            group = self._need_group("subscribe")
            if not group.active and self._assignment.assigned():
                raise KafkaError(_EITHER)
            group.subscribe(topics, listener)
            self._control.quiet = True

    def unsubscribe(self) -> None:
        """Leaves the group, or gives up what was assigned."""
        with self._lock.change():
            self._poller.mend()
            if self._group is not None:
                self._group.unsubscribe()
            self._assign(())

    def subscription(self) -> frozenset[str]:
        """Topics subscribed to; with a pattern those that match."""
        return self._group.subscription if self._group is not None else frozenset()

    def assign(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Reads these, without the group deciding; replaces what was before."""
        with self._lock.change():
            if self._group is not None and self._group.active:
                raise KafkaError(_EITHER)
            self._assign(partitions)

    def _assign(self, partitions: Iterable[tuple[str, int]]) -> None:
        self._assignment.assign_from_group(checked_partitions(partitions))
        self._control.quiet = False

    def assignment(self) -> frozenset[TopicPartition]:
        """What is read now."""
        return self._assignment.assigned()

    def pause(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Gives out nothing of them, and keeps what was fetched, until `resume`."""
        self._set_paused(partitions, True)

    def resume(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Goes on with them."""
        self._set_paused(partitions, False)

    def _set_paused(self, partitions: Iterable[tuple[str, int]], paused: bool) -> None:
        with self._lock:
            for where in checked_partitions(partitions):
                self._fetcher.pause(*where, paused)

    def paused(self) -> frozenset[TopicPartition]:
        """Those of the assignment that are paused."""
        return frozenset(TopicPartition(*where) for where in self._fetcher.paused())

    # ---- records

    def poll(self, timeout_s: float = 1.0, max_records: int | None = None) -> list[Record]:
        """Return records that have come, at most max.poll.records or max_records, or an empty list
        after timeout_s. Positions move when it returns, over what it returns: an exception at any
        point, of a signal handler too, leaves the records to the next call.

        Raises CorruptDataError, DeserializationError, NoOffsetError, WakeupError, and what brokers
        refuse."""
        most = _checked(max_records) or self.config.max_poll_records
        lock = self._lock
        lock.in_use = True
        try:
            records = self._poller.records(timeout_s, most)
        except BaseException as error:
            lock.failed = error
            raise
        lock.returned = True
        return records

    def poll_batch(self, timeout_s: float = 1.0, max_records: int | None = None) -> Columns:
        """Return records that have come as columns, for numpy and Arrow, without an object for each
        record: at most max_records, or about 2 MiB. Deserializers and interceptors are not called.
        Positions move as poll() moves them."""
        rows = _checked(max_records)
        lock = self._lock
        lock.in_use = True
        try:
            columns = self._poller.columns(timeout_s, rows)
        except BaseException as error:
            lock.failed = error
            raise
        lock.returned = True
        return columns

    def __iter__(self) -> Iterator[Record]:
        """Iterate over records, without an end. The position moves with each record that is given
        out. Interceptors see records one by one."""
        most = self.config.max_poll_records
        while True:
            if self._interceptors:
                yield from self._intercepted_records()
            elif self._ready(1.0):
                try:
                    yield from self._fetcher.allow(most)
                except FetchedBatchError as error:
                    raise CorruptDataError(str(error)) from error

    def __next__(self) -> Record:
        """Return the next record, however long it takes to come."""
        return next(iter(self))

    def _intercepted_records(self) -> Iterator[Record]:
        """Yield what interceptors make of one record. The position moves with the first."""
        lock = self._lock
        lock.in_use = True
        try:
            records = self._poller.records(1.0, 1)
        except BaseException as error:
            lock.failed = error
            raise
        lock.returned = True
        yield from records

    def _ready(self, timeout_s: float = 0.0) -> bool:
        """Do what is due; return whether records have come within timeout_s."""
        with self._lock:
            return self._poller.wait(timeout_s)

    def _take_records(self, max_records: int | None) -> list[Record]:
        """Take what poll(0) would return; positions move when `Fetcher.returned` is set."""
        most = _checked(max_records) or self.config.max_poll_records
        with self._lock:
            return self._poller.records(0, most)

    def _take_columns(self, max_records: int | None) -> Columns:
        """Take what poll_batch(0) would return; positions move when `Fetcher.returned` is set."""
        rows = _checked(max_records)
        with self._lock:
            return self._poller.columns(0, rows)

    def wakeup(self) -> None:
        """Has the wait of another thread, or the next one, end with WakeupError."""
        self._poller.woken = True
        self._fetcher.wake()

    # ---- positions

    def seek(self, where: tuple[str, int], offset: int | OffsetAndMetadata) -> None:
        """The next record read is the one at this offset, or the first one behind it."""
        told = offset if isinstance(offset, OffsetAndMetadata) else OffsetAndMetadata(offset)
        with self._lock.change():
            self._assignment.seek(checked_partition(where), told.offset, told.leader_epoch)

    def seek_to_beginning(self, partitions: Iterable[tuple[str, int]] = ()) -> None:
        """To the first offset there is; no partitions: all that are assigned."""
        self._seek_by(partitions, EARLIEST)

    def seek_to_end(self, partitions: Iterable[tuple[str, int]] = ()) -> None:
        """Behind the last record; no partitions: all that are assigned."""
        self._seek_by(partitions, LATEST)

    def seek_to_timestamp(
        self, timestamp_ms: int, partitions: Iterable[tuple[str, int]] = ()
    ) -> None:
        """To the first record of this time or later, the end where there is none."""
        self._seek_by(partitions, checked_time(timestamp_ms))

    def _seek_by(self, partitions: Iterable[tuple[str, int]], strategy: int) -> None:
        with self._lock.change():
            for where in checked_partitions(partitions) or sorted(self._assignment.assigned()):
                self._assignment.seek_by(where, strategy)

    def stop_at(self, where: tuple[str, int], offset: int) -> None:
        """Asks for nothing from there on; poll() does not wait once all is read up to its end."""
        with self._lock:
            self._assignment.stop_at(checked_partition(where), offset)

    def position(self, where: tuple[str, int], timeout_s: float | None = None) -> int:
        """The offset of the next record that is given out. Waits until it is known."""
        limit_s = self.config.default_api_timeout_ms / 1e3 if timeout_s is None else timeout_s
        deadline = monotonic() + limit_s
        where = checked_partition(where)
        with self._lock:
            while True:
                found = self._fetcher.state(*where)["position"]
                if found >= 0:
                    return found
                self._control.moved.clear()
                due_s = self._poller.work()
                left_s = deadline - monotonic()
                if left_s <= 0:
                    text = f"no position of {where} within {limit_s:g} s"
                    raise RequestTimeoutError(text)
                self._control.moved.wait(min(left_s, due_s, 0.05))

    def lag(self, where: tuple[str, int]) -> int | None:
        """Records between position and end, as the last answer told it; None: not known yet."""
        return self._queries.lag(where)

    # ---- questions

    def beginning_offsets(
        self, partitions: Iterable[tuple[str, int]], timeout_s: float | None = None
    ) -> dict[TopicPartition, int]:
        """The first offset of each."""
        return self._queries.offsets(partitions, EARLIEST, timeout_s)

    def end_offsets(
        self, partitions: Iterable[tuple[str, int]], timeout_s: float | None = None
    ) -> dict[TopicPartition, int]:
        """The offset behind the last record that this consumer may read, of each."""
        return self._queries.offsets(partitions, LATEST, timeout_s)

    def offsets_for_times(
        self, times_ms: Mapping[tuple[str, int], int], timeout_s: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record of each partition at or after a time; None: there is none."""
        return self._queries.for_times(times_ms, timeout_s)

    def partitions_for(self, topic: str) -> tuple[PartitionInfo, ...]:
        """The partitions of a topic, with leaders and replicas."""
        return self._queries.partitions_for(topic)

    def list_topics(self) -> dict[str, TopicInfo]:
        """All topics that may be seen."""
        return self._queries.topics()

    # ---- the group

    def _need_group(self, what: str) -> Group:
        if self._group is None:
            raise KafkaError(f"{what}() needs a group.id")
        self._poller.mend()
        return self._group

    def commit(
        self,
        offsets: OffsetsGiven | None = None,
        timeout_s: float | None = None,
    ) -> None:
        """Commits offsets, or the positions, and waits for the answer."""
        limit_s = self.config.default_api_timeout_ms / 1e3 if timeout_s is None else timeout_s
        with self._lock.change():
            self._need_group("commit").commit(offsets, limit_s)

    def commit_async(
        self,
        offsets: OffsetsGiven | None = None,
        callback: Any = None,
    ) -> None:
        """Commits without waiting; callback(offsets, error) is called in a later poll, in order."""
        with self._lock.change():
            self._need_group("commit_async").commit_async(offsets, callback)

    def committed(
        self, partitions: Collection[tuple[str, int]], timeout_s: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group has committed; None: nothing."""
        limit_s = self.config.default_api_timeout_ms / 1e3 if timeout_s is None else timeout_s
        with self._lock.change():
            group = self._need_group("committed")
            return group.committed(checked_partitions(partitions), limit_s)

    def group_metadata(self) -> GroupMetadata:
        """Who this member is now."""
        if self._group is None:
            raise KafkaError("group_metadata() needs a group.id")
        return self._group.metadata()

    def enforce_rebalance(self, reason: str = "") -> None:
        """The next poll joins again (classic protocol)."""
        with self._lock.change():
            self._need_group("enforce_rebalance").enforce_rebalance(reason)

    # ---- metrics, end

    def metrics(self) -> dict[str, float]:
        """Counters since the beginning and what holds now, by Kafka's names. Any thread."""
        group = self._group.metrics() if self._group is not None else {}
        return self._queries.metrics() | group

    def close(self, timeout_s: float = _CLOSE_S) -> None:
        """Commits where that is automatic, leaves the group, ends threads and connections. A
        second time does nothing, nor does a child of fork(): all of it is the parent's."""
        self._close(timeout_s, None)

    def _close(self, timeout_s: float, error: BaseException | None) -> None:
        """error: the exception that leaves a `with` block."""
        if self._lock.closed or self._lock.forked:
            return
        with self._lock.change():  # raises while another thread polls
            try:
                if self._group is not None:
                    self._poller.mend()
                    self._group.close(timeout_s, offsets=self._offsets_at_end(error))
            finally:  # each step may be repeated by another close(), after an exception
                _shut(
                    os.getpid(), self._loop, self._control, self._fetcher, self._cluster
                )
                self._end.detach()
                self._lock.closed = True

    def _offsets_at_end(self, error: BaseException | None) -> dict[TopicPartition, Any]:
        """Return what the last automatic commit commits."""
        if error is None:
            return self._assignment.delivered()
        if isinstance(error, Exception) or interrupted_producer(error):
            return {}
        return self._assignment.finished()
