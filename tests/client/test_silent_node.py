"""A node that takes connections and never answers holds up its own partitions, no others."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from kbroker.client import Consumer, Producer
from kbroker.protocol import ApiKey
from kbroker.protocol.encode import struct_writer
from kbroker.protocol.schemas import response_schema
from tests.client import test_consumer_hostile
from tests.client.test_consumer_hostile import TOPIC, Broker, batch
from tests.support.waits import wait_for

LONG_MS = 200_000  # what waits for the silent node waits for longer than the test
WITHIN_S = 60.0
LIMITS = {
    "request_timeout_ms": LONG_MS,
    "socket_connection_setup_timeout_ms": LONG_MS,
    "socket_connection_setup_timeout_max_ms": LONG_MS,
    "retry_backoff_ms": 10,
}


class Pair(Broker):
    """Node 1 speaks and leads partition 0; node 2, which leads partition 1, is silent."""

    def __init__(self, silent_port: int) -> None:
        self._silent_port = silent_port
        super().__init__(lambda n: batch(3 * (n - 1)))

    def _answer(self, key: ApiKey, version: int) -> bytes:
        if key != ApiKey.METADATA:
            return super()._answer(key, version)
        ports = {1: self.port, 2: self._silent_port}
        part = {"error_code": 0, "leader_epoch": 0, "offline_replicas": []}
        out = bytearray()
        struct_writer(response_schema(key, version))(out, {
            "brokers": [
                {"node_id": node, "host": "127.0.0.1", "port": port}
                for node, port in ports.items()
            ],
            "controller_id": 1,
            "topics": [{"name": TOPIC, "partitions": [
                part | {"partition_index": node - 1, "leader_id": node, "replica_nodes": [node],
                        "isr_nodes": [node]}
                for node in ports
            ]}],
        })  # fmt: skip
        return bytes(out)


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        listener.settimeout(WITHIN_S)
        yield listener


@pytest.fixture
def pair(silent: socket.socket) -> Iterator[Pair]:
    broker = Pair(silent.getsockname()[1])
    try:
        yield broker
    finally:
        broker.close()


def asked(silent: socket.socket) -> socket.socket:
    """The next connection, on which a first request has come."""
    taken, _ = silent.accept()
    taken.settimeout(WITHIN_S)
    assert taken.recv(4)
    return taken


def test_other_partitions_are_read(pair: Pair, silent: socket.socket) -> None:
    consumer = Consumer(
        bootstrap_servers=f"127.0.0.1:{pair.port}", auto_offset_reset="earliest", **LIMITS
    )
    consumer.assign([(TOPIC, 1)])
    with asked(silent):
        consumer.assign([(TOPIC, 1), (TOPIC, 0)])
        found = consumer.poll(WITHIN_S)
        assert {record.partition for record in found} == {0}
        began = time.monotonic()
        consumer.close()
        assert time.monotonic() - began < WITHIN_S


def test_others_are_written_to_and_told(
    pair: Pair, silent: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(test_consumer_hostile.VERSIONS, ApiKey.PRODUCE, (9, 9))
    told = threading.Event()
    producer = Producer(
        bootstrap_servers=f"127.0.0.1:{pair.port}", acks=0, enable_idempotence=False,
        delivery_timeout_ms=2 * LONG_MS, **LIMITS,
    )  # fmt: skip
    waits = producer.send(TOPIC, b"for the silent one", partition=1)
    with asked(silent):
        for _ in range(2):
            told.clear()
            producer.send(TOPIC, b"v", partition=0, on_delivery=lambda _: told.set())
            wait_for("its callback runs", told.is_set, WITHIN_S)
        assert not waits.done()
        began = time.monotonic()
        producer.close(0)
        assert time.monotonic() - began < WITHIN_S
    assert waits.exception() is not None
