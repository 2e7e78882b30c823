"""A hash of what a group's members subscribe to: when it changes, the group gets a new epoch.

Bytes as Apache Kafka hashes them, XXH3 (64 bits) over little-endian values: of a topic byte 0, its
id in two halves, its name, its number of partitions, and for each partition its number and its
racks in order, each after its length; of a group the hashes of its topics, in the order of their
names. A string is its UTF-16 units, then their number (int32). Stored as a signed int64; 0 for a
group whose topics do not exist.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

import xxhash

from kbroker.group.topics import TopicInfo, Topics

_SIGN = 1 << 63


class MetadataHashes:
    """Hashes of topics, kept as long as no topic changes."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self._version: int | None = None
        self._hashes: dict[str, int] = {}

    def of_group(self, names: Iterable[str]) -> int:
        """The hash of the topics that exist of these."""
        if self._version != self._topics.version:
            self._version = self._topics.version
            self._hashes.clear()
        found = [one for name in sorted(names) if (one := self._of_topic(name)) is not None]
        return _signed(b"".join(struct.pack("<Q", one) for one in found)) if found else 0

    def _of_topic(self, name: str) -> int | None:
        found = self._hashes.get(name)
        if found is None:
            info = self._topics.by_name(name)
            if info is None:
                return None
            found = self._hashes[name] = xxhash.xxh3_64_intdigest(topic_bytes(info))
        return found


def topic_bytes(info: TopicInfo) -> bytes:
    """What is hashed of a topic."""
    high, low = struct.unpack(">QQ", info.topic_id)
    out = bytearray(struct.pack("<bQQ", 0, high, low))
    out += _text(info.name) + struct.pack("<i", info.partitions)
    for partition in range(info.partitions):
        out += struct.pack("<i", partition)
        racks = info.racks[partition] if partition < len(info.racks) else ()
        for rack in sorted(racks, key=_utf16):
            out += struct.pack("<i", len(_utf16(rack)) // 2) + _text(rack)
    return bytes(out)


def _utf16(text: str) -> bytes:
    """As Java holds a string, and compares it."""
    return text.encode("utf-16-be", "surrogatepass")


def _text(text: str) -> bytes:
    units = text.encode("utf-16-le", "surrogatepass")
    return units + struct.pack("<i", len(units) // 2)


def _signed(data: bytes) -> int:
    value = xxhash.xxh3_64_intdigest(data)
    return value - 2 * _SIGN if value >= _SIGN else value
