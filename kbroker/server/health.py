"""Health of the broker, as /livez and /readyz report it.

Alive: both planes answer (kbroker.server.liveness); a broker that is not alive will not recover by
itself. Ready: alive, the log directory is online, all groups are loaded.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kbroker.group.runtime import GroupCoordinator
    from kbroker.server.liveness import Planes
    from kbroker.storage.manager import LogManager

_ANSWER_S: Final = 5.0
_GRACE_S: Final = 0.5  # from the end of a check until its result is known to all callers


class _Check:
    """One liveness check and its result, which several callers share."""

    def __init__(self) -> None:
        self.done = threading.Event()
        self.fault: str | None = "the health check failed; the log of the broker says why"


class Health:
    """Health checks. Any thread may call; a call takes at most _ANSWER_S and _GRACE_S."""

    def __init__(self, planes: Planes, logs: LogManager, groups: GroupCoordinator) -> None:
        """`planes` is used by this object alone."""
        self._planes = planes
        self._logs = logs
        self._groups = groups
        self._lock = threading.Lock()
        self._check: _Check | None = None  # while it runs

    def faults(self) -> list[str]:
        """Return why the broker is not alive; empty if it is."""
        fault = self._fault()
        return [] if fault is None else [fault]

    def unready(self) -> list[str]:
        """Return why clients should not be sent to this broker; empty if it is ready."""
        found = self.faults()
        if self._logs.failure is not None:
            found.append(f"the log directory is offline: {self._logs.failure}")
        if self._groups.loading:
            found.append("groups are being loaded")
        return found

    def _fault(self) -> str | None:
        """Run a check, or take the result of the check that runs already: calls that come while the
        broker does not answer end together and do not add up their timeouts."""
        with self._lock:
            check = self._check
            if check is None:
                own = self._check = _Check()
        if check is not None:
            in_time = check.done.wait(_ANSWER_S + _GRACE_S)
            return check.fault if in_time else f"no result of a health check in {_ANSWER_S:g} s"
        try:
            own.fault = self._planes.fault(_ANSWER_S)
        finally:
            with self._lock:
                self._check = None
            own.done.set()
        return own.fault
