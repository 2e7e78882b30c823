"""Sockets that a service manager has bound, given to the listeners that are meant.

A socket belongs to the listener whose name it bears (FileDescriptorName= of a .socket unit), else
to the one whose port it is bound to.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable

from kbroker.config.listeners import Listener
from kbroker.errors import OperatorError


def by_listener(
    inherited: Iterable[tuple[int, str]], listeners: Iterable[Listener]
) -> dict[str, int]:
    """Descriptor by name of the listener. Raises OperatorError for one that is nobody's."""
    names = {one.name for one in listeners}
    ports = {one.port: one.name for one in listeners}
    given: dict[str, int] = {}
    for fd, label in inherited:
        name = label.upper() if label.upper() in names else ports.get(port_of(fd), "")
        if not name or name in given:
            raise OperatorError(
                f"the socket {label or fd} that was handed over, port {port_of(fd)}, belongs to no "
                f"listener; there are {', '.join(sorted(names))}: give it one's name or port"
            )
        given[name] = fd
    return given


def port_of(fd: int) -> int:
    """The port that a listening TCP socket is bound to. Raises OperatorError for anything else."""
    try:
        with socket.socket(fileno=os.dup(fd)) as found:
            if found.type == socket.SOCK_STREAM and found.family in (
                socket.AF_INET,
                socket.AF_INET6,
            ):
                return int(found.getsockname()[1])
    except OSError:
        pass
    raise OperatorError(f"the descriptor {fd} that was handed over is no TCP socket")
