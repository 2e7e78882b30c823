"""Metadata and assignments of consumers (ConsumerProtocol), versions 1 and 0, both ways."""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterable

Partition = tuple[str, int]


def pack_subscription(topics: Iterable[str], owned: Iterable[Partition]) -> bytes:
    """int16 version 1, topics, user data (null), owned partitions."""
    names = sorted(topics)
    head = struct.pack(">hi", 1, len(names)) + b"".join(_string(name) for name in names)
    return head + struct.pack(">i", -1) + _partitions(owned)


def unpack_subscription(data: bytes) -> tuple[list[str], set[Partition]]:
    """Topics and owned partitions."""
    (count,) = struct.unpack_from(">i", data, 2)
    at, topics = 6, []
    for _ in range(count):
        name, at = _read_string(data, at)
        topics.append(name)
    owned, _ = _read_partitions(data, at + 4)
    return topics, owned


def pack_assignment(partitions: Iterable[Partition]) -> bytes:
    """int16 version 0, partitions, user data (null)."""
    return struct.pack(">h", 0) + _partitions(partitions) + struct.pack(">i", -1)


def unpack_assignment(data: bytes) -> set[Partition]:
    """The partitions; an empty assignment has none."""
    return _read_partitions(data, 2)[0] if data else set()


def _string(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def _read_string(data: bytes, at: int) -> tuple[str, int]:
    (length,) = struct.unpack_from(">h", data, at)
    end = at + 2 + length
    return data[at + 2 : end].decode(), end


def _partitions(partitions: Iterable[Partition]) -> bytes:
    by_topic: dict[str, list[int]] = defaultdict(list)
    for topic, index in sorted(partitions):
        by_topic[topic].append(index)
    parts = [
        _string(topic) + struct.pack(f">i{len(found)}i", len(found), *found)
        for topic, found in by_topic.items()
    ]
    return struct.pack(">i", len(parts)) + b"".join(parts)


def _read_partitions(data: bytes, at: int) -> tuple[set[Partition], int]:
    (topics,) = struct.unpack_from(">i", data, at)
    at += 4
    found = set()
    for _ in range(topics):
        topic, at = _read_string(data, at)
        (count,) = struct.unpack_from(">i", data, at)
        found.update((topic, index) for index in struct.unpack_from(f">{count}i", data, at + 4))
        at += 4 + 4 * count
    return found, at
