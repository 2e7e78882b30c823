"""Connections of the HTTP listener: limits, and which connection is closed at a limit.

A connection falls behind while it sends no request and while it reads its response more slowly than
SEND_BYTES_PER_S. At a limit the connection that is furthest behind is closed, so that a client
which does not read cannot keep others out. A connection whose page is being made is never closed.

Pages other than health checks have limits of their own, SPARE below the number of connections, so
that /livez and /readyz are answered at these limits. Each client address has its own limits: a
client that fills them closes its own connections.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from typing import Final, NamedTuple

_LOG: Final = logging.getLogger("kbroker.http")

SPARE: Final = 8
SEND_BYTES_PER_S: Final = 16_384  # a response of 1 MiB in a minute
_LOG_EVERY_S: Final = 60.0


class Limits(NamedTuple):
    """Most connections, and most pages other than health checks that are being made or sent."""

    connections: int
    pages: int


TOTAL: Final = Limits(64 + SPARE, 64)
PER_ADDRESS: Final = Limits(16 + SPARE, 16)


class Connection:
    """One accepted connection. The fields belong to Connections."""

    def __init__(self, sock: socket.socket, address: str) -> None:
        self.socket = sock
        self.address = address
        self.is_making = False  # a page
        self.has_page = False  # that counts, being made or sent
        self.caught_up_s = time.monotonic()

    def behind_s(self) -> float:
        """Return for how many seconds the client has made no progress, which is also how far it is
        behind SEND_BYTES_PER_S."""
        return time.monotonic() - self.caught_up_s


class Connections:
    """The open connections. Any thread may call. Methods that take a connection raise
    ConnectionAbortedError if it was closed to admit another."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: set[Connection] = set()
        self._log_after_s = 0.0

    def add(self, sock: socket.socket, address: str) -> Connection | None:
        """Admit a connection, at a limit in place of the connection furthest behind; None if all
        are having pages made."""
        connection = Connection(sock, address)
        with self._lock:
            for limits, of in ((PER_ADDRESS, address), (TOTAL, "")):
                same = self._of(of)
                if len(same) >= limits.connections and not self._close_one(same, address):
                    return None
            self._open.add(connection)
        return connection

    def remove(self, connection: Connection) -> None:
        """Forget a connection that its thread closes."""
        with self._lock:
            self._open.discard(connection)

    def wait(self, connection: Connection) -> None:
        """Note that the client is to send a request, or its rest, from now on."""
        with self._lock:
            self._check(connection)
            connection.is_making = connection.has_page = False
            connection.caught_up_s = time.monotonic()

    def make(self, connection: Connection, *, counts: bool) -> bool:
        """Note that a page is being made. `counts` for pages that are not health checks: False at
        their limit, if none of them is being sent, so that none can be closed."""
        with self._lock:
            self._check(connection)
            for limits, of in ((PER_ADDRESS, connection.address), (TOTAL, "")):
                pages = [other for other in self._of(of) if other.has_page]
                is_full = counts and len(pages) >= limits.pages
                if is_full and not self._close_one(pages, connection.address):
                    return False
            connection.is_making = True
            connection.has_page = counts
            return True

    def send(self, connection: Connection) -> None:
        """Note that a response is being sent from now on."""
        with self._lock:
            self._check(connection)
            connection.is_making = False
            connection.caught_up_s = time.monotonic()

    def sent(self, connection: Connection, count: int) -> None:
        """Note that the client's side took so many bytes. Bytes ahead of the rate are not credited,
        so that what buffers took at first does not hide a client that stopped reading."""
        with self._lock:
            self._check(connection)
            caught_up_s = connection.caught_up_s + count / SEND_BYTES_PER_S
            connection.caught_up_s = min(caught_up_s, time.monotonic())

    def shut_down(self) -> None:
        """End all connections; their threads close them."""
        with self._lock:
            for connection in self._open:
                _shut_down(connection.socket)

    def _of(self, address: str) -> list[Connection]:
        """List the connections of an address; of all addresses for an empty one."""
        return [other for other in self._open if not address or other.address == address]

    def _check(self, connection: Connection) -> None:
        if connection not in self._open:
            raise ConnectionAbortedError("closed to admit another connection")

    def _close_one(self, scope: list[Connection], address: str) -> bool:
        """Close the connection of `scope` that is furthest behind; False if there is none."""
        idle = [connection for connection in scope if not connection.is_making]
        slowest = max(idle, key=Connection.behind_s, default=None)
        self._log_full(slowest, address)
        if slowest is None:
            return False
        self._open.remove(slowest)
        _shut_down(slowest.socket)  # wakes its thread, which closes it
        return True

    def _log_full(self, slowest: Connection | None, address: str) -> None:
        """Log it once a minute: clients can cause it at any rate."""
        if time.monotonic() < self._log_after_s:
            return
        self._log_after_s = time.monotonic() + _LOG_EVERY_S
        limits = f"{TOTAL.connections} connections, {PER_ADDRESS.connections} of an address"
        if slowest is None:
            _LOG.warning(
                "HTTP limit reached (%s): refused a request of %s, since all connections are having"
                " pages made; scrape less often",
                limits, address,
            )  # fmt: skip
        else:
            _LOG.warning(
                "HTTP limit reached (%s): closed a connection of %s, %.1f s without progress, to "
                "admit a connection of %s; find out why these clients keep connections open",
                limits, slowest.address, slowest.behind_s(), address,
            )  # fmt: skip


def _shut_down(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
