"""A listener that asks who a client is, by frames: what gets in, what does not, what it costs."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbroker.client.scram import Scram
from tests.support import sasl, wire
from tests.support.rounds import rounds
from tests.support.sasl import SecuredBroker
from tests.support.secured_kafka import PASSWORDS
from tests.support.tally import Tally
from tests.support.waits import passes, wait_for
from tests.support.wire import API_VERSIONS, METADATA, ConnectionClosedError, WireConnection

ALICE = PASSWORDS["alice"]
FAILED = 58
SESSION_MS = 6000
SESSION = {
    "listener.name.sasl.plain.connections.max.reauth.ms": str(SESSION_MS),
    "kbroker.handshake.timeout.ms": "20000",
    "connection.failed.authentication.delay.ms": "300",
    "sasl.server.max.receive.size": "20000",
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    with SecuredBroker(tmp_path_factory.mktemp("sasl"), SESSION) as one:
        one.add_user("scram", "pw")
        yield one


@pytest.fixture
def connection(broker: SecuredBroker) -> Iterator[WireConnection]:
    with WireConnection(broker.sasl_port) as one:
        yield one


def serves(one: WireConnection) -> bool:
    return bool(one.call(METADATA, 9, {"topics": []})["brokers"])


def test_plain_and_scram_let_in_whom_they_know(broker: SecuredBroker) -> None:
    for version in (0, 1, 2):
        with WireConnection(broker.sasl_port) as one:
            assert one.call(API_VERSIONS, 0)["error_code"] == 0
            told = sasl.plain(one, "alice", ALICE, version)
            assert told["error_code"] == 0
            assert told.get("session_lifetime", SESSION_MS) == SESSION_MS
            assert serves(one)
    for mechanism in sasl.SCRAM:
        with WireConnection(broker.sasl_port) as one:
            assert sasl.scram(one, mechanism, "scram", "pw")["error_code"] == 0
            assert serves(one)


def test_bare_tokens(broker: SecuredBroker) -> None:
    with WireConnection(broker.sasl_port) as one:
        assert sasl.handshake(one, "SCRAM-SHA-512", 0)["error_code"] == 0
        client = Scram("sha512", "scram", "pw")
        one.send_bytes(struct.pack(">i", len(client.first())) + client.first())
        final = client.final(one.receive_frame())
        one.send_bytes(struct.pack(">i", len(final)) + final)
        client.verify(one.receive_frame())
        assert serves(one)
    with WireConnection(broker.sasl_port) as one:
        assert sasl.handshake(one, "PLAIN", 0)["error_code"] == 0
        one.send_bytes(struct.pack(">i", 8) + b"\0alice\0x")
        one.wait_closed()


def test_who_is_refused_is_told_late_and_closed(connection: WireConnection) -> None:
    began = time.monotonic()
    told = sasl.plain(connection, "alice", "wrong")
    assert (told["error_code"], told["auth_bytes"]) == (FAILED, b"")
    assert time.monotonic() - began >= 0.25
    connection.wait_closed()


@pytest.mark.parametrize("mechanism", ["PLAIN", *sasl.SCRAM])
def test_refusals_do_not_tell_who_is_there(broker: SecuredBroker, mechanism: str) -> None:
    """Neither by what is said nor by when."""
    took: dict[str, list[float]] = {"alice": [], "scram": [], "nobody": []}
    told = []
    for _ in range(3):
        for user, times in took.items():
            with WireConnection(broker.sasl_port) as one:
                began = time.monotonic()
                if mechanism == "PLAIN":
                    told.append(sasl.plain(one, user, "wrong"))
                else:
                    told.append(sasl.scram(one, mechanism, user, "wrong"))
                times.append(time.monotonic() - began)
    assert all(one == told[0] for one in told)
    assert min(map(min, took.values())) >= 0.25


def test_a_mechanism_that_is_not_enabled_is_answered_with_those_that_are(
    connection: WireConnection,
) -> None:
    told = sasl.handshake(connection, "GSSAPI")
    assert told["error_code"] == 33
    assert told["mechanisms"] == ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
    connection.wait_closed()


def test_every_request_before_it_is_known_who_asks_closes(
    broker: SecuredBroker, tally: Tally
) -> None:
    """All keys, in the oldest version and as garbage; nothing is answered but what is SASL's."""
    allowed = (API_VERSIONS, sasl.HANDSHAKE, sasl.AUTHENTICATE)
    keys = [key for key in (*range(100), 127, 128, 32767, -1, -2) if key not in allowed]
    for key in keys:
        with WireConnection(broker.sasl_port) as one:
            one.send_bytes(struct.pack(">ihhih", 10, key, 0, 1, -1))
            one.wait_closed()
    for junk in (b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\0\x01", b"\x60\x82\x02\x28" * 9):
        with WireConnection(broker.sasl_port) as one:
            one.send_bytes(junk)
            one.socket.shutdown(socket.SHUT_WR)
            one.wait_closed()
    tally("F27", tried=len(keys) + 3)


@pytest.mark.parametrize(
    "message",
    [
        b"", b"\0", b"\0\0", b"\0\0\0", b"alice", b"\0alice", b"\0alice\0",
        b"\0alice\0\0" + ALICE.encode(), b"\0alice\0" + ALICE.encode() + b"\0",
        b"\0alice\0" + ALICE.encode() + b"\0x", b"\0alice\0x\0" + ALICE.encode(),
        b"bob\0alice\0" + ALICE.encode(), b"\0\0alice\0" + ALICE.encode(),
        b"\0\0" + ALICE.encode(), b"\xff\0alice\0" + ALICE.encode(),
    ],
)  # fmt: skip
def test_plain_with_bytes_that_do_not_belong(
    connection: WireConnection, message: bytes, tally: Tally
) -> None:
    sasl.handshake(connection, "PLAIN")
    code = sasl.step(connection, message)["error_code"]
    tally("F27", tried=1, lost=int(code != FAILED))
    assert code == FAILED
    connection.wait_closed()


def test_steps_out_of_turn_close(broker: SecuredBroker) -> None:
    with WireConnection(broker.sasl_port) as one:
        one.send(sasl.AUTHENTICATE, 2, {"auth_bytes": b"\0alice\0" + ALICE.encode()})
        one.wait_closed()
    with WireConnection(broker.sasl_port) as one:
        sasl.handshake(one, "PLAIN")
        assert sasl.handshake(one, "PLAIN")["error_code"] == 34
        one.wait_closed()
    with WireConnection(broker.sasl_port) as one:
        sasl.handshake(one, "PLAIN")
        one.send(METADATA, 9, {"topics": []})
        one.wait_closed()
    with WireConnection(broker.sasl_port) as one:
        client = Scram("sha256", "scram", "pw")
        sasl.handshake(one, "SCRAM-SHA-256")
        sasl.step(one, client.first())
        assert sasl.step(one, client.first())["error_code"] == FAILED
        one.wait_closed()


def test_requests_behind_a_login_in_one_packet_are_served_as_its_user(
    connection: WireConnection,
) -> None:
    """And those behind one that fails are not looked at."""
    sasl.handshake(connection, "PLAIN")
    message = {"auth_bytes": b"\0alice\0" + ALICE.encode()}
    first = connection.send(sasl.AUTHENTICATE, 2, message)
    second = connection.send(METADATA, 9, {"topics": []})
    assert connection.receive(sasl.AUTHENTICATE, 2, first)["error_code"] == 0
    assert connection.receive(METADATA, 9, second)["brokers"]


def test_tokens_that_are_too_large(broker: SecuredBroker) -> None:
    with WireConnection(broker.sasl_port) as one:
        sasl.handshake(one, "PLAIN")
        one.send_bytes(struct.pack(">i", 20_001))
        one.wait_closed()
    with WireConnection(broker.sasl_port) as one:
        sasl.handshake(one, "PLAIN")
        message = b"\0alice\0" + b"x" * 19_900
        assert sasl.step(one, message)["error_code"] == FAILED


@pytest.mark.long
def test_a_login_that_trickles_in_is_cut_off_and_others_are_served(broker: SecuredBroker) -> None:
    """Connections that say nothing, and ones that say a byte now and then: all are gone when their
    time is over, and who comes meanwhile gets in."""
    slow = [WireConnection(broker.sasl_port) for _ in range(200)]
    for one in slow[:100]:
        one.send_bytes(struct.pack(">ih", 30, sasl.HANDSHAKE))
    began = time.monotonic()
    left = list(slow)

    def are_gone() -> bool:
        for one in list(left):
            try:
                if one in slow[:100]:
                    one.send_bytes(b"\0")
                one.socket.setblocking(False)
                gone = one.socket.recv(1) == b""
            except BlockingIOError:
                gone = False
            except (OSError, ConnectionClosedError):
                gone = True
            if gone:
                left.remove(one)
        return not left

    with WireConnection(broker.sasl_port) as honest:
        assert sasl.plain(honest, "alice", ALICE)["error_code"] == 0
        assert serves(honest)
    wait_for("all slow ones are gone", are_gone, 90, pause_s=0.5)
    assert time.monotonic() - began >= 19
    for one in slow:
        one.close()


def test_a_session_that_ends_and_one_that_is_renewed(broker: SecuredBroker) -> None:
    with WireConnection(broker.sasl_port) as one, WireConnection(broker.sasl_port) as other:
        assert sasl.plain(one, "alice", ALICE)["session_lifetime"] == SESSION_MS
        assert sasl.plain(other, "alice", ALICE)["error_code"] == 0
        passes(SESSION_MS / 2)
        assert serves(one)
        assert sasl.plain(one, "alice", ALICE)["error_code"] == 0
        passes(SESSION_MS / 2 + 300)
        assert serves(one)
        other.send(METADATA, 9, {"topics": []})
        other.wait_closed()


@pytest.mark.parametrize(("user", "password"), [("bob", PASSWORDS["bob"]), ("alice", "wrong")])
def test_a_session_is_renewed_as_the_same_user_only(
    connection: WireConnection, user: str, password: str
) -> None:
    sasl.plain(connection, "alice", ALICE)
    assert sasl.plain(connection, user, password)["error_code"] == FAILED
    connection.wait_closed()


def test_a_session_is_renewed_by_the_same_mechanism_only(connection: WireConnection) -> None:
    sasl.plain(connection, "alice", ALICE)
    assert sasl.handshake(connection, "SCRAM-SHA-256")["error_code"] == 0
    assert sasl.step(connection, b"n,,n=alice,r=x")["error_code"] == FAILED
    connection.wait_closed()


def test_a_login_where_none_is_asked_for(broker: SecuredBroker) -> None:
    """Over the open listener, and again where no session ends."""
    with WireConnection(broker.port) as one:
        assert sasl.handshake(one, "PLAIN")["error_code"] == 34
        assert sasl.step(one, b"x")["error_code"] == 34
        assert serves(one)
    with WireConnection(broker.sasl_port) as one:
        sasl.scram(one, "SCRAM-SHA-256", "scram", "pw")
        assert sasl.handshake(one, "SCRAM-SHA-256")["error_code"] == 34
        assert sasl.step(one, b"x")["error_code"] == 34
        assert serves(one)


@pytest.mark.parametrize("count", rounds(100, long=400, full=1000))
def test_guessing_is_slow_and_leaves_others_alone(
    broker: SecuredBroker, count: int, tally: Tally
) -> None:
    """P13: each guess costs its connection the delay; many at once hold up nobody."""
    for _ in range(count // 100):
        began = time.monotonic()
        guesses = [WireConnection(broker.sasl_port) for _ in range(100)]
        for one in guesses:
            sasl.handshake(one, "PLAIN")
        sent = [
            one.send(sasl.AUTHENTICATE, 2, {"auth_bytes": f"\0alice\0guess {number}".encode()})
            for number, one in enumerate(guesses)
        ]
        with WireConnection(broker.sasl_port) as honest:
            assert sasl.plain(honest, "alice", ALICE)["error_code"] == 0
        for one, number in zip(guesses, sent, strict=True):
            assert one.receive(sasl.AUTHENTICATE, 2, number)["error_code"] == FAILED
            one.wait_closed()
            one.close()
        tally("F27", tried=100, control=1)
        assert time.monotonic() - began >= 0.25
    passes(1100)  # with the first refusal of another second those that were not told are counted
    with WireConnection(broker.sasl_port) as one:
        assert sasl.plain(one, "alice", "guess again")["error_code"] == FAILED

    def is_told() -> bool:
        text = broker.log_text()
        return "more authentications were" in text or text.count("refused authentication") > 100

    wait_for("the refusals in the log", is_told, 60)
    assert "guess " not in broker.log_text()


def test_users_are_there_after_a_start_and_gone_when_deleted(tmp_path: Path) -> None:
    from kbroker.client.admin_client import Admin
    from kbroker.client.admin_users import ScramDeletion

    with SecuredBroker(tmp_path) as one:
        one.add_user("u", "first")
        one.stop()
        one.start()
        with WireConnection(one.sasl_port) as connection:
            assert sasl.scram(connection, "SCRAM-SHA-512", "u", "first")["error_code"] == 0
        one.add_user("u", "second")
        with WireConnection(one.sasl_port) as connection:
            assert sasl.scram(connection, "SCRAM-SHA-512", "u", "first")["error_code"] == FAILED
        with Admin(bootstrap_servers=one.bootstrap) as admin:
            admin.alter_scram_users([ScramDeletion("u", "SCRAM-SHA-512")]).checked()
        for mechanism, code in (("SCRAM-SHA-512", FAILED), ("SCRAM-SHA-256", 0)):
            with WireConnection(one.sasl_port) as connection:
                assert sasl.scram(connection, mechanism, "u", "second")["error_code"] == code
        assert wire.call_once(one.port, API_VERSIONS, 0)["error_code"] == 0


def test_logins_are_told_as_metrics(broker: SecuredBroker, connection: WireConnection) -> None:
    from kbroker.cli.scrape import scrape
    from tests.wire.test_metrics import address

    def told() -> list[float]:
        now = scrape(address(broker))
        stem = "kafka_server_socket_server_metrics_"
        return [now.total(f"{stem}{one}_total", listener="SASL")
                for one in ("successful_authentication", "failed_authentication")]  # fmt: skip

    before = told()
    sasl.plain(connection, "alice", ALICE)
    with WireConnection(broker.sasl_port) as other:
        sasl.plain(other, "alice", "wrong")
    assert [now - then for now, then in zip(told(), before, strict=True)] == [1, 1]
