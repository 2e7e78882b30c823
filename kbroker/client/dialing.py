"""TCP connections to names that have several addresses (RFC 8305, "happy eyeballs").

Endpoints of a name are tried one after the other, a quarter of a second apart, and the first
connection wins. That an endpoint takes connections does not mean that a broker answers there, so
`Endpoints` remembers which ones worked and which ones failed.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import select
import socket
from collections.abc import Sequence
from typing import Any, NamedTuple

from kbroker.client.address import Address
from kbroker.client.errors import ConnectError
from kbroker.client.native_threads import native_poll, of_socket
from kbroker.ext.client_clock import monotonic

__all__ = ["Endpoint", "Endpoints", "dial", "resolve", "text_of"]

_STAGGER_S = 0.25  # RFC 8305, Connection Attempt Delay


class Endpoint(NamedTuple):
    """One address of a name. where: as sockets take it."""

    family: int
    where: tuple[Any, ...]


def text_of(error: OSError) -> str:
    """Return what happened, without the number."""
    return error.strerror or str(error) or type(error).__name__


def resolve(address: Address) -> list[Endpoint]:
    """Return the endpoints of a name in the order of the system, IPv6 and IPv4 in turn. Raises
    ConnectError."""
    try:
        found = of_socket("getaddrinfo")(address.host, address.port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise ConnectError(f"cannot reach {address}: {text_of(error)}") from error
    except (OverflowError, ValueError) as error:  # no port, or no name, of those that brokers tell
        raise ConnectError(f"cannot reach {address}: {error}") from error
    every = list(dict.fromkeys(Endpoint(family, where) for family, _, _, _, where in found))
    first = [each for each in every if each.family == every[0].family]
    other = [each for each in every if each.family != every[0].family]
    pairs = itertools.zip_longest(first, other)
    return [each for pair in pairs for each in pair if each is not None]


class Endpoints:
    """Endpoints of names in the order in which to try them. Any thread."""

    def __init__(self) -> None:
        self._rank: dict[tuple[Address, Endpoint], int] = {}

    def of(self, address: Address) -> list[Endpoint]:
        """Return those of a name: what worked last first, what failed last. Raises ConnectError."""
        return sorted(resolve(address), key=lambda each: self._rank.get((address, each), 0))

    def worked(self, address: Address, endpoint: Endpoint) -> None:
        """A broker has answered there."""
        self._rank[address, endpoint] = -1

    def failed(self, address: Address, endpoint: Endpoint) -> None:
        """Nobody has answered there, or nobody who could be talked to."""
        self._rank[address, endpoint] = 1


def dial(
    address: Address, endpoints: Sequence[Endpoint], timeout_s: float
) -> tuple[socket.socket, Endpoint]:
    """Connect to the endpoint that answers first. Raises ConnectError with the reason of the first
    one that failed."""
    try:
        return _Dial(endpoints).run(monotonic() + timeout_s)
    except TimeoutError as error:
        raise ConnectError(f"no answer from {address} within {timeout_s:.3g} s") from error
    except ConnectionRefusedError as error:
        raise ConnectError(f"no broker listens on {address}; `kbroker start` runs one") from error
    except OSError as error:
        raise ConnectError(f"cannot reach {address}: {text_of(error)}") from error


class _Dial:
    """Attempts at several endpoints at once."""

    def __init__(self, endpoints: Sequence[Endpoint]) -> None:
        self._waiting = list(endpoints)
        self._pending: dict[int, tuple[socket.socket, Endpoint]] = {}
        self._failure: OSError | None = None
        self._poll = native_poll()

    def run(self, deadline: float) -> tuple[socket.socket, Endpoint]:
        """Return the first connection; the others are closed."""
        next_s = monotonic()
        try:
            while self._waiting or self._pending:
                now = monotonic()
                if now >= deadline:
                    raise TimeoutError
                if self._waiting and (now >= next_s or not self._pending):
                    self._begin(self._waiting.pop(0))
                    next_s = now + _STAGGER_S
                until = min(deadline, next_s) if self._waiting else deadline
                for fd, _ in self._poll.poll(max(until - monotonic(), 0.0) * 1e3 + 1):
                    found = self._end(fd)
                    if found is not None:
                        return found
                    next_s = now  # the next one has no reason to wait
        finally:
            for made, _ in self._pending.values():
                made.close()
        failure, self._failure = self._failure, None
        assert failure is not None
        try:
            raise failure
        finally:
            del failure  # its traceback has this frame

    def _begin(self, endpoint: Endpoint) -> None:
        try:
            made = of_socket("socket")(endpoint.family, socket.SOCK_STREAM)
        except OSError as error:
            self._failure = self._failure or error
            return
        self._pending[made.fileno()] = made, endpoint
        made.setblocking(False)
        try:
            with contextlib.suppress(BlockingIOError):
                made.connect(endpoint.where)
            self._poll.register(made, select.POLLOUT)
        except OSError as error:
            self._failure = self._failure or error
            del self._pending[made.fileno()]
            made.close()

    def _end(self, fd: int) -> tuple[socket.socket, Endpoint] | None:
        """Return the connection, if it stands."""
        made, endpoint = self._pending[fd]
        self._poll.unregister(fd)
        code = made.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        del self._pending[fd]
        if code == 0:
            return made, endpoint
        made.close()
        self._failure = self._failure or OSError(code, os.strerror(code))
        return None
