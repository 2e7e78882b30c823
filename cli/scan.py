"""Records of some partitions in the order of their times, oldest or newest first.

Each partition is read in windows, forwards or backwards; the partitions are merged by timestamp.
Within a partition the order is that of offsets, whatever the timestamps are.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import TYPE_CHECKING

from kbroker.cli.span import Partition
from kbroker.cli.stopping import Stop, StoppedError

if TYPE_CHECKING:
    from kbroker.client import Consumer, Record

__all__ = ["scan"]

_WINDOW = 500  # offsets at first; doubled each time, up to
_WINDOW_MAX = 16_000
_WAIT_S = 0.05
_RECORDS = 10_000


def scan(
    consumer: Consumer,
    bounds: dict[Partition, tuple[int, int]],
    *,
    newest_first: bool,
    stop: Stop,
) -> Iterator[Record]:
    """Records at offsets from the first of the bounds on, before the second. Raises StoppedError
    where a signal came."""
    read = _backwards if newest_first else _forwards
    sources = [read(consumer, at, *bound, stop) for at, bound in sorted(bounds.items())]
    sign = -1 if newest_first else 1
    return heapq.merge(*sources, key=lambda record: sign * record.timestamp)


def _forwards(
    consumer: Consumer, where: Partition, low: int, high: int, stop: Stop
) -> Iterator[Record]:
    size = _WINDOW
    while low < high:
        end = min(low + size, high)
        yield from _window(consumer, where, low, end, stop)
        low, size = end, min(2 * size, _WINDOW_MAX)


def _backwards(
    consumer: Consumer, where: Partition, low: int, high: int, stop: Stop
) -> Iterator[Record]:
    size = _WINDOW
    while low < high:
        begin = max(high - size, low)
        yield from reversed(_window(consumer, where, begin, high, stop))
        high, size = begin, min(2 * size, _WINDOW_MAX)


def _window(consumer: Consumer, where: Partition, low: int, high: int, stop: Stop) -> list[Record]:
    """The records at offsets low to high - 1 that are still there."""
    found: list[Record] = []
    if where not in consumer.assignment():
        consumer.assign([where])
        consumer.seek(where, low)
    elif consumer.position(where) != low:
        consumer.seek(where, low)
    while consumer.position(where) < high:
        if stop.asked:
            raise StoppedError
        found += consumer.poll(_WAIT_S, min(_RECORDS, high - low))
    return [record for record in found if low <= record.offset < high]
