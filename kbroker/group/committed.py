"""Committed offsets in memory: by group, topic and partition, packed.

    int64 offset, int32 leader epoch (-1: none), int64 commit timestamp, int64 expire timestamp
    (-1: none), 16 bytes topic id (zero: none), then the metadata in UTF-8

One `bytes` of 44 and the metadata takes a third of what an object with six fields takes, and the
collector does not walk it: a million of them are 130 MB with the dictionaries around them.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

NO_TOPIC_ID: Final = bytes(16)
_FORM: Final = struct.Struct(">qiqq16s")
_SIZE: Final = _FORM.size
_TOPIC_ID: Final = slice(_SIZE - len(NO_TOPIC_ID), _SIZE)


class Committed(NamedTuple):
    """A committed offset; timestamps in wall ms."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    commit_ms: int = 0
    expire_ms: int = -1
    topic_id: bytes = NO_TOPIC_ID


def pack(value: Committed) -> bytes:
    """See the module."""
    offset, epoch, metadata, commit_ms, expire_ms, topic_id = value
    return _FORM.pack(offset, epoch, commit_ms, expire_ms, topic_id) + metadata.encode()


def unpack(data: bytes) -> Committed:
    """The way back."""
    offset, epoch, commit_ms, expire_ms, topic_id = _FORM.unpack_from(data)
    metadata = data[_SIZE:].decode() if len(data) > _SIZE else ""
    return Committed(offset, epoch, metadata, commit_ms, expire_ms, topic_id)


def topic_id_of(data: bytes) -> bytes:
    """A field of it alone, where a million are looked through."""
    return data[_TOPIC_ID]


def offset_of(data: bytes) -> int:
    """As `topic_id_of`."""
    return int.from_bytes(data[:8], "big", signed=True)


Partitions = dict[int, bytes]
TopicOffsets = dict[str, Partitions]


class CommittedOffsets:
    """The table. Groups and topics without an offset are not in it."""

    def __init__(self) -> None:
        self._groups: dict[str, TopicOffsets] = {}

    def groups(self) -> Iterator[str]:
        """Groups that have an offset."""
        return iter(self._groups)

    def topics(self, group: str) -> Mapping[str, Partitions]:
        """What a group has committed, by topic and partition, packed."""
        return self._groups.get(group, {})

    def get(self, group: str, topic: str, partition: int) -> Committed | None:
        """A committed offset."""
        data = self._groups.get(group, {}).get(topic, {}).get(partition)
        return None if data is None else unpack(data)

    def has(self, group: str, topic: str, partition: int) -> bool:
        """Whether there is one."""
        return partition in self._groups.get(group, {}).get(topic, ())

    def put(self, group: str, topic: str, partition: int, data: bytes) -> None:
        """Set one, packed. Names are shared among the groups."""
        self._partitions(group, topic)[partition] = data

    def put_all(self, group: str, topic: str, offsets: Partitions) -> None:
        """Set those of several partitions, packed."""
        self._partitions(group, topic).update(offsets)

    def _partitions(self, group: str, topic: str) -> Partitions:
        topics = self._groups.get(group)
        if topics is None:
            topics = self._groups[sys.intern(group)] = {}
        partitions = topics.get(topic)
        if partitions is None:
            partitions = topics[sys.intern(topic)] = {}
        return partitions

    def remove(self, group: str, topic: str, partition: int) -> bool:
        """Forget one; False where there is none."""
        topics = self._groups.get(group, {})
        partitions = topics.get(topic)
        if partitions is None or partitions.pop(partition, None) is None:
            return False
        if not partitions:
            del topics[topic]
            if not topics:
                del self._groups[group]
        return True

    def __len__(self) -> int:
        return sum(
            len(partitions) for topics in self._groups.values() for partitions in topics.values()
        )
