"""Whether the broker is well: what /livez, /readyz and a service manager's watchdog ask.

Alive: the control thread does what is posted to it, and the network half answers a request over a
connection of its own. A broker that is not alive will not recover by itself. Ready: alive, the
journal takes appends, all groups are loaded.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kbroker.config import BrokerConfig
    from kbroker.ext.data_plane import DataPlane
    from kbroker.group.runtime import GroupCoordinator

_ANSWER_S: Final = 5.0
# ApiVersions v0 with correlation id 1 and no client id.
_PING: Final = struct.pack(">ihhih", 10, 18, 0, 1, -1)
_PONG: Final = struct.Struct(">ii")


class Health:
    """Any thread may ask; an answer takes as long as the broker does, at most some seconds."""

    def __init__(
        self,
        post: Callable[[Callable[[], None]], None],
        data_plane: DataPlane,
        groups: GroupCoordinator,
        config: BrokerConfig,
        addresses: Sequence[str],
    ) -> None:
        """`addresses` as the run-file has them, NAME://HOST:PORT."""
        self._post = post
        self._data_plane = data_plane
        self._groups = groups
        self._config = config
        self._addresses = addresses

    def faults(self) -> list[str]:
        """Why the broker is not alive; empty where it is."""
        found = []
        answered = threading.Event()
        self._post(answered.set)
        if not answered.wait(_ANSWER_S):
            found.append(f"the control thread has not answered for {_ANSWER_S:g} s")
        if not self._network_answers():
            found.append(f"the network threads have not answered for {_ANSWER_S:g} s")
        return found

    def unready(self) -> list[str]:
        """Why clients should not be sent here; empty where they may."""
        found = self.faults()
        if self._data_plane.journal_error():
            found.append("the journal cannot be written: the log directory is offline")
        if self._groups.loading:
            found.append("groups are being loaded")
        return found

    def _network_answers(self) -> bool:
        if self._data_plane.engine.connections() >= self._config.integer("max.connections"):
            return True  # nobody is let in, which is as it should be
        host, _, port = self._addresses[0].partition("://")[2].rpartition(":")
        host = {"0.0.0.0": "127.0.0.1", "[::]": "::1"}.get(host, host.strip("[]"))
        try:
            with socket.create_connection((host, int(port)), _ANSWER_S) as connection:
                connection.sendall(_PING)
                answer = connection.recv(_PONG.size, socket.MSG_WAITALL)
        except OSError:
            return False
        return len(answer) == _PONG.size and _PONG.unpack(answer)[1] == 1
