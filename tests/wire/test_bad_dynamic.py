"""Settings made at run time that have gone bad: the next start goes on with the static ones."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support import sasl, wire
from tests.support.certificates import Authority, Identity
from tests.support.kbroker import KbrokerProcess
from tests.support.sasl import SecuredBroker
from tests.support.secured_kafka import PASSWORDS
from tests.support.wire import API_VERSIONS, INCREMENTAL_ALTER_CONFIGS, WireConnection

StartBroker = Callable[..., KbrokerProcess]
STORE = "listener.name.ssl.ssl.keystore.location"
JAAS = "listener.name.sasl.plain.sasl.jaas.config"
SET, DELETE = 0, 1


def alter(broker: KbrokerProcess, name: str, value: str | None, node: str = "1") -> dict[str, Any]:
    change = {"name": name, "value": value, "config_operation": SET if value else DELETE}
    resource = {"resource_type": 4, "resource_name": node, "configs": [change]}
    answer = wire.call_once(broker.port, INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource]})
    return dict(answer["responses"][0])


def shown(broker: KbrokerProcess, authority: Authority) -> str:
    """The serial number of the certificate that a client sees."""
    trust = ssl.create_default_context(cafile=str(authority.certificate))
    with WireConnection(broker.ports["SSL"], tls=trust) as connection:
        assert connection.call(API_VERSIONS, 0)["error_code"] == 0
        found = connection.socket.getpeercert()  # type: ignore[attr-defined]
        return str(found["serialNumber"])


def lets_in(broker: SecuredBroker) -> bool:
    """Whether the users are those of the static settings."""
    with WireConnection(broker.sasl_port) as one:
        return bool(sasl.plain(one, "alice", PASSWORDS["alice"])["error_code"] == 0)


def copied(made: Identity, path: Path) -> Path:
    path.write_bytes(made.pem.read_bytes())
    return path


def test_a_key_store_that_is_gone(
    start_kbroker: StartBroker, authority: Authority, tmp_path: Path
) -> None:
    static = copied(authority.issue("one"), tmp_path / "static.pem")
    other = copied(authority.issue("one"), tmp_path / "other.pem")
    broker = start_kbroker({"ssl.keystore.location": str(static)}, listeners=("SSL",))
    first = shown(broker, authority)
    assert alter(broker, STORE, str(other))["error_code"] == 0
    second = shown(broker, authority)
    assert second != first
    broker.stop()
    other.unlink()
    broker.start()
    assert f"{STORE}, set at run time, cannot be used and is passed over" in broker.log_text()
    assert shown(broker, authority) == first
    assert alter(broker, "log.retention.ms", "100000", node="")["error_code"] == 0
    refused = alter(broker, "log.cleaner.threads", "2")
    assert refused["error_code"] == 42 and f"{STORE} {other}: No such" in refused["error_message"]
    assert shown(broker, authority) == first
    broker.stop()
    static_bytes = static.read_bytes()
    static.unlink()
    told = f"kbroker: listener SSL: ssl.keystore.location {static}"
    with pytest.raises(AssertionError, match=told):
        broker.start()
    static.write_bytes(static_bytes)
    broker.start()
    assert alter(broker, STORE, None)["error_code"] == 0
    assert alter(broker, "log.cleaner.threads", "2")["error_code"] == 0
    assert shown(broker, authority) == first


def test_users_that_cannot_be_read(tmp_path: Path) -> None:
    """Taken while PLAIN is off, as Apache Kafka does."""
    with SecuredBroker(tmp_path, {"sasl.enabled.mechanisms": "SCRAM-SHA-256"}) as broker:
        assert alter(broker, JAAS, 'PlainLoginModule required user_app="x')["error_code"] == 0
        broker.stop()
        broker.settings["sasl.enabled.mechanisms"] = "PLAIN"
        broker.start()
        told = f"{JAAS}, set at run time, cannot be used and is passed over: {JAAS}: there is no ;"
        assert told in broker.log_text()
        assert lets_in(broker)
        assert alter(broker, "log.retention.ms", "100000", node="")["error_code"] == 0
        assert lets_in(broker)
        assert alter(broker, JAAS, None)["error_code"] == 0
        assert lets_in(broker)
