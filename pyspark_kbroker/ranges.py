"""Ranges of offsets, as tasks and as what a trigger takes. No broker is asked here."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pyspark.sql.datasource import InputPartition

from kbroker.client.partitions import TopicPartition
from pyspark_kbroker.offsets import Offsets

__all__ = ["OffsetRange", "limited", "split"]


@dataclass(frozen=True)
class OffsetRange(InputPartition):
    """What one task reads of one partition: from `start` to before `end`."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def where(self) -> TopicPartition:
        """Which partition."""
        return TopicPartition(self.topic, self.partition)

    def __len__(self) -> int:
        return max(self.end - self.start, 0)

    def __str__(self) -> str:
        return f"[{self.start}, {self.end}) of {self.where}"

    def cut(self, parts: int) -> list[OffsetRange]:
        """The same in so many parts, none of them empty; all but equal."""
        parts = min(parts, len(self))
        ends = [self.start + len(self) * i // parts for i in range(parts + 1)]
        return [OffsetRange(self.topic, self.partition, ends[i], ends[i + 1]) for i in range(parts)]


def _share(of: int, total: int, parts: int) -> int:
    return max(math.floor(of / total * parts + 0.5), 1)


def split(
    ranges: Iterable[OffsetRange], min_partitions: int | None, max_records: int | None
) -> list[OffsetRange]:
    """Tasks for these ranges: none with more than max_records offsets, and about min_partitions of
    them at least. Those that would be no larger than a fair share stay whole."""
    found = [one for one in ranges if len(one)]
    if max_records is not None:
        found = [part for one in found for part in one.cut(math.ceil(len(one) / max_records))]
    if min_partitions is None or len(found) >= min_partitions:
        return found
    total = sum(map(len, found))
    is_large = [_share(len(one), total, min_partitions) > 1 for one in found]
    large_total = sum(len(one) for one, large in zip(found, is_large, strict=True) if large)
    parts = max(min_partitions - is_large.count(False), 1)
    return [
        part
        for one, large in zip(found, is_large, strict=True)
        for part in one.cut(_share(len(one), large_total, parts) if large else 1)
    ]


def limited(start: Mapping[TopicPartition, int], end: Offsets, most: int) -> Offsets:
    """Ends for a trigger that may take `most` offsets: each partition gets its share by how much
    it has, and at least one offset. A partition without a start ends at its end."""
    sizes = {
        where: until - start[where]
        for where, until in end.items()
        if where in start and until > start[where]
    }
    total = sum(sizes.values())
    if total <= most:
        return dict(end)
    found = dict(end)
    for where, size in sizes.items():
        share = most * size / total
        taken = math.ceil(share) if share < 1 else math.floor(share)
        found[where] = min(end[where], start[where] + taken)
    return found
