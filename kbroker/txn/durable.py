"""What is to be done when something is on disk.

The journal writes the appends of all logs in one stream, so what was appended first is durable
first: one queue, of which only the head is watched. Without a journal everything is durable when it
is appended, and done at once.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Final

from kbroker.storage.manager import LogPort

_LOG: Final = logging.getLogger("kbroker.txn")

Tell = Callable[[LogPort, int], bool]
"""Wake the control thread when the log is durable up to an offset, or never will be (True: that is
so already); kbroker.ext.data_plane.DataPlane.tell_control."""

Then = Callable[[bool], object]
"""Called with whether it is durable; if not, the log cannot be written any more."""


class Durable:
    """Not thread-safe: the control thread's."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._queue: deque[tuple[LogPort, int, Then]] = deque()
        self._running = False

    def __len__(self) -> int:
        return len(self._queue)

    def when(self, log: LogPort, offset: int, do: Then) -> None:
        """Have `do` called when all below `offset` is on disk, after what was queued before."""
        self._queue.append((log, offset, do))
        self.run()

    def run(self) -> None:
        """Do what is due."""
        if self._running:
            return
        self._running = True
        try:
            while self._queue and self._is_settled(self._queue[0]):
                log, offset, do = self._queue.popleft()
                try:
                    do(log.high_watermark >= offset)
                except Exception:
                    _LOG.exception("a step of a transaction failed")
        finally:
            self._running = False

    def _is_settled(self, entry: tuple[LogPort, int, Then]) -> bool:
        log, offset, _ = entry
        return log.high_watermark >= offset or self._tell(log, offset)

    def clear(self) -> None:
        """Forget all."""
        self._queue.clear()
