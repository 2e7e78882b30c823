"""What classic members tell each other through the coordinator, which reads none of it.

A subscription goes up with JoinGroup, an assignment comes down with SyncGroup. Both are an int16
version and then, in the old (not compact) encoding:

    subscription  v0 topics [string], user data (nullable bytes); v1 owned [topic, [int32]];
                  v2 generation int32; v3 rack (nullable string)
    assignment    v0 to v3 partitions [topic, [int32]], user data (nullable bytes)

Bytes after what a version tells are a newer version's and ignored. What is written is version 3;
what is read may be older, or newer and is then read as version 3 (Kafka's ConsumerProtocol).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

from kbroker.client.errors import CorruptDataError
from kbroker.client.group.assignors.spec import NO_GENERATION, Assignment, Subscription
from kbroker.client.partitions import TopicPartition

__all__ = [
    "Reader",
    "read_assignment",
    "read_subscription",
    "write_assignment",
    "write_partitions",
    "write_subscription",
]

_VERSION = 3
_NULL = -1


def write_subscription(subscription: Subscription) -> bytes:
    """Version 3, topics and owned partitions in their order."""
    out = bytearray(struct.pack(">hi", _VERSION, len(subscription.topics)))
    for topic in sorted(subscription.topics):
        out += _string(topic)
    out += _bytes(subscription.user_data)
    out += write_partitions(sorted(subscription.owned))
    out += struct.pack(">i", subscription.generation)
    out += struct.pack(">h", _NULL) if subscription.rack is None else _string(subscription.rack)
    return bytes(out)


def read_subscription(data: bytes, instance_id: str | None = None) -> Subscription:
    """Raises CorruptDataError for what is no subscription."""
    reader = Reader(data, "subscription")
    version = reader.int16()
    if version < 0:
        raise CorruptDataError(f"subscription of a group member has version {version}")
    topics = [reader.string() for _ in range(reader.count())]
    user_data = reader.nullable_bytes()
    owned = reader.partitions() if version >= 1 else []
    generation = reader.int32() if version >= 2 else NO_GENERATION
    rack = reader.nullable_string() if version >= 3 else None
    return Subscription(
        tuple(topics), user_data, tuple(owned), generation, rack or None, instance_id
    )


def write_assignment(assignment: Assignment) -> bytes:
    """Version 3; partitions grouped by topic, in the order of their first mention."""
    out = bytearray(struct.pack(">h", _VERSION))
    out += write_partitions(assignment.partitions)
    out += _bytes(assignment.user_data)
    return bytes(out)


def read_assignment(data: bytes) -> Assignment:
    """Raises CorruptDataError for what is no assignment, no bytes at all among it."""
    reader = Reader(data, "assignment")
    version = reader.int16()
    if version < 0:
        raise CorruptDataError(f"assignment of a group member has version {version}")
    partitions = reader.partitions()
    return Assignment(tuple(partitions), reader.nullable_bytes())


def write_partitions(partitions: Iterable[tuple[str, int]]) -> bytes:
    """An array of (topic, array of int32)."""
    by_topic: dict[str, list[int]] = {}
    for topic, index in partitions:
        by_topic.setdefault(topic, []).append(index)
    out = bytearray(struct.pack(">i", len(by_topic)))
    for topic, indexes in by_topic.items():
        out += _string(topic) + struct.pack(f">i{len(indexes)}i", len(indexes), *indexes)
    return bytes(out)


class Reader:
    """Reads the old encoding; every length is held against what is left.

    Raises CorruptDataError that names `what`.
    """

    def __init__(self, data: bytes, what: str) -> None:
        self._data = data
        self._at = 0
        self._what = what

    @property
    def left(self) -> int:
        """Bytes not yet read."""
        return len(self._data) - self._at

    def _take(self, size: int) -> bytes:
        if size < 0 or size > self.left:
            raise CorruptDataError(f"{self._what} of a group member is cut short")
        self._at += size
        return self._data[self._at - size : self._at]

    def int16(self) -> int:
        return int.from_bytes(self._take(2), "big", signed=True)

    def int32(self) -> int:
        return int.from_bytes(self._take(4), "big", signed=True)

    def count(self) -> int:
        """Of an array, whose elements have at least a byte each."""
        count = self.int32()
        if not 0 <= count <= self.left:
            raise CorruptDataError(f"{self._what} of a group member tells of {count} elements")
        return count

    def nullable_string(self) -> str | None:
        length = self.int16()
        if length == _NULL:
            return None
        try:
            return self._take(length).decode()
        except UnicodeDecodeError as error:
            raise CorruptDataError(f"{self._what} of a group member: {error}") from error

    def string(self) -> str:
        text = self.nullable_string()
        if text is None:
            raise CorruptDataError(f"{self._what} of a group member has a null name")
        return text

    def nullable_bytes(self) -> bytes | None:
        length = self.int32()
        return None if length == _NULL else self._take(length)

    def partitions(self) -> list[TopicPartition]:
        found: list[TopicPartition] = []
        for _ in range(self.count()):
            topic = self.string()
            indexes = self._indexes()
            found += [TopicPartition(topic, index) for index in indexes]
        return found

    def _indexes(self) -> Sequence[int]:
        count = self.count()
        return struct.unpack(f">{count}i", self._take(4 * count))


def _string(text: str) -> bytes:
    raw = text.encode()
    return struct.pack(">h", len(raw)) + raw


def _bytes(data: bytes | None) -> bytes:
    return struct.pack(">i", _NULL) if data is None else struct.pack(">i", len(data)) + data
