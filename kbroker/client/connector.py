"""Connector: how a client connects to an address, and attempts that outlast a call.

The time limit of a call may be shorter than a connection takes, with TLS and SASL over a slow
network. The attempt belongs to the client: it goes on, and the next call gets the connection.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Iterable

from kbroker.client.address import Address
from kbroker.client.again import again
from kbroker.client.connection import Connection
from kbroker.client.errors import (
    ClosedError,
    ConnectError,
    KafkaError,
    RequestTimeoutError,
)
from kbroker.client.native_threads import Lock, thread
from kbroker.client.reach import Limits, Reach
from kbroker.ext.client_clock import monotonic
from kbroker.ext.client_flag import Flag
from kbroker.ext.greenlets import cooperative

__all__ = ["Connector"]

_log = logging.getLogger("kbroker.client.cluster")


class _Attempt:
    """result: the connection, or the exception that ended it."""

    def __init__(self) -> None:
        self.done = Flag()
        self.result: Connection | Exception | None = None


class _Attempts:
    """At most one attempt for each address, on a thread of its own."""

    def __init__(self) -> None:
        self._lock = Lock()  # guards what follows
        self._attempts: dict[Address, _Attempt] = {}
        self._closed = False

    def connect(
        self,
        address: Address,
        limit_s: float,
        connect: Callable[[Address], Connection],
        raise_last: Callable[[Address], None],
    ) -> Connection:
        """Return a connection. Raises RequestTimeoutError if there is none within limit_s, and what
        ended the attempt.

        connect: makes a connection within the client's own limits; called on another thread.
        raise_last: raises why an earlier attempt failed, if one did."""
        deadline = monotonic() + limit_s
        while True:
            attempt = self._attempt(address, connect)
            if not attempt.done.wait(max(deadline - monotonic(), 0.0)):
                raise_last(address)
                raise RequestTimeoutError(f"no connection to {address} within {limit_s:.3g} s")
            with self._lock:
                result, attempt.result = attempt.result, None
                if self._attempts.get(address) is attempt:
                    del self._attempts[address]
            if isinstance(result, KafkaError):
                raise again(result)
            if isinstance(result, Exception):
                raise result
            if result is not None and not result.closed:
                return result

    def _attempt(self, address: Address, connect: Callable[[Address], Connection]) -> _Attempt:
        with self._lock:
            attempt = self._attempts.get(address)
            if attempt is None:
                attempt = _Attempt()
                name = f"kbroker-connect-{address}"
                thread(self._run, name, connect, address, attempt).start()
                self._attempts[address] = attempt
            return attempt

    def _run(
        self, connect: Callable[[Address], Connection], address: Address, attempt: _Attempt
    ) -> None:
        result: Connection | Exception
        try:
            result = connect(address)
        except Exception as error:
            result = error
        with self._lock:
            if self._closed and isinstance(result, Connection):
                result.close()
            attempt.result = result
        attempt.done.set()

    def close(self) -> None:
        """Close connections that nobody uses; those that are still being made are closed then."""
        with self._lock:
            self._closed = True
            for attempt in self._attempts.values():
                if isinstance(attempt.result, Connection):
                    attempt.result.close()
            self._attempts.clear()


class Connector:
    """Connects; any thread. closed: set when the client is closed. counts: by Kafka's names."""

    def __init__(self, reach: Reach, limits: Limits, closed: Flag) -> None:
        self.counts = {"connection-creation-total": 0.0, "failed-connection-total": 0.0}
        self._reach = reach
        self._limits = limits
        self._closed = closed
        self._lock = Lock()  # guards what follows, and counts
        self._begun: weakref.WeakSet[Connection] = weakref.WeakSet()  # all, whoever owns them
        self._attempts = _Attempts()

    def connect_now(self, address: Address) -> Connection:
        """Connect as below, but raise ConnectError in the pause after an attempt that failed."""
        if self._reach.pause_s(address) > 0:
            raise ConnectError(f"{address} could not be reached a moment ago")
        return self.connect(address)

    def connect(self, address: Address) -> Connection:
        """Return an authenticated connection, within the limits of the calling thread's call. An
        attempt that takes longer goes on for the next call. That of a greenlet is made on a thread
        as well, as names, logins and tokens block."""
        if self._closed.wait(self._reach.pause_within(address, self._limits.left_s)):
            raise ClosedError("the client was closed")
        setup_s = self._reach.setup_timeout_s(address)
        left_s = self._limits.left_s(setup_s)
        if left_s < setup_s or cooperative():
            last = self._reach.raise_last
            return self._attempts.connect(address, left_s, self._connect, last)
        return self._connect(address)

    def _connect(self, address: Address) -> Connection:
        try:
            made = self._reach.connect(address, self._note, self._limits.left_s)
        except KafkaError as error:
            self._count("failed-connection-total")
            if not self._closed.is_set():
                self._reach.tell(address, error)
            raise
        self._count("connection-creation-total")
        _log.debug("connected to %s", address)
        return made

    def _note(self, connection: Connection) -> None:
        """It is about to agree on versions, which `interrupt` is to end."""
        with self._lock:
            self._begun.add(connection)
        if self._closed.is_set():
            connection.interrupt()

    def interrupt(self, own: Iterable[Connection]) -> None:
        """End all connections but the calling thread's own, once `closed` is set."""
        with self._lock:
            every = set(self._begun)
        for connection in every.difference(own):
            connection.interrupt()
        self._attempts.close()

    def _count(self, name: str) -> None:
        with self._lock:
            self.counts[name] += 1
