"""Reading partitions of `__transaction_state` for their slots (kbroker.group.loading has the
thread).

A coordinator's partition is compacted and holds one record for each step since: of each key only
the last one counts, and only those go to the control thread.

A batch that is damaged is passed over, as one of `__consumer_offsets` is: each record has the whole
state of its transactional id, so of most ids nothing is missed, and what was prepared elsewhere in
the partition is finished. Whose last record stands before the damage is in doubt
(`Slot.in_doubt`). A read that the disk refuses is tried again, and only then passed over.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Final, Protocol

from kbroker.clock import Clock
from kbroker.group.loading import Commit, Load, Loader, Loading, Other, Pending
from kbroker.group.outcome import NOTHING, Now, Outcome
from kbroker.group.timers import Timers
from kbroker.storage.manager import LogPort
from kbroker.txn.slot import ACTIVE, FAILED, LOADING, Slot

_LOG: Final = logging.getLogger("kbroker.txn")

_ROWS: Final = 100
"""At a time for the control thread, which takes some 2 ms to decode as many."""

_AGAIN_MS: Final = 1_000
_AGAIN_MAX_MS: Final = 60_000
_STRICT_TRIES: Final = 5
_REMEDY: Final = (
    "`kbroker log verify` shows where; stop the broker and `kbroker log repair --drop` takes it out"
)


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


class Host(Protocol):
    """What the loads are built on: see kbroker.txn.coordinator.Host."""

    @property
    def clock(self) -> Clock: ...
    def load(self, log: LogPort, *, strict: bool) -> Load: ...
    def post(self, do: Callable[[], None]) -> None: ...


class SlotLoads:
    """Has slots loaded, and again where that fails. Owned by the control thread; `opened` is called
    with each slot that is loaded."""

    def __init__(self, host: Host, timers: Timers, opened: Callable[[Slot], None]) -> None:
        self._host = host
        self._timers = timers
        self._opened = opened
        self._loader = Loader(host.post)

    def stop(self) -> None:
        """Nothing more is loaded."""
        self._loader.stop()

    def load(self, slot: Slot, tries: int = 0) -> None:
        """Read the slot's log; one that the disk denies fails it for good."""
        if slot.log is None:
            slot.state = FAILED
            return
        begin = partial(self._host.load, strict=tries < _STRICT_TRIES)
        done = partial(self._loaded, slot, tries + 1)
        self._loader.load(Loading(slot.name, slot.log, begin, slot.take, done))

    def _loaded(self, slot: Slot, tries: int, error: Exception | None) -> None:
        if slot.state != LOADING:
            return
        if error is not None:
            self._load_later(slot, tries, error)
            return
        slot.loaded()
        slot.state = ACTIVE
        if slot.passed_over:
            _LOG.error(
                "%s is damaged in %d places, which were passed over; %d transactional ids may have"
                " been further than is known, %d of them in a transaction, others may be missing"
                " (kbroker txn find-hanging finds what they left open). %s",
                slot.name, slot.passed_over, len(slot.in_doubt),
                len(slot.in_doubt & slot.ongoing), _REMEDY,
            )  # fmt: skip
        self._opened(slot)

    def _load_later(self, slot: Slot, tries: int, error: Exception) -> None:
        slot.state = FAILED
        pause_ms = min(_AGAIN_MS << min(tries - 1, 10), _AGAIN_MAX_MS)
        _LOG.error("the transactions of %s cannot be read: %s; trying again in %d s. Where that"
                   " goes on: %s", slot.name, error, pause_ms // 1000, _REMEDY)  # fmt: skip

        def due(now: Now) -> Outcome:
            slot.begin()
            self.load(slot, tries)
            return NOTHING

        at_ms = self._host.clock.monotonic_ms() + pause_ms
        self._timers.schedule((slot.partition, "", "load"), at_ms, due)
