"""TLS of the network threads: handshakes, who the client is, certificates that change."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import threading
from pathlib import Path

import pytest

from kbroker.ext import testing_network as handlers
from kbroker.security.names import rfc2253
from tests.support.certificates import Authority, Identity
from tests.support.encrypted import (
    VERSIONS,
    Memory,
    TlsClient,
    client_context,
    identity,
    secured,
)
from tests.support.engine import Client, frame
from tests.support.waits import wait_for


@pytest.fixture(scope="module")
def server(authority: Authority) -> Identity:
    return authority.issue("server")


# --- handshakes -----------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_a_handshake_byte_by_byte(authority: Authority, server: Identity, version) -> None:
    """And the request behind it, byte by byte as well."""
    with secured(server.pem) as one, Client(one.port) as client:
        side = Memory(client_context(authority, version))
        done = False
        while not done:
            try:
                side.tls.do_handshake()
                side.tls.write(frame(handlers.ECHO, 9, b"piecemeal"))
                done = True
            except ssl.SSLWantReadError:
                pass
            for byte in side.outgoing.read():
                client.socket.sendall(bytes((byte,)))
            if not done:
                side.incoming.write(client.socket.recv(65536))
        got = b""
        while len(got) < 4 + 4 + 9:
            side.incoming.write(client.socket.recv(65536))
            with contextlib.suppress(ssl.SSLWantReadError):
                while True:
                    got += side.tls.read(65536)
        assert got == struct.pack(">ii", 13, 9) + b"piecemeal"


def test_nothing_is_held_for_half_a_first_record(authority: Authority, server: Identity) -> None:
    """Hundreds of them, a byte at a time; others are served, and the time limit ends them."""
    with secured(server.pem, kbroker_handshake_timeout_ms=3000) as one:
        halves = [socket.create_connection(("127.0.0.1", one.port)) for _ in range(300)]
        hello = Memory(client_context(authority)).hello()
        for half in halves:
            half.sendall(hello[:1])
        with TlsClient(one.port, client_context(authority)) as client:
            for half in halves:
                half.sendall(hello[1:100])
            assert client.call(handlers.ECHO, 1, b"served") == b"served"
            wait_for("they are closed", lambda: one.engine.connections() == 1, 60)
            one.said("kbroker.handshake.timeout.ms")
            assert client.call(handlers.ECHO, 2, b"still") == b"still"
        assert one.engine.stats()["handshakes"] == 1
        for half in halves:
            half.close()


def test_whoever_says_hello_and_no_more_is_closed(authority: Authority, server: Identity) -> None:
    with secured(server.pem, kbroker_handshake_timeout_ms=2000) as one:
        silent = [Client(one.port) for _ in range(50)]
        for client in silent:
            client.socket.sendall(Memory(client_context(authority)).hello())
        with TlsClient(one.port, client_context(authority)) as client:
            assert client.call(handlers.ECHO, 1, b"served") == b"served"
            wait_for("they are closed", lambda: one.engine.connections() == 1, 60)
        for client in silent:
            client.socket.close()


@pytest.mark.parametrize(
    ("first", "told"),
    [
        (struct.pack(">ihhih", 10, 18, 0, 1, -1), "speaks no TLS"),
        (b"GET / HTTP/1.1\r\n\r\n", "speaks no TLS"),
        (b"\x15\x03\x03\x00\x02\x02\x28", "speaks no TLS"),
        (b"\x16\x03\x01\xff\xff" + bytes(20_000), "TLS handshake: "),
        (b"\x16\x03\x01\x00\x10" + b"\xff" * 16, "TLS handshake: "),
        (b"\x16\x03\x01\x00\x04\x01\x00\x00\x00", "TLS handshake: "),
    ],
)
def test_what_is_no_tls_is_closed(server: Identity, first: bytes, told: str) -> None:
    with secured(server.pem) as one, Client(one.port) as client:
        client.socket.settimeout(60)
        with contextlib.suppress(OSError):
            client.socket.sendall(first)
        with contextlib.suppress(OSError):
            while client.socket.recv(4096):
                pass
        one.said(told)
        assert one.engine.stats()["handshakes_failed"] == 1
        with Client(one.plain) as other:
            assert other.call(handlers.ECHO, 1, b"served") == b"served"


def test_a_hello_that_is_cut_off(authority: Authority, server: Identity) -> None:
    hello = Memory(client_context(authority)).hello()
    with secured(server.pem) as one:
        for length in (1, 4, 5, len(hello) // 2, len(hello) - 1):
            with Client(one.port) as client:
                client.socket.sendall(hello[:length])
        with Client(one.port) as client:
            client.socket.sendall(hello)
            client.socket.shutdown(socket.SHUT_WR)
            with contextlib.suppress(OSError):
                while client.socket.recv(65536):
                    pass
        wait_for("closed", lambda: one.engine.connections() == 0, 60)
        one.said("went away in the middle of its first record")


def test_damaged_records_close(authority: Authority, server: Identity) -> None:
    for version in VERSIONS:
        with secured(server.pem) as one, Client(one.port) as client:
            side = Memory(client_context(authority, version))
            side.shake(client.socket)
            side.tls.write(frame(handlers.ECHO, 5, b"x" * 100))
            record = bytearray(side.outgoing.read())
            record[-1] ^= 1
            client.socket.sendall(record)
            with contextlib.suppress(OSError):
                while client.socket.recv(65536):
                    pass
            one.said("TLS: ")
            assert one.engine.stats()["requests"] == 0


def test_old_versions_are_refused(authority: Authority, server: Identity) -> None:
    with secured(server.pem) as one:
        one.context.speak("TLSv1.3", "TLSv1.3")
        with pytest.raises((ssl.SSLError, OSError)):
            TlsClient(one.port, client_context(authority, ssl.TLSVersion.TLSv1_2))
        with TlsClient(one.port, client_context(authority)) as client:
            assert client.call(handlers.ECHO, 1, b"new") == b"new"


def test_tls_stays_what_it_is_on_other_listeners(server: Identity) -> None:
    with secured(server.pem) as one, Client(one.plain) as client:
        assert client.call(handlers.ECHO, 1, b"plain") == b"plain"


# --- who the client is ----------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_the_subject_of_a_certificate_goes_to_the_control_thread(
    authority: Authority, server: Identity, version
) -> None:
    context = client_context(authority, version, authority.issue("alice").pem)
    with secured(server.pem) as one:
        one.context.trust_pem(authority.certificate.read_bytes(), "trust")
        one.context.ask_clients(required=True)
        with TlsClient(one.port, context) as client:
            client.send(handlers.CONTROL, 3, b"who")
            asked = one.engine.next_request(60_000)
            assert asked is not None
            assert (asked.api_key, asked.api_version, asked.listener) == (-2, 0, "SSL")
            assert rfc2253(asked.body) == "CN=alice"
            assert one.engine.next_request(50) is None, "a request before it is known who asks"
            asked.identify(7)
            asked.respond_nothing()
            request = one.engine.next_request(60_000)
            assert request is not None
            assert (request.api_key, request.principal) == (handlers.CONTROL, 7)
            request.respond(b"alice")
            assert client.receive() == (3, b"alice")
        with TlsClient(one.port, context) as client:
            asked = one.engine.next_request(60_000)
            assert asked is not None
            asked.close()
            with contextlib.suppress(OSError):
                assert client.is_closed()


@pytest.mark.parametrize("version", VERSIONS)
def test_who_shows_none_where_one_is_required(
    authority: Authority, server: Identity, version, tmp_path: Path
) -> None:
    stranger = Authority(tmp_path, "nobody").issue("stranger")
    expired = authority.issue("expired", days=-1)
    with secured(server.pem) as one:
        one.context.trust_pem(authority.certificate.read_bytes(), "trust")
        one.context.ask_clients(required=True)
        for store in (None, stranger.pem, expired.pem):
            with (
                pytest.raises((ssl.SSLError, OSError)),
                TlsClient(one.port, client_context(authority, version, store)) as client,
            ):
                client.socket.recv(1)
                raise ConnectionResetError
        wait_for("all failed", lambda: one.engine.stats()["handshakes_failed"] == 3, 60)
        one.said("certificate has expired")
        assert one.engine.next_request(0) is None


def test_a_certificate_may_be_left_out_where_it_is_requested(
    authority: Authority, server: Identity
) -> None:
    with secured(server.pem) as one:
        one.context.trust_pem(authority.certificate.read_bytes(), "trust")
        one.context.ask_clients(required=False)
        with TlsClient(one.port, client_context(authority)) as client:
            assert client.call(handlers.ECHO, 1, b"nobody") == b"nobody"


def test_sessions_are_resumed_and_certificates_remembered(
    authority: Authority, server: Identity
) -> None:
    """TLS 1.2, where Python can take a session over at once."""
    context = client_context(authority, ssl.TLSVersion.TLSv1_2, authority.issue("bob").pem)
    with secured(server.pem) as one:
        one.context.trust_pem(authority.certificate.read_bytes(), "trust")
        one.context.ask_clients(required=True)
        session = None
        for reused in (False, True):
            connected = socket.create_connection(("127.0.0.1", one.port))
            with context.wrap_socket(
                connected, server_hostname="localhost", session=session
            ) as wrapped:
                asked = one.engine.next_request(60_000)
                assert asked is not None
                assert rfc2253(asked.body) == "CN=bob"
                asked.identify(3)
                asked.respond_nothing()
                assert wrapped.session_reused is reused
                session = wrapped.session


# --- reload ---------------------------------------------------------------------------------------


def test_certificates_change_under_load(authority: Authority, server: Identity) -> None:
    """Handshakes see the old one or the new one, connections of before go on."""
    stores = [server.pem, authority.issue("other").pem]
    with secured(server.pem) as one:
        before = TlsClient(one.port, client_context(authority))
        seen: set[str] = set()
        failed: list[BaseException] = []
        ending = threading.Event()

        def connect() -> None:
            context = client_context(authority)
            try:
                while not ending.is_set() or len(seen) < 2:
                    with TlsClient(one.port, context) as client:
                        assert client.call(handlers.ECHO, 1, b"x") == b"x"
                        subject = client.socket.getpeercert()["subject"]
                        seen.add(subject[0][0][1])
            except BaseException as error:
                failed.append(error)

        threads = [threading.Thread(target=connect) for _ in range(2)]
        for thread in threads:
            thread.start()
        for at in range(60):
            one.engine.set_tls("SSL", identity(stores[at % 2]))
            assert before.call(handlers.ECHO, at, b"on") == b"on"
        ending.set()
        for thread in threads:
            thread.join(60)
        before.socket.close()
        assert not failed
        assert seen == {"server", "other"}
        with pytest.raises(ValueError, match="no listener NONE"):
            one.engine.set_tls("NONE", one.context)
