"""A producer whose login is refused after its SASL session has ended."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbroker.client import Producer
from kbroker.client.errors import AuthenticationError
from tests.support import wire
from tests.support.sasl import SecuredBroker
from tests.support.waits import wait_for

USER = "carol"
SESSION_MS = 1_000
LOGIN = {
    "security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "SCRAM-SHA-256",
    "sasl_username": USER, "sasl_password": "right",
}  # fmt: skip


def test_refused_reauthentication_ends_no_producer(tmp_path: Path) -> None:
    """Once the password is right again, it sends what it was given meanwhile."""
    settings = {"connections.max.reauth.ms": str(SESSION_MS)}
    with SecuredBroker(tmp_path, settings) as broker:
        wire.create_topic(broker.port, "t", 1)
        broker.add_user(USER, "right")
        with Producer(bootstrap_servers=broker.sasl_bootstrap, linger_ms=0, **LOGIN) as producer:
            assert producer.send("t", b"0").result(30).offset == 0
            broker.add_user(USER, "another")
            made = producer.metrics()["failed-connection-total"]
            wait_for(
                "logins are refused",
                lambda: producer.metrics()["failed-connection-total"] > made + 2, 60,
            )  # fmt: skip
            waiting = producer.send("t", b"1")
            broker.add_user(USER, "right")
            assert waiting.result(60).offset == 1
            assert producer.send("t", b"2").result(60).offset == 2


def test_refused_first_login_is_raised(tmp_path: Path) -> None:
    with SecuredBroker(tmp_path) as broker:
        wire.create_topic(broker.port, "t", 1)
        producer = Producer(bootstrap_servers=broker.sasl_bootstrap, **LOGIN)
        with producer, pytest.raises(AuthenticationError):
            producer.send("t", b"0")
