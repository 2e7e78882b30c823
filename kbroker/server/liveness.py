"""Liveness checks of both planes: each thread gets a task, and some seconds to do it.

The control thread is posted a message, which it runs between two requests. Every network thread is
posted a note and the acceptor an errand (kbroker.ext.liveness). The I/O pool and the flusher are
not checked: a slow disk is no reason to kill the broker, and recovery would not make it faster.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from kbroker.ext.engine import Engine
from kbroker.ext.liveness import Liveness

_POLL_S: Final = 0.01


class Planes:
    """The threads that must answer. One thread at a time calls."""

    def __init__(self, engine: Engine, post: Callable[[Callable[[], None]], None]) -> None:
        """`post` runs a function on the control thread."""
        self._data = Liveness(engine)
        self._post = post
        self._control = threading.Event()
        self._control.set()

    def fault(self, timeout_s: float) -> str | None:
        """Return None as soon as all threads have answered, or after `timeout_s` the names of those
        that have not. An answer that comes later counts for the next call."""
        until = time.monotonic() + timeout_s
        if self._control.is_set():  # else the last message is still queued
            self._control.clear()
            self._post(self._control.set)
        self._data.ask()
        while (silent := self._silent()) and time.monotonic() < until:
            if self._control.is_set():
                time.sleep(_POLL_S)
            else:
                self._control.wait(_POLL_S)
        return f"no answer from {', '.join(silent)} in {timeout_s:g} s" if silent else None

    def _silent(self) -> list[str]:
        silent = [] if self._control.is_set() else ["the control thread"]
        silent += [f"network thread {index}" for index in self._data.silent()]
        if self._data.acceptor_silent():
            silent.append("the acceptor")
        return silent
