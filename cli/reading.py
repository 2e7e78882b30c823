"""The loop of `kbroker consume`: what a poll gave is printed before the next one.

Whatever a poll gave and was not printed to the end, because the reader of our output went away or
a signal came, is sought back to. So a group never commits what was not printed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

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
    """By a function of one record, which gives it without the line's end."""

    def __init__(self, show: Callable[[Record], bytes]) -> None:
        self._show = show

    def take(self, consumer: Consumer, timeout_s: float, most: int | None) -> Taken | None:
        """One poll."""
        records = consumer.poll(timeout_s, min(most or _RECORDS, _RECORDS))
        return _Records(records, self._show) if records else None


class _Records:
    tail = b"\n"

    def __init__(self, records: list[Record], show: Callable[[Record], bytes]) -> None:
        self._records = records
        self._show = show

    def lines(self) -> list[bytes]:
        return list(map(self._show, self._records))

    def places(self) -> list[Place]:
        return [(record.topic, record.partition, record.offset) for record in self._records]


class Reading:
    """Prints until the ends are reached, `count` records are printed, or a signal comes.

    to_the_end: ends where nothing is left in all that is assigned. idle: called when a poll gave
    nothing.
    """

    def __init__(self, out: Output, stop: Stop, count: int | None) -> None:
        self.stop = stop
        self.to_the_end = False
        self.idle: Callable[[], None] | None = None
        self._out = out
        self._left = count

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
            taken = shape.take(consumer, wait_s, self._left)
            if taken is not None:
                self._print(consumer, taken, ends)
            else:
                self._out.check()
                if self.idle is not None:
                    self.idle()
            if self.to_the_end and at_end(consumer):
                return

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
