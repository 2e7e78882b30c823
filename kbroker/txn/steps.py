"""What a request makes of a transaction: a function of its value, which changes nothing.

Answers the next value, the same object where there is nothing to write, or raises ClientError.
Checks and their order are Apache Kafka's, which answers CONCURRENT_TRANSACTIONS while it has a
transition pending in memory. Here a step is taken when it is appended, and its answer waits for the
disk; a transition is pending only from the prepared end of a transaction to its completion. Most
requests look at that before all else: at the end of its epochs a producer of version 2 is told its
new id when the old one's transaction is prepared, and may use it before that is complete.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from kbroker.errors import ClientError, ErrorCode
from kbroker.txn.transaction import (
    BUMPS_EPOCHS,
    EPOCH_MAX,
    NO_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMEOUT_MS,
    PREPARED,
    Partition,
    State,
    Transaction,
    is_exhausted,
)

NewId = Callable[[], int]


class Producer(NamedTuple):
    """A producer as a request names it."""

    id: int
    epoch: int


class Add(NamedTuple):
    """Partitions that are to become part of a transaction; `version` as Transaction has it."""

    producer: Producer
    partitions: Collection[Partition]
    version: int


class End(NamedTuple):
    """The end that a producer wants."""

    producer: Producer
    commit: bool
    version: int


class Ended(NamedTuple):
    """How an EndTxn is answered: the producer that goes on, from version 2 on."""

    transaction: Transaction
    producer: Producer = Producer(NO_PRODUCER_ID, NO_EPOCH)


def _check_not_ending(now: Transaction | None) -> None:
    if now is not None and now.state in PREPARED:
        raise ClientError(ErrorCode.CONCURRENT_TRANSACTIONS)


def _known(now: Transaction | None, producer: Producer) -> Transaction:
    """The transaction of exactly this producer."""
    if now is None or now.producer_id != producer.id:
        raise ClientError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if now.epoch != producer.epoch:
        raise ClientError(ErrorCode.PRODUCER_FENCED)
    return now


# ---- InitProducerId


def init(
    now: Transaction | None,
    timeout_ms: int,
    expected: Producer | None,
    new_id: NewId,
    now_ms: int,
) -> Transaction:
    """A producer begins, or goes on after an error (`expected`: what it was, KIP-360). One in state
    ONGOING comes back as it is: its transaction is to be aborted first."""
    if now is None:
        now = Transaction(new_id(), timeout_ms, now_ms)
    _check_not_ending(now)
    if expected is not None and not _may_go_on(now, expected):
        raise ClientError(ErrorCode.PRODUCER_FENCED)
    if now.state is State.ONGOING:
        return now
    told = now.epoch if expected is None else expected.epoch
    if now.is_exhausted and told == now.epoch:
        producer_id, epoch = new_id(), 0
        last_epoch = NO_EPOCH if expected is None else now.epoch
    else:
        producer_id = now.producer_id
        epoch, last_epoch = _next_epoch(now, expected)
    return now.becomes(
        State.EMPTY,
        now_ms,
        producer_id=producer_id,
        epoch=epoch,
        last_epoch=last_epoch,
        timeout_ms=timeout_ms,
        partitions=frozenset(),
        started_ms=-1,
    )


def _may_go_on(now: Transaction, expected: Producer) -> bool:
    """The id is the one of now, or the one before, whose epochs ran out: asked again."""
    return (
        now.epoch == NO_EPOCH
        or expected.id == now.producer_id
        or (expected.id == now.previous_producer_id and is_exhausted(expected.epoch))
    )


def _next_epoch(now: Transaction, expected: Producer | None) -> tuple[int, int]:
    """The epoch and the last one."""
    if now.is_exhausted:
        raise ClientError(ErrorCode.UNKNOWN_SERVER_ERROR)
    if expected is None:
        return now.epoch + 1, NO_EPOCH
    if now.epoch in (NO_EPOCH, expected.epoch):
        return now.epoch + 1, now.epoch
    if expected.epoch == now.last_epoch:
        return now.epoch, now.last_epoch  # asked again
    raise ClientError(ErrorCode.PRODUCER_FENCED)


def fence(now: Transaction, server_version: int, new_id: NewId, now_ms: int) -> Transaction:
    """Abort a transaction against its producer, whose epoch ends with it."""
    epoch = min(now.epoch + 1, EPOCH_MAX)
    if server_version < BUMPS_EPOCHS:
        return now.becomes(
            State.PREPARE_ABORT,
            now_ms,
            epoch=epoch,
            last_epoch=NO_EPOCH,
            next_producer_id=NO_PRODUCER_ID,
            version=0,
        )
    return now.becomes(
        State.PREPARE_ABORT,
        now_ms,
        epoch=epoch,
        last_epoch=now.epoch,
        next_producer_id=new_id() if now.is_exhausted else NO_PRODUCER_ID,
        version=BUMPS_EPOCHS,
    )


def is_overdue(now: Transaction, now_ms: int) -> bool:
    """Whether a transaction is open for longer than its timeout."""
    return (
        now.state is State.ONGOING
        and now.timeout_ms != NO_TIMEOUT_MS
        and now.started_ms + now.timeout_ms < now_ms
    )


# ---- partitions


def add(now: Transaction | None, asked: Add, now_ms: int) -> Transaction:
    """Partitions become part of the transaction, the first of which begins it."""
    _check_not_ending(now)
    known = _known(now, asked.producer)
    if known.state is State.ONGOING and known.partitions.issuperset(asked.partitions):
        return known
    started_ms = known.started_ms if known.state is State.ONGOING else now_ms
    return known.becomes(
        State.ONGOING,
        now_ms,
        partitions=known.partitions.union(asked.partitions),
        started_ms=started_ms,
        version=asked.version,
    )


def verify(
    now: Transaction | None, producer: Producer, partitions: Collection[Partition]
) -> Mapping[Partition, ErrorCode]:
    """Which partitions are part of the transaction: NONE, else TRANSACTION_ABORTABLE. Who adds them
    by itself does so in the id and epoch that it has: these are looked at first."""
    known = _known(now, producer)
    _check_not_ending(known)
    return {
        one: ErrorCode.NONE if one in known.partitions else ErrorCode.TRANSACTION_ABORTABLE
        for one in partitions
    }


# ---- EndTxn


def end(now: Transaction | None, asked: End, new_id: NewId, now_ms: int) -> Ended:
    """Commit or abort."""
    producer, commit, version = asked
    if now is None:
        raise ClientError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if version < BUMPS_EPOCHS:
        return Ended(_end_in_epoch(now, producer, commit, now_ms))
    return _end_with_epoch(now, producer, commit, new_id, now_ms)


def _prepared(commit: bool) -> State:
    return State.PREPARE_COMMIT if commit else State.PREPARE_ABORT


def _completed(commit: bool) -> State:
    return State.COMPLETE_COMMIT if commit else State.COMPLETE_ABORT


def _end_in_epoch(
    now: Transaction, producer: Producer, commit: bool, now_ms: int
) -> Transaction:
    """Version 0 and 1: the producer goes on in its epoch, which is looked at first."""
    _check_not_ending(_known(now, producer))
    if now.state is State.ONGOING:
        return now.becomes(
            _prepared(commit), now_ms, next_producer_id=NO_PRODUCER_ID, version=0
        )
    if now.state is _completed(commit):
        return now  # asked again
    raise ClientError(ErrorCode.INVALID_TXN_STATE)


def _end_with_epoch(
    now: Transaction, producer: Producer, commit: bool, new_id: NewId, now_ms: int
) -> Ended:
    """Version 2: the epoch ends with the transaction, so an older one tells what is asked again. A
    producer that does not know whether it began one aborts to be sure, which is allowed at rest."""
    _check_not_ending(now)
    overflowed = (
        now.previous_producer_id == producer.id
        and producer.epoch == EPOCH_MAX - 1
        and now.epoch == 0
    )
    bumped = now.epoch == producer.epoch + 1
    if now.producer_id != producer.id and not overflowed:
        raise ClientError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if not _is_epoch_of(now, producer, bumped, overflowed):
        raise ClientError(ErrorCode.PRODUCER_FENCED)
    if bumped or overflowed:
        if now.state is _completed(commit):
            return Ended(now, Producer(now.producer_id, now.epoch))
        raise ClientError(ErrorCode.INVALID_TXN_STATE)
    if commit and now.state is not State.ONGOING:
        raise ClientError(ErrorCode.INVALID_TXN_STATE)
    started_ms = now.started_ms if now.state is State.ONGOING else now_ms
    # At the limit there is no epoch above; an abort goes through all the same.
    at_limit = now.epoch == EPOCH_MAX and not commit
    prepared = now.becomes(
        _prepared(commit),
        now_ms,
        epoch=now.epoch if at_limit else now.epoch + 1,
        last_epoch=now.epoch,
        next_producer_id=new_id() if now.is_exhausted else NO_PRODUCER_ID,
        started_ms=started_ms,
        version=BUMPS_EPOCHS,
    )
    after = complete(prepared, now_ms)
    return Ended(prepared, Producer(after.producer_id, after.epoch))


def _is_epoch_of(now: Transaction, producer: Producer, bumped: bool, overflowed: bool) -> bool:
    if now.state in (State.COMPLETE_COMMIT, State.COMPLETE_ABORT):
        return bumped or overflowed or producer.epoch == now.epoch
    return producer.epoch == now.epoch


def complete(now: Transaction, now_ms: int) -> Transaction:
    """Every partition has its marker."""
    producer_id, epoch = now.producer_id, now.epoch
    if now.version >= BUMPS_EPOCHS and now.next_producer_id != NO_PRODUCER_ID:
        producer_id, epoch = now.next_producer_id, 0
    return now.becomes(
        _completed(now.state is State.PREPARE_COMMIT),
        now_ms,
        producer_id=producer_id,
        epoch=epoch,
        next_producer_id=NO_PRODUCER_ID,
        partitions=frozenset(),
    )
