"""The HTTP listener: GET and HEAD of a few pages, for scrapers, orchestrators and people.

HTTP/1.1 with connections kept alive, no bodies of requests, nothing that changes anything. A server
of our own: Python's takes 30 ms to import, more than a fifth of the broker's start, and this needs
none of what it brings. One thread accepts, one serves each connection; both only ever wait for
sockets, and take the GIL for as long as a page takes to make.

Whoever asks whether the broker lives has to get through: where all places are taken, the connection
that has been waited for longest makes room, and where no descriptor or thread is left, accepting
goes on as soon as there is one.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import math
import socket
import threading
import time
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from kbroker.config.listeners import Endpoint
from kbroker.errors import OperatorError
from kbroker.ext.engine import name_thread
from kbroker.ports import bound

_LOG: Final = logging.getLogger("kbroker.http")

_CONNECTIONS_MAX: Final = 64
_BACKLOG: Final = 64
_HEAD_BYTES_MAX: Final = 16_384
_READ_BYTES: Final = 4_096
_FIRST_S: Final = 10.0  # nobody who wants something connects and is silent
_IDLE_S: Final = 75.0  # longer than a minute between scrapes
_SEND_S: Final = 30.0
_ACCEPT_AGAIN_S: Final = 0.1
_TELL_AGAIN_S: Final = 60.0
_END: Final = b"\r\n\r\n"
_REASONS: Final = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
}
_TEXT: Final = "text/plain; charset=utf-8"


class Request(NamedTuple):
    """What was asked for: the path without its query, and the headers by lower-case name."""

    method: str
    path: str
    headers: dict[str, str]
    keep: bool


class Page(NamedTuple):
    """An answer."""

    status: int
    body: bytes
    content_type: str = _TEXT


def text_page(text: str, status: int = 200) -> Page:
    """A line for people."""
    return Page(status, f"{text}\n".encode())


class HttpListener:
    """Sockets and threads. `bind` and `start` once, `stop` once; `serve` makes the pages, on any
    thread."""

    def __init__(self, serve: Callable[[Request], Page]) -> None:
        self.addresses: list[str] = []
        self._serve = serve
        self._listening: list[socket.socket] = []
        self._lock = threading.Lock()
        # Since when a request is waited for; infinite while one is answered.
        self._connected: dict[socket.socket, float] = {}
        self._threads: list[threading.Thread] = []
        self._stopping = threading.Event()

    def bind(self, endpoints: Iterable[Endpoint], *, set_by_user: bool) -> None:
        """Listen. An address that is taken is an error where the user named it, else a warning:
        several brokers on one machine have one default. Raises OperatorError."""
        for endpoint in endpoints:
            try:
                listening = bound(endpoint.host, endpoint.port)
            except OSError as error:
                text = (
                    f"cannot listen for HTTP on {endpoint.host}:{endpoint.port}: "
                    f"{error.strerror}; choose another with kbroker.http.listeners="
                )
                if set_by_user or error.errno != errno.EADDRINUSE:
                    raise OperatorError(text) from None
                _LOG.warning("%s", text)
                continue
            listening.listen(_BACKLOG)
            self._listening.append(listening)
            host, port = listening.getsockname()[:2]
            self.addresses.append(f"http://{f'[{host}]' if ':' in host else host}:{port}")

    def start(self) -> None:
        """Begin to answer."""
        for listening in self._listening:
            thread = threading.Thread(
                target=self._accept, args=(listening,), name="http", daemon=True
            )
            self._threads.append(thread)
            thread.start()

    def stop(self) -> None:
        """Close everything; answers that are being sent are cut off."""
        self._stopping.set()
        for listening in self._listening:
            with contextlib.suppress(OSError):
                listening.shutdown(socket.SHUT_RDWR)  # wakes who waits in accept
        for thread in self._threads:
            thread.join()
        for listening in self._listening:
            listening.close()
        with self._lock:
            for connection in self._connected:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    # ---- threads

    def _accept(self, listening: socket.socket) -> None:
        name_thread("kbroker-http")
        told_at = -_TELL_AGAIN_S
        failing = False
        while not self._stopping.is_set():
            try:
                self._welcome(listening.accept()[0])
                failing = False
            except ConnectionAbortedError:
                continue  # gone before its turn
            except (OSError, RuntimeError) as error:  # no descriptor, or no thread
                now = time.monotonic()
                if not failing and not self._stopping.is_set() and now - told_at >= _TELL_AGAIN_S:
                    _LOG.error("HTTP connections wait: %s", error)
                    told_at = now
                failing = True
                self._stopping.wait(_ACCEPT_AGAIN_S)

    def _welcome(self, connection: socket.socket) -> None:
        """A place and a thread for a new connection. Raises RuntimeError for want of one."""
        with self._lock:
            if len(self._connected) >= _CONNECTIONS_MAX and not self._make_place():
                connection.close()
                return
            self._connected[connection] = time.monotonic()
        try:
            threading.Thread(
                target=self._converse, args=(connection,), name="http-serve", daemon=True
            ).start()
        except RuntimeError:
            with self._lock:
                del self._connected[connection]
            connection.close()
            raise

    def _make_place(self) -> bool:
        """End the connection whose request is waited for longest; False where all are answered."""
        longest = min(self._connected, key=self._connected.__getitem__)
        if self._connected[longest] == math.inf:
            return False
        del self._connected[longest]  # its thread closes it
        with contextlib.suppress(OSError):
            longest.shutdown(socket.SHUT_RDWR)
        return True

    def _note(self, connection: socket.socket, waits_since: float) -> bool:
        """Whether the connection still has its place."""
        with self._lock:
            if connection not in self._connected:
                return False
            self._connected[connection] = waits_since
            return True

    def _converse(self, connection: socket.socket) -> None:
        name_thread("kbroker-http-s")
        patience_s = _FIRST_S
        try:
            while not self._stopping.is_set() and self._exchange(connection, patience_s):
                patience_s = _IDLE_S
        except (OSError, ValueError):
            pass  # it went away, or fell silent
        except Exception:
            _LOG.exception("an HTTP connection failed")
        finally:
            with self._lock:
                self._connected.pop(connection, None)
            connection.close()

    def _exchange(self, connection: socket.socket, patience_s: float) -> bool:
        """One request and its answer; False: the connection ends."""
        if not self._note(connection, time.monotonic()):
            return False
        connection.settimeout(patience_s)
        head = _read_head(connection)
        if head is None or not self._note(connection, math.inf):
            return False
        connection.settimeout(_SEND_S)
        request = parse_head(head)
        if isinstance(request, Page):
            connection.sendall(_answer(request, keep=False, with_body=True))
            return False
        try:
            page = self._serve(request)
        except Exception:
            _LOG.exception("GET %.200s failed", request.path)
            page = text_page("this broker failed to make the page; its log says why", 500)
        with_body = request.method != "HEAD"
        connection.sendall(_answer(page, keep=request.keep, with_body=with_body))
        return request.keep


def _read_head(connection: socket.socket) -> bytes | None:
    """Request line and headers; None at the end of the stream. What follows them is not wanted:
    there are no bodies, and the connection ends after a request that has another one behind it."""
    head = b""
    while _END not in head and len(head) <= _HEAD_BYTES_MAX:
        more = connection.recv(_READ_BYTES)
        if not more:
            return None
        head += more
    return head


def parse_head(head: bytes) -> Request | Page:
    """A request, or the answer to what is none."""
    text, end, rest = head.decode("latin-1").partition("\r\n\r\n")
    if not end:
        return text_page("these headers are too long", 431)
    first, *lines = text.split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or words[1][:1] != "/" or not words[2].startswith("HTTP/1."):
        return text_page("this is no request of HTTP/1", 400)
    method, target, version = words
    if method not in ("GET", "HEAD"):
        return text_page("there is nothing here but GET and HEAD", 405)
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip():
            return text_page("a header is not of the form name: value", 400)
        name = name.lower()
        headers[name] = f"{headers[name]},{value.strip()}" if name in headers else value.strip()
    told = headers.get("connection", "").lower()
    keep = "close" not in told if version == "HTTP/1.1" else "keep-alive" in told
    has_body = headers.get("content-length", "0") != "0" or "transfer-encoding" in headers
    keep = keep and not has_body and not rest
    return Request(method, target.partition("?")[0], headers, keep)


def _answer(page: Page, *, keep: bool, with_body: bool) -> bytes:
    lines = [
        f"HTTP/1.1 {page.status} {_REASONS[page.status]}",
        f"Content-Type: {page.content_type}",
        f"Content-Length: {len(page.body)}",
        "Cache-Control: no-store",
        f"Connection: {'keep-alive' if keep else 'close'}",
    ]
    if page.status == 405:
        lines.append("Allow: GET, HEAD")
    head = "\r\n".join(lines).encode() + _END
    return head + page.body if with_body else head
