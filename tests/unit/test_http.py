"""The HTTP listener alone: requests, responses, errors of sockets and threads."""

from __future__ import annotations

import contextlib
import errno
import http.client
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kbroker.config.listeners import Endpoint
from kbroker.errors import OperatorError
from kbroker.server import http as http_module
from kbroker.server.http import HttpListener
from kbroker.server.http_message import Page, Request, parse_head, text_page
from tests.support.waits import wait_for

HERE = Endpoint("HTTP", "127.0.0.1", 0)


def serve(request: Request) -> Page:
    if request.path == "/broken":
        raise RuntimeError("on purpose")
    return text_page(f"{request.method} {request.path} {request.headers.get('accept')}")


@pytest.fixture
def port() -> Iterator[int]:
    listener = HttpListener(serve)
    listener.bind([HERE], set_by_user=True)
    listener.start()
    yield int(listener.addresses[0].rpartition(":")[2])
    listener.stop()
    wait_for(
        "its threads to end",
        lambda: not any(thread.name.startswith("http") for thread in threading.enumerate()),
        60,
    )


def test_a_connection_is_kept(port: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    for method, path, status in (
        ("GET", "/a?b=c", 200), ("HEAD", "/a", 200), ("GET", "/broken", 500), ("GET", "/a", 200),
    ):  # fmt: skip
        connection.request(method, path, headers={"Accept": "x"})
        answer = connection.getresponse()
        body = answer.read()
        assert answer.status == status
        assert (body == b"") == (method == "HEAD")
        assert int(answer.headers["Content-Length"]) > 0
    assert body == b"GET /a x\n"
    connection.close()


@pytest.mark.parametrize(
    ("sent", "first"),
    [
        (b"nonsense\r\n\r\n", b"HTTP/1.1 400"),
        (b"GET / HTTP/2\r\n\r\n", b"HTTP/1.1 400"),
        (b"GET / HTTP/1.1\r\nno colon\r\n\r\n", b"HTTP/1.1 400"),
        (b"GET / HTTP/1.1\r\n folded: x\r\n\r\n", b"HTTP/1.1 400"),
        (b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc", b"HTTP/1.1 405"),
        (b"GET / HTTP/1.1\r\n\r\n", b"HTTP/1.1 400"),
        (b"GET / HTTP/1.1\r\nA: " + b"x" * 20_000, b"HTTP/1.1 431"),
        (b"GET / HTTP/1.0\r\nHost: localhost\r\n\r\n", b"HTTP/1.1 200"),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc", b"HTTP/1.1 200"),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", b"HTTP/1.1 200"),
        (bytes(range(256)) + b"\r\n\r\n", b"HTTP/1.1 400"),
    ],
)  # fmt: skip
def test_after_these_the_connection_ends(port: int, sent: bytes, first: bytes) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(sent)
        answer = b""
        while more := connection.recv(65_536):
            answer += more
    assert answer.startswith(first)


def test_a_request_in_pieces(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        for byte in b"GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n":
            connection.sendall(bytes([byte]))
        assert connection.recv(65_536).startswith(b"HTTP/1.1 200")


def test_silent_connection_delays_no_other(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=60):
        test_a_connection_is_kept(port)


def test_any_bytes_are_a_request_or_a_refusal() -> None:
    for head in (b"", b"\r\n\r\n", b" \r\n\r\n", b"GET  HTTP/1.1\r\n\r\n", b"\xff\x00\r\n\r\n"):
        assert isinstance(parse_head(head), Page)


def test_a_port_that_is_taken(caplog: pytest.LogCaptureFixture) -> None:
    """By another broker, mostly: only who named the port has to choose another."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = HERE._replace(port=other.getsockname()[1])
        with pytest.raises(OperatorError, match=r"kbroker\.http\.listeners"):
            HttpListener(serve).bind([taken], set_by_user=True)
        listener = HttpListener(serve)
        with caplog.at_level(logging.WARNING):
            listener.bind([taken], set_by_user=False)
        assert "cannot listen for HTTP" in caplog.text
        assert not listener.addresses
        listener.start()
        listener.stop()


def ask(port: int, timeout_s: float = 60) -> int:
    """The status of one page, over a connection of its own."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout_s)
    try:
        connection.request("GET", "/a")
        return connection.getresponse().status
    finally:
        connection.close()


class Failing:
    """What `broken` stands for fails until it is told not to; each failure is counted."""

    def __init__(self, broken: Callable[..., Any], error: Exception) -> None:
        self.broken = broken
        self.error = error
        self.failures = 0
        self.well = threading.Event()

    def __call__(self, *args: Any) -> Any:
        if self.well.is_set() or threading.current_thread().name != "http":
            return self.broken(*args)
        self.failures += 1
        raise self.error


@pytest.mark.parametrize(
    ("owner", "name", "error"),
    [
        (socket.socket, "accept", OSError(errno.EMFILE, "Too many open files")),
        (threading.Thread, "start", RuntimeError("can't start new thread")),
    ],
)
def test_what_fails_to_be_accepted_ends_nothing(
    *, owner: type, name: str, error: Exception, port: int, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    """No descriptor or thread is left, again and again: one line, no spinning, then answers."""
    failing = Failing(getattr(owner, name), error)

    def instead(*args: Any) -> Any:  # a function: it is bound
        return failing(*args)

    monkeypatch.setattr(owner, name, instead)
    begun = time.monotonic()

    def tried() -> bool:
        with contextlib.suppress(OSError, http.client.HTTPException):
            ask(port, 0.2)
        return failing.failures >= 3

    wait_for("three failures", tried, 60)
    assert failing.failures <= (time.monotonic() - begun) / http_module._ACCEPT_AGAIN_S + 1
    failing.well.set()
    assert ask(port) == 200
    assert caplog.text.count("HTTP connections wait") == 1
