"""What the data plane lets pass before a connection is known, and what the control thread makes of
one: the stages of SASL, without any mechanism."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

import pytest

from kbroker.ext.control import Request
from kbroker.ext.engine import SECURITY_PROTOCOLS, Engine
from tests.support.engine import Client, frame
from tests.support.waits import passes, wait_for

HANDSHAKE, VERSIONS, AUTHENTICATE, PING = 17, 18, 36, 100
KEYS = [(VERSIONS, 0, 4, 3), (HANDSHAKE, 0, 1, -1), (AUTHENTICATE, 0, 2, 2), (PING, 0, 1, -1)]
SASL = SECURITY_PROTOCOLS.index("SASL_PLAINTEXT")
WAIT_MS = 60_000


class Stand:
    """An engine with one SASL listener, whose control thread is the test."""

    def __init__(self, settings: dict[str, int]) -> None:
        self.engine = Engine({"num.network.threads": 1, "num.io.threads": 1} | settings)
        self.port = self.engine.listen("127.0.0.1", 0, "SASL", SASL)
        self.engine.set_api_versions({0: b"zero"}, KEYS)
        self.engine.start()

    def next(self, key: int, version: int = 0) -> Request:
        request = self.engine.next_request(WAIT_MS)
        assert request is not None
        assert (request.api_key, request.api_version) == (key, version)
        return request

    def log_in(self, client: Client, principal: int = 7, session_ms: int = 0) -> None:
        client.send(HANDSHAKE, 1, version=1)
        self.next(HANDSHAKE, 1).respond(b"")
        assert client.receive() == (1, b"")
        client.send(AUTHENTICATE, 2, b"token")
        request = self.next(AUTHENTICATE)
        request.identify(principal, session_ms)
        request.respond(b"well")
        assert client.receive() == (2, b"well")


@contextmanager
def stand(**settings: int) -> Iterator[Stand]:
    one = Stand({name.replace("_", "."): value for name, value in settings.items()})
    try:
        yield one
    finally:
        one.engine.stop(2000)


def said(one: Stand) -> str:
    return "\n".join(text for _, text in one.engine.next_log_lines())


def test_only_three_requests_pass_before_it_is_known_who_asks():
    with stand() as one:
        for key in (PING, 0, 3, 60, 127):
            with Client(one.port) as client:
                client.send(key, 1)
                assert client.is_closed()
                assert f"api key {key} before it said who it is" in said(one)
        with Client(one.port) as client:
            one.log_in(client)
            client.send(PING, 3, b"x")
            request = one.next(PING)
            assert (request.principal, request.body) == (7, b"x")
            request.respond(b"y")
            assert client.receive() == (3, b"y")
        assert one.engine.next_request(0) is None


def test_versions_may_be_asked_once_and_first():
    with stand() as one:
        with Client(one.port) as client:
            client.send(VERSIONS, 1, version=99)  # unknown: may be asked again
            assert client.receive()[1][:2] == struct.pack(">h", 35)
            assert client.call(VERSIONS, 2) == b"zero"
            client.send(VERSIONS, 3, version=3)
            assert client.is_closed()
        with Client(one.port) as client:
            client.send(HANDSHAKE, 1)
            one.next(HANDSHAKE).respond(b"")
            assert client.receive() == (1, b"")
            client.send(VERSIONS, 3, version=3)
            assert client.is_closed()


def test_what_is_remembered_comes_with_the_next_step_and_goes_with_the_connection():
    with stand() as one, Client(one.port) as client, Client(one.port) as other:
        client.send(HANDSHAKE, 1)
        request = one.next(HANDSHAKE)
        assert request.state == b""
        request.remember(b"first")
        request.remember(b"second\0")
        request.respond(b"")
        other.send(HANDSHAKE, 1)
        assert one.next(HANDSHAKE).state == b""
        for _ in range(2):
            client.send(AUTHENTICATE, 2)
            request = one.next(AUTHENTICATE)
            assert request.state == b"second\0"
            request.respond(b"")
        client.send(AUTHENTICATE, 3)
        request = one.next(AUTHENTICATE)
        request.remember(b"")
        request.respond(b"")
        client.send(AUTHENTICATE, 4)
        assert one.next(AUTHENTICATE).state == b""


def test_bare_tokens_are_frames_without_a_header_in_both_directions():
    with stand() as one, Client(one.port) as client:
        client.send(HANDSHAKE, 1)
        request = one.next(HANDSHAKE)
        request.remember(b"s", tokens=True)
        request.respond(b"")
        assert client.receive() == (1, b"")
        for token in (b"a token", b"", b"\0" * 40):
            client.socket.sendall(struct.pack(">i", len(token)) + token)
            request = one.next(AUTHENTICATE, -1)
            assert (request.body, request.client_id, request.state) == (token, None, b"s")
            request.respond(token[:1])
            assert client.receive_bytes(4) == struct.pack(">i", len(token[:1]))
            assert client.receive_bytes(len(token[:1])) == token[:1]
        client.socket.sendall(struct.pack(">i", 1) + b"x")
        request = one.next(AUTHENTICATE, -1)
        request.identify(9)
        request.respond(b"")
        assert client.receive_bytes(4) == bytes(4)
        client.send(PING, 5)
        assert one.next(PING).principal == 9


def test_who_is_refused_is_answered_and_closed_after_the_delay():
    with stand() as one:
        for body, delay_ms in ((b"no", 0), (b"no", 300), (None, 300), (None, 0)):
            with Client(one.port) as client:
                client.send(AUTHENTICATE, 1)
                request = one.next(AUTHENTICATE)
                began = time.monotonic()
                request.refuse(body, delay_ms)
                client.send(PING, 2)  # is not looked at
                if body is not None:
                    assert client.receive() == (1, body)
                assert client.is_closed()
                assert time.monotonic() - began >= delay_ms / 1000 - 0.05  # a turn's clock
        assert one.engine.next_request(0) is None


def test_who_goes_away_while_it_is_refused_leaves_nothing():
    with stand() as one:
        with Client(one.port) as client:
            client.send(AUTHENTICATE, 1)
            one.next(AUTHENTICATE).refuse(b"no", 10_000)
        with Client(one.port) as client:
            one.log_in(client)


@pytest.mark.parametrize("length", [101, 1 << 20, -1])
def test_frames_are_small_before_it_is_known_who_asks(length):
    with stand(sasl_server_max_receive_size=100) as one, Client(one.port) as client:
        client.socket.sendall(struct.pack(">i", length))
        assert client.is_closed()
        assert "sasl.server.max.receive.size is 100" in said(one)
    with stand(sasl_server_max_receive_size=100) as one, Client(one.port) as client:
        one.log_in(client)
        client.send(PING, 3, bytes(1000))
        assert len(one.next(PING).body) == 1000


TOKEN, SHARED = 512 << 10, 32 << 20
HOLD_TOO_MUCH = "clients that have not logged in hold too much memory"


def shaken(one: Stand, stack: ExitStack) -> Client:
    """A client that has named its mechanism."""
    client = stack.enter_context(Client(one.port))
    client.send(HANDSHAKE, 1, version=1)
    one.next(HANDSHAKE, 1).respond(b"")
    assert client.receive() == (1, b"")
    return client


@pytest.mark.parametrize("whole", [False, True])
def test_large_frames_before_a_login_share_a_bound(whole):
    """Whoever shows a token of an ordinary size is let in all the same, and large ones are taken
    again when the others are gone. `whole`: they wait for the control thread."""
    large = frame(AUTHENTICATE, 2, bytes(TOKEN - 100))
    with stand() as one, ExitStack() as stack:
        late = shaken(one, stack)
        held = [shaken(one, stack) for _ in range(SHARED // TOKEN - 1)]
        for client in held:
            client.socket.sendall(large if whole else large[:-1])
        there = len(held) * (len(large) - 1)
        wait_for("all of it is read", lambda: one.engine.stats()["bytes_in"] > there, 60)
        with suppress(ConnectionError):
            late.socket.sendall(large)
            assert late.is_closed()
        wait_for("it is told", lambda: HOLD_TOO_MUCH in said(one), 60)
        for _ in held if whole else ():
            one.next(AUTHENTICATE).close()
        with Client(one.port) as small:
            one.log_in(small)
        stack.close()
        wait_for("they are gone", lambda: one.engine.connections() == 0, 60)
        client = shaken(one, stack)
        client.socket.sendall(large)
        one.next(AUTHENTICATE).respond(b"well")
        assert client.receive() == (2, b"well")


def test_whoever_does_not_say_who_it_is_in_time_is_closed_whatever_it_sends():
    with stand(kbroker_handshake_timeout_ms=3000) as one:
        with Client(one.port) as quiet, Client(one.port) as slow, Client(one.port) as known:
            one.log_in(known)
            slow.send(HANDSHAKE, 1)
            one.next(HANDSHAKE).respond(b"")
            assert slow.receive() == (1, b"")
            try:
                for byte in frame(AUTHENTICATE, 2, bytes(4000)):
                    slow.socket.sendall(bytes([byte]))
                    passes(10)
            except OSError:
                pass
            assert slow.is_closed() and quiet.is_closed()
            known.send(PING, 3)
            one.next(PING).respond(b"")
            assert known.receive() == (3, b"")
        assert "kbroker.handshake.timeout.ms" in said(one)


def test_a_session_ends_unless_it_is_renewed():
    with stand() as one:
        with Client(one.port) as client:
            one.log_in(client, session_ms=20_000)
            client.send(PING, 3)
            one.next(PING).respond(b"")
            assert client.receive() == (3, b"")
            one.log_in(client, session_ms=200)  # renewed in time: another end
            passes(300)
            client.send(PING, 4)
            assert client.is_closed()
            assert "after its session has ended" in said(one)
        with Client(one.port) as client:
            one.log_in(client, session_ms=1)
            passes(20)
            one.log_in(client, principal=8)  # late, and yet: nothing but that passes
            client.send(PING, 3)
            assert one.next(PING).principal == 8


def test_a_session_is_renewed_once_a_second_at_most():
    """Within it, more often is for the control thread to refuse. A machine that is too slow to ask
    twice in a second tries again."""
    with stand() as one:
        for _ in range(20):
            with Client(one.port) as client:
                one.log_in(client, session_ms=60_000)
                began = time.monotonic()
                one.log_in(client, session_ms=60_000)
                client.send(HANDSHAKE, 5)
                one.next(HANDSHAKE).respond(b"too soon")
                assert client.receive() == (5, b"too soon")
                if time.monotonic() - began > 0.9:
                    continue
                client.send(PING, 6)  # and it stays open
                one.next(PING).respond(b"")
                assert client.receive() == (6, b"")
                return
        raise AssertionError("never in time")


def test_nothing_but_the_renewal_passes_while_a_session_is_renewed():
    with stand() as one, Client(one.port) as client:
        one.log_in(client, session_ms=60_000)
        client.send(HANDSHAKE, 3)
        one.next(HANDSHAKE).respond(b"")
        assert client.receive() == (3, b"")
        client.send(PING, 4)
        assert client.is_closed()


def test_the_uses_of_a_principal_are_its_connections_and_requests():
    with stand() as one, ExitStack() as stack:
        idle = one.engine.principals_idle
        assert idle([2, 3, 14, 1 << 20, (1 << 31) - 1]) == [2, 3, 14, 1 << 20, (1 << 31) - 1]
        first, second = (stack.enter_context(Client(one.port)) for _ in range(2))
        one.log_in(first, principal=14)
        one.log_in(second, principal=15)
        assert idle([2, 14, 15, 16]) == [2, 16], "by a token, it is the same one"
        first.socket.close()
        wait_for("one is gone", lambda: one.engine.connections() == 1, 60)
        assert idle([14]) == []
        second.send(PING, 3)
        request = one.next(PING)
        second.socket.close()
        assert idle([14]) == []
        request.respond(b"")
        wait_for("the last is gone", lambda: idle([14]) == [14], 60)
        third = stack.enter_context(Client(one.port))
        third.send(HANDSHAKE, 1, version=1)
        one.next(HANDSHAKE, 1).respond(b"")
        third.receive()
        third.send(AUTHENTICATE, 2, b"token")
        request = one.next(AUTHENTICATE)
        request.identify(20)
        assert idle([20]) == [], "from the moment on that it is said"
        request.identify(22)
        assert idle([20, 22]) == [20]
        request.respond(b"")
        assert third.receive() == (2, b"")
        assert idle([20, 22]) == [20]
