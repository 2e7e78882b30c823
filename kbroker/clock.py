"""Time as a part that is handed in: the system's, or one that only a test moves.

Wall time is for what is stored and compared with records (retention, timestamps); it may jump.
Monotonic time is for how long something takes (timeouts, sessions); it never goes back. Both are
whole milliseconds.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """What the control plane asks for the time."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC."""

    def monotonic_ms(self) -> int:
        """Milliseconds since some moment in the past; never goes back."""


class SystemClock:
    """The clocks of the machine. Any thread may ask."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC, from CLOCK_REALTIME."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        """Milliseconds from CLOCK_MONOTONIC."""
        return time.monotonic_ns() // 1_000_000


class FakeClock:
    """A clock that stands still until a test moves it. Not thread-safe."""

    def __init__(self, wall_ms: int = 1_700_000_000_000, monotonic_ms: int = 0) -> None:
        self._wall_ms = wall_ms
        self._monotonic_ms = monotonic_ms

    def wall_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC, as last set."""
        return self._wall_ms

    def monotonic_ms(self) -> int:
        """Milliseconds that `advance` was told so far."""
        return self._monotonic_ms

    def advance(self, elapsed_ms: int) -> None:
        """Let time pass on both clocks."""
        if elapsed_ms < 0:
            raise ValueError("time does not go back; set_wall_ms makes the wall clock jump")
        self._wall_ms += elapsed_ms
        self._monotonic_ms += elapsed_ms

    def set_wall_ms(self, wall_ms: int) -> None:
        """Make the wall clock jump, as an operator or NTP does; the monotonic one stays."""
        self._wall_ms = wall_ms
