"""The loop of `kbroker consume`: what a poll gave is printed before the next one.

Whatever a poll gave and was not printed to the end, because the reader of our output went away or
a signal came, is sought back to. So a group never commits what was not printed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

import click

from kbroker.cli.format import Format
from kbroker.cli.output import Output
from kbroker.cli.span import Partition
from kbroker.cli.stopping import Stop, StoppedError

if TYPE_CHECKING:
    from kbroker.client import Columns, Consumer, Record

__all__ = ["ByColumns", "ByRecords", "Reading", "Shape"]

_WAIT_S = 1.0
_LOOK_S = 0.1  # so often ends are looked at that bring no record, as after a control batch

_ROWS, _ROWS_MIN, _BYTES = 8192, 64, 1 << 20
_RECORDS = 1000

Place = tuple[str, int, int]  # topic, partition, offset


class Taken(Protocol):
    """What a poll gave, as lines with a tail behind each, and where each record was."""

    tail: bytes

    def lines(self) -> list[bytes]:
        """A line for each record."""

    def places(self) -> list[Place]:
        """Where they were."""


class Shape(Protocol):
    """A way to poll and to show."""

    def take(self, consumer: Consumer, timeout_s: float, most: int | None) -> Taken | None:
        """One poll; None where nothing came."""


class ByColumns:
    """By a format, from columns: no object a record but its line. A poll takes about as much as a
    processor's cache holds."""

    def __init__(self, form: Format) -> None:
        self._form = form
        self._rows = _ROWS

    def take(self, consumer: Consumer, timeout_s: float, most: int | None) -> Taken | None:
        """One poll."""
        columns = consumer.poll_batch(timeout_s, min(most or self._rows, self._rows))
        if not len(columns):
            return None
        size = columns.values.nbytes // len(columns)
        self._rows = max(_ROWS_MIN, min(_ROWS, _BYTES // (size + 1)))
        return _Columns(columns, self._form)


class _Columns:
    def __init__(self, columns: Columns, form: Format) -> None:
        self.tail = form.tail
        self._columns = columns
        self._form = form

    def lines(self) -> list[bytes]:
        return self._form.lines(self._columns)

    def places(self) -> list[Place]:
        told = self._columns
        names = [told.topics[index] for index in told.topic_indexes.tolist()]
        return list(zip(names, told.partitions.tolist(), told.offsets.tolist(), strict=True))


class ByRecords:
    """By a function of one record, which gives it without the tail."""

    def __init__(self, show: Callable[[Record], bytes], tail: bytes) -> None:
        self._show = show
        self._tail = tail

    def take(self, consumer: Consumer, timeout_s: float, most: int | None) -> Taken | None:
        """One poll."""
        records = consumer.poll(timeout_s, min(most or _RECORDS, _RECORDS))
        return _Records(records, self._show, self._tail) if records else None


class _Records:
    def __init__(self, records: list[Record], show: Callable[[Record], bytes], tail: bytes) -> None:
        self.tail = tail
        self._records = records
        self._show = show

    def lines(self) -> list[bytes]:
        return list(map(self._show, self._records))

    def places(self) -> list[Place]:
        return [(record.topic, record.partition, record.offset) for record in self._records]


class Reading:
    """Prints until the ends are reached, `count` records are printed, or a signal comes.

    to_the_end: ends where nothing is left in all that is assigned. idle: called when a poll gave
    nothing. go_on: errors of partitions that are not fatal are told, each kind once, and reading
    goes on.
    """

    def __init__(
        self, out: Output, stop: Stop, count: int | None, *, go_on: bool = False
    ) -> None:
        self.stop = stop
        self.to_the_end = False
        self.idle: Callable[[], None] | None = None
        self._out = out
        self._left = count
        self._go_on = go_on
        self._told: set[str] = set()

    def run(self, consumer: Consumer, shape: Shape, ends: dict[Partition, int]) -> None:
        """Raises BrokenPipeError where the reader of our output has seen enough."""
        from kbroker.client.errors import WakeupError

        try:
            self._run(consumer, shape, ends)
        except (WakeupError, StoppedError):
            if not self.stop.asked:
                raise

    def _run(self, consumer: Consumer, shape: Shape, ends: dict[Partition, int]) -> None:
        bounded = bool(ends)
        wait_s = _LOOK_S if bounded or self.to_the_end or self.idle else _WAIT_S
        open_ends = dict(ends)
        while self._left != 0 and not self.stop.asked:
            if bounded and self._close_ends(consumer, open_ends):
                return
            taken = self._take(consumer, shape, wait_s)
            if taken is not None:
                self._print(consumer, taken, ends)
            else:
                self._out.check()
                if self.idle is not None:
                    self.idle()
            if self.to_the_end and at_end(consumer):
                return

    def _take(self, consumer: Consumer, shape: Shape, wait_s: float) -> Taken | None:
        from kbroker.client.errors import KafkaError, WakeupError

        try:
            return shape.take(consumer, wait_s, self._left)
        except KafkaError as error:
            if not self._go_on or error.fatal or isinstance(error, WakeupError):
                raise
            if str(error) not in self._told:
                self._told.add(str(error))
                click.echo(f"kbroker: {error}", err=True)
            with self.stop.interruptible():
                time.sleep(wait_s)
            return None

    def _close_ends(self, consumer: Consumer, open_ends: dict[Partition, int]) -> bool:
        """Reads on only where the end is not reached; True where nothing is left. Positions stay
        at the ends, for who commits them."""
        for where, end in list(open_ends.items()):
            at = consumer.position(where)
            if at > end:
                consumer.seek(where, end)
            if at >= end:
                consumer.pause([where])
                del open_ends[where]
        return not open_ends

    def _print(self, consumer: Consumer, taken: Taken, ends: dict[Partition, int]) -> None:
        lines = taken.lines()
        places: list[Place] | None = None
        if ends and any(consumer.position(at) > ends[at] for at in consumer.assignment()):
            every = taken.places()
            keep = [n for n, (topic, part, at) in enumerate(every) if at < ends[topic, part]]
            lines = [lines[n] for n in keep]
            places = [every[n] for n in keep]
        try:
            self._out.put(lines, taken.tail)
        except BaseException:
            _seek_back(consumer, (places or taken.places())[self._out.whole :])
            raise
        if self._left is not None:
            self._left -= len(lines)


def at_end(consumer: Consumer) -> bool:
    """Whether there is nothing to read in all that is assigned, and something is assigned."""
    assigned = consumer.assignment()
    return bool(assigned) and all(consumer.lag(where) == 0 for where in assigned)


def _seek_back(consumer: Consumer, places: list[Place]) -> None:
    first: dict[Partition, int] = {}
    for topic, index, offset in places:
        first.setdefault((topic, index), offset)
    for where, offset in first.items():
        consumer.seek(where, offset)
