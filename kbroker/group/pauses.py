"""Pauses: partitions of a coordinator's topic whose last append is under way on a slow disk.

Such a partition is as it was before the append: nothing of it changes until the append has ended,
then its operation continues. Meanwhile requests wait, and its timers do not run: no session ends
for what the disk did. After a second the disk counts as hung, and requests are refused with
COORDINATOR_NOT_AVAILABLE until the append has ended. """

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, Protocol

from kbroker.clock import Clock
from kbroker.errors import ErrorCode
from kbroker.operations import Completion

_LOG: Final = logging.getLogger("kbroker.group")
_LOOK_MS: Final = 5
_LOOK_HUNG_MS: Final = 20
_HUNG_MS: Final = 1_000


class Append(Protocol):
    """An append under way (kbroker.ext.appending.LateAppend)."""

    @property
    def done(self) -> bool: ...
    def result(self) -> tuple[int, int]: ...


class Pausable(Protocol):
    """A partition of a coordinator's topic."""

    name: str
    paused: bool
    resumed: Completion[None]
    """Set when requests need not wait any longer: the pause is over, or the disk counts as hung."""


class _Pause:
    def __init__(
        self,
        slot: Pausable,
        append: Append,
        resume: Callable[[ErrorCode, int], None],
        give_up: Callable[[], None],
        since_ms: int,
    ) -> None:
        self.slot = slot
        self.append = append
        self.resume = resume
        self.give_up = give_up
        self.since_ms = since_ms
        self.hung = False


class Pauses:
    """The pauses of one coordinator. Owned by the control thread."""

    def __init__(self, clock: Clock, code_of: Callable[[BaseException], ErrorCode]) -> None:
        """`code_of` is the coordinator's code for an error of an append."""
        self._clock = clock
        self._code_of = code_of
        self._pauses: list[_Pause] = []
        self._look_ms = 0

    def begin(
        self,
        slot: Pausable,
        append: Append,
        resume: Callable[[ErrorCode, int], None],
        give_up: Callable[[], None],
    ) -> None:
        """Pause a partition. `resume` is called when the append has ended, with NONE or what went
        wrong and how long it took (ms); `give_up` where the disk counts as hung before."""
        now_ms = self._clock.monotonic_ms()
        slot.paused = True
        slot.resumed = Completion()
        self._pauses.append(_Pause(slot, append, resume, give_up, now_ms))
        self._look_ms = now_ms + _LOOK_MS

    def next_ms(self) -> int | None:
        """When to look again (monotonic)."""
        return self._look_ms if self._pauses else None

    def look(self) -> None:
        """Resume the partitions whose append has ended."""
        now_ms = self._clock.monotonic_ms()
        for pause in list(self._pauses):
            if pause.append.done:
                self._pauses.remove(pause)
                self._end(pause, now_ms - pause.since_ms)
            elif not pause.hung and now_ms - pause.since_ms >= _HUNG_MS:
                pause.hung = True
                _LOG.warning("%s: its append hangs; requests are refused until it ends",
                             pause.slot.name)  # fmt: skip
                pause.give_up()
                pause.slot.resumed.resolve(None)
        hung = all(pause.hung for pause in self._pauses)
        self._look_ms = now_ms + (_LOOK_HUNG_MS if hung else _LOOK_MS)

    def _end(self, pause: _Pause, took_ms: int) -> None:
        slot, resumed = pause.slot, pause.slot.resumed
        slot.paused = False
        if pause.hung:
            _LOG.info("%s: its append has ended after %d ms", slot.name, took_ms)
        pause.resume(self._outcome(pause), took_ms)
        if not resumed.done:
            resumed.resolve(None)

    def _outcome(self, pause: _Pause) -> ErrorCode:
        try:
            pause.append.result()
        except Exception as error:
            _LOG.warning("append to %s failed after the pause: %s", pause.slot.name, error)
            return self._code_of(error)
        return ErrorCode.NONE

    def clear(self) -> None:
        """Give the partitions up; requests that wait for them are answered so."""
        pauses, self._pauses = self._pauses, []
        for pause in pauses:
            if not pause.slot.resumed.done:
                pause.slot.resumed.resolve(None)


def waits(slot: Pausable) -> bool:
    """Whether a request for the partition is to wait for `slot.resumed`."""
    return slot.paused and not slot.resumed.done
