"""Reading partitions of `__transaction_state` for their slots (kbroker.group.slot_loads).

A coordinator's partition is compacted and holds one record for each step since: of each key only
the last one counts, and only those go to the control thread.

A batch that is damaged is passed over, as one of `__consumer_offsets` is: each record has the whole
state of its transactional id, so of most ids nothing is missed, and what was prepared elsewhere in
the partition is finished. Whose last record stands before the damage is in doubt
(kbroker.txn.doubt).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

from kbroker.group.loading import Commit, Load, Other, Pending

_ROWS: Final = 100
"""At a time for the control thread, which takes some 2 ms to decode as many."""


class StateLoad:
    """A partition that is being read (kbroker.group.loading.Load); `read` gives its records out."""

    def __init__(self, read: Load) -> None:
        self._source = read
        self._last: dict[bytes, Other] = {}
        self._rows: Iterator[Other] | None = None
        self.done = False

    @property
    def problem_count(self) -> int:
        """How often something was passed over."""
        return self._source.problem_count

    @property
    def problems(self) -> Sequence[tuple[int, str]]:
        """(offset, why) of the first of them."""
        return self._source.problems

    def step(self) -> list[Other]:
        """Read on; when all is read, what counts in the log's order, some at a time."""
        if not self._source.done:
            self._read()
            return []
        if self._rows is None:
            self._rows = iter(self._last.values())
        rows = list(islice(self._rows, _ROWS))
        self.done = len(rows) < _ROWS
        return rows

    def _read(self) -> None:
        for row in self._source.step():
            # What comes later stands later, so that the order is the log's.
            self._last.pop(row[1], None)
            self._last[row[1]] = row

    def packed(self, most: int = 0) -> list[Commit]:
        """There are no offsets in it."""
        return []

    def pending(self) -> list[Pending]:
        """Nor of transactions."""
        return []
