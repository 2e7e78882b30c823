"""Limits of the HTTP listener: clients that do not read, do not send, or connect too often."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from kbroker.config.listeners import Endpoint
from kbroker.server import http as http_module
from kbroker.server.http import HttpListener
from kbroker.server.http_connections import (
    PER_ADDRESS,
    SEND_BYTES_PER_S,
    TOTAL,
    Connections,
)
from kbroker.server.http_message import Page, Request, text_page
from tests.support.waits import wait_for

DEADLINE_S = 60.0
LARGE = b"x" * (2 << 20)  # more than the buffers of both ends
GET_LARGE = b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Broker:
    """Pages of a test: a large page, a page that is made until `finish` is set, and others."""

    def __init__(self) -> None:
        self.finish = threading.Event()
        self.made: dict[str, int] = {}
        self.making = self.making_max = 0
        self._lock = threading.Lock()

    def serve(self, request: Request) -> Page:
        with self._lock:
            self.made[request.path] = self.made.get(request.path, 0) + 1
        if request.path == "/large":
            return Page(200, LARGE)
        if request.path == "/slow":
            with self._lock:
                self.making += 1
                self.making_max = max(self.making, self.making_max)
            self.finish.wait(DEADLINE_S)
            with self._lock:
                self.making -= 1
        return text_page("ok")


def threads() -> int:
    """How many connections have a thread."""
    return sum(thread.name == "http-serve" for thread in threading.enumerate())


@pytest.fixture
def broker() -> Broker:
    return Broker()


@pytest.fixture
def port(broker: Broker) -> Iterator[int]:
    listener = HttpListener(broker.serve)
    listener.bind([Endpoint("HTTP", "127.0.0.1", 0)], set_by_user=True)
    listener.start()
    yield int(listener.addresses[0].rpartition(":")[2])
    broker.finish.set()
    listener.stop()
    wait_for("its threads to end", lambda: not threads(), DEADLINE_S)


Connect = Callable[..., socket.socket]


@pytest.fixture
def connect(port: int) -> Iterator[Connect]:
    """Connect from an address of 127.0.0.0/8, with a small receive buffer, and send something."""
    with contextlib.ExitStack() as stack:

        def connect(address: str = "127.0.0.1", send: bytes = b"") -> socket.socket:
            connection = stack.enter_context(socket.socket())
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.settimeout(DEADLINE_S)
            connection.bind((address, 0))
            connection.connect(("127.0.0.1", port))
            connection.sendall(send)
            return connection

        yield connect


def status(connect: Connect, path: str, address: str = "127.0.0.1") -> int:
    """Status of the response to a request over a connection of its own."""
    with connect(address, f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()) as connection:
        return int(connection.recv(65_536).split()[1])


def is_closed(connection: socket.socket) -> bool:
    """Whether the broker has closed a connection from which nothing comes."""
    connection.setblocking(False)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True
    finally:
        connection.settimeout(DEADLINE_S)


def received(connection: socket.socket, at_most: int = 1 << 62) -> int:
    """How many bytes come until the end of the connection, or `at_most`."""
    count = 0
    with contextlib.suppress(ConnectionResetError):
        while count < at_most and (data := connection.recv(min(at_most - count, 65_536))):
            count += len(data)
    return count


def test_health_with_unread_responses_is_answered_in_time(
    broker: Broker, connect: Connect
) -> None:
    """From 100 addresses a client asks for a large page and reads none of it."""
    readers = [connect(f"127.0.1.{number}", GET_LARGE) for number in range(1, 101)]
    wait_for("the pages", lambda: broker.made.get("/large") == len(readers), DEADLINE_S)
    for path in ("/livez", "/readyz", "/metrics", "/livez"):
        begun = time.monotonic()
        assert status(connect, path) == 200
        assert time.monotonic() - begun < 1.0
    wait_for("the others' end", lambda: threads() <= TOTAL.connections, DEADLINE_S)


def test_health_with_pages_being_made_is_answered_in_time(
    broker: Broker, connect: Connect
) -> None:
    """None of these can be closed. Two pages are made at a time; the others wait."""
    slow = b"GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n"
    clients = [connect(f"127.0.1.{number}", slow) for number in range(1, TOTAL.pages + 1)]
    wait_for("pages being made", lambda: broker.making == http_module.PAGES_AT_ONCE, DEADLINE_S)
    wait_for("the others", lambda: threads() == TOTAL.pages, DEADLINE_S)
    wait_for("the limit", lambda: status(connect, "/metrics") == 503, DEADLINE_S)
    for path in ("/livez", "/readyz"):
        begun = time.monotonic()
        assert status(connect, path) == 200
        assert time.monotonic() - begun < 1.0
    broker.finish.set()
    assert all(client.recv(65_536).startswith(b"HTTP/1.1 200") for client in clients)
    assert broker.making_max == http_module.PAGES_AT_ONCE


def test_page_not_made_in_time_is_refused(
    broker: Broker, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_module, "_MAKE_S", 0.1)
    for _ in range(http_module.PAGES_AT_ONCE):
        connect("127.0.0.1", b"GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n")
    wait_for("pages being made", lambda: broker.making == http_module.PAGES_AT_ONCE, DEADLINE_S)
    begun = time.monotonic()
    assert status(connect, "/metrics") == 503
    assert time.monotonic() - begun < 20
    assert status(connect, "/livez") == 200


def test_slowest_reader_is_closed_for_a_new_request(broker: Broker, connect: Connect) -> None:
    """Not the oldest: all others of this address go on reading."""
    readers = [connect(send=GET_LARGE) for _ in range(PER_ADDRESS.pages)]
    wait_for("the pages", lambda: broker.made.get("/large") == len(readers), DEADLINE_S)
    slowest = readers.pop(len(readers) // 2)
    for reader in readers:
        assert received(reader, 1 << 20) == 1 << 20
    assert status(connect, "/metrics") == 200
    assert received(slowest) < len(LARGE)
    for reader in readers:
        assert received(reader, len(LARGE) - (1 << 20)) == len(LARGE) - (1 << 20)


def test_connections_of_one_address_are_limited(port: int, connect: Connect) -> None:
    """A client that connects 200 times closes its own connections, the oldest first."""
    other = connect("127.0.0.2")
    wait_for("its thread", lambda: threads() == 1, DEADLINE_S)
    flood = [connect("127.0.0.1") for _ in range(200)]
    for connection in flood[: -PER_ADDRESS.connections]:
        wait_for("its end", lambda own=connection: is_closed(own), DEADLINE_S)  # type: ignore[misc]
    wait_for("the rest", lambda: threads() == 1 + PER_ADDRESS.connections, DEADLINE_S)
    for connection in (other, *flood[-PER_ADDRESS.connections :]):
        assert not is_closed(connection)
        connection.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert connection.recv(65_536).startswith(b"HTTP/1.1 200")


def test_silent_connections_of_all_addresses_are_limited(port: int, connect: Connect) -> None:
    flood = [connect(f"127.0.1.{number % 20 + 1}") for number in range(200)]
    assert status(connect, "/livez") == 200
    for connection in flood[: -TOTAL.connections]:
        wait_for("its end", lambda own=connection: is_closed(own), DEADLINE_S)  # type: ignore[misc]
    wait_for("the rest", lambda: threads() < TOTAL.connections, DEADLINE_S)
    flood[-1].sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert flood[-1].recv(65_536).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("first", [b"", b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"])
def test_request_sent_slowly_ends_at_its_deadline(
    first: bytes, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each byte comes long before the deadline, as well in the second request of a connection."""
    monkeypatch.setattr(http_module, "_HEAD_S", 1.0)
    connection = connect(send=first)
    if first:
        assert connection.recv(65_536).startswith(b"HTTP/1.1 200")
    begun = time.monotonic()
    connection.sendall(b"GET / HTTP/1.1\r\nA: ")

    def closes() -> bool:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            connection.sendall(b"x")
        return is_closed(connection)

    wait_for("the end of the connection", closes, 20)
    assert time.monotonic() - begun > 0.9


def test_connection_without_a_request_is_closed(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_module, "_FIRST_S", 0.2)
    assert connect().recv(1) == b""


def test_response_that_is_not_read_ends_at_its_deadline(
    broker: Broker, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_module, "_BEHIND_S", 0.5)
    reader = connect(send=GET_LARGE)
    wait_for("the page", lambda: broker.made.get("/large") == 1, DEADLINE_S)
    wait_for("the end of its thread", lambda: not threads(), 20)
    assert received(reader) < len(LARGE)


def test_connection_behind_s_counts_bytes_at_the_rate() -> None:
    """Slow reading is not enough to stay; bytes ahead of the rate are not credited."""
    connections = Connections()
    with socket.socket() as sock:
        connection = connections.add(sock, "127.0.0.1")
        assert connection is not None
        connections.send(connection)
        connection.caught_up_s -= 10
        connections.sent(connection, 4 * SEND_BYTES_PER_S)
        assert 5.9 < connection.behind_s() < 7
        connections.sent(connection, 1 << 30)
        assert 0 <= connection.behind_s() < 1


def test_connection_closed_for_another_raises() -> None:
    connections = Connections()
    with contextlib.ExitStack() as stack:
        sockets = [
            stack.enter_context(socket.socket()) for _ in range(PER_ADDRESS.connections + 1)
        ]
        opened = [connections.add(sock, "127.0.0.1") for sock in sockets]
        first, second = opened[:2]
        assert first is not None and second is not None
        for use in (connections.wait, connections.send):
            use(second)
            with pytest.raises(ConnectionAbortedError):
                use(first)
        with pytest.raises(ConnectionAbortedError):
            connections.make(first, counts=False)
        connections.remove(first)
