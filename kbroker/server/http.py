"""The HTTP listener: GET and HEAD of a few pages, for scrapers, orchestrators and people.

HTTP/1.1 with connections kept alive, no request bodies, and no page that changes anything. Python's
own server takes 30 ms to import, more than a fifth of the broker's start. One thread accepts, one
thread serves each connection. Both wait only for sockets, and hold the GIL for as long as a page
takes to make.

A health check must be answered while others misuse the listener: kbroker.server.http_connections
limits connections, every wait for a client has a deadline, and only PAGES_AT_ONCE other pages are
made at a time. If no descriptor or thread is left, accepting continues as soon as there is one.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterable
from typing import Final

from kbroker.config.listeners import Endpoint
from kbroker.errors import OperatorError
from kbroker.ext.engine import name_thread
from kbroker.ports import bound
from kbroker.printable import host_port
from kbroker.server.http_connections import Connection, Connections
from kbroker.server.http_host import HostCheck, unmapped
from kbroker.server.http_message import (
    HEAD_END,
    Page,
    Request,
    parse_head,
    response,
    text_page,
)

_LOG: Final = logging.getLogger("kbroker.http")

#: They are answered while all other pages wait.
HEALTH_PATHS: Final = ("/livez", "/readyz")
#: More threads that make pages would only take the GIL from the control thread.
PAGES_AT_ONCE: Final = 2
_BACKLOG: Final = 512  # if it is full, a probe takes a second to connect
_HEAD_BYTES_MAX: Final = 16_384
_READ_BYTES: Final = 4_096
# A write waits until a third of the buffer is free, so a large buffer would hide a slow reader's
# progress. It also limits what readers that do not read cost the kernel.
_SEND_BUFFER_BYTES: Final = 131_072
_FIRST_S: Final = 10.0  # from connecting to the first byte of a request
_IDLE_S: Final = 75.0  # between requests: longer than a minute between scrapes
_HEAD_S: Final = 10.0  # from the first byte of a request to its last
_MAKE_S: Final = 10.0  # until other pages are made
_BEHIND_S: Final = 30.0  # behind the slowest rate at which a response is sent
_ACCEPT_AGAIN_S: Final = 0.1
_LOG_EVERY_S: Final = 60.0
_BUSY: Final = text_page("too many pages are being made; try again later", 503)


class HttpListener:
    """Sockets and threads. `bind` and `start` once, `stop` once; `serve` makes the pages, on any
    thread."""

    def __init__(self, serve: Callable[[Request], Page]) -> None:
        self.addresses: list[str] = []
        self._serve = serve
        self._listening: list[tuple[socket.socket, HostCheck]] = []
        self._connections = Connections()
        self._makers = threading.Semaphore(PAGES_AT_ONCE)
        self._threads: list[threading.Thread] = []
        self._stopping = threading.Event()

    def bind(
        self, endpoints: Iterable[Endpoint], *, set_by_user: bool, names: Iterable[str] = ()
    ) -> None:
        """Listen. `names` are more host names of the broker, which clients may send as Host.

        An address in use is an error if the user named it, else a warning: all brokers of
        a machine have the same default. Raises OperatorError.
        """
        endpoints = list(endpoints)
        names = [*names, *(endpoint.host for endpoint in endpoints)]
        for endpoint in endpoints:
            try:
                listening = bound(endpoint.host, endpoint.port)
            except OSError as error:
                text = (
                    f"cannot listen for HTTP on {host_port(endpoint.host, endpoint.port)}: "
                    f"{error.strerror}; choose another with kbroker.http.listeners="
                )
                if set_by_user or error.errno != errno.EADDRINUSE:
                    raise OperatorError(text) from None
                _LOG.warning("%s", text)
                continue
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
            listening.listen(_BACKLOG)
            host, port = listening.getsockname()[:2]
            self._listening.append((listening, HostCheck(host, names)))
            self.addresses.append(f"http://{f'[{host}]' if ':' in host else host}:{port}")

    def start(self) -> None:
        """Begin to answer."""
        for listening in self._listening:
            thread = threading.Thread(target=self._accept, args=listening, name="http", daemon=True)
            self._threads.append(thread)
            thread.start()

    def stop(self) -> None:
        """Close everything; responses that are being sent are cut off."""
        self._stopping.set()
        for listening, _ in self._listening:
            with contextlib.suppress(OSError):
                listening.shutdown(socket.SHUT_RDWR)  # wakes the thread in accept
        for thread in self._threads:
            thread.join()
        for listening, _ in self._listening:
            listening.close()
        self._connections.shut_down()

    # ---- threads

    def _accept(self, listening: socket.socket, hosts: HostCheck) -> None:
        name_thread("kbroker-http")
        logged_at = -_LOG_EVERY_S
        failing = False
        while not self._stopping.is_set():
            try:
                self._admit(*listening.accept(), hosts)
                failing = False
            except ConnectionAbortedError:
                continue  # closed by the client before it was accepted
            except (OSError, RuntimeError) as error:  # no descriptor, or no thread
                now = time.monotonic()
                if not failing and not self._stopping.is_set() and now - logged_at >= _LOG_EVERY_S:
                    _LOG.error("HTTP connections wait: %s", error)
                    logged_at = now
                failing = True
                self._stopping.wait(_ACCEPT_AGAIN_S)

    def _admit(self, accepted: socket.socket, peer: tuple[str, int], hosts: HostCheck) -> None:
        """Start a thread for a new connection, or close it at a limit. Raises RuntimeError if
        there can be no more threads."""
        connection = self._connections.add(accepted, unmapped(peer[0]))
        if connection is None:
            accepted.close()
            return
        try:
            threading.Thread(
                target=self._converse, args=(connection, hosts), name="http-serve", daemon=True
            ).start()
        except RuntimeError:
            self._connections.remove(connection)
            accepted.close()
            raise

    def _converse(self, connection: Connection, hosts: HostCheck) -> None:
        name_thread("kbroker-http-s")
        first_byte_s = _FIRST_S
        try:
            while not self._stopping.is_set() and self._exchange(connection, hosts, first_byte_s):
                first_byte_s = _IDLE_S
        except (OSError, ValueError):
            pass  # closed by the client, at a deadline or to admit another
        except Exception:
            _LOG.exception("an HTTP connection failed")
        finally:
            self._connections.remove(connection)
            connection.socket.close()

    def _exchange(self, connection: Connection, hosts: HostCheck, first_byte_s: float) -> bool:
        """Answer one request; return False to close the connection."""
        head = self._read_head(connection, first_byte_s)
        if head is None:
            return False
        request = parse_head(head)
        if isinstance(request, Page):
            self._send(connection, response(request, keep=False, with_body=True))
            return False
        refusal = hosts.refusal(request)
        page = refusal or self._page(connection, request)
        keep = request.keep and page not in (refusal, _BUSY)
        with_body = request.method != "HEAD"
        self._send(connection, response(page, keep=keep, with_body=with_body))
        return keep

    def _read_head(self, connection: Connection, first_byte_s: float) -> bytes | None:
        """Read request line and headers; None at the end of the stream. Bytes after them are
        dropped: there are no bodies, and the connection ends after a request with bytes behind it.
        Raises TimeoutError."""
        head = b""
        until = time.monotonic() + first_byte_s
        self._connections.wait(connection)
        while HEAD_END not in head and len(head) <= _HEAD_BYTES_MAX:
            _set_timeout(connection, until - time.monotonic())
            received = connection.socket.recv(_READ_BYTES)
            if not received:
                return None
            if not head:
                until = time.monotonic() + _HEAD_S
                self._connections.wait(connection)
            head += received
        return head

    def _page(self, connection: Connection, request: Request) -> Page:
        if request.path in HEALTH_PATHS:
            self._connections.make(connection, counts=False)
            return self._served(request)
        if not self._connections.make(connection, counts=True):
            return _BUSY
        if not self._makers.acquire(timeout=_MAKE_S):
            return _BUSY
        try:
            return self._served(request)
        finally:
            self._makers.release()

    def _served(self, request: Request) -> Page:
        try:
            return self._serve(request)
        except Exception:
            _LOG.exception("GET %.200s failed", request.path)
            return text_page("the broker failed to make the page; its log says why", 500)

    def _send(self, connection: Connection, data: bytes) -> None:
        """Send a response, at SEND_BYTES_PER_S at least. Raises TimeoutError."""
        self._connections.send(connection)
        rest = memoryview(data)
        while rest:
            _set_timeout(connection, _BEHIND_S - connection.behind_s())
            count = connection.socket.send(rest)
            self._connections.sent(connection, count)
            rest = rest[count:]


def _set_timeout(connection: Connection, timeout_s: float) -> None:
    """Set the timeout of the next call. Raises TimeoutError if no time is left."""
    if timeout_s <= 0:
        raise TimeoutError
    connection.socket.settimeout(timeout_s)
