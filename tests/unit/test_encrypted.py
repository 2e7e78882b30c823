"""TLS of the network threads: bytes in the clear, as they are read and sent."""

from __future__ import annotations

import contextlib
import os
import random
import ssl
import struct
from collections.abc import Iterator

import pytest

from kbroker.ext import testing_network as handlers
from tests.support.certificates import Authority, Identity
from tests.support.encrypted import VERSIONS, Memory, TlsClient, client_context, secured
from tests.support.engine import Client, frame
from tests.support.waits import wait_for
from tests.unit.test_network import expected, pairs

REGION_BYTES = 8 << 20


@pytest.fixture(scope="module")
def server(authority: Authority) -> Identity:
    return authority.issue("server")


@pytest.fixture(scope="module")
def regions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, bytes]]:
    path = tmp_path_factory.mktemp("regions") / "bytes"
    path.write_bytes(random.Random(1).randbytes(REGION_BYTES))
    fd = os.open(path, os.O_RDONLY)
    yield fd, path.read_bytes()
    os.close(fd)


@pytest.mark.parametrize("version", VERSIONS)
def test_answers_of_every_size(authority: Authority, server: Identity, version) -> None:
    with secured(server.pem) as one, TlsClient(one.port, client_context(authority, version)) as c:
        for at, size in enumerate((0, 1, 100, 16_383, 16_384, 16_385, 100_000, 3 << 20)):
            body = os.urandom(size)
            assert c.call(handlers.ECHO, at, body) == body
        assert one.engine.stats()["handshakes"] == 1


@pytest.mark.parametrize("version", VERSIONS)
def test_file_regions(authority: Authority, server: Identity, regions, version) -> None:
    """Between bytes of their own, many in a record, one over many records."""
    fd, content = regions
    chance = random.Random(5)
    with (
        secured(server.pem, fd) as one,
        TlsClient(one.port, client_context(authority, version)) as client,
    ):
        for wanted in (
            [(0, 10)],
            [(0, 0)],
            [(5, 0), (7, 3), (100, 0)],
            [(1000, 1 << 20), (0, 1), (123, 4567)],
            [(at * 100, 99) for at in range(300)],
            [(0, REGION_BYTES)],
            [(chance.randrange(1 << 20), chance.randrange(40_000)) for _ in range(100)],
        ):
            assert client.call(handlers.REGIONS, 1, pairs(*wanted)) == expected(content, *wanted)


def test_a_region_that_ends_early_closes(authority: Authority, server: Identity, regions) -> None:
    with (
        secured(server.pem, regions[0]) as one,
        TlsClient(one.port, client_context(authority)) as client,
    ):
        client.send(handlers.REGIONS, 1, pairs((REGION_BYTES - 1, 2)))
        with pytest.raises((EOFError, ssl.SSLEOFError, ConnectionResetError)):
            client.receive()
        one.said("shorter than announced")


def test_many_requests_in_one_write(authority: Authority, server: Identity, regions) -> None:
    """More than the broker reads at once, and records that wait in OpenSSL when the socket is
    empty: they are handled without another event. The answers are fewer than the broker keeps for
    who does not read."""
    fd, content = regions
    chance = random.Random(7)
    sent = []
    for at in range(1500):
        key = chance.choice((handlers.ECHO, handlers.REGIONS))
        body = pairs((chance.randrange(1 << 20), chance.randrange(2000)))
        if key == handlers.REGIONS:
            answer = expected(content, *struct.iter_unpack(">ii", body))
        else:
            body = answer = body * chance.randrange(1, 150)
        sent.append((frame(key, at, body), answer))
    with (
        secured(server.pem, fd, kbroker_network_read_bytes=4096) as one,
        TlsClient(one.port, client_context(authority)) as client,
    ):
        client.socket.sendall(b"".join(request for request, _ in sent))
        for at, (_, answer) in enumerate(sent):
            assert client.receive() == (at, answer)


def test_whoever_reads_slowly_gets_all(authority: Authority, server: Identity, regions) -> None:
    """A record that the socket takes in part is offered again as it was."""
    fd, content = regions
    wanted = [(0, 1 << 20), (77, 5), (4000, 300_000)]
    with (
        secured(server.pem, fd) as one,
        TlsClient(one.port, client_context(authority), receive_buffer=4096) as client,
    ):
        for at in range(5):
            client.send(handlers.REGIONS, at, pairs(*wanted))
        wait_for("the socket is full", lambda: one.engine.stats()["bytes_out"] > 0, 60)
        for at in range(5):
            assert client.receive() == (at, expected(content, *wanted))


def test_who_goes_away_in_the_middle_leaves_nothing(
    authority: Authority, server: Identity, regions
) -> None:
    handlers.counts()
    with secured(server.pem, regions[0]) as one:
        with TlsClient(one.port, client_context(authority), receive_buffer=4096) as client:
            for at in range(20):
                client.send(handlers.REGIONS, at, pairs((0, REGION_BYTES)))
            wait_for("sending", lambda: one.engine.stats()["bytes_out"] > 0, 60)
        wait_for("closed", lambda: one.engine.connections() == 0, 60)
        assert handlers.counts()[1] >= 1
        assert one.engine.stats()["ops_live"] == 0


def test_answers_leave_before_the_end_of_a_client_that_has_said_goodbye(
    authority: Authority, server: Identity
) -> None:
    context = client_context(authority)
    with secured(server.pem) as one, Client(one.port) as client:
        side = Memory(context)
        side.shake(client.socket)
        side.tls.write(frame(handlers.ECHO, 5, b"last"))
        with contextlib.suppress(ssl.SSLWantReadError):
            side.tls.unwrap()
        client.socket.sendall(side.outgoing.read())
        wait_for("closed", lambda: one.engine.connections() == 0, 60)
        assert one.engine.stats()["requests"] == 1
