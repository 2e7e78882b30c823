"""Producing: records into batches by partition, batches to the leaders, retries until told.

Synchronous: `flush` returns when every batch is acknowledged (or sent, with acks=0). Not
thread-safe. An idempotent producer gives each batch its sequence once and keeps it over retries,
so that a batch whose answer was lost is written once; it stops at the first batch that fails.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from kbroker.client.cluster import Cluster
from kbroker.client.errors import (
    BrokerError,
    ConnectError,
    KafkaError,
    RequestTimeoutError,
    check,
)
from kbroker.client.offsets import leader_of
from kbroker.client.partitioner import partition_for_key
from kbroker.client.records import CODECS, Headers, OutgoingRecord, record_size
from kbroker.ext.records import build
from kbroker.protocol import ApiKey

__all__ = ["Delivered", "Producer"]

ACKS_ALL = -1
_RETRY_PAUSE_S = 0.1
_TOPIC_ID_VERSION = 13  # from here on Produce names topics by id
_DUPLICATE_SEQUENCE_NUMBER = 46
_STALE_METADATA = frozenset({3, 5, 6, 100, 103})  # topic moved, recreated or not there yet

Partition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Delivered:
    """A batch as the broker took it; base_offset -1 with acks=0."""

    topic: str
    partition: int
    base_offset: int
    records: int


@dataclass(slots=True)
class _Batch:
    topic: str
    partition: int
    records: int
    data: bytes


@dataclass(slots=True)
class _Waiting:
    """Records of one partition that are not in a batch yet."""

    records: list[OutgoingRecord] = field(default_factory=list)
    size_bytes: int = 0


class Producer:
    """Sends records to any topics of a cluster.

    acks: -1 all, 1 leader, 0 none. codec: none, gzip, snappy, lz4, zstd. idempotent: needs acks -1.
    A batch is sent once batch_bytes of records wait for its partition; a record without a key goes
    to one partition until that batch is full, then to the next.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        acks: int = ACKS_ALL,
        codec: str = "none",
        level: int | None = None,
        idempotent: bool = True,
        batch_bytes: int = 256 * 1024,
        create_topics: bool = True,
    ) -> None:
        if codec not in CODECS:
            raise ValueError(f"{codec!r} is no codec; choose one of {', '.join(CODECS)}")
        if idempotent and acks != ACKS_ALL:
            raise ValueError("an idempotent producer needs acks=all")
        self._cluster = cluster
        self._acks = acks
        self._codec = codec
        self._level = level
        self._idempotent = idempotent
        self._batch_bytes = batch_bytes
        self._create = create_topics
        self._producer: tuple[int, int] | None = None
        self._sequences: dict[Partition, int] = defaultdict(int)
        self._waiting: dict[Partition, _Waiting] = {}
        self._sticky: dict[str, int] = defaultdict(int)
        self._delivered: list[Delivered] = []

    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
        partition: int | None = None,
    ) -> None:
        """Takes a record; may send full batches, and raise what became of them."""
        index = self._partition(topic, key, partition)
        now_ms = time.time_ns() // 1_000_000
        record = OutgoingRecord(
            now_ms if timestamp_ms is None else timestamp_ms, key, value, tuple(headers)
        )
        waiting = self._waiting.setdefault((topic, index), _Waiting())
        waiting.records.append(record)
        waiting.size_bytes += record_size(record)
        if waiting.size_bytes >= self._batch_bytes:
            if key is None and partition is None:
                self._sticky[topic] += 1
            self._deliver([(topic, index)])

    def flush(self) -> list[Delivered]:
        """Sends what waits; gives all batches delivered since the last flush."""
        self._deliver(list(self._waiting))
        delivered, self._delivered = self._delivered, []
        return delivered

    def _partition(self, topic: str, key: bytes | None, partition: int | None) -> int:
        if partition is not None:
            leader_of(self._cluster, topic, partition, create=self._create)
            return partition
        count = len(self._cluster.topic(topic, create=self._create).partitions)
        return self._sticky[topic] % count if key is None else partition_for_key(key, count)

    def _deliver(self, partitions: Iterable[Partition]) -> None:
        pending = [self._batch(key, self._waiting.pop(key)) for key in partitions]
        deadline = time.monotonic() + self._cluster.timeout_s
        while pending:
            left, failure = self._attempt(pending)
            if failure is not None:
                if not failure.retriable or time.monotonic() > deadline:
                    raise failure
                time.sleep(_RETRY_PAUSE_S)
            pending = left

    def _batch(self, key: Partition, waiting: _Waiting) -> _Batch:
        producer_id, epoch, sequence = -1, -1, -1
        if self._idempotent:
            producer_id, epoch = self._producer = self._producer or self._new_producer()
            sequence = self._sequences[key]
            self._sequences[key] = (sequence + len(waiting.records)) & 0x7FFFFFFF
        data = build(
            waiting.records,
            codec=self._codec,
            level=self._level,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
        )
        return _Batch(*key, len(waiting.records), data)

    def _new_producer(self) -> tuple[int, int]:
        def ask() -> tuple[int, int]:
            body = self._cluster.any_connection().call(
                ApiKey.INIT_PRODUCER_ID,
                {
                    "transactional_id": None,
                    "transaction_timeout": 60_000,
                    "producer_id": -1,
                    "producer_epoch": -1,
                },
            )
            check(body.error_code, "producer id")
            return int(body.producer_id), int(body.producer_epoch)

        return self._cluster.retry(ask)

    def _attempt(self, pending: list[_Batch]) -> tuple[list[_Batch], KafkaError | None]:
        """One request to each leader; what is to be sent again, and why."""
        by_leader: dict[int, list[_Batch]] = defaultdict(list)
        failure: KafkaError | None = None
        left: list[_Batch] = []
        for batch in pending:
            try:
                leader = leader_of(self._cluster, batch.topic, batch.partition)
                by_leader[leader].append(batch)
            except KafkaError as error:
                failure = error
                left.append(batch)
        for leader, batches in by_leader.items():
            try:
                missed, refused = self._produce(leader, batches)
            except (ConnectError, RequestTimeoutError) as broken:
                missed, refused = batches, broken
                for batch in batches:
                    self._cluster.forget(batch.topic)
            left += missed
            failure = refused or failure
        return left, failure

    def _produce(
        self, leader: int, batches: list[_Batch]
    ) -> tuple[list[_Batch], KafkaError | None]:
        connection = self._cluster.connection(leader)
        by_id = connection.version_of(ApiKey.PRODUCE) >= _TOPIC_ID_VERSION
        topics: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for batch in batches:
            part = {"index": batch.partition, "records": batch.data}
            topics[batch.topic].append(part)
        named = [
            {"topic_id": self._cluster.topic(name).topic_id, "partition_data": parts}
            if by_id
            else {"name": name, "partition_data": parts}
            for name, parts in topics.items()
        ]
        request = {
            "transactional_id": None,
            "acks": self._acks,
            "timeout": int(self._cluster.timeout_s * 1000),
            "topic_data": named,
        }
        connection.send(ApiKey.PRODUCE, request, answered=self._acks != 0)
        if self._acks == 0:
            self._delivered += [Delivered(b.topic, b.partition, -1, b.records) for b in batches]
            return [], None
        return self._read_answer(connection.receive(), batches, by_id)

    def _read_answer(
        self, body: Any, batches: list[_Batch], by_id: bool
    ) -> tuple[list[_Batch], KafkaError | None]:
        names = {self._cluster.topic(batch.topic).topic_id: batch.topic for batch in batches}
        answers = {
            (names[topic.topic_id] if by_id else topic.name, int(part.index)): part
            for topic in body.responses
            for part in topic.partition_responses
        }
        left: list[_Batch] = []
        failure: KafkaError | None = None
        for batch in batches:
            part = answers[batch.topic, batch.partition]
            code = int(part.error_code)
            if code in (0, _DUPLICATE_SEQUENCE_NUMBER):
                self._delivered.append(
                    Delivered(batch.topic, batch.partition, int(part.base_offset), batch.records)
                )
                continue
            if code in _STALE_METADATA:
                self._cluster.forget(batch.topic)
            failure = BrokerError(code, f"{batch.topic}-{batch.partition}", part.error_message)
            left.append(batch)
        return left, failure
