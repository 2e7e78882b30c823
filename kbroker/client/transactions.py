"""Transactions of a producer: what its methods ask of the coordinator.

Two protocols: where the cluster's transaction.version is 2 (KIP-890), Produce and TxnOffsetCommit
add partitions by themselves and every transaction has an epoch of its own; else partitions are
added first, beside the producer's control thread, and the epoch goes up (KIP-360) after a
transaction in which records may have been lost. The methods block, and belong to one thread at a
time; what close() asks for may come from another, and waits for its turn.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from kbroker.client.admin_cluster import describe_features
from kbroker.client.admin_transactions import OpenTransaction
from kbroker.client.cluster import Cluster
from kbroker.client.config_producer import ProducerConfig
from kbroker.client.coordinators import GROUP, TRANSACTION, find_coordinators
from kbroker.client.errors import (
    BrokerError,
    ConnectError,
    KafkaError,
    TransactionTimeoutError,
    check,
)
from kbroker.client.group.room import GroupMetadata
from kbroker.client.partitions import OffsetAndMetadata, TopicPartition, checked_offsets
from kbroker.errors import ErrorCode
from kbroker.ext.client_clock import monotonic
from kbroker.ext.client_transactions import TransactionalDriver
from kbroker.protocol import ApiKey

__all__ = ["Limit", "Offsets", "Transactions"]

P = ParamSpec("P")
T = TypeVar("T")
Offsets = Mapping[tuple[str, int], OffsetAndMetadata | int]

_FEATURE: Final = "transaction.version"
_VERSION_2: Final = 2
_JITTER: Final = 1.2  # a pause between two tries may be so much longer than it is set
# The highest versions that a client may use which does not speak version 2 of the protocol.
_MOST: Final = {
    ApiKey.ADD_PARTITIONS_TO_TXN: 3,
    ApiKey.ADD_OFFSETS_TO_TXN: 4,
    ApiKey.END_TXN: 4,
    ApiKey.TXN_OFFSET_COMMIT: 4,
}
_PASSING: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
_FATAL: Final = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.INVALID_TXN_STATE,
    }
)


class State(Enum):
    """Where a producer stands."""

    NEW = "init_transactions() was not called"
    READY = "no transaction is open: call begin()"
    OPEN = "a transaction is open"
    ENDING = "a transaction is being committed: call commit() again, or abort()"
    LEFT = "its transaction was left open for another to end"
    COMMITTED = "the transaction is committed, its next epoch has not come: call commit() again"
    FAILED = "the transaction has failed: call abort()"
    FENCED = "another producer has this transactional id"


_OPEN: Final = frozenset({State.OPEN, State.ENDING, State.FAILED})
_LOST: Final = "the transaction has failed: it can only be aborted"


def _in_turn(
    method: Callable[Concatenate[Transactions, P], T],
) -> Callable[Concatenate[Transactions, P], T]:
    """One method that blocks after the other."""

    @functools.wraps(method)
    def run(self: Transactions, /, *given: P.args, **more: P.kwargs) -> T:
        with self.turn:
            self.depth += 1
            try:
                return method(self, *given, **more)
            finally:
                self.depth -= 1

    return run


class Limit:
    """Until when a call may block, whatever it asks whom on the way."""

    def __init__(self, limit_s: float) -> None:
        self.whole_s = limit_s
        self._until_s = monotonic() + limit_s

    @property
    def left_s(self) -> float:
        """How long it may block still."""
        return max(self._until_s - monotonic(), 0.0)


class Transactions:
    """See the module."""

    def __init__(
        self, driver: TransactionalDriver, cluster: Cluster, name: str, config: ProducerConfig
    ) -> None:
        self._driver = driver
        self._cluster = cluster
        self._name = name
        self._timeout_ms = config.transaction_timeout_ms
        self._max_block_s = config.max_block_ms / 1e3
        self._nodes: dict[int, int] = {}
        self._producer = (-1, -1)
        self._ended: tuple[int, int] | None = None  # what follows a transaction that has ended
        self._batches = 0
        self._asked = False
        self._began = False
        self._number = 0  # of the transaction
        self._unsure = False
        self._fatal = 0
        self.turn = threading.RLock()
        self.depth = 0  # how many methods of the turn's thread are under way
        self.state = State.NEW
        driver.set_transactional_id(name.encode())

    def _limit(self, limit_s: float | None) -> Limit:
        return Limit(self._max_block_s if limit_s is None else limit_s)

    # ---- the coordinators

    def _call(
        self, kind: int, key: str, api: ApiKey, values: Mapping[str, Any], limit: Limit
    ) -> Any:
        """The answer of a coordinator, asked again while it fails in a way that passes. Raises
        TransactionTimeoutError where that takes too long."""
        most = None if self._driver.adds_partitions else _MOST.get(api)

        def attempt() -> Any:
            node = self._nodes.get(kind)
            if node is None:
                found = find_coordinators(self._cluster, [key], kind, self._answer_s(limit))
                node = self._nodes[kind] = found[key]
            try:
                connection = self._cluster.connection(node)
                body = connection.call(api, values, most=most, timeout_s=self._answer_s(limit))
            except (ConnectError, BrokerError):
                self._nodes.pop(kind, None)
                raise
            for code in _codes(body):
                if code in _PASSING:
                    self._nodes.pop(kind, None)
                if code in _PASSING or code == ErrorCode.CONCURRENT_TRANSACTIONS:
                    check(code, f"transactional id {self._name!r}")
            return body

        return self._within(limit, attempt)

    def _answer_s(self, limit: Limit) -> float:
        """How long to wait for one answer."""
        return min(self._cluster.timeout_s, limit.left_s)

    def _within(self, limit: Limit, attempt: Callable[[], T]) -> T:
        try:
            return self._cluster.retry(attempt, limit.left_s, ends=True)
        except KafkaError as error:
            is_over = limit.left_s <= self._cluster.settings.retry_backoff_max_s * _JITTER
            if not (error.retriable and is_over):
                raise
            raise TransactionTimeoutError(
                f"transactional id {self._name!r}: not done within {limit.whole_s:g} s: {error}"
            ) from error

    def _ask(self, api: ApiKey, values: Mapping[str, Any], limit: Limit) -> Any:
        """The transaction coordinator's answer; its errors end the transaction or the producer."""
        body = self._call(TRANSACTION, self._name, api, values, limit)
        self._check(body.error_code)
        return body

    def _check(self, code: int) -> None:
        if code == ErrorCode.INVALID_PRODUCER_EPOCH:
            code = ErrorCode.PRODUCER_FENCED
        if code in _FATAL:
            self.state, self._fatal = State.FENCED, int(code)
            self._driver.set_producer_id(-1, -1, int(code))
        elif code and self.state in (State.OPEN, State.ENDING):
            self.state = State.FAILED
            self._driver.fail_transaction(int(code))
        check(code, f"transactional id {self._name!r}")

    def _who(self) -> dict[str, Any]:
        return {
            "transactional_id": self._name,
            "producer_id": self._producer[0],
            "producer_epoch": self._producer[1],
        }

    def _go_on_as(self, producer_id: int, epoch: int) -> None:
        if (producer_id, epoch) != self._producer:
            self._driver.set_producer_id(producer_id, epoch)
            self._producer = (producer_id, epoch)  # last: an exception may come in between

    # ---- what the producer does

    @property
    def is_open(self) -> bool:
        """Whether there is a transaction that abort() would end."""
        return self.state in _OPEN

    @property
    def is_decided(self) -> bool:
        """Whether nothing is left to be committed: it has ended, or its end is another's."""
        return self.state in (State.READY, State.LEFT)

    @_in_turn
    def init(self, limit_s: float | None) -> None:
        """The transactional id is this producer's from now on; what another one left open is
        aborted."""
        self._want(State.NEW, State.READY)
        limit = self._limit(limit_s)
        features = self._within(
            limit, lambda: describe_features(self._cluster, self._answer_s(limit))
        ).features
        level = features[_FEATURE].level if _FEATURE in features else 0
        self._driver.adds_partitions = level >= _VERSION_2
        self._new_epoch(limit, *self._producer)
        self.state = State.READY

    def _new_epoch(self, limit: Limit, producer_id: int, epoch: int) -> None:
        values = {
            "transactional_id": self._name,
            "transaction_timeout": self._timeout_ms,
            "producer_id": producer_id,
            "producer_epoch": epoch,
        }
        body = self._ask(ApiKey.INIT_PRODUCER_ID, values, limit)
        self._go_on_as(int(body.producer_id), int(body.producer_epoch))

    def begin(self) -> None:
        """Records that are sent from now on are part of a transaction."""
        self._want(State.READY)
        self._has_begun_nothing()
        self._number += 1
        self._driver.begin()
        self.state = State.OPEN

    def add_wanted(self) -> None:
        """Beside the control thread: partitions with records become part of the transaction."""
        number = self._number
        wanted = self._driver.partitions_wanted()
        if not wanted:
            return
        topics: dict[str, list[int]] = {}
        for topic, index in wanted:
            topics.setdefault(topic, []).append(index)
        asked = [{"name": name, "partitions": indexes} for name, indexes in topics.items()]
        who = {f"v3_and_below_{key}": value for key, value in self._who().items()}
        values = {**who, "v3_and_below_topics": asked}
        limit = Limit(self._cluster.settings.call_timeout_s)
        body = self._begin_by(ApiKey.ADD_PARTITIONS_TO_TXN, values, limit)
        failed = next((code for code in _codes(body) if code), 0)
        if number != self._number:
            return  # an abort has ended the transaction that they were of
        if failed:
            self._driver.fail_transaction(failed)
            self._driver.purge(True, False)
        else:
            self._began = True
            self._driver.partitions_added(wanted)

    def _begin_by(self, api: ApiKey, values: Mapping[str, Any], limit: Limit) -> Any:
        """The answer to what begins the transaction at its coordinator, which may do so without our
        hearing of it, and even later."""
        self._asked = True
        try:
            return self._call(TRANSACTION, self._name, api, values, limit)
        except BaseException:
            self._unsure = True  # what is late is of an old epoch then
            raise

    @_in_turn
    def send_offsets(
        self, offsets: Offsets, to: GroupMetadata | str, limit_s: float | None
    ) -> None:
        """Offsets that the group has read up to take effect with the transaction. Raises TypeError
        or ValueError that names which of them cannot be committed."""
        group, checked = _checked_group(to), checked_offsets(offsets)
        self._want(State.OPEN)
        if not checked:
            return
        limit = self._limit(limit_s)
        if not self._driver.adds_partitions:
            asked = {**self._who(), "group_id": group.group_id}
            body = self._begin_by(ApiKey.ADD_OFFSETS_TO_TXN, asked, limit)
            self._check(body.error_code)
        self._began = True
        values = {
            **self._who(),
            "group_id": group.group_id,
            "generation_id": group.generation,
            "member_id": group.member_id,
            "group_instance_id": group.instance_id,
            "topics": _topics(checked),
        }
        body = self._call(GROUP, group.group_id, ApiKey.TXN_OFFSET_COMMIT, values, limit)
        for code in _codes(body):
            self._check(code)

    @_in_turn
    def end(
        self, commit: bool, flush: Callable[[float | None], None], limit_s: float | None
    ) -> None:
        """Commit or abort, when every record has its outcome."""
        if commit:
            self._want(State.OPEN, State.ENDING, State.COMMITTED)
        else:
            self._want(State.OPEN, State.FAILED, State.ENDING)
        limit = self._limit(limit_s)
        self._driver.close_transaction()
        if self.state is not State.COMMITTED:
            self.state = State.ENDING if commit else State.FAILED
        if not commit:
            self._driver.purge(True, False)
        self._deliver(flush, limit.left_s)
        if commit and self._driver.txn_error:
            self.state = State.FAILED
            raise self._lost()
        if self._ended is None:
            ended = self._end_begun(commit, limit) if self._has_begun() else self._producer
            self._ended = ended
            self.state = State.COMMITTED if commit else State.FAILED
        self._go_on_as(*self._ended)
        self._has_begun_nothing()
        self._renew_epoch(limit)
        self._ended = None
        self.state = State.READY

    def _end_begun(self, commit: bool, limit: Limit) -> tuple[int, int]:
        """Ask the coordinator to end the transaction; return the producer's next id and epoch."""
        values = {**self._who(), "committed": commit}
        body = self._call(TRANSACTION, self._name, ApiKey.END_TXN, values, limit)
        if body.error_code == ErrorCode.INVALID_TXN_STATE and not self._surely_begun():
            return self._producer  # what would have begun it was refused, or never came there
        self._check(body.error_code)
        if not self._driver.adds_partitions:
            return self._producer
        return int(body.producer_id), int(body.producer_epoch)

    def _renew_epoch(self, limit: Limit) -> None:
        """Where the transaction that has ended may have left gaps in the sequences; whoever did not
        hear of the new epoch asks for it again, before anything is sent in the old one."""
        self._unsure |= self._driver.take_unsure()
        if self._unsure and not self._driver.adds_partitions:
            self._new_epoch(limit, *self._producer)
        self._unsure = False

    def _deliver(self, flush: Callable[[float | None], None], limit_s: float | None) -> None:
        """Every record has its outcome. Raises TransactionTimeoutError where one has none at the
        limit."""
        try:
            flush(limit_s)
        except TimeoutError as error:
            raise TransactionTimeoutError(f"transactional id {self._name!r}: {error}") from error

    def close(self, flush: Callable[[float | None], None], limit_s: float | None) -> bool:
        """Aborts what is open, when a method that another thread has called is done; False: nothing
        was. Where this thread has called one, as it has in a signal handler, that one finds the
        producer closed. Raises KafkaError where it was not aborted."""
        limit = self._limit(limit_s)
        if not self.turn.acquire(timeout=min(limit.left_s, threading.TIMEOUT_MAX)):
            raise TransactionTimeoutError(
                f"transactional id {self._name!r}: another thread was at it for {limit.whole_s:g} s"
            )
        try:
            if self.depth or not self.is_open:
                return False
            self.end(False, flush, limit.left_s)
            return True
        finally:
            self.turn.release()

    @_in_turn
    def leave_open(
        self, flush: Callable[[float | None], None], limit_s: float | None
    ) -> OpenTransaction | None:
        """Every record has its outcome; the end of the transaction is another's to decide."""
        self._want(State.OPEN)
        self._driver.close_transaction()
        self._deliver(flush, limit_s)
        if self._driver.txn_error:
            self.state = State.FAILED
            raise self._lost()
        self.state = State.LEFT
        if not self._has_begun():
            return None
        return OpenTransaction(self._name, *self._producer, self._driver.adds_partitions)

    def _has_begun_nothing(self) -> None:
        """What comes from now on is of another transaction."""
        self._batches = self._driver.totals()["batches"]
        self._asked = self._began = False

    def _has_begun(self) -> bool:
        """Whether the coordinator may know of the transaction."""
        return self._asked or self._surely_begun()

    def _surely_begun(self) -> bool:
        """Whether the coordinator has told of it, or is asked by brokers that got records."""
        return self._began or self._driver.totals()["batches"] > self._batches

    def _lost(self) -> KafkaError:
        """What the transaction failed by."""
        code = self._driver.txn_error
        if code > 0:
            return BrokerError(code, f"the transaction of {self._name!r} has failed")
        return KafkaError(f"records of the transaction of {self._name!r} were not delivered")

    def outside(self) -> KafkaError:
        """Why no record is taken; its cause is what the transaction failed by."""
        if self.state is State.FENCED:
            return BrokerError(self._fatal, f"transactional id {self._name!r}")
        has_lost = self.is_open and self._driver.txn_error != 0
        told = KafkaError(_LOST if has_lost and self.state is State.OPEN else self.state.value)
        if has_lost:
            told.__cause__ = self._lost()
        return told

    def _want(self, *states: State) -> None:
        """Raises what the transaction failed by where it has to be open still."""
        if self.state is State.OPEN and self._driver.txn_error:
            self.state = State.FAILED
        if self.state in states:
            return
        if self.state is State.FAILED and State.OPEN in states and self._driver.txn_error:
            raise self._lost()
        raise self.outside()


def _checked_group(group: object) -> GroupMetadata:
    if isinstance(group, GroupMetadata):
        return group
    if not isinstance(group, str):
        raise TypeError(
            f"group: {type(group).__name__} is neither a group's name nor what"
            " Consumer.group_metadata() tells"
        )
    return GroupMetadata(group)


def _topics(offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> list[dict[str, Any]]:
    topics: dict[str, list[dict[str, Any]]] = {}
    for (topic, index), told in offsets.items():
        topics.setdefault(topic, []).append(
            {
                "partition_index": index,
                "committed_offset": told.offset,
                "committed_leader_epoch": told.leader_epoch,
                "committed_metadata": told.metadata,
            }
        )
    return [{"name": name, "partitions": found} for name, found in topics.items()]


def _codes(body: Any) -> list[int]:
    """All error codes of an answer."""
    if hasattr(body, "error_code"):
        return [int(body.error_code)]
    if hasattr(body, "results_by_topic_v3_and_below"):
        return [
            int(one.partition_error_code)
            for topic in body.results_by_topic_v3_and_below
            for one in topic.results_by_partition
        ]
    return [int(one.error_code) for topic in body.topics for one in topic.partitions]
