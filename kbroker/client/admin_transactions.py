"""Producers of partitions and transactions: told, aborted, fenced (KIP-664)."""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from kbroker.client.admin import ask_leaders, error_of
from kbroker.client.cluster import Cluster
from kbroker.client.connection import Connection
from kbroker.client.coordinators import (
    TRANSACTION,
    ask_brokers,
    ask_coordinators,
    check_coordinator,
    subject_of,
)
from kbroker.client.errors import KafkaError, check
from kbroker.client.offsets import leader_of
from kbroker.client.partitions import TopicPartition, checked_partition, checked_partitions
from kbroker.client.results import Results, listed
from kbroker.errors import ErrorCode
from kbroker.protocol import ApiKey

__all__ = [
    "FencedProducer",
    "OpenTransaction",
    "ProducerState",
    "TransactionDescription",
    "TransactionListing",
    "abort_transaction",
    "describe_producers",
    "describe_transactions",
    "end_transaction",
    "fence_producers",
    "hanging_transactions",
    "list_transactions",
    "to_ms",
]

Partition = tuple[str, int]

_FENCING_TIMEOUT_MS = 60_000
_END_TXN_MOST = 4  # of who does not speak version 2 of the protocol


@dataclass(frozen=True, slots=True)
class ProducerState:
    """What a partition knows of a producer. transaction_start_offset None: none is open."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    transaction_start_offset: int | None


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction that its producer left open for another process to end.

    by_epoch: version 2 of the protocol, in which a transaction has an epoch of its own.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    by_epoch: bool


@dataclass(frozen=True, slots=True)
class TransactionListing:
    """A transactional id and where its transaction stands."""

    transactional_id: str
    producer_id: int
    state: str
    coordinator: int


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """A transactional id. start_ms None: no transaction is open."""

    transactional_id: str
    coordinator: int
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_ms: int | None
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class FencedProducer:
    """The id and epoch that a transactional id has after its producers were fenced."""

    producer_id: int
    producer_epoch: int


def to_ms(value: Any) -> int:
    """Milliseconds of a time or duration, which kio gives as it likes."""
    if isinstance(value, datetime.timedelta):
        return value // datetime.timedelta(milliseconds=1)
    if isinstance(value, datetime.datetime):
        since = value - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
        return since // datetime.timedelta(milliseconds=1)
    return int(value)


def describe_producers(
    cluster: Cluster, partitions: Iterable[Partition]
) -> Results[TopicPartition, tuple[ProducerState, ...]]:
    """The producers that each partition's leader knows of."""

    def ask(
        connection: Connection, topics: dict[str, list[int]]
    ) -> Iterator[tuple[Partition, tuple[ProducerState, ...] | KafkaError]]:
        wanted = [{"name": name, "partition_indexes": parts} for name, parts in topics.items()]
        for topic in connection.call(ApiKey.DESCRIBE_PRODUCERS, {"topics": wanted}).topics:
            for part in topic.partitions:
                key = TopicPartition(topic.name, int(part.partition_index))
                failed = error_of(part.error_code, str(key), part.error_message)
                yield key, failed or tuple(map(_producer, part.active_producers))

    found = ask_leaders(cluster, checked_partitions(partitions), ask)
    return Results({TopicPartition(*key): told for key, told in found.told.items()})


def _producer(state: Any) -> ProducerState:
    start = int(state.current_txn_start_offset)
    return ProducerState(
        int(state.producer_id),
        int(state.producer_epoch),
        int(state.last_sequence),
        int(state.last_timestamp),
        int(state.coordinator_epoch),
        start if start >= 0 else None,
    )


def list_transactions(
    cluster: Cluster,
    *,
    states: Collection[str] = (),
    producer_ids: Collection[int] = (),
    longer_than_ms: int = -1,
    pattern: str | None = None,
) -> list[TransactionListing]:
    """Transactional ids of all coordinators, by id; those in one of these states, of one of these
    producers, open for so long, and whose whole id matches (KIP-994, KIP-1152)."""
    values: dict[str, Any] = {
        "state_filters": list(listed(states)),
        "producer_id_filters": list(producer_ids),
    }

    def ask(node_id: int) -> list[TransactionListing]:
        connection = cluster.connection(node_id)
        version = connection.version_of(ApiKey.LIST_TRANSACTIONS)
        more: dict[str, Any] = {"duration_filter": longer_than_ms} if version >= 1 else {}
        if version >= 2:
            more["transactional_id_pattern"] = pattern or ""
        elif pattern is not None or (longer_than_ms >= 0 and version < 1):
            raise KafkaError(f"broker {connection.address} cannot filter transactions so")
        body = connection.call(ApiKey.LIST_TRANSACTIONS, {**values, **more})
        check(body.error_code, f"transactions of broker {node_id}")
        if body.unknown_state_filters:
            raise KafkaError(f"no such state: {', '.join(body.unknown_state_filters)}")
        return [
            TransactionListing(
                state.transactional_id, int(state.producer_id), state.transaction_state, node_id
            )
            for state in body.transaction_states
        ]

    found = [listing for listings in ask_brokers(cluster, ask) for listing in listings]
    return sorted(found, key=lambda listing: listing.transactional_id)


def describe_transactions(
    cluster: Cluster, transactional_ids: Collection[str]
) -> Results[str, TransactionDescription]:
    """Transactional ids as their coordinators know them."""

    def ask(
        connection: Connection, node_id: int, names: list[str]
    ) -> Iterator[tuple[str, TransactionDescription | KafkaError]]:
        body = connection.call(ApiKey.DESCRIBE_TRANSACTIONS, {"transactional_ids": names})
        for state in body.transaction_states:
            name = state.transactional_id
            check_coordinator(name, state.error_code, TRANSACTION)
            failed = error_of(state.error_code, subject_of(name, TRANSACTION))
            yield name, failed or _transaction(state, node_id)

    return Results(ask_coordinators(cluster, transactional_ids, ask, TRANSACTION))


def _transaction(state: Any, node_id: int) -> TransactionDescription:
    start_ms = to_ms(state.transaction_start_time) if state.transaction_start_time else -1
    return TransactionDescription(
        transactional_id=state.transactional_id,
        coordinator=node_id,
        state=state.transaction_state,
        producer_id=int(state.producer_id),
        producer_epoch=int(state.producer_epoch),
        timeout_ms=to_ms(state.transaction_timeout),
        start_ms=start_ms if start_ms >= 0 else None,
        partitions=tuple(
            sorted(
                TopicPartition(topic.topic, int(index))
                for topic in state.topics
                for index in topic.partitions
            )
        ),
    )


def hanging_transactions(
    cluster: Cluster, partitions: Iterable[Partition], before_ms: int
) -> list[tuple[TopicPartition, ProducerState]]:
    """Transactions that are open in these partitions, had no record since `before_ms`, and belong
    to no transactional id whose transaction has that partition."""
    told = describe_producers(cluster, partitions).checked()
    quiet = [
        (where, state)
        for where, states in told.items()
        for state in states
        if state.transaction_start_offset is not None and state.last_timestamp_ms < before_ms
    ]
    if not quiet:
        return []
    ids = sorted({state.producer_id for _, state in quiet})
    names = [one.transactional_id for one in list_transactions(cluster, producer_ids=ids)]
    known = {
        (found.producer_id, where)
        for found in describe_transactions(cluster, names).succeeded.values()
        for where in found.partitions
    }
    return [(where, state) for where, state in quiet if (state.producer_id, where) not in known]


def abort_transaction(cluster: Cluster, partition: Partition, producer: ProducerState) -> None:
    """Ends a transaction that hangs in a partition, by an abort marker written past its
    coordinator: for one that no coordinator knows of any more. producer: of describe_producers."""
    topic, index = checked_partition(partition)
    marker = {
        "producer_id": producer.producer_id,
        "producer_epoch": producer.producer_epoch,
        "transaction_result": False,
        "coordinator_epoch": max(producer.coordinator_epoch, 0),
        "topics": [{"name": topic, "partition_indexes": [index]}],
    }

    def ask() -> None:
        connection = cluster.connection(leader_of(cluster, topic, index))
        body = connection.call(ApiKey.WRITE_TXN_MARKERS, {"markers": [marker]})
        for answer in body.markers:
            for told in answer.topics:
                for part in told.partitions:
                    if part.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                        cluster.forget(topic)
                    check(part.error_code, f"{told.name}-{part.partition_index}")

    cluster.retry(ask)


def fence_producers(
    cluster: Cluster, transactional_ids: Collection[str]
) -> Results[str, FencedProducer]:
    """Ends what producers of these transactional ids are at, and raises their epochs, so that none
    of them goes on."""

    def ask(
        connection: Connection, _: int, names: list[str]
    ) -> Iterator[tuple[str, FencedProducer | KafkaError]]:
        for name in names[:]:
            values = {
                "transactional_id": name,
                "transaction_timeout": _FENCING_TIMEOUT_MS,
                "producer_id": -1,
                "producer_epoch": -1,
            }
            body = connection.call(ApiKey.INIT_PRODUCER_ID, values)
            check_coordinator(name, body.error_code, TRANSACTION)
            subject = subject_of(name, TRANSACTION)
            if body.error_code == ErrorCode.CONCURRENT_TRANSACTIONS:
                check(body.error_code, subject)  # what was open is being aborted: once more
            yield name, error_of(body.error_code, subject) or FencedProducer(
                int(body.producer_id), int(body.producer_epoch)
            )

    return Results(ask_coordinators(cluster, transactional_ids, ask, TRANSACTION))


def end_transaction(cluster: Cluster, transaction: OpenTransaction, *, commit: bool) -> None:
    """Commits or aborts what a producer left open (Producer.leave_open). A second time does nothing
    while nobody else uses the transactional id. PRODUCER_FENCED, INVALID_PRODUCER_EPOCH: it is
    aborted, by its timeout or by who took its transactional id."""
    name = transaction.transactional_id
    values = {
        "transactional_id": name,
        "producer_id": transaction.producer_id,
        "producer_epoch": transaction.producer_epoch,
        "committed": commit,
    }
    most = None if transaction.by_epoch else _END_TXN_MOST

    def ask(connection: Connection, _: int, __: list[str]) -> Iterator[tuple[str, int]]:
        code = connection.call(ApiKey.END_TXN, values, most=most).error_code
        check_coordinator(name, code, TRANSACTION)
        if code == ErrorCode.CONCURRENT_TRANSACTIONS:
            check(code, subject_of(name, TRANSACTION))
        yield name, code

    code = ask_coordinators(cluster, [name], ask, TRANSACTION)[name]
    check(code, subject_of(name, TRANSACTION))
