"""Polling of a consumer: group membership, committed offsets, and records that were fetched.

What a poll takes is returned to the application when `Fetcher.returned` is set, as the last step of
a call. A call that ends otherwise, by an exception at any point or as its task is cancelled, leaves
positions where they are, and the next call returns the same records.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from kbroker.client.consumer_assignment import Assignment
from kbroker.client.consumer_control import Control
from kbroker.client.consumer_lock import UseLock
from kbroker.client.errors import CorruptDataError, WakeupError
from kbroker.ext.client_clock import monotonic
from kbroker.ext.client_columns import Columns
from kbroker.ext.client_fetch import Fetcher
from kbroker.ext.client_record import FetchedBatchError, Record

if TYPE_CHECKING:
    from kbroker.client.group import Group

__all__ = ["Poller"]

# Of one poll_batch() by default: what fits into a processor's cache is filled and read fastest.
_COLUMNS_ROWS = 65_536
_COLUMNS_BYTES = 2 << 20
_BYTES_MAX = 1 << 30  # of keys or of values in one Columns

_log = logging.getLogger("kbroker.client.consumer")

Taken = TypeVar("Taken", list[Record], Columns)


class Poller:
    """Polls of one consumer; its methods are called by the thread that has entered `lock`."""

    def __init__(
        self,
        fetcher: Fetcher,
        control: Control,
        assignment: Assignment,
        lock: UseLock,
        *,
        interceptors: Sequence[Any],
    ) -> None:
        self.group: Group | None = None
        self.woken = False
        self._fetcher = fetcher
        self._control = control
        self._assignment = assignment
        self._lock = lock
        self._on_consume = [one.on_consume for one in interceptors if hasattr(one, "on_consume")]

    def records(self, timeout_s: float, most: int) -> list[Record]:
        """Take records as soon as there are some; an empty list after timeout_s."""
        records = self._take_some(timeout_s, lambda: self._fetcher.records(most))
        return self._intercepted(records) if self._on_consume else records

    def columns(self, timeout_s: float, rows: int | None) -> Columns:
        """Take records as columns; at most `rows`, or about 2 MiB."""
        most = _COLUMNS_BYTES if rows is None else _BYTES_MAX
        rows = rows or _COLUMNS_ROWS
        return self._take_some(timeout_s, lambda: self._fetcher.columns(rows, most))

    def _intercepted(self, records: list[Record]) -> list[Record]:
        records = [*records]  # an interceptor may change the list that it is given
        for on_consume in self._on_consume:
            try:
                records = on_consume(records)
            except Exception:  # an interceptor must not take records away
                _log.exception("an interceptor's on_consume failed")
        return records

    def _take_some(self, timeout_s: float, take: Callable[[], Taken]) -> Taken:
        """Return what `take` gives once it is not empty, or the time is over: a fetched batch may
        hold nothing for a reader (control batches, records before the position)."""
        deadline = monotonic() + timeout_s
        while True:
            ready = self.wait(self._assignment.left_s(deadline))
            try:
                taken = take()
            except FetchedBatchError as error:
                raise CorruptDataError(str(error)) from error
            if taken or not ready:
                return taken

    def wait(self, timeout_s: float) -> bool:
        """Do what is due, and wait for records: False if none have come within timeout_s."""
        deadline = monotonic() + timeout_s
        while True:
            due_s = self.work()
            left_s = deadline - monotonic()
            if self._fetcher.wait(min(max(left_s, 0.0), due_s)):
                return True
            if self.woken:
                continue
            if left_s <= 0:
                return False

    def work(self) -> float:
        """Do what is due before records are taken; return the seconds until more is."""
        if self.woken:
            self.woken = False
            raise WakeupError("wakeup() was called")
        self._raise_error()
        self.mend()
        group = self.group
        if group is None:
            return float("inf")
        with self._lock.change():
            self._ask_committed(group)
            due_s = group.poll()
            if not self._assignment.refused:  # a new assignment waits for no later round
                self._ask_committed(group)
        return due_s

    def mend(self) -> None:
        """Repair what an exception of a signal handler has split: nobody knows how far a change had
        come. A member of a group joins anew."""
        if not self._lock.broken:
            return
        with self._lock.change():
            self._assignment.repair()
            if self.group is not None:
                self.group.begin_anew()
        self._lock.broken = False

    def _raise_error(self) -> None:
        """Raise what the application has to know, once. It is forgotten in the same step for
        Python as it is raised, so that an exception of a signal handler does not replace it."""
        errors = self._control.errors
        if errors:
            for where, error in [*errors.items()]:
                errors.pop(where, None)
                raise error

    def _ask_committed(self, group: Group) -> None:
        """Ask where to begin in partitions that were assigned."""
        assignment = self._assignment
        if assignment.asking:
            asked, assignment.asking = frozenset(assignment.asking), set()
            assignment.refused = False
            group.fetch_committed(asked, lambda result: assignment.begin_at(asked, result))
