"""Offsets as text, and where a read begins or ends.

The text is the official connector's JSON: {"topic":{"0":23,"1":-2}}; in startingOffsets and
endingOffsets -2 stands for the earliest and -1 for the latest offset, in the ...ByTimestamp options
numbers are ms since 1970. A stream's offsets, also in its checkpoint, have the same form.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kbroker.client.offsets import EARLIEST, LATEST
from kbroker.client.partitions import TopicPartition
from pyspark_kbroker.errors import OptionError

__all__ = [
    "ASSIGN",
    "INT32_MAX",
    "INT64_MAX",
    "SUBSCRIBE",
    "SUBSCRIBE_PATTERN",
    "Bound",
    "Offsets",
    "Subscription",
    "bound_of_json",
    "from_json",
    "partitions_of_json",
    "to_json",
]

Offsets = dict[TopicPartition, int]

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
SUBSCRIBE = "subscribe"
SUBSCRIBE_PATTERN = "subscribePattern"
ASSIGN = "assign"


@dataclass(frozen=True)
class Subscription:
    """What is read. by: the option that told it; the others of the three are empty."""

    by: str
    topics: tuple[str, ...] = ()
    pattern: str = ""
    partitions: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True)
class Bound:
    """Where a read begins or ends; exactly one of the three is told.

    edge: EARLIEST or LATEST, for all partitions. offsets: of each, EARLIEST and LATEST among them.
    time_ms: of all partitions; times_ms: of each. option: the name it came by.
    """

    option: str
    edge: int | None = None
    offsets: Offsets | None = None
    time_ms: int | None = None
    times_ms: Offsets | None = field(default=None)

    def times_of(self, partitions: Iterable[TopicPartition]) -> Offsets | None:
        """Times of these partitions; None where it is not told by times."""
        if self.time_ms is not None:
            return dict.fromkeys(partitions, self.time_ms)
        return self.times_ms


def from_json(told: Mapping[str, Any]) -> Offsets:
    """A stream's offsets, which Spark has parsed already. Raises ValueError for what are none."""
    found: Offsets = {}
    for topic, parts in told.items():
        if not isinstance(parts, Mapping):
            raise ValueError(f"{topic!r}: {parts!r} is no mapping of partitions")
        for index, offset in parts.items():
            if isinstance(offset, bool) or not isinstance(offset, int) or not index.isdecimal():
                raise ValueError(f"{topic!r}: {index!r}: {offset!r}; partitions have numbers")
            if not offset <= INT64_MAX or len(index) > 10 or int(index) > INT32_MAX:
                raise ValueError(f"{topic!r}: {index!r}: {offset!r} is out of range")
            found[TopicPartition(topic, int(index))] = offset
    return found


def to_json(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """The same for Spark to write, in order: what is equal is written equally."""
    told: dict[str, dict[str, int]] = {}
    for where in sorted(offsets):
        told.setdefault(where.topic, {})[str(where.partition)] = offsets[where]
    return told


def _parsed(option: str, text: str, example: str) -> dict[str, Any]:
    try:
        told = json.loads(text)
    except ValueError as error:
        raise OptionError(f"{option}: {text!r} is no JSON ({error}); write {example}") from None
    if not isinstance(told, dict):
        raise OptionError(f"{option}: {text!r}; write {example}")
    return told


def partitions_of_json(option: str, text: str) -> tuple[TopicPartition, ...]:
    """The value of `assign`."""
    example = '{"topic":[0,1]}'
    found: set[TopicPartition] = set()
    for topic, parts in _parsed(option, text, example).items():
        if not isinstance(parts, list) or not all(
            type(p) is int and 0 <= p <= INT32_MAX for p in parts
        ):
            raise OptionError(f"{option}: {topic!r}: {parts!r}; write {example}")
        found.update(TopicPartition(topic, part) for part in parts)
    if not found:
        raise OptionError(f"{option}: no partition is named; write {example}")
    return tuple(sorted(found))


def _numbers(option: str, text: str, least: int) -> Offsets:
    example = '{"topic":{"0":23,"1":-2}}' if least < 0 else '{"topic":{"0":1700000000000}}'
    try:
        found = from_json(_parsed(option, text, example))
    except OptionError:
        raise
    except ValueError as error:
        raise OptionError(f"{option}: {error}; write {example}") from None
    for where, number in found.items():
        if number < least:
            raise OptionError(f"{option}: {where}: {number} is below {least}")
    return found


def bound_of_json(option: str, text: str, *, times: bool = False) -> Bound:
    """The value of startingOffsets and the like, or with `times` of ...OffsetsByTimestamp."""
    if times:
        return Bound(option, times_ms=_numbers(option, text, 0))
    word = text.strip().lower()
    if word in ("earliest", "latest"):
        return Bound(option, edge=EARLIEST if word == "earliest" else LATEST)
    if not word.startswith("{"):
        raise OptionError(f"{option}: {text!r} is neither earliest, latest nor JSON")
    return Bound(option, offsets=_numbers(option, text, EARLIEST))
