"""Filters that Spark pushes down, as what they leave of partitions, offsets and times.

Every record has a topic, a partition, an offset and a timestamp, so that `is not null` of these
always holds. Times are us since 1970, which is what Spark compares; records have whole ms.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from kbroker.client.partitions import TopicPartition

__all__ = ["Pushed", "Span"]

_NEVER_NULL = ("topic", "partition", "offset", "timestamp", "timestampType")
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_US = datetime.timedelta(microseconds=1)

# Bounds that are met by value: (first, last) of whole numbers, None where there is no bound.
_BOUNDS: dict[type[Filter], Callable[[int], tuple[int | None, int | None]]] = {
    EqualTo: lambda value: (value, value),
    EqualNullSafe: lambda value: (value, value),
    GreaterThan: lambda value: (value + 1, None),
    GreaterThanOrEqual: lambda value: (value, None),
    LessThan: lambda value: (None, value - 1),
    LessThanOrEqual: lambda value: (None, value),
}


@dataclass
class Span:
    """Whole numbers from `first` to `last`, both of them in it; None: no bound."""

    first: int | None = None
    last: int | None = None

    def __bool__(self) -> bool:
        return self.first is not None or self.last is not None

    def narrow(self, first: int | None, last: int | None) -> None:
        """Only what is in that span as well."""
        if first is not None and (self.first is None or first > self.first):
            self.first = first
        if last is not None and (self.last is None or last < self.last):
            self.last = last


def _number(column: str, value: Any) -> int | None:
    """A literal as a whole number of its column; None where it is none."""
    if column == "timestamp":
        if isinstance(value, datetime.datetime) and value.tzinfo is not None:
            return (value - _EPOCH) // _US
        return None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


@dataclass
class Pushed:
    """What all filters together leave. only, never: topics and partitions by column."""

    offsets: Span = field(default_factory=Span)
    times_us: Span = field(default_factory=Span)
    partitions: Span = field(default_factory=Span)
    only: dict[str, frozenset[Any]] = field(default_factory=dict)
    never: dict[str, frozenset[Any]] = field(default_factory=dict)

    def push(self, filters: Iterable[Filter]) -> list[Filter]:
        """Takes what it can; gives back what Spark has to look at still."""
        return [one for one in filters if not self._take(one)]

    def keeps(self, where: TopicPartition) -> bool:
        """Whether records of this partition may be wanted."""
        first, last = self.partitions.first, self.partitions.last
        if (first is not None and where.partition < first) or (
            last is not None and where.partition > last
        ):
            return False
        own = {"topic": where.topic, "partition": where.partition}
        return all(own[column] in values for column, values in self.only.items()) and not any(
            own[column] in values for column, values in self.never.items()
        )

    def _take(self, one: Filter) -> bool:
        column = _column(one)
        if isinstance(one, IsNotNull):
            return column in _NEVER_NULL
        if isinstance(one, Not):
            return self._exclude(one.child)
        if isinstance(one, In):
            return column in ("topic", "partition") and self._include(column, one.value)
        bounds = _BOUNDS.get(type(one))
        value = getattr(one, "value", None)
        if bounds is None or value is None:
            return False
        if column == "topic":
            return isinstance(one, EqualTo | EqualNullSafe) and self._include(column, (value,))
        spans = {"offset": self.offsets, "timestamp": self.times_us, "partition": self.partitions}
        number = _number(column, value)
        if column not in spans or number is None:
            return False
        spans[column].narrow(*bounds(number))
        return True

    def _include(self, column: str, values: Iterable[Any]) -> bool:
        found = frozenset(values)
        self.only[column] = found & self.only.get(column, found)
        return True

    def _exclude(self, child: Filter) -> bool:
        column = _column(child)
        if column not in ("topic", "partition"):
            return False
        if isinstance(child, EqualTo) and child.value is not None:
            values = frozenset((child.value,))
        elif isinstance(child, In) and None not in child.value:
            values = frozenset(child.value)
        else:
            return False
        self.never[column] = self.never.get(column, frozenset()) | values
        return True


def _column(one: Filter) -> str:
    """Its column; empty where there is none, or a field within one."""
    path: tuple[str, ...] = getattr(one, "attribute", ())
    return path[0] if len(path) == 1 else ""
