"""Transactional producers of both clients, and one that consumes, copies and produces in one step.

All of it happens on the lane of a user (lanes.py).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import confluent_kafka

from kbroker.client import Consumer, Producer
from kbroker.client.errors import (
    FencedMemberEpochError,
    IllegalGenerationError,
    KafkaError,
    RebalanceInProgressError,
    StaleMemberEpochError,
    UnknownMemberIdError,
)
from kbroker.locust.lanes import ANSWER_S, SETTINGS, Given

_MOVED = (FencedMemberEpochError, IllegalGenerationError, RebalanceInProgressError,
          StaleMemberEpochError, UnknownMemberIdError)  # fmt: skip


class FencingError(Exception):
    """A producer whose place another one has taken could commit."""


class Transacting(Protocol):
    """A transactional id, and the producer that has it."""

    def send(self, records: Sequence[Given], *, commit: bool) -> None:
        """In a transaction of their own. Raises where it is not known what became of it; it has
        ended by then."""

    def lose(self, records: Sequence[Given]) -> None:
        """In a transaction that is open when another producer takes the id: nothing of it may be
        seen, and FencingError where the first one can commit it all the same."""

    def close(self) -> None: ...


class KbrokerTransacting:
    """kbroker.client: version 2 of the protocol."""

    def __init__(self, servers: str, topic: str, name: str) -> None:
        self._topic = topic
        self._settings = {**SETTINGS, "bootstrap.servers": servers, "transactional.id": name}
        self._take()

    def _take(self) -> None:
        self._producer = Producer(self._settings)
        self._producer.init_transactions(ANSWER_S)

    def _begin(self, records: Sequence[Given]) -> None:
        self._producer.begin()
        for one in records:
            self._producer.send(self._topic, one.value, one.key, partition=one.partition)

    def send(self, records: Sequence[Given], *, commit: bool) -> None:
        try:
            self._begin(records)
            if commit:
                self._producer.commit(ANSWER_S)
            else:
                self._producer.flush(ANSWER_S)
                self._producer.abort(ANSWER_S)
        except Exception:
            self._producer.close(0)
            self._take()
            raise

    def lose(self, records: Sequence[Given]) -> None:
        self._begin(records)
        self._producer.flush(ANSWER_S)
        old = self._producer
        self._take()
        try:
            old.commit(ANSWER_S)
        except KafkaError:
            return
        finally:
            old.close(0)
        raise FencingError("a fenced producer of kbroker's client has committed")

    def close(self) -> None:
        self._producer.close(ANSWER_S)


class ConfluentTransacting:
    """confluent-kafka, over librdkafka: version 1 of the protocol."""

    def __init__(self, servers: str, topic: str, name: str) -> None:
        self._topic = topic
        self._settings = {**SETTINGS, "bootstrap.servers": servers, "transactional.id": name}
        self._take()

    def _take(self) -> None:
        self._producer = confluent_kafka.Producer(self._settings)
        self._producer.init_transactions(ANSWER_S)

    def _begin(self, records: Sequence[Given]) -> None:
        self._producer.begin_transaction()
        for one in records:
            self._producer.produce(self._topic, one.value, one.key, one.partition)

    def send(self, records: Sequence[Given], *, commit: bool) -> None:
        try:
            self._begin(records)
            if commit:
                self._producer.commit_transaction(ANSWER_S)
            else:
                self._producer.flush(ANSWER_S)
                self._producer.abort_transaction(ANSWER_S)
        except Exception:
            self._take()
            raise

    def lose(self, records: Sequence[Given]) -> None:
        self._begin(records)
        self._producer.flush(ANSWER_S)
        old = self._producer
        self._take()
        try:
            old.commit_transaction(ANSWER_S)
        except confluent_kafka.KafkaException:
            return
        raise FencingError("a fenced producer of librdkafka has committed")

    def close(self) -> None:
        self._producer.flush(ANSWER_S)


TRANSACTING: dict[str, Callable[[str, str, str], Transacting]] = {
    "kbroker": KbrokerTransacting,
    "confluent": ConfluentTransacting,
}


class Pipe:
    """A member of a group that copies a topic into another, partition by partition: what it sends
    and the offsets of what it has read are committed together, by kbroker.client."""

    def __init__(self, servers: str, topic: str, into: str, name: str) -> None:
        common = {**SETTINGS, "bootstrap.servers": servers}
        self._topic, self._into = topic, into
        self._producer = Producer({**common, "transactional.id": name})
        self._producer.init_transactions(ANSWER_S)
        self._consumer = Consumer(
            {**common, "group.id": into, "group.protocol": "consumer",
             "auto.offset.reset": "earliest", "enable.auto.commit": False,
             "isolation.level": "read_committed"}
        )  # fmt: skip
        self._consumer.subscribe([topic])

    def step(self, timeout_s: float) -> int:
        """Bytes of what was copied; 0 where there is nothing, or the partitions went to another
        member meanwhile, and nothing was copied."""
        polled = self._consumer.poll(timeout_s)
        if not polled:
            return 0
        try:
            with self._producer.transaction():
                offsets: dict[tuple[str, int], int] = {}
                for one in polled:
                    self._producer.send(self._into, one.value, one.key, partition=one.partition)
                    offsets[self._topic, one.partition] = one.offset + 1
                group: Any = self._consumer.group_metadata()
                self._producer.send_offsets_to_transaction(offsets, group, ANSWER_S)
        except KafkaError as error:
            self._rewind()
            if not isinstance(error, _MOVED):
                raise
            return 0
        return sum(len(one.value or b"") for one in polled)

    def _rewind(self) -> None:
        """What was read is read again."""
        mine = self._consumer.assignment()
        told = self._consumer.committed(list(mine))
        for where in mine:
            mark = told.get(where)
            with contextlib.suppress(ValueError, KeyError):  # it has just gone
                self._consumer.seek(where, mark.offset if mark is not None else 0)

    def close(self) -> None:
        self._consumer.close()
        self._producer.close(ANSWER_S)
