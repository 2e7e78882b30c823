"""Log lines that others can cause: a burst, then so many a second, and how many were left out.

Whoever can connect can have the broker say something, as often as they like; the disk that holds
its log, and who looks for another line in it, would pay for that. Not thread-safe.
"""

from __future__ import annotations

import logging
from typing import Final

from kbroker.clock import Clock

LINES_BURST: Final = 200
LINES_PER_S: Final = 50
_DROPPED: Final = "%d lines dropped: clients cause more than the log takes"


class LineBound:
    """So many lines in a burst, and so many a second."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._left = float(LINES_BURST)
        self._at_ms = clock.monotonic_ms()
        self._left_out = 0

    def take(self) -> bool:
        """Whether there is room for a line; where there is none it counts as left out."""
        now_ms = self._clock.monotonic_ms()
        gained = (now_ms - self._at_ms) / 1000 * LINES_PER_S
        self._left = min(self._left + gained, LINES_BURST)
        self._at_ms = now_ms
        if self._left < 1:
            self._left_out += 1
            return False
        self._left -= 1
        return True

    def left_out(self) -> int:
        """How many lines since the last call."""
        count, self._left_out = self._left_out, 0
        return count


class BoundedLog:
    """A logger whose lines are bounded, but for errors, which are the broker's own, and what only
    an operator asks for by its level."""

    def __init__(self, log: logging.Logger, clock: Clock, dropped: str = _DROPPED) -> None:
        """`dropped`: how it tells of as many lines as there was no room for."""
        self._log = log
        self._bound = LineBound(clock)
        self._dropped = dropped

    def tell(self, level: int, text: str, *arguments: object) -> None:
        """As Logger.log, or counted."""
        if not self._log.isEnabledFor(level):
            return
        if not logging.DEBUG < level < logging.ERROR or self._bound.take():
            self._log.log(level, text, *arguments)

    def tell_dropped(self, others: int = 0) -> None:
        """One line with how many there were since the last call, and `others` that were lost on
        their way here; to be called about once a second."""
        dropped = self._bound.left_out() + others
        if dropped:
            self._log.warning(self._dropped, dropped)
