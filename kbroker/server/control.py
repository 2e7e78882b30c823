"""The control thread: takes requests of the control lane one by one and answers them.

It owns all control state (metadata, settings, the set of logs, producer ids), so nothing of that
needs a lock. Between requests, and at least once a second, it passes on what the data plane had
to say.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kbroker.api.dispatch import Dispatcher
from kbroker.clock import Clock
from kbroker.ext.engine import name_thread

if TYPE_CHECKING:
    from kbroker.ext.control import Request
    from kbroker.ext.data_plane import DataPlane

_LOG: Final = logging.getLogger("kbroker.server")
_DATA_PLANE_LOG: Final = logging.getLogger("kbroker.network")

_TICK_MS: Final = 1000


class ControlThread:
    """The thread and its loop."""

    def __init__(
        self,
        data_plane: DataPlane,
        dispatcher: Dispatcher,
        clock: Clock,
        chores: Callable[[], object],
    ) -> None:
        """`chores` is called about once a second, between requests."""
        self._data_plane = data_plane
        self._engine = data_plane.engine
        self._dispatcher = dispatcher
        self._clock = clock
        self._chores = chores
        self._stopping = False
        self._journal_failed = False
        self._thread = threading.Thread(target=self._run, name="control", daemon=True)

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def stop(self) -> None:
        """End; the engine has stopped, so nobody waits for an answer."""
        self._stopping = True
        if self._thread.ident is not None:
            self._thread.join()
        self._pass_on()

    def _run(self) -> None:
        name_thread("kbroker-control")
        next_tick_ms = self._clock.monotonic_ms() + _TICK_MS
        while True:
            wait_ms = max(next_tick_ms - self._clock.monotonic_ms(), 0)
            request = self._engine.next_request(wait_ms)
            if request is not None:
                self._answer(request)
            elif self._stopping:
                return
            if self._clock.monotonic_ms() >= next_tick_ms:
                self._pass_on()
                self._do_chores()
                next_tick_ms = self._clock.monotonic_ms() + _TICK_MS

    def _answer(self, request: Request) -> None:
        try:
            body = self._dispatcher.answer(
                request.api_key,
                request.api_version,
                request.body,
                listener=request.listener,
                client_id=request.client_id,
                peer=request.peer,
            )
        except Exception:
            _LOG.exception("API key %d v%d: no answer", request.api_key, request.api_version)
            body = None
        if body is None:
            request.close()
        else:
            request.respond(body)

    def _do_chores(self) -> None:
        try:
            self._chores()
        except Exception:
            _LOG.exception("a chore of the control thread failed")

    def _pass_on(self) -> None:
        """Log lines of the data plane, and the end of the journal where it came to one."""
        for level, text in self._engine.next_log_lines():
            _DATA_PLANE_LOG.log(level, "%s", text)
        error = self._data_plane.journal_error()
        if error and not self._journal_failed:
            self._journal_failed = True
            _LOG.critical(
                "the journal cannot be written (errno %d): the log directory is offline, "
                "producing fails until the broker is started again",
                error,
            )
