"""Logins as Apache Kafka and kbroker answer and close them, step by step.

Where kbroker differs on purpose: a SCRAM user that is not there is refused with its proof and not
before; what is asked in the middle of an exchange closes the connection without an answer of its
own; a renewal by another mechanism is told why.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support import sasl
from tests.support.sasl import SecuredBroker
from tests.support.secured_kafka import PASSWORDS, SecuredKafka
from tests.support.wire import API_VERSIONS, METADATA, ConnectionClosedError, WireConnection

pytestmark = pytest.mark.long

ALICE = f"\0alice\0{PASSWORDS['alice']}".encode()
CLOSED = "closed"
Steps = Callable[[WireConnection], Iterator[Any]]


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    with SecuredBroker(tmp_path_factory.mktemp("ours")) as one:
        yield one


def told(port: int, steps: Steps) -> list[Any]:
    """What each step gave, and in the end whether the connection is still served."""
    found: list[Any] = []
    with WireConnection(port) as one:
        try:
            found.extend(steps(one))
            one.call(METADATA, 9, {"topics": []})
            found.append("served")
        except ConnectionClosedError:
            found.append(CLOSED)
    return found


def handshakes(*mechanisms: str, version: int = 1) -> Steps:
    def steps(one: WireConnection) -> Iterator[Any]:
        for mechanism in mechanisms:
            yield sasl.handshake(one, mechanism, version)["error_code"]

    return steps


def messages(mechanism: str, *texts: bytes, version: int = 2) -> Steps:
    def steps(one: WireConnection) -> Iterator[Any]:
        yield sasl.handshake(one, mechanism)["error_code"]
        for text in texts:
            answer = sasl.step(one, text, version)
            yield answer["error_code"], answer["auth_bytes"], answer["error_message"] is None

    return steps


def bare(mechanism: str, *texts: bytes) -> Steps:
    def steps(one: WireConnection) -> Iterator[Any]:
        yield sasl.handshake(one, mechanism, 0)["error_code"]
        for text in texts:
            one.send_bytes(struct.pack(">i", len(text)) + text)
            yield one.receive_frame()

    return steps


def versions(*asked: int) -> Steps:
    def steps(one: WireConnection) -> Iterator[Any]:
        for version in asked:
            yield one.call(API_VERSIONS, version)["error_code"]

    return steps


def again(one: WireConnection) -> Iterator[Any]:
    yield sasl.plain(one, "alice", PASSWORDS["alice"])["error_code"]
    yield sasl.handshake(one, "PLAIN")["error_code"]
    yield sasl.step(one, ALICE)["error_code"]


def unasked(one: WireConnection) -> Iterator[Any]:
    yield sasl.step(one, ALICE)["error_code"]


def oversized(one: WireConnection) -> Iterator[Any]:
    yield sasl.handshake(one, "PLAIN")["error_code"]
    one.send_bytes(struct.pack(">i", 524_289))
    yield one.receive_frame()


EXCHANGES: dict[str, Steps] = {
    "nothing": lambda one: iter(()),
    "an unknown mechanism": handshakes("NTLM"),
    "an unknown mechanism, version 0": handshakes("NTLM", version=0),
    "two handshakes": handshakes("PLAIN", "PLAIN"),
    "versions, then nothing": versions(0),
    "versions twice": versions(0, 0),
    "a message before the handshake": unasked,
    "plain": messages("PLAIN", ALICE),
    "plain, version 0": messages("PLAIN", ALICE, version=0),
    "plain, then once more": messages("PLAIN", ALICE, ALICE),
    "a handshake after a login": again,
    "a wrong password": messages("PLAIN", b"\0alice\0no"),
    "nobody": messages("PLAIN", b"\0nobody\0no"),
    "no password": messages("PLAIN", b"\0alice\0"),
    "no user": messages("PLAIN", b"\0\0x"),
    "another authorization id": messages("PLAIN", b"bob" + ALICE),
    "the same authorization id": messages("PLAIN", b"alice" + ALICE),
    "too many parts": messages("PLAIN", ALICE + b"\0x"),
    "no parts": messages("PLAIN", b""),
    "bare": bare("PLAIN", ALICE),
    "bare and wrong": bare("PLAIN", b"\0alice\0no"),
    "no SCRAM": messages("SCRAM-SHA-256", b"no"),
    "SCRAM with a binding": messages("SCRAM-SHA-256", b"p=tls-unique,,n=alice,r=x"),
    "oversized": oversized,
}


@pytest.mark.parametrize("name", EXCHANGES)
def test_exchanges(secured_kafka: SecuredKafka, ours: SecuredBroker, name: str) -> None:
    steps = EXCHANGES[name]
    assert told(ours.sasl_port, steps) == told(secured_kafka.sasl_port, steps)


OPEN = ("an unknown mechanism", "plain", "a message before the handshake")


@pytest.mark.parametrize("name", OPEN)
def test_where_nobody_asks(secured_kafka: SecuredKafka, ours: SecuredBroker, name: str) -> None:
    steps = EXCHANGES[name]
    assert told(ours.port, steps) == told(secured_kafka.port, steps)
