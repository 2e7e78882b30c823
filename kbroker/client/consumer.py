"""Consumer: reads records of topics, alone or as a member of a group.

Fetching, decoding and prefetching are kbroker.ext's and go on while the application works on what
it was given. One thread at a time may use a consumer; `wakeup` may be called from any.
"""

from __future__ import annotations

import inspect
import itertools
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from kbroker.client.cluster import Cluster, PartitionInfo, TopicInfo
from kbroker.client.config_consumer import consumer_config
from kbroker.client.consumer_assignment import Assignment
from kbroker.client.consumer_control import Control
from kbroker.client.consumer_queries import OffsetAndTimestamp, Queries
from kbroker.client.consumer_turn import Turn
from kbroker.client.deserializers import converter, deserializer_of
from kbroker.client.errors import (
    CorruptDataError,
    KafkaError,
    RequestTimeoutError,
    WakeupError,
)
from kbroker.client.offsets import EARLIEST, LATEST, checked_time
from kbroker.client.partitions import (
    OffsetAndMetadata,
    OffsetsGiven,
    TopicPartition,
    checked_partition,
    checked_partitions,
)
from kbroker.ext.client_columns import Columns
from kbroker.ext.client_fetch import Fetcher
from kbroker.ext.client_heartbeat import HeartbeatDriver
from kbroker.ext.client_loop import ClientLoop
from kbroker.ext.client_record import FetchedBatchError, Record

if TYPE_CHECKING:
    from kbroker.client.group import Group, GroupMetadata, RebalanceListener

__all__ = ["Consumer"]

# Of one poll_batch() unless told: what stays in a processor's cache is filled and read quickest.
_COLUMNS_ROWS = 65_536
_COLUMNS_BYTES = 2 << 20
_BYTES_MAX = 1 << 30  # of keys or of values in one Columns
_DECOMPRESSED_BYTES_MAX = 256 << 20  # of one batch: what no broker takes plain either
_CLOSE_S = 30.0
_EITHER = "assign() and subscribe() exclude each other; unsubscribe() first"
_numbers = itertools.count(1)
_log = logging.getLogger("kbroker.client.consumer")

Taken = TypeVar("Taken", list[Record], Columns)


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
    `Consumer(bootstrap_servers="localhost:9092", group_id="g")`. A context manager, which an
    `Exception` leaves without a last automatic commit: what was given out and maybe not worked on
    is given out again; Ctrl-C and the like leave it as its end does. Iterating over it gives
    records without an end.
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
        self._turn = Turn(self._fetcher)
        self._woken = threading.Event()
        self._paused: set[TopicPartition] = set()
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
        self._close(_CLOSE_S, commits=not isinstance(error, Exception))

    # ---- what to read

    def subscribe(self, topics: Any, listener: RebalanceListener | None = None) -> None:
        """Names, a compiled pattern, or a SubscriptionPattern; replaces what was before."""
        for name in ("on_assigned", "on_revoked", "on_lost"):
            if inspect.iscoroutinefunction(getattr(listener, name, None)):
                raise TypeError(f"nobody awaits {name} of this listener; an AsyncConsumer would")
        with self._turn:
            group = self._need_group("subscribe")
            if not group.active and self._assignment.assigned():
                raise KafkaError(_EITHER)
            group.subscribe(topics, listener)
            self._control.quiet = True

    def unsubscribe(self) -> None:
        """Leaves the group, or gives up what was assigned."""
        with self._turn:
            if self._group is not None:
                self._group.unsubscribe()
            self._assign(())

    def subscription(self) -> frozenset[str]:
        """Topics subscribed to; with a pattern those that match."""
        return self._group.subscription if self._group is not None else frozenset()

    def assign(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Reads these, without the group deciding; replaces what was before."""
        with self._turn:
            if self._group is not None and self._group.active:
                raise KafkaError(_EITHER)
            self._assign(partitions)

    def _assign(self, partitions: Iterable[tuple[str, int]]) -> None:
        self._assignment.assign_from_group(checked_partitions(partitions))
        self._control.quiet = False
        self._paused &= self._assignment.assigned()

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
        with self._turn:
            for where in checked_partitions(partitions):
                self._fetcher.pause(*where, paused)
                change = self._paused.add if paused else self._paused.discard
                change(where)

    def paused(self) -> frozenset[TopicPartition]:
        """Those of the assignment that are paused."""
        return frozenset(self._paused & self._assignment.assigned())

    # ---- records

    def poll(self, timeout_s: float = 1.0, max_records: int | None = None) -> list[Record]:
        """Records that have come, at most max.poll.records or max_records; none within timeout_s:
        an empty list. Raises what has to be known: CorruptDataError, DeserializationError,
        NoOffsetError, WakeupError and what brokers refuse."""
        most = _checked(max_records) or self.config.max_poll_records
        with self._turn:
            records = self._await_some(timeout_s, lambda: self._take(most))
            return self._intercepted(records) if self._interceptors else records

    def poll_batch(self, timeout_s: float = 1.0, max_records: int | None = None) -> Columns:
        """Records that have come, as columns: for numpy and Arrow, without an object a record. At
        most max_records, or about 2 MiB. Deserializers and interceptors are not asked."""
        rows, most = _COLUMNS_ROWS, _COLUMNS_BYTES
        if wanted := _checked(max_records):
            rows, most = wanted, _BYTES_MAX
        with self._turn:
            try:
                return self._await_some(timeout_s, lambda: self._fetcher.columns(rows, most))
            except FetchedBatchError as error:
                raise CorruptDataError(str(error)) from error

    def __iter__(self) -> Iterator[Record]:
        """Records without an end. The position moves with each record that is given out."""
        most = self.config.max_poll_records
        while True:
            if self._interceptors:
                yield from self.poll(1.0)
            elif self._ready(1.0):
                try:
                    yield from self._fetcher.allow(most)
                except FetchedBatchError as error:
                    raise CorruptDataError(str(error)) from error

    def _ready(self, timeout_s: float = 0.0) -> bool:
        """Does what is due; whether something has been fetched within timeout_s."""
        with self._turn:
            return self._await(timeout_s)

    def _take(self, most: int) -> list[Record]:
        try:
            return self._fetcher.records(most)
        except FetchedBatchError as error:
            raise CorruptDataError(str(error)) from error

    def _intercepted(self, records: list[Record]) -> list[Record]:
        for one in self._interceptors:
            if hasattr(one, "on_consume"):
                try:
                    records = one.on_consume(records)
                except Exception:  # an onlooker must not take records away
                    _log.exception("an interceptor's on_consume failed")
        return records

    def _await_some(self, timeout_s: float, take: Callable[[], Taken]) -> Taken:
        """What `take` gives once it is not empty, or the time is over: a fetched batch may hold
        nothing for a reader (control batches, records before the position)."""
        deadline = time.monotonic() + timeout_s
        while True:
            ready = self._await(self._assignment.left_s(deadline))
            taken = take()
            if taken or not ready:
                return taken

    def _await(self, timeout_s: float) -> bool:
        """Does what is due, and waits until there are records (True) or the time is over."""
        deadline = time.monotonic() + timeout_s
        while True:
            due_s = self._work()
            left_s = deadline - time.monotonic()
            if self._fetcher.wait(min(max(left_s, 0.0), due_s)):
                return True
            if self._woken.is_set():
                continue
            if left_s <= 0:
                return False

    def _work(self) -> float:
        """What is due before records are given out; seconds until more is."""
        if self._woken.is_set():
            self._woken.clear()
            raise WakeupError("wakeup() was called")
        error = self._control.take_error()
        if error is not None:
            raise error
        if self._group is None:
            return float("inf")
        self._ask_committed(self._group)
        due_s = self._group.poll()
        if not self._assignment.refused:  # what it has assigned waits for no later round
            self._ask_committed(self._group)
        return due_s

    def _ask_committed(self, group: Group) -> None:
        """Where to begin in partitions that were assigned."""
        assignment = self._assignment
        if assignment.asking:
            asked, assignment.asking = frozenset(assignment.asking), set()
            assignment.refused = False
            group.fetch_committed(asked, lambda told: assignment.begin_at(asked, told))

    def wakeup(self) -> None:
        """Has the wait of another thread, or the next one, end with WakeupError."""
        self._woken.set()
        self._fetcher.wake()

    # ---- positions

    def seek(self, where: tuple[str, int], offset: int | OffsetAndMetadata) -> None:
        """The next record read is the one at this offset, or the first one behind it."""
        told = offset if isinstance(offset, OffsetAndMetadata) else OffsetAndMetadata(offset)
        with self._turn:
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
        with self._turn:
            for where in checked_partitions(partitions) or sorted(self._assignment.assigned()):
                self._assignment.seek_by(where, strategy)

    def stop_at(self, where: tuple[str, int], offset: int) -> None:
        """Asks for nothing from there on; poll() does not wait once all is read up to its end."""
        with self._turn:
            self._assignment.stop_at(checked_partition(where), offset)

    def position(self, where: tuple[str, int], timeout_s: float | None = None) -> int:
        """The offset of the next record that is given out. Waits until it is known."""
        limit_s = self.config.default_api_timeout_ms / 1e3 if timeout_s is None else timeout_s
        deadline = time.monotonic() + limit_s
        where = checked_partition(where)
        with self._turn:
            while True:
                found = self._fetcher.state(*where)["position"]
                if found >= 0:
                    return found
                self._control.moved.clear()
                due_s = self._work()
                left_s = deadline - time.monotonic()
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
        return self._group

    def commit(
        self,
        offsets: OffsetsGiven | None = None,
        timeout_s: float | None = None,
    ) -> None:
        """Commits offsets, or the positions, and waits for the answer."""
        limit_s = self.config.default_api_timeout_ms / 1e3 if timeout_s is None else timeout_s
        with self._turn:
            self._need_group("commit").commit(offsets, limit_s)

    def commit_async(
        self,
        offsets: OffsetsGiven | None = None,
        callback: Any = None,
    ) -> None:
        """Commits without waiting; callback(offsets, error) is called in a later poll, in order."""
        with self._turn:
            self._need_group("commit_async").commit_async(offsets, callback)

    def committed(
        self, partitions: Collection[tuple[str, int]], timeout_s: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group has committed; None: nothing."""
        limit_s = self.config.default_api_timeout_ms / 1e3 if timeout_s is None else timeout_s
        with self._turn:
            group = self._need_group("committed")
            return group.committed(checked_partitions(partitions), limit_s)

    def group_metadata(self) -> GroupMetadata:
        """Who this member is now."""
        return self._need_group("group_metadata").metadata()

    def enforce_rebalance(self, reason: str = "") -> None:
        """The next poll joins again (classic protocol)."""
        with self._turn:
            self._need_group("enforce_rebalance").enforce_rebalance(reason)

    # ---- metrics, end

    def metrics(self) -> dict[str, float]:
        """Counters since the beginning and what holds now, by Kafka's names. Any thread."""
        group = self._group.metrics() if self._group is not None else {}
        return self._queries.metrics() | group

    def close(self, timeout_s: float = _CLOSE_S) -> None:
        """Commits where that is automatic, leaves the group, ends threads and connections. A
        second time does nothing, nor does a child of fork(): all of it is the parent's."""
        self._close(timeout_s, commits=True)

    def _close(self, timeout_s: float, *, commits: bool) -> None:
        if self._turn.closed or self._turn.forked:
            return
        with self._turn:  # where another thread polls, nothing is taken away under it
            try:
                if self._group is not None:
                    self._group.close(timeout_s, commits=commits)
            finally:
                self._turn.closed = True
                self._end()
