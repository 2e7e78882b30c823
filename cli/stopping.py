"""Ctrl-C and SIGTERM for commands that must not lose what they hold: told, not thrown.

The first signal is noted and ends only waits that were marked for it; the command then finishes
what it has in hand. The second one ends the command where it is.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, Self

__all__ = ["Stop", "StoppedError"]

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StoppedError(Exception):
    """A wait that was marked for it was ended by a signal."""


class Stop:
    """Within it signals are noted. asked: the number of the first one, 0 for none yet.

    wake: called by the handler, for waits that have a way of their own to be ended. Outside of the
    main thread no signal comes here, and none is caught.
    """

    def __init__(self) -> None:
        self.asked = 0
        self.wake: Callable[[], None] | None = None
        self._open = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)
        self._before.clear()

    def _note(self, number: int, frame: FrameType | None) -> None:
        del frame
        if self.asked:
            raise KeyboardInterrupt
        self.asked = number
        if self.wake is not None:
            self.wake()
        if self._open:
            raise StoppedError

    @contextlib.contextmanager
    def interruptible(self) -> Iterator[None]:
        """Marks a wait; raises StoppedError where a signal comes during it, or came before."""
        self._open = True
        try:
            if self.asked:
                raise StoppedError
            yield
        finally:
            self._open = False
