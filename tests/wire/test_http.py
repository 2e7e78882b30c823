"""The HTTP listener of a running broker, with clients that misuse it."""

from __future__ import annotations

import contextlib
import http.client
import socket
import time

import pytest

from kbroker import runfile
from tests.support.kbroker import KbrokerProcess

CLIENTS = 100
GET_METRICS = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture
def port(kbroker: KbrokerProcess) -> int:
    """The HTTP port of the session's broker."""
    info = runfile.running(kbroker.data_dir)
    assert info is not None
    return int(info.http[0].rpartition(":")[2])


def status(port: int, path: str, host: str = "localhost") -> int:
    """Status of the response to a request over a connection of its own."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    with contextlib.closing(connection):
        connection.request("GET", path, headers={"Host": host})
        return connection.getresponse().status


@pytest.mark.parametrize("addresses", [1, CLIENTS])
def test_livez_with_clients_that_do_not_read_is_answered(port: int, addresses: int) -> None:
    """Half of the clients ask for metrics and read nothing, half of them are silent."""
    with contextlib.ExitStack() as stack:
        for number in range(CLIENTS):
            client = stack.enter_context(socket.socket())
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.settimeout(60)
            client.bind((f"127.0.1.{number % addresses + 1}", 0))
            client.connect(("127.0.0.1", port))
            if number % 2:
                client.sendall(GET_METRICS)
        assert status(port, "/metrics") == 200
        for path in ("/livez", "/readyz", "/livez"):
            begun = time.monotonic()
            assert status(port, path) == 200
            assert time.monotonic() - begun < 1.0
    assert status(port, "/metrics") == 200


def test_host_of_a_web_site_is_refused(port: int) -> None:
    for path in ("/", "/metrics", "/status"):
        assert status(port, path, "evil.example") == 421
        assert status(port, path, f"127.0.0.1:{port}") == 200
