"""Fetching: records of assigned partitions from given offsets on.

A Reader keeps a fetch session with each leader (KIP-227), so that a request names only partitions
whose position has moved. It asks all leaders first and then takes their answers; answers are
decoded as they are read. Not thread-safe.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from kbroker.client.cluster import Cluster
from kbroker.client.connection import Connection
from kbroker.client.errors import ConnectError, check
from kbroker.client.offsets import leader_of
from kbroker.client.records import FetchedRecord, read_batches
from kbroker.protocol import ApiKey

__all__ = ["Reader"]

_TOPIC_ID_VERSION = 13  # from here on Fetch names topics by id
_SESSION_ERRORS = frozenset({70, 71, 106})
_MOVED = frozenset({3, 5, 6, 9, 74, 75, 100, 103})  # leader changed, topic recreated
_OFFSET_OUT_OF_RANGE = 1

Partition = tuple[str, int]


@dataclass(slots=True)
class _Session:
    """A fetch session with one broker; session_id 0: none yet."""

    session_id: int = 0
    epoch: int = 0
    # What the broker knows of: partition -> offset it was told last.
    told: dict[Partition, int] = field(default_factory=dict)


class Reader:
    """Reads assigned partitions from their positions on.

    positions: next offset to read of each partition; moves on with `poll`. high_watermarks: the end
    of what may be read, as last heard. Raises at poll: BrokerError OFFSET_OUT_OF_RANGE where a
    position is not in the log.
    """

    def __init__(
        self,
        cluster: Cluster,
        positions: Mapping[Partition, int],
        *,
        read_committed: bool = False,
        min_bytes: int = 1,
        max_bytes: int = 50 << 20,
        partition_max_bytes: int = 1 << 20,
    ) -> None:
        self.positions = dict(positions)
        self.high_watermarks: dict[Partition, int] = {}
        self._cluster = cluster
        self._isolation = 1 if read_committed else 0
        self._min_bytes = min_bytes
        self._max_bytes = max_bytes
        self._partition_max_bytes = partition_max_bytes
        self._sessions: dict[int, _Session] = {}

    def poll(self, max_wait_ms: int = 500) -> Iterator[FetchedRecord]:
        """The records of one round of requests; none where nothing came within max_wait_ms.

        A broker that went away or a leader that moved gives no records this time.
        """
        by_leader: dict[int, list[Partition]] = {}
        for topic, index in self.positions:
            leader = self._cluster.retry(partial(leader_of, self._cluster, topic, index))
            by_leader.setdefault(leader, []).append((topic, index))
        asked: dict[int, Connection] = {}
        try:
            for leader, partitions in by_leader.items():
                try:
                    asked[leader] = self._ask(leader, partitions, max_wait_ms)
                except ConnectError:
                    self._drop(leader, partitions)
            for leader in list(asked):
                try:
                    body = asked[leader].receive(self._cluster.timeout_s + max_wait_ms / 1000)
                except ConnectError:
                    self._drop(leader, by_leader[leader])
                    continue
                yield from self._take(leader, asked.pop(leader), body)
        finally:
            for leader, connection in asked.items():  # an answer that nobody has read
                connection.close()
                self._sessions.pop(leader, None)

    def _drop(self, leader: int, partitions: list[Partition]) -> None:
        self._sessions.pop(leader, None)
        for topic, _ in partitions:
            self._cluster.forget(topic)

    def _ask(self, leader: int, partitions: list[Partition], max_wait_ms: int) -> Connection:
        connection = self._cluster.connection(leader)
        by_id = connection.version_of(ApiKey.FETCH) >= _TOPIC_ID_VERSION
        session = self._sessions.setdefault(leader, _Session())
        wanted = {key: self.positions[key] for key in partitions}
        changed = {key: at for key, at in wanted.items() if session.told.get(key) != at}
        gone = [key for key in session.told if key not in wanted]
        request = {
            "replica_id": -1,
            "max_wait": max_wait_ms,
            "min_bytes": self._min_bytes,
            "max_bytes": self._max_bytes,
            "isolation_level": self._isolation,
            "session_id": session.session_id,
            "session_epoch": session.epoch,
            "topics": self._topics(changed, by_id),
            "forgotten_topics_data": self._forgotten(gone, by_id),
        }
        session.told = wanted
        connection.send(ApiKey.FETCH, request)
        return connection

    def _topics(self, offsets: Mapping[Partition, int], by_id: bool) -> list[dict[str, Any]]:
        topics: dict[str, list[dict[str, Any]]] = {}
        for (name, index), offset in offsets.items():
            part = {
                "partition": index,
                "fetch_offset": offset,
                "partition_max_bytes": self._partition_max_bytes,
            }
            topics.setdefault(name, []).append(part)
        return [{**self._named(name, by_id), "partitions": parts} for name, parts in topics.items()]

    def _forgotten(self, gone: list[Partition], by_id: bool) -> list[dict[str, Any]]:
        topics: dict[str, list[int]] = {}
        for name, index in gone:
            topics.setdefault(name, []).append(index)
        return [
            {**self._named(name, by_id), "partitions": indexes} for name, indexes in topics.items()
        ]

    def _named(self, name: str, by_id: bool) -> dict[str, Any]:
        return {"topic_id": self._cluster.topic(name).topic_id} if by_id else {"topic": name}

    def _take(self, leader: int, connection: Connection, body: Any) -> Iterator[FetchedRecord]:
        session = self._sessions[leader]
        code = int(body.error_code)
        if code in _SESSION_ERRORS:
            del self._sessions[leader]  # the next request opens a new one
            return
        check(code, f"broker {connection.address}")
        session.session_id = int(body.session_id)
        session.epoch = session.epoch + 1 if session.session_id else 0
        if session.epoch > 0x7FFFFFFF:
            session.epoch = 1
        if not session.session_id:
            session.told = {}
        names = {self._cluster.topic(name).topic_id: name for name, _ in self.positions}
        for topic in body.responses:
            name = names[topic.topic_id] if hasattr(topic, "topic_id") else topic.topic
            for part in topic.partitions:
                yield from self._take_partition((name, int(part.partition_index)), part, session)

    def _take_partition(
        self, key: Partition, part: Any, session: _Session
    ) -> Iterator[FetchedRecord]:
        code = int(part.error_code)
        if code in _MOVED:
            session.told.pop(key, None)
            self._cluster.forget(key[0])
            return
        if code == _OFFSET_OUT_OF_RANGE:
            at = f"{key[0]}-{key[1]} at offset {self.positions[key]}"
            check(code, at, "no such offset; `kbroker topic offsets` shows first and next")
        check(code, f"{key[0]}-{key[1]}")
        self.high_watermarks[key] = int(part.high_watermark)
        if not part.records:
            return
        for batch in read_batches(bytes(part.records)):
            for record in batch.records(*key):
                if record.offset >= self.positions[key]:
                    self.positions[key] = record.offset + 1
                    yield record
            self.positions[key] = max(self.positions[key], batch.next_offset)
