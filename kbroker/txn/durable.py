"""What is to be done when something is on disk.

The journal of a log directory writes the appends of its logs in one stream, so what was appended
first is durable first: one queue for each directory, of which only the head is watched. Without a
journal everything is durable when it is appended, and done at once.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
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
        self._queues: dict[int, deque[tuple[LogPort, int, Then]]] = {}
        self._running = False

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))

    def when(self, log: LogPort, offset: int, do: Then) -> None:
        """Have `do` called when all below `offset` is on disk, after what was queued before of the
        same directory."""
        self._queues.setdefault(log.directory, deque()).append((log, offset, do))
        self.run()

    def when_all(self, places: Sequence[tuple[LogPort, int]], do: Then) -> None:
        """The same when several logs are there, each up to its offset; called with whether all
        are."""
        left = len(places)

        def one(_: bool) -> None:
            nonlocal left
            left -= 1
            if not left:
                do(all(log.high_watermark >= offset for log, offset in places))

        for log, offset in places:
            self.when(log, offset, one)

    def run(self) -> None:
        """Do what is due."""
        if self._running:
            return
        self._running = True
        try:
            while any(self._run_one(queue) for queue in list(self._queues.values())):
                pass
        finally:
            self._running = False

    def next_due_ms(self) -> int | None:
        """The disk has no time of its own: `tell` wakes the control thread."""
        return None

    def run_due(self, _: int) -> None:
        """Do what is due, when the control thread has been woken."""
        self.run()

    def _run_one(self, queue: deque[tuple[LogPort, int, Then]]) -> bool:
        """Whether something was done, which may have put more into a queue that was looked at."""
        done = False
        while queue and self._is_settled(queue[0]):
            log, offset, do = queue.popleft()
            done = True
            _call(do, log.high_watermark >= offset)
        return done

    def _is_settled(self, entry: tuple[LogPort, int, Then]) -> bool:
        log, offset, _ = entry
        return log.high_watermark >= offset or self._tell(log, offset)

    def fail_all(self) -> None:
        """Call every step that waits with False, in the order of its directory's queue, and
        forget it: its request is not to wait for a log that is given up."""
        queues, self._queues = self._queues, {}
        for queue in queues.values():
            for _, _, do in queue:
                _call(do, False)


def _call(do: Then, durable: bool) -> None:
    try:
        do(durable)
    except Exception:
        _LOG.exception("a step that waited for the disk failed")
