"""Whether the broker still answers: both planes are asked to do something, and given a while.

The control thread is posted a message, between two requests; every network thread a note, in its
loop; the acceptor is asked to come round. The I/O pool and the flusher are not asked: a disk that
is slow is no reason to be killed, and recovery would not make it faster.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from kbroker.ext.engine import Engine
from kbroker.ext.liveness import Liveness

_LOOK_AGAIN_S: Final = 0.01


class Planes:
    """The threads that must answer. One thread looks."""

    def __init__(self, engine: Engine, post: Callable[[Callable[[], None]], None]) -> None:
        """`post` has something done on the control thread."""
        self._data = Liveness(engine)
        self._post = post
        self._control = threading.Event()
        self._control.set()

    def fault(self, timeout_s: float) -> str | None:
        """None when all have answered in time, else who has not. An acceptor that hangs hangs this:
        its answer is asked for last."""
        until = time.monotonic() + timeout_s
        if self._control.is_set():  # else the last message still waits
            self._control.clear()
            self._post(self._control.set)
        self._data.ask()
        self._control.wait(timeout_s)
        while self._data.silent() and time.monotonic() < until:
            time.sleep(_LOOK_AGAIN_S)
        silent = [f"network thread {index}" for index in self._data.silent()]
        if not self._control.is_set():
            silent.insert(0, "the control thread")
        if silent:
            return f"no answer from {', '.join(silent)} in {timeout_s:g} s"
        self._data.wait_for_acceptor()
        return None
