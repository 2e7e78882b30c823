"""Producer: the Python face of the native one.

The caller's thread serialises, chooses the partition and appends to a batch; a native thread
sends; a control thread (Python) does what is rare (see producer_control). Thread-safe.
"""

from __future__ import annotations

import itertools
import logging
import operator
import os
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from kbroker.client import native_threads
from kbroker.client.admin_transactions import OpenTransaction
from kbroker.client.cluster import Cluster
from kbroker.client.config_producer import producer_config
from kbroker.client.errors import (
    BrokerError,
    BufferExhaustedError,
    ClosedError,
    ForkError,
    InvalidProducerEpochError,
    KafkaError,
    ProducerFencedError,
    RecordTooLargeError,
)
from kbroker.client.group.room import GroupMetadata
from kbroker.client.native_threads import is_current
from kbroker.client.partitioners import CALLABLE, partitioner_way
from kbroker.client.producer_control import Control, tell_topic
from kbroker.client.producer_driver import driver_of
from kbroker.client.producer_errors import delivery_error
from kbroker.client.producer_failures import Failures
from kbroker.client.producer_interceptors import Interceptors
from kbroker.client.producer_metrics import producer_metrics
from kbroker.client.producer_shutdown import shut, stop
from kbroker.client.producer_topics import TopicWaits
from kbroker.client.serializers import serializer_of
from kbroker.client.transactions import Limit, Offsets, Transactions
from kbroker.errors import ErrorCode
from kbroker.ext.client_clock import monotonic_ns
from kbroker.ext.client_delivery import BatchDelivery, Delivery, OffsetRange, RecordMetadata
from kbroker.ext.client_loop import ClientLoop
from kbroker.ext.client_send_batch import ProducerCore
from kbroker.ext.client_transactions import TransactionalDriver

__all__ = ["BatchDelivery", "Delivery", "OffsetRange", "Producer", "RecordMetadata"]

_FOREVER_NS = 2**63 - 1
_FOREVER_S = 1e9

_log = logging.getLogger("kbroker.client.producer")
_numbers = itertools.count(1)


class Held(NamedTuple):
    """A record that interceptors have seen, and serializers and partitioner as well where it is
    `prepared`. missing: the partition of its topic that is not known, -1: the topic; None: it is
    memory that it waits for."""

    record: tuple[Any, ...]
    prepared: tuple[Any, ...] | None
    missing: int | None


class Producer(ProducerCore):
    """Sends records to topics of a cluster.

    Settings are Kafka's, in a dict with dots or as keyword arguments with underscores:
    `Producer(bootstrap_servers="localhost:9092", linger_ms=5)`. It is a context manager: leaving
    the block, by an exception too, closes the producer. That delivers what was sent, as close()
    does, and aborts a transaction that is open. KeyboardInterrupt (Ctrl-C) leaves it in the same
    way, and one more while it delivers gives up what is left.

    In `with Consumer(...) as c, Producer(...) as p` the producer is closed first, so that the
    consumer commits nothing that the producer has not tried to deliver.
    """

    def __init__(self, config: Mapping[str, Any] | None = None, **more: Any) -> None:
        self.config = producer_config(config, more)
        self._key_serializer = serializer_of(self.config.key_serializer, "key.serializer")
        self._value_serializer = serializer_of(self.config.value_serializer, "value.serializer")
        self._interceptors = Interceptors(self.config.interceptor_classes)
        way, self._partitioner = partitioner_way(self.config.partitioner_class)
        name = f"kbroker-producer-{next(_numbers)}"
        cluster = Cluster.of(self.config)
        driver = driver_of(self.config, way)
        self._failures = Failures()
        driver.unasked.unseen = self._failures.note
        self._transactions: Transactions | None = None
        if isinstance(driver, TransactionalDriver) and self.config.transactional_id is not None:
            self._transactions = Transactions(
                driver, cluster, self.config.transactional_id, self.config
            )
        loop = ClientLoop(driver, client_id=self.config.client_id, name=name)
        control = Control(
            loop,
            driver,
            cluster,
            max_age_s=self.config.metadata_max_age_ms / 1000,
            max_idle_s=self.config.metadata_max_idle_ms / 1000,
            transactions=self._transactions,
        )
        thread = native_threads.thread(control.run, name)
        plain = way != CALLABLE and not (
            self._key_serializer or self._value_serializer or self._interceptors
        )
        self._plain = plain
        self._cluster = cluster
        self._thread = thread
        self._made_in = os.getpid()
        self._set_up(driver, self.config.max_block_ms, plain)
        self._parts = self._made_in, loop, cluster, thread, driver
        loop.start()
        thread.start()
        self._shut = weakref.finalize(self, shut, *self._parts)

    def __enter__(self) -> Producer:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and issubclass(kind, KeyboardInterrupt):
            self._tell_of_wait()
        self.close()

    def _tell_of_wait(self) -> None:
        waiting = self.driver.totals()["batches_waiting"]
        if waiting:
            _log.warning(
                "interrupted; delivering %d batches of records, for at most"
                " delivery.timeout.ms=%d; another interrupt gives them up",
                waiting, self.config.delivery_timeout_ms,
            )  # fmt: skip

    # ---- transactions

    def init_transactions(self, timeout_s: float | None = None) -> None:
        """Makes the transactional id this producer's: what another one left open is aborted, and it
        is fenced. Once, before the first transaction. This and what follows waits for at most
        `timeout_s`, max.block.ms unless told, then raises TransactionTimeoutError, which is a
        TimeoutError; call it again."""
        self._in_transactions().init(timeout_s)

    def begin(self) -> None:
        """Opens a transaction: what is sent from now on is seen whole or not at all."""
        self._in_transactions().begin()

    def send_offsets_to_transaction(
        self, offsets: Offsets, group: GroupMetadata | str, timeout_s: float | None = None
    ) -> None:
        """Commits offsets of a group with the transaction: (topic, partition) -> the next offset to
        be read. group: of Consumer.group_metadata(), by which members of an older generation are
        refused; a name alone lets everybody commit. Raises TypeError or ValueError that names what
        cannot be committed."""
        self._in_transactions().send_offsets(offsets, group, timeout_s)

    def commit(self, timeout_s: float | None = None) -> None:
        """Delivers what was sent and commits. KafkaError where the transaction has failed, by the
        first record of it that was not delivered: then abort(). InvalidProducerEpochError: somebody
        has the transactional id, and abort() raises ProducerFencedError; or transaction.timeout.ms
        were over. TransactionTimeoutError: not known yet; call it again, or abort()."""
        self._in_transactions().end(True, self.flush, timeout_s)

    def abort(self, timeout_s: float | None = None) -> None:
        """Gives the transaction up; records that wait to be sent fail with PurgedError."""
        self._in_transactions().end(False, self.flush, timeout_s)

    def leave_open(self, timeout_s: float | None = None) -> OpenTransaction | None:
        """Delivers what was sent and leaves the transaction open: whoever has what this returns
        ends it, in any process, by Admin.end_transaction(); until then, or until
        transaction.timeout.ms are over, it is open. None where nothing is in it. After that only
        close() is left to do here."""
        return self._in_transactions().leave_open(self.flush, timeout_s)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """`with producer.transaction():` commits at the end, and aborts where an exception leaves
        the block, or where the commit is not done within max.block.ms. Where the abort is not
        either, the log says so, and abort() is to be called before the next one. A block that has
        called commit(), abort() or leave_open() has ended it: nothing more is done then.

        ProducerFencedError, whoever was told first: somebody has the transactional id.
        InvalidProducerEpochError: transaction.timeout.ms were over, and it was aborted; brokers
        without KIP-890 tell of that by ProducerFencedError as well."""
        self.begin()
        try:
            yield
        except BaseException as error:
            self._abort_after(error)
            raise
        if self._in_transactions().is_decided:
            return
        try:
            self.commit()
        except KafkaError as error:
            self._abort_after(error)
            raise

    def _abort_after(self, error: BaseException) -> None:
        """Aborts what is open while an error is on its way. Raises ProducerFencedError where the
        coordinator says that to what a partition called an old epoch."""
        if not self._in_transactions().is_open:
            return
        try:
            self.abort()
        except (KafkaError, TimeoutError) as failed:
            if isinstance(failed, ProducerFencedError) and _tells_of_epoch(error):
                raise failed from error
            _log.warning("the transaction was not aborted: %s", failed)

    def _in_transactions(self) -> Transactions:
        self._check_fork()
        if self._transactions is None:
            raise KafkaError("this producer has no transactional.id")
        return self._transactions

    def _outside(self) -> Exception:
        return self._in_transactions().outside()

    # ---- for who may not wait

    def try_send(self, *given: Any) -> Delivery | Held:
        """send() with all of its arguments in their order, or what it waits for first. Whoever sees
        or changes a record does it once."""
        record = given if self._plain else self._intercepted(*given)
        missing = self.missing(record[0], record[3])
        if missing is None:
            return self._go_on(record, None, 0)
        return Held(record, None, missing)

    def hold(self, *given: Any) -> Held:
        """try_send() up to where memory is asked for, which others wait for already."""
        record = given if self._plain else self._intercepted(*given)
        held = Held(record, None, self.missing(record[0], record[3]))
        return self.prepared(held) if held.missing is None else held

    def prepared(self, held: Held) -> Held:
        """What waits for memory and for nothing else, now that its topic is known."""
        return Held(held.record, held.prepared or self._prepared(held.record), None)

    def missing(self, topic: Any, partition: Any) -> int | None:
        """The partition of a topic that a send would ask the cluster for, -1: any; None: it asks
        for none, and raises where it is given what is no topic or no partition."""
        if not isinstance(topic, str) or not topic:
            return None
        topic = str.__str__(topic)  # of a member of a StrEnum
        if not hasattr(partition, "__index__"):
            return None if self._knows(topic) else -1
        wanted = max(operator.index(partition), -1)
        return None if self._knows(topic) and wanted < self._partition_count(topic) else wanted

    def go_on(self, held: Held, wait_ns: int) -> Delivery | Held:
        """The rest of its send, now that its topic is known: waits so long for memory."""
        return self._go_on(held.record, held.prepared, wait_ns)

    def give_up(self, held: Held, error: Exception) -> None:
        """It is not sent."""
        self._not_taken(held.record[0], held.record[3], error)

    def _go_on(
        self, record: tuple[Any, ...], prepared: tuple[Any, ...] | None, wait_ns: int
    ) -> Delivery | Held:
        if prepared is None:
            prepared = self._prepared(record)
        try:
            delivery = self._append(wait_ns, *prepared)
        except Exception as error:
            self._not_taken(record[0], record[3], error)
            raise
        return Held(record, prepared, None) if delivery is None else delivery

    def _prepared(self, record: tuple[Any, ...]) -> tuple[Any, ...]:
        if self._plain:
            return record
        try:
            return self._prepare(*record)
        except Exception as error:
            self._not_taken(record[0], record[3], error)
            raise

    def topic_waits(self) -> TopicWaits:
        """For sends that wait on an event loop."""
        return TopicWaits(self._cluster, self.driver)

    # ---- ends

    def flush(self, timeout_s: float | None = None) -> None:
        """Waits until all that was sent before is delivered or has failed, and its callbacks have
        run. TimeoutError after `timeout_s`; KafkaError where called from a callback."""
        if is_current(self._thread):
            raise KafkaError("flush() in a callback would wait for itself")
        self._check_fork()
        deadline_ns = _FOREVER_NS
        if timeout_s is not None and timeout_s < _FOREVER_S:
            deadline_ns = monotonic_ns() + int(timeout_s * 1e9)
        if not self._flush(deadline_ns):
            raise TimeoutError(f"records are not delivered after {timeout_s:g} s")
        self.driver.wait_callbacks(deadline_ns)
        self.driver.unasked.tell()

    def purge(self, *, queued: bool = True, in_flight: bool = True) -> None:
        """Gives records up, with PurgedError: those that wait, those that are on their way (which
        may be written all the same). Returns when they are."""
        self._check_fork()
        self.driver.purge(queued, in_flight)
        if queued and in_flight:
            self._flush(monotonic_ns() + 5_000_000_000)

    def close(self, timeout_s: float | None = None) -> None:
        """Takes nothing more - send() of any thread raises ClosedError from now on - and delivers
        all that was taken, for at most `timeout_s` (None: delivery.timeout.ms bounds it); the
        rest fails with UndeliveredError. A second time does nothing.

        A transaction that is open is aborted first, within the same time (None: max.block.ms): its
        records that wait fail with PurgedError. One that leave_open() left stays. The log says
        where it was not aborted; transaction.timeout.ms end it then. With a timeout of 0, and in a
        callback, nothing is waited for, and so nothing aborted. In a child of fork() nothing is
        done: records, transaction and threads are the parent's."""
        if not self._shut.alive or self._is_forked:
            return
        in_callback = is_current(self._thread)
        limit = None if timeout_s is None else Limit(timeout_s)
        self._end()
        try:
            if not in_callback and (timeout_s is None or timeout_s > 0):
                self._abort_open(timeout_s)
                self.flush(None if limit is None else limit.left_s)
        except TimeoutError:
            pass
        finally:  # each step may be repeated by another close(), after an exception
            waiting = self.driver.totals()["batches_waiting"]
            if waiting:
                _log.warning("closed with %d batches of records undelivered", waiting)
            stop(*self._parts)
            is_first = self._shut.detach() is not None
        if is_first:
            self._failures.report()
            self._interceptors.close()

    def _abort_open(self, timeout_s: float | None) -> None:
        """What is open when the producer is closed."""
        if self._transactions is None:
            return
        try:
            if self._transactions.close(self.flush, timeout_s):
                _log.info("closed with a transaction open, which was aborted")
        except (KafkaError, TimeoutError) as error:
            _log.warning("closed with a transaction open, which was not aborted: %s", error)

    # ---- what the native half asks

    def _load_topic(self, name: str, timeout_s: float) -> None:
        """Metadata of a topic that nothing was sent to yet; brokers may create it."""
        if not name:
            raise ValueError("topic: the name is empty")
        info = self._cluster.retry(
            lambda: self._cluster.topic(name, create=True), timeout_s=timeout_s, ends=True
        )
        if not info.partitions:
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name!r}")
        tell_topic(self.driver, info)

    def _load_partition(self, name: str, partition: int, timeout_s: float) -> None:
        """A partition that is not known yet: the topic may have grown."""
        self._cluster.retry(
            lambda: self._cluster.refresh([name]), timeout_s=timeout_s, ends=True
        )
        info = self._cluster.topic(name)
        tell_topic(self.driver, info)
        if partition >= len(info.partitions):
            raise ValueError(
                f"partition: topic {name!r} has {len(info.partitions)}, so none {partition}"
            )

    def _intercepted(self, *given: Any) -> tuple[Any, ...]:
        """send()'s arguments after interceptors, which raise nothing."""
        if not self._interceptors:
            return given
        return (*self._interceptors.on_send(*given[:-1]), given[-1])

    def _not_taken(self, topic: Any, partition: Any, error: BaseException) -> None:
        """send() raises."""
        self._interceptors.failed(topic, partition, error)

    def _prepare(
        self,
        topic: str,
        value: Any,
        key: Any,
        *rest: Any,
    ) -> tuple[Any, ...]:
        """send()'s arguments after serializers and a callable partitioner."""
        partition, headers, timestamp_ms, on_delivery = rest
        if self._key_serializer is not None and key is not None:
            key = _serialized(self._key_serializer, topic, key, "key")
        if self._value_serializer is not None and value is not None:
            value = _serialized(self._value_serializer, topic, value, "value")
        if self._partitioner is not None and partition is None:
            partition = self._chosen_partition(topic, key, value)
        if self._interceptors:
            on_delivery = self._interceptors.acknowledging(on_delivery)
        return topic, value, key, partition, headers, timestamp_ms, on_delivery

    def _chosen_partition(self, topic: str, key: bytes | None, value: bytes | None) -> int:
        """What a callable partitioner says."""
        assert self._partitioner is not None
        count = self._partition_count(topic)
        chosen = self._partitioner(topic, key, value, count)
        if not hasattr(chosen, "__index__") or not 0 <= chosen < count:
            raise ValueError(f"partition: the partitioner chose {chosen!r} of {count} partitions")
        return operator.index(chosen)

    @property
    def _is_forked(self) -> bool:
        return self._made_in != os.getpid()

    def _check_fork(self) -> None:
        """Before what waits for the threads, which a child of fork() has not got."""
        if self._is_forked:
            raise self._ended(True)

    def _ended(self, forked: bool) -> Exception:
        if forked:
            return ForkError("this producer was made before fork(); make a new one in the child")
        return ClosedError("this producer is closed")

    def _error(
        self, code: int, local: int, message: str | None, topic: str, partition: int
    ) -> Exception:
        return delivery_error(code, local, message, topic, partition)

    def _too_large(self, topic: str, value_bytes: int) -> Exception:
        size = f" with a value of {value_bytes} bytes" if value_bytes >= 0 else ""
        return RecordTooLargeError(
            f"{topic}: a record{size} is larger than max.request.size"
            f" ({self.config.max_request_size}) or buffer.memory ({self.config.buffer_memory})"
        )

    def _exhausted(self, topic: str) -> Exception:
        return BufferExhaustedError(
            f"{topic}: buffer.memory ({self.config.buffer_memory} bytes) was full for max.block.ms"
            f" ({self.config.max_block_ms} ms); flush(), or send less than the cluster takes"
        )

    # ---- figures

    def metrics(self) -> dict[str, float]:
        """Counters since the start and what holds now, by names like Java's producer-metrics; those
        of connections and metadata as Consumer and Admin have them."""
        self.driver.unasked.tell()
        unseen = {"record-error-unseen-total": float(self._failures.records)}
        return self._cluster.metrics() | producer_metrics(self.driver.totals()) | unseen


def _tells_of_epoch(error: BaseException) -> bool:
    """That of the producer was an old one: said by itself, or by why it came."""
    return any(isinstance(one, InvalidProducerEpochError) for one in (error, error.__cause__))


def _serialized(serializer: Any, topic: str, given: Any, field: str) -> bytes | None:
    try:
        made = serializer(topic, given)
    except Exception as error:
        error.add_note(f"while the {field} of a record for topic {topic!r} was serialized")
        raise
    if made is not None and type(made) is not bytes:
        raise TypeError(
            f"{field}: its serializer made {type(made).__name__} of it, not bytes or None"
        )
    return made
