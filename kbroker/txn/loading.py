"""Reading a partition of `__transaction_state` for its fold (kbroker.group.loading has the thread).

A coordinator's partition is compacted and holds one record for each step since: of each key only
the last one counts, and only those go to the control thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kbroker.ext import records
from kbroker.group.loading import Commit, Other, Pending
from kbroker.storage.manager import LogPort

_STEP_BYTES: Final = 1 << 20
_ROWS: Final = 1_000


class StateLoad:
    """A partition that is being read (kbroker.group.loading.Load)."""

    problem_count = 0
    problems: Sequence[tuple[int, str]] = ()

    def __init__(self, log: LogPort) -> None:
        self._log = log
        self._position = log.log_start_offset
        self._end = log.log_end_offset
        self._last: dict[bytes | None, Other] = {}
        self.done = False

    def step(self) -> list[Other]:
        """Read on; when all is read, what counts, some at a time."""
        if self._position < self._end:
            self._read()
            return []
        rows = [self._last.pop(key) for key in list(self._last)[:_ROWS]]
        self.done = not self._last
        return rows

    def _read(self) -> None:
        data = self._log.read(self._position, _STEP_BYTES, up_to="log_end_offset")
        if not data:
            self._position = self._end
            return
        for batch in records.batches(data):
            self._position = batch.base_offset + batch.last_offset_delta + 1
        for record in records.read(data):
            # What comes later stands later, so that the order is the log's.
            self._last.pop(record.key, None)
            self._last[record.key] = (record.offset, record.key or b"", record.value)

    def packed(self, most: int = 0) -> list[Commit]:
        """There are no offsets in it."""
        return []

    def pending(self) -> list[Pending]:
        """Nor of transactions."""
        return []
