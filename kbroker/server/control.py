"""The control thread: takes requests of the control lane and answers them.

It owns all control state (metadata, settings, the set of logs, producer ids, groups), so nothing of
that needs a lock. Between requests it runs what other threads have posted to it, timers that are
due, and slices of operations (kbroker.operations). None of that may take long: requests have a
reserved share of the thread, whatever operations there are. """

from __future__ import annotations

import gc
import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from kbroker.api.dispatch import Dispatcher
from kbroker.bounded_log import BoundedLog
from kbroker.clock import Clock
from kbroker.ext.engine import name_thread

if TYPE_CHECKING:
    from kbroker.ext.control import Request
    from kbroker.ext.data_plane import DataPlane
    from kbroker.operations import Operations
    from kbroker.server.disk_failure import DiskWatch

_LOG: Final = logging.getLogger("kbroker.server")
_DATA_PLANE_LOG: Final = logging.getLogger("kbroker.network")

_TICK_MS: Final = 1000
_NS_PER_MS: Final = 1_000_000
_POSTED_MS: Final = 5
_COLLECT_MS: Final = 60_000
_REQUESTS_MS: Final = 10
"""Between two slices of operations while requests wait."""


class Timed(Protocol):
    """Something with timers, or that waits for the disk: the coordinators."""

    def next_due_ms(self) -> int | None:
        """When it wants to be run (monotonic ms)."""

    def run_due(self, now_ms: int) -> None:
        """Do what is due."""


class Mailbox:
    """Callables that other threads post to the control thread, run in their order."""

    def __init__(self, wake: Callable[[], None]) -> None:
        """`wake` makes the control thread look here; it may be called from any thread."""
        self._wake = wake
        self._posted: deque[Callable[[], None]] = deque()

    def post(self, do: Callable[[], None]) -> None:
        """Have `do` run on the control thread; any thread may call."""
        self._posted.append(do)
        self._wake()

    def __bool__(self) -> bool:
        return bool(self._posted)

    def run(self, clock: Clock, most_ms: int = _POSTED_MS) -> None:
        """Run what was posted, for some milliseconds at most."""
        until_ms = clock.monotonic_ms() + most_ms
        while self._posted:
            do = self._posted.popleft()
            try:
                do()
            except Exception:
                _LOG.exception("a task of the control thread failed")
            if clock.monotonic_ms() >= until_ms:
                return


class FullCollection:
    """Looks for garbage in the whole heap about once a minute, while no operation is under way."""

    def __init__(self, operations: Operations, clock: Clock) -> None:
        self._operations = operations
        self._clock = clock
        self._due_ms = clock.monotonic_ms() + _COLLECT_MS

    def tick(self) -> None:
        """To be called about once a second."""
        if self._clock.monotonic_ms() >= self._due_ms and not len(self._operations):
            gc.collect()
            self._due_ms = self._clock.monotonic_ms() + _COLLECT_MS


class ControlThread:
    """The thread and its loop."""

    def __init__(  # noqa: PLR0917
        self,
        data_plane: DataPlane,
        dispatcher: Dispatcher,
        clock: Clock,
        mailbox: Mailbox,
        timed: Sequence[Timed],
        chores: Iterable[Callable[[], object]],
        watch: DiskWatch,
        operations: Operations,
    ) -> None:
        """`chores` run about once a second, between requests."""
        self._operations = operations
        self._slice_due_ms = 0
        self._engine = data_plane.engine
        self._dispatcher = dispatcher
        self._clock = clock
        self._mailbox = mailbox
        self._timed = timed
        self._chores = tuple(chores)
        self._stopping = False
        self.watch = watch
        self._lines = BoundedLog(_DATA_PLANE_LOG, clock)
        self._lost = 0  # of the data plane's lines, for which its ring had no room
        self._thread = threading.Thread(target=self._run, name="control", daemon=True)

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def stop(self) -> None:
        """End; the engine has stopped: no client waits for an answer."""
        self._stopping = True
        if self._thread.ident is not None:
            self._thread.join()
        self._pass_on()

    def _run(self) -> None:
        name_thread("kbroker-control")
        next_tick_ms = self._clock.monotonic_ms() + _TICK_MS
        while True:
            request = self._engine.next_request(self._wait_ms(next_tick_ms))
            self.watch.look()
            if request is not None:
                self._serve(request)
                # A kernel that preempts at ticks only (4 ms) lets the flusher and the network
                # threads wait behind a busy control thread: it yields after each request.
                os.sched_yield()
                caught_up_ms = request.received_ns // _NS_PER_MS
            elif self._stopping:
                return
            else:
                caught_up_ms = self._clock.monotonic_ms()
            self._mailbox.run(self._clock)
            self._run_timers(caught_up_ms)
            self._operations.run_due()
            self._run_operations(idle=request is None)
            if self._clock.monotonic_ms() >= next_tick_ms:
                self._do_chores()
                next_tick_ms = self._clock.monotonic_ms() + _TICK_MS

    def _run_operations(self, *, idle: bool) -> None:
        """Run a slice where no request waits, else once in a while: requests have two thirds of the
        thread when both want all of it."""
        if self._operations.ready and (idle or self._clock.monotonic_ms() >= self._slice_due_ms):
            self._operations.run_slice()
            self._slice_due_ms = self._clock.monotonic_ms() + _REQUESTS_MS

    def _serve(self, request: Request) -> None:
        try:
            self._dispatcher.serve(request)
        except Exception:
            _LOG.exception("API key %d v%d: no answer", request.api_key, request.api_version)
            request.close()

    def _wait_ms(self, next_tick_ms: int) -> int:
        """How long there is nothing to do but requests."""
        if self._mailbox or self._operations.ready:
            return 0
        due = [timed.next_due_ms() for timed in self._timed]
        due.append(self._operations.next_due_ms())
        until_ms = min((due_ms for due_ms in due if due_ms is not None), default=next_tick_ms)
        until_ms = min(until_ms, next_tick_ms)
        return max(until_ms - self._clock.monotonic_ms(), 0)

    def _run_timers(self, caught_up_ms: int) -> None:
        """What was due when the last request that was served came in: after a long one, the
        heartbeats that stand in the queue count before sessions end."""
        for timed in self._timed:
            try:
                timed.run_due(caught_up_ms)
            except Exception:
                _LOG.exception("the timers of a coordinator failed")

    def _do_chores(self) -> None:
        """Each in its turn, whatever became of those before it."""
        for chore in (self._pass_on, *self._chores):
            try:
                chore()
            except Exception:
                _LOG.exception("a chore of the control thread failed")

    def _pass_on(self) -> None:
        """Log lines of the data plane."""
        for level, text in self._engine.next_log_lines():
            self._lines.tell(level, "%s", text)
        lost = self._engine.stats()["log_lines_dropped"]
        self._lines.tell_dropped(lost - self._lost)
        self._lost = lost
