"""The order in which Java's HashMap and HashSet hand out their keys.

Apache Kafka's assignors walk over hash tables, and what is walked over first is served first; where
votes are equal, what is walked over first wins. So that a group gets the same assignment, and the
same protocol, from both brokers, members, topics, partitions and votes are put into that order
here. A table of n entries has a power of two of
buckets; an entry lies in bucket `(hash ^ hash >>> 16) & (buckets - 1)`, behind those that came
before it; buckets are walked in order. (What came before what depends on a table's history where
partitions from 16 on share a bucket with others; there they are taken in ascending order.)
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from kbroker.group.partition import KEPT_LENGTH_MAX_CHARS, java_string_hash

_BUCKETS_MIN: Final = 16
_KEPT: Final = 20_000
"""Hashes of member ids and topic ids that are kept."""
_INT_MASK: Final = 0xFFFFFFFF
_LONG_MASK: Final = 0xFFFFFFFFFFFFFFFF
_TABLE_BUCKETS_MIN: Final = 2
_FIBONACCI: Final = 0x9E3779B97F4A7C15


def grown_buckets(entries: int) -> int:
    """Buckets of a table that grew by one entry after another: it doubles above 3/4."""
    buckets = _BUCKETS_MIN
    while entries * 4 > buckets * 3:
        buckets *= 2
    return buckets


def copied_buckets(entries: int) -> int:
    """Buckets of a HashSet made of a collection: at least entries / 0.75 + 1."""
    return max(_BUCKETS_MIN, 1 << (int(entries / 0.75 + 1) - 1).bit_length())


_kept_hash = functools.lru_cache(maxsize=_KEPT)(java_string_hash)


def _hash(text: str) -> int:
    return (_kept_hash if len(text) <= KEPT_LENGTH_MAX_CHARS else java_string_hash)(text)


def _spread_string(text: str) -> int:
    return _spread(_hash(text) & _INT_MASK)


def _spread(value: int) -> int:
    return value ^ value >> 16


@functools.lru_cache(maxsize=_KEPT)
def _spread_id(topic_id: bytes) -> int:
    """Of Kafka's Uuid: the two halves, and then the two words, in exclusive or."""
    number = int.from_bytes(topic_id, "big")
    both = (number >> 64 ^ number) & _LONG_MASK
    return _spread((both >> 32 ^ both) & _INT_MASK)


def string_order(texts: Sequence[str]) -> list[str]:
    """Keys of a HashMap<String, ?> that grew in the order of `texts`."""
    mask = grown_buckets(len(texts)) - 1
    return sorted(texts, key=lambda text: _spread_string(text) & mask)


def most_voted(votes: Mapping[str, int]) -> str | None:
    """What has the most votes in a HashMap that grew in this order, None of none."""
    return max(string_order(list(votes)), key=votes.__getitem__, default=None)


def table_order(texts: Iterable[str]) -> list[str]:
    """Keys of Kafka's TimelineHashMap<String, ?>, into which `texts` came in this order: buckets by
    the upper bits of the hash times 2^64 divided by the golden ratio, a table that doubles above
    4/3 of its size."""
    given = list(texts)
    buckets = _TABLE_BUCKETS_MIN
    while len(given) * 3 > buckets * 4:
        buckets *= 2
    shift = 65 - buckets.bit_length()
    return sorted(given, key=lambda text: (_hash(text) * _FIBONACCI & _LONG_MASK) >> shift)


def id_order(topic_ids: Iterable[bytes], buckets: int) -> list[bytes]:
    """Keys of a table of topic ids."""
    mask = buckets - 1
    return sorted(topic_ids, key=lambda topic_id: _spread_id(topic_id) & mask)


def number_order(numbers: Iterable[int]) -> list[int]:
    """Elements of a HashSet<Integer> made of a list; small numbers stay in their order."""
    ascending = sorted(numbers)
    mask = copied_buckets(len(ascending)) - 1
    if not ascending or ascending[-1] <= mask:
        return ascending
    return sorted(ascending, key=lambda number: _spread(number) & mask)
