"""Whether the broker is well, as /livez and /readyz tell it.

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


class Health:
    """Any thread may ask; an answer takes as long as the broker does, at most some seconds."""

    def __init__(self, planes: Planes, logs: LogManager, groups: GroupCoordinator) -> None:
        """`planes` is this one's own."""
        self._planes = planes
        self._logs = logs
        self._groups = groups
        self._asking = threading.Lock()

    def faults(self) -> list[str]:
        """Why the broker is not alive; empty where it is."""
        with self._asking:
            fault = self._planes.fault(_ANSWER_S)
        return [] if fault is None else [fault]

    def unready(self) -> list[str]:
        """Why clients should not be sent here; empty where they may."""
        found = self.faults()
        if self._logs.failure is not None:
            found.append(f"the log directory is offline: {self._logs.failure}")
        if self._groups.loading:
            found.append("groups are being loaded")
        return found
