"""Sequence numbers: what was acknowledged, what was seen, and what is therefore lost.

A record begins with a stamp: int64 lane, int64 sequence, int64 ns since 1970 when it was sent. A
lane is one producer; it numbers the records that it sends to a partition from 0 on, without a
gap but for those that it was told are not written. What is sent to be aborted has the number
ABORTED, and nobody may see it. Thread-safe.
"""

from __future__ import annotations

import struct
import threading
import time
from array import array
from collections import defaultdict
from collections.abc import Iterable
from typing import Any, NamedTuple

_STAMP = struct.Struct(">qqq")
STAMP_BYTES = _STAMP.size
ABORTED = -1

Place = tuple[int, int]
"""A lane, and a partition that it sends to."""


class Stamp(NamedTuple):
    """What a record begins with."""

    lane: int
    sequence: int
    sent_ns: int


def stamped(lane: int, sequence: int, size: int) -> bytes:
    """A record of `size` bytes, at least its stamp."""
    head = _STAMP.pack(lane, sequence, time.time_ns())
    return head.ljust(size, b"\x5a")


def stamp_of(value: bytes) -> Stamp:
    """The way back."""
    return Stamp(*_STAMP.unpack_from(value))


class Sent:
    """What producers of this process sent."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._next: dict[Place, int] = {}
        self._failed: dict[Place, set[int]] = {}

    def take(self, place: Place) -> int:
        """The next number of a lane's partition; one thread a lane."""
        number = self._next.get(place, 0)
        with self._lock:
            self._next[place] = number + 1
        return number

    def failed(self, place: Place, sequence: int) -> None:
        """This one was not acknowledged: it may be there or not."""
        with self._lock:
            self._failed.setdefault(place, set()).add(sequence)

    def may_miss(self, place: Place, first: int, last: int) -> bool:
        """Whether all from first to last were refused, as far as this process knows."""
        failed = self._failed.get(place, set())
        return all(number in failed for number in range(first, last + 1))

    def told(self) -> dict[str, Any]:
        """For the process that judges: JSON, numbers so far."""
        with self._lock:
            return {
                f"{lane}/{partition}": [count, sorted(self._failed.get((lane, partition), ()))]
                for (lane, partition), count in self._next.items()
            }


class Seen:
    """What one consumer saw: a gap in what it read without a break is a record that is lost."""

    def __init__(self) -> None:
        self._last: dict[Place, int] = {}
        self.again = 0

    def forget(self, partitions: Iterable[int]) -> None:
        """They came from another reader, or go to one: what follows begins anew."""
        gone = set(partitions)
        self._last = {place: last for place, last in self._last.items() if place[1] not in gone}

    def note(self, stamp: Stamp, partition: int) -> tuple[int, int] | None:
        """The numbers that are missing before this one, as (first, last)."""
        place = stamp.lane, partition
        last = self._last.get(place)
        if last is None or stamp.sequence == last + 1:
            self._last[place] = stamp.sequence
            return None
        if stamp.sequence <= last:
            self.again += 1
            return None
        self._last[place] = stamp.sequence
        return last + 1, stamp.sequence - 1


class Found:
    """What a topic holds, told record by record in the order of each partition."""

    def __init__(self) -> None:
        self._next: dict[Place, int] = {}
        self._holes: dict[Place, set[int]] = {}
        self.twice = 0
        self.aborted = 0

    def note(self, stamp: Stamp, partition: int) -> None:
        """A record."""
        place, number = (stamp.lane, partition), stamp.sequence
        if number == ABORTED:
            self.aborted += 1
            return
        following = self._next.get(place, 0)
        if number >= following:
            if number > following:
                self._holes.setdefault(place, set()).update(range(following, number))
            self._next[place] = number + 1
        elif number in (holes := self._holes.get(place, set())):
            holes.discard(number)  # it was tried again, behind those that followed it
        else:
            self.twice += 1

    def missing(self, place: Place, count: int) -> set[int]:
        """Of the numbers below count."""
        after = range(self._next.get(place, 0), count)
        return {*self._holes.get(place, ()), *after}


class Order:
    """In which order partitions hold their records."""

    def __init__(self) -> None:
        self._at: dict[int, array[int]] = defaultdict(lambda: array("q"))

    def note(self, stamp: Stamp, partition: int) -> None:
        """A record."""
        self._at[partition].append(hash(stamp))

    def __len__(self) -> int:
        return sum(map(len, self._at.values()))

    def strays(self, source: Order) -> list[int]:
        """The partitions that do not hold just what those of the source begin with: something is
        there twice, or missing, or out of order."""
        return [at for at, copied in self._at.items() if copied != source._at[at][: len(copied)]]


class Audit(NamedTuple):
    """The end of a run: how many were acknowledged, which of them are missing, how many records
    are there twice."""

    acknowledged: int
    lost: list[str]
    twice: int


def audit(told: Iterable[dict[str, Any]], found: Found) -> Audit:
    """Compare what producers were told (`Sent.told`) with what the topic holds."""
    acknowledged = 0
    lost: list[str] = []
    for one in told:
        for name, (count, failed) in one.items():
            lane, partition = map(int, name.split("/"))
            acknowledged += count - len(failed)
            missing = sorted(found.missing((lane, partition), count) - set(failed))
            lost += [f"lane {lane}, partition {partition}, number {at}" for at in missing]
    return Audit(acknowledged, lost, found.twice)
