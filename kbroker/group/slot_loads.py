"""Loading slots, and again where that fails: those of `__consumer_offsets` and of
`__transaction_state` alike.

What is damaged is passed over and told. What the disk refuses to read is no damage yet: the slot
has failed, and is read again after a second, two and so on; from the sixth time on what cannot be
read is passed over as well.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from kbroker.clock import Clock
from kbroker.errors import ClientError, DiskError, ErrorCode
from kbroker.group.loading import Load, Loader, Loading, Piece
from kbroker.group.outcome import NOTHING, Now, Outcome
from kbroker.group.timers import Timers
from kbroker.storage.manager import LogPort

LOADING, ACTIVE, FAILED = "loading", "active", "failed"

_AGAIN_MS: Final = 1_000
_AGAIN_MAX_MS: Final = 60_000
_STRICT_TRIES: Final = 5
_REMEDY: Final = (
    "`kbroker log verify` shows where; stop the broker and `kbroker log repair --drop` takes it out"
)


class Loadable(Protocol):
    """A partition of a coordinator's topic; only the control thread changes it."""

    partition: int
    name: str
    log: LogPort | None
    state: str
    paused: bool

    @property
    def passed_over(self) -> int:
        """How much of the log could not be read."""

    def begin(self) -> None:
        """Nothing is known of it: it is to be loaded, for the first time or once more."""

    def take(self, piece: Piece) -> None:
        """Fold a piece of the log in."""

    def loaded(self) -> str:
        """All was taken: what may be wrong by what was passed over, in words."""


class Host(Protocol):
    """What the loads are built on: part of what each coordinator is."""

    @property
    def clock(self) -> Clock: ...
    def load(self, log: LogPort, *, strict: bool) -> Load:
        """Begin to read a log; called on the loader's thread. `strict`: what the disk refuses to
        read is an error, and not passed over."""

    def post(self, do: Callable[[], None]) -> None:
        """From any thread: have it done on the control thread, soon."""


S = TypeVar("S", bound=Loadable)


class SlotLoads(Generic[S]):
    """Owned by the control thread; `opened` is called with each slot that is loaded, and may raise
    ClientError, DiskError or OSError: then it has failed after all."""

    def __init__(
        self, logger: logging.Logger, host: Host, timers: Timers, opened: Callable[[S], None]
    ) -> None:
        """`timers`: the coordinator's, which runs them."""
        self._log = logger
        self._host = host
        self._timers = timers
        self._opened = opened
        self._loader = Loader(host.post)

    def stop(self) -> None:
        """Nothing more is loaded."""
        self._loader.stop()

    def load_ready(
        self,
        slots: Sequence[S],
        log_of: Callable[[int], LogPort | None],
        is_offline: Callable[[int], bool],
    ) -> None:
        """Load the slots whose logs are there now and were not before. One without a log is still
        loading while the log is being made, and has failed while it is offline."""
        for slot in slots:
            if slot.log is None:
                slot.log = log_of(slot.partition)
                slot.state = FAILED if is_offline(slot.partition) else LOADING
                if slot.log is not None:
                    self.load(slot)

    def load(self, slot: S, tries: int = 0) -> None:
        """Read the slot's log."""
        assert slot.log is not None
        begin = partial(self._host.load, strict=tries < _STRICT_TRIES)
        done = partial(self._loaded, slot, tries + 1)
        self._loader.load(Loading(slot.name, slot.log, begin, slot.take, done))

    def _loaded(self, slot: S, tries: int, error: Exception | None) -> None:
        if slot.state != LOADING:
            return
        if error is not None:
            self._load_later(slot, tries, error)
            return
        effect = slot.loaded()
        slot.state = ACTIVE
        if slot.passed_over:
            self._log.error("%s is damaged in %d places, which were passed over; %s. %s",
                            slot.name, slot.passed_over, effect, _REMEDY)  # fmt: skip
        try:
            self._opened(slot)
        except (ClientError, DiskError, OSError) as failure:
            self._load_later(slot, tries, failure)

    def _load_later(self, slot: S, tries: int, error: Exception) -> None:
        slot.state = FAILED
        pause_ms = min(_AGAIN_MS << min(tries - 1, 10), _AGAIN_MAX_MS)
        self._log.error("%s is not loaded, and nothing in it is served: %s; trying again in %d s."
                        " Where that goes on: %s",
                        slot.name, error, pause_ms // 1000, _REMEDY)  # fmt: skip

        def due(now: Now) -> Outcome:
            if slot.paused:  # what it would read is not all there yet
                self._timers.schedule(timer, now.monotonic_ms + _AGAIN_MS, due)
                return NOTHING
            slot.begin()
            self.load(slot, tries)
            return NOTHING

        timer = (slot.partition, "", "load")
        self._timers.schedule(timer, self._host.clock.monotonic_ms() + pause_ms, due)


def check_all_served(slots: Sequence[Loadable]) -> None:
    """For answers about all partitions. Raises ClientError while one is being read or cannot be:
    what is in it would be missing, and pass for gone."""
    states = {slot.state for slot in slots}
    if LOADING in states:
        raise ClientError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    if FAILED in states:
        raise ClientError(ErrorCode.COORDINATOR_NOT_AVAILABLE)


class LoadFigures(NamedTuple):
    """How far a coordinator's partitions are read: how many are being read, and how many could not
    be; how much of the others was passed over."""

    loading: int
    failed: int
    passed_over: int


def load_figures(slots: Sequence[Loadable]) -> LoadFigures:
    """Read on any thread beside the control thread, which owns the slots: what changes meanwhile
    may be missed."""
    states = [slot.state for slot in slots]
    return LoadFigures(
        states.count(LOADING), states.count(FAILED), sum(slot.passed_over for slot in slots)
    )
