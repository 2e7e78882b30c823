"""Slots whose last append stands in a disk that hangs.

Such a slot is as it was before the append: nothing of it moves until that is over, then the
operation goes on where it was. Meanwhile its requests are refused with COORDINATOR_NOT_AVAILABLE,
and its timers stand still: nobody's session ends for what the disk did.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from kbroker.clock import Clock
from kbroker.errors import ErrorCode

_LOG: Final = logging.getLogger("kbroker.group")
_LOOK_MS: Final = 20


class Append(Protocol):
    """See kbroker.ext.appending.LateAppend."""

    @property
    def done(self) -> bool: ...
    def result(self) -> tuple[int, int]: ...


class Pausable(Protocol):
    """A partition of a coordinator's topic."""

    name: str
    paused: bool


class _Pause(NamedTuple):
    slot: Pausable
    append: Append
    resume: Callable[[ErrorCode, int], None]
    since_ms: int


class Pauses:
    """Of the control thread. `code_of` says what an error of an append is to the coordinator."""

    def __init__(self, clock: Clock, code_of: Callable[[BaseException], ErrorCode]) -> None:
        self._clock = clock
        self._code_of = code_of
        self._pauses: list[_Pause] = []
        self._look_ms = 0

    def begin(
        self,
        slot: Pausable,
        append: Append,
        resume: Callable[[ErrorCode, int], None],
    ) -> None:
        """`resume` is called when the append is over: with NONE or what went wrong, and how long it
        took (ms)."""
        now_ms = self._clock.monotonic_ms()
        slot.paused = True
        self._pauses.append(_Pause(slot, append, resume, now_ms))
        self._look_ms = now_ms + _LOOK_MS

    def next_ms(self) -> int | None:
        """When to look again (monotonic)."""
        return self._look_ms if self._pauses else None

    def look(self) -> None:
        """Let those go on whose append is over."""
        now_ms = self._clock.monotonic_ms()
        self._look_ms = now_ms + _LOOK_MS
        for pause in [one for one in self._pauses if one.append.done]:
            self._pauses.remove(pause)
            pause.slot.paused = False
            took_ms = now_ms - pause.since_ms
            _LOG.info("%s goes on after %d ms", pause.slot.name, took_ms)
            pause.resume(self._outcome(pause), took_ms)

    def _outcome(self, pause: _Pause) -> ErrorCode:
        try:
            pause.append.result()
        except Exception as error:
            _LOG.warning("%s has taken no record after all: %s", pause.slot.name, error)
            return self._code_of(error)
        return ErrorCode.NONE

    def clear(self) -> None:
        """The slots are given up."""
        self._pauses.clear()
