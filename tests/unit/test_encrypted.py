"""TLS of the network threads: bytes in the clear, as they are read and sent."""

from __future__ import annotations

import contextlib
import os
import random
import ssl
import struct
import threading
from collections.abc import Iterator

import pytest

from kbroker.ext import testing_network as handlers
from tests.support.certificates import Authority, Identity
from tests.support.encrypted import VERSIONS, Memory, Secured, TlsClient, client_context, secured
from tests.support.engine import Client, frame
from tests.support.waits import wait_for
from tests.unit.test_network import expected, pairs

REGION_BYTES = 8 << 20
BURST_BYTES = 128 << 10
KEPT_BYTES_MAX = 16 << 20
# A socket that takes little: the rest of one burst is kept by its connection.
NARROW = {"socket_send_buffer_bytes": 4096}
ONE_BURST = 120_000


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


def test_an_answer_given_up_leaves_no_region(
    authority: Authority, server: Identity, regions
) -> None:
    begun = pairs((5, 7000), (90, 20_000), (0, -1))
    with secured(server.pem, regions[0]) as one:
        for _ in range(10):
            with TlsClient(one.port, client_context(authority)) as client:
                client.socket.sendall(
                    frame(handlers.ECHO, 1, b"ahead") * 3 + frame(handlers.REGIONS, 2, begun)
                )
                for _ in range(3):
                    assert client.receive() == (1, b"ahead")
                with pytest.raises((EOFError, ssl.SSLEOFError, ConnectionResetError)):
                    client.receive()


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
    """Records that the socket takes in part are sent on where it stopped."""
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


@pytest.mark.parametrize("version", VERSIONS)
def test_a_send_takes_many_records(
    authority: Authority, server: Identity, regions, version
) -> None:
    fd, content = regions
    with (
        secured(server.pem, fd) as one,
        TlsClient(one.port, client_context(authority, version)) as client,
    ):
        before = one.engine.stats()["sends"]
        assert client.call(handlers.REGIONS, 1, pairs((0, 1 << 20))) == expected(
            content, (0, 1 << 20)
        )
        # Each burst, and as often again what the socket did not take of it.
        assert one.engine.stats()["sends"] - before <= 2 * ((1 << 20) // BURST_BYTES + 1)


@contextlib.contextmanager
def one_burst_kept(one: Secured, authority: Authority, **options) -> Iterator[TlsClient]:
    """A client whose answer is encrypted to its end, and by far not with the socket."""
    before = one.engine.stats()["bytes_out"]
    context = client_context(authority, **options)
    with TlsClient(one.port, context, receive_buffer=4096) as client:
        client.send(handlers.REGIONS, 1, pairs((0, ONE_BURST)))
        wait_for(
            "all is encrypted", lambda: one.engine.stats()["bytes_out"] - before >= ONE_BURST, 60
        )
        yield client


@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_kept_leaves_before_a_stop(
    authority: Authority, server: Identity, regions, version
) -> None:
    fd, content = regions
    with (
        secured(server.pem, fd, **NARROW) as one,
        one_burst_kept(one, authority, version=version) as client,
    ):
        stopping = threading.Thread(target=one.engine.stop, args=(60_000,))
        stopping.start()
        assert client.receive() == (1, expected(content, (0, ONE_BURST)))
        assert client.socket.recv(1) == b""
        stopping.join(60)
        assert not stopping.is_alive()


def test_what_is_kept_leaves_before_the_end_of_a_client_that_has_said_goodbye(
    authority: Authority, server: Identity, regions
) -> None:
    """The broker reads the goodbye while it keeps records; it sends what the socket still takes,
    then it closes."""
    with (
        secured(server.pem, regions[0], **NARROW) as one,
        one_burst_kept(one, authority) as client,
    ):
        client.socket.settimeout(0)
        with contextlib.suppress(ssl.SSLError):
            client.socket.unwrap()
        wait_for("closed", lambda: one.engine.connections() == 0, 60)
        assert one.engine.stats()["ops_live"] == 0


def test_the_next_answer_waits_for_what_is_kept(
    authority: Authority, server: Identity, regions
) -> None:
    fd, content = regions
    with (
        secured(server.pem, fd, **NARROW) as one,
        one_burst_kept(one, authority) as client,
    ):
        client.send(handlers.ECHO, 2, b"behind it")
        wait_for("it is handled", lambda: one.engine.stats()["requests"] == 2, 60)
        assert client.receive() == (1, expected(content, (0, ONE_BURST)))
        assert client.receive() == (2, b"behind it")


def test_who_goes_away_with_records_kept_leaves_nothing(
    authority: Authority, server: Identity, regions
) -> None:
    with secured(server.pem, regions[0], **NARROW) as one:
        for _ in range(10):
            with one_burst_kept(one, authority):
                pass
        wait_for("closed", lambda: one.engine.connections() == 0, 60)
        assert one.engine.stats()["ops_live"] == 0


def test_what_slow_readers_have_kept_for_them_is_bounded(
    authority: Authority, server: Identity, regions
) -> None:
    """Of a thread; beyond it, one record each."""
    count = 300
    context = client_context(authority)
    with (
        secured(server.pem, regions[0], **NARROW) as one,
        contextlib.ExitStack() as stack,
    ):
        for at in range(count):
            client = stack.enter_context(TlsClient(one.port, context, receive_buffer=4096))
            client.send(handlers.REGIONS, at, pairs((0, REGION_BYTES)))
        wait_for("all are answered", lambda: one.engine.stats()["requests"] == count, 60)
        encrypted = one.engine.stats()["bytes_out"]
        assert encrypted > KEPT_BYTES_MAX
        assert encrypted < KEPT_BYTES_MAX + count * BURST_BYTES // 3


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
