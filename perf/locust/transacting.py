"""Transactional producers of both clients, and one that consumes, copies and produces in one step.

All of it happens on the lane of a user (lanes.py).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

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


class _Librdkafka:
    """confluent-kafka's producer by the names of kbroker.client's."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._producer = producer = confluent_kafka.Producer(settings)
        self.init_transactions = producer.init_transactions
        self.begin = producer.begin_transaction
        self.commit = producer.commit_transaction
        self.abort = producer.abort_transaction
        self.flush = producer.flush

    def send(self, topic: str, value: bytes, key: bytes | None, *, partition: int) -> None:
        self._producer.produce(topic, value, key, partition)

    def close(self, timeout_s: float) -> None:
        """It has no end of its own but that nobody holds it."""
        if timeout_s:
            self.flush(timeout_s)


#: By client: what makes a producer of settings, and what it raises where it is refused. librdkafka
#: speaks version 1 of the protocol, kbroker.client version 2.
_CLIENTS: dict[str, tuple[Callable[[dict[str, Any]], Any], type[Exception]]] = {
    "kbroker": (Producer, KafkaError),
    "confluent": (_Librdkafka, confluent_kafka.KafkaException),
}


class Transacting:
    """A transactional id, and the producer of a client that has it."""

    def __init__(self, client: str, servers: str, topic: str, name: str) -> None:
        self._client, self._topic = client, topic
        self._make, self._refusal = _CLIENTS[client]
        self._settings = {**SETTINGS, "bootstrap.servers": servers, "transactional.id": name}
        self._take()

    def _take(self) -> None:
        self._producer = self._make(self._settings)
        self._producer.init_transactions(ANSWER_S)

    def _begin(self, records: Sequence[Given]) -> None:
        self._producer.begin()
        for one in records:
            self._producer.send(self._topic, one.value, one.key, partition=one.partition)

    def send(self, records: Sequence[Given], *, commit: bool) -> None:
        """In a transaction of their own. Raises where it is not known what became of it; it has
        ended by then."""
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
        """In a transaction that is open when another producer takes the id: nothing of it may be
        seen, and FencingError where the first one can commit it all the same."""
        self._begin(records)
        self._producer.flush(ANSWER_S)
        old = self._producer
        self._take()
        try:
            old.commit(ANSWER_S)
        except self._refusal:
            return
        finally:
            old.close(0)
        raise FencingError(f"a fenced producer of {self._client} has committed")

    def close(self) -> None:
        self._producer.close(ANSWER_S)


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
