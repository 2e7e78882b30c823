"""Host headers: a listener on loopback refuses names that a web site can have."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from kbroker.config.listeners import Endpoint
from kbroker.server.http import HttpListener
from kbroker.server.http_host import HostCheck
from kbroker.server.http_message import Request, text_page

BROKER_NAME = "Broker.example"


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    listener = HttpListener(lambda request: text_page(request.path))
    listener.bind([Endpoint("HTTP", "127.0.0.1", 0)], set_by_user=True, names=[BROKER_NAME])
    listener.start()
    yield int(listener.addresses[0].rpartition(":")[2])
    listener.stop()


def status_of(port: int, request: str) -> tuple[int, str]:
    """Send a request over a connection of its own; status and body of the response."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(f"{request}Connection: close\r\n\r\n".encode())
        received = b""
        while more := connection.recv(65_536):
            received += more
    head, _, body = received.decode().partition("\r\n\r\n")
    return int(head.split()[1]), body


@pytest.mark.parametrize(
    "host",
    [
        "localhost", "LOCALHOST:9308", "localhost.", "kbroker.localhost:80", "127.0.0.1",
        "127.0.0.1:9308", "[::1]:9308", "[::1]", "::1", "[fe80::1%25eth0]:9308", "10.1.2.3:9308",
        "broker.EXAMPLE", "broker.example:9308",
    ],
)  # fmt: skip
def test_host_of_loopback_listener_is_accepted(port: int, host: str) -> None:
    for path in ("/", "/metrics"):
        assert status_of(port, f"GET {path} HTTP/1.1\r\nHost: {host}\r\n")[0] == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example", "evil.example:9308", "127.0.0.1.evil.example", "localhost.evil.example",
        "notlocalhost", "localhost:x", "[::1]x", "[::1", "127.0.0.1,evil.example",
        "localhost\r\nHost: evil.example", "a" * 5000,
    ],
)  # fmt: skip
def test_host_of_web_site_is_refused(port: int, host: str) -> None:
    for path in ("/", "/metrics", "/livez"):
        status, body = status_of(port, f"GET {path} HTTP/1.1\r\nHost: {host}\r\n")
        assert status == 421
        assert "use localhost or 127.0.0.1" in body
        assert len(body) < 400


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_request_without_host_gets_probe_pages_only(port: int, version: str) -> None:
    for path in ("/livez", "/readyz", "/metrics"):
        assert status_of(port, f"GET {path} HTTP/{version}\r\n") == (200, f"{path}\n")
    for path in ("/", "/status", "/client-metrics"):
        status, body = status_of(port, f"GET {path} HTTP/{version}\r\n")
        assert status == 400
        assert "has no Host header" in body


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "10.1.2.3", "fe80::1", "::ffff:10.1.2.3"])
def test_listener_beyond_loopback_accepts_every_host(address: str) -> None:
    check = HostCheck(address, [])
    for headers in ({}, {"host": "kbroker.monitoring.svc:9308"}, {"host": "evil.example"}):
        assert check.refusal(Request("GET", "/status", headers, keep=True)) is None


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.1.1", "::1", "::ffff:127.0.0.1"])
def test_listener_on_any_loopback_address_checks_host(address: str) -> None:
    request = Request("GET", "/status", {"host": "evil.example"}, keep=True)
    refusal = HostCheck(address, [""]).refusal(request)
    assert refusal is not None and refusal.status == 421
