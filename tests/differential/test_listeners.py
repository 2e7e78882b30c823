"""Listeners that change while a broker runs: Apache Kafka opens one more, and no client can be
served there; kbroker says that a change takes a start."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.differential.test_configs import BROKER, SET, step
from tests.support.kafka import KafkaProcess
from tests.support.kbroker import KbrokerProcess
from tests.support.processes import BrokerProcess
from tests.support.waits import free_ports, wait_for
from tests.support.wire import (
    DESCRIBE_CLUSTER,
    INCREMENTAL_ALTER_CONFIGS,
    METADATA,
    WireConnection,
)

LISTENER_NOT_FOUND, INVALID_REQUEST = 72, 42


@pytest.fixture
def own_kafka(tmp_path: Path) -> Iterator[KafkaProcess]:
    """Nobody else's: what is added cannot be taken away again."""
    kafka = KafkaProcess(tmp_path)
    try:
        kafka.start()
        yield kafka
    finally:
        kafka.remove()


def alter(broker: BrokerProcess, **settings: str) -> tuple[int, str | None]:
    changes = [(name.replace("_", "."), SET, value) for name, value in settings.items()]
    with WireConnection(broker.port) as connection:
        answer = connection.call(
            INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [step(BROKER, "1", *changes)]}
        )
    (told,) = answer["responses"]
    return told["error_code"], told["error_message"]


def opened(port: int) -> WireConnection | None:
    try:
        return WireConnection(port)
    except ConnectionRefusedError:
        return None


def test_a_listener_that_is_added_serves_nobody(own_kafka: KafkaProcess) -> None:
    """The broker has not registered it: Metadata by it knows neither broker nor leader."""
    topic = {"topics": [{"name": "flights"}], "allow_auto_topic_creation": True}
    with WireConnection(own_kafka.port) as connection:
        assert connection.call(METADATA, 9, topic)["brokers"]
    (port,) = free_ports(1)
    given = own_kafka.properties()["listeners"]
    kinds = "ADDED:PLAINTEXT,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT"
    added = f"{given},ADDED://127.0.0.1:{port}"
    assert alter(own_kafka, listener_security_protocol_map=kinds, listeners=added)[0] == 0
    with wait_for("the listener to be open", lambda: opened(port), 30) as connection:
        told = connection.call(METADATA, 9, topic)
        assert told["brokers"] == []
        (partition, *_) = told["topics"][0]["partitions"]
        assert (partition["error_code"], partition["leader_id"]) == (LISTENER_NOT_FOUND, -1)
        assert connection.call(DESCRIBE_CLUSTER, 1, {"endpoint_type": 1})["brokers"] == []
    code, reason = alter(own_kafka, listeners=given)
    assert code == INVALID_REQUEST, "what it takes for advertised stays"
    assert reason is not None and "must be a subset of listeners" in reason


def test_a_change_takes_a_start(kbroker: KbrokerProcess) -> None:
    given = f"PLAINTEXT://127.0.0.1:{kbroker.port}"
    (port,) = free_ports(1)
    for name, value in (
        ("listeners", f"{given},SSL://127.0.0.1:{port}"),
        ("listener.security.protocol.map", "ADDED:PLAINTEXT,PLAINTEXT:PLAINTEXT"),
    ):
        code, reason = alter(kbroker, **{name: value})
        assert code == INVALID_REQUEST
        assert reason == f"Cannot update these configs dynamically: [{name}]"
    assert opened(port) is None
