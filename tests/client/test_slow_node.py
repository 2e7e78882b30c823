"""A broker that is slow gets fewer of the records that may go anywhere (KIP-794)."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from kbroker.client import Producer
from kbroker.protocol import ApiKey
from kbroker.protocol.encode import struct_writer
from kbroker.protocol.schemas import response_schema
from tests.client import test_consumer_hostile
from tests.client.test_consumer_hostile import TOPIC, Broker

LONG_MS = 200_000  # what waits for the slow node waits for longer than the test
RECORDS = 300
IN_A_ROW = 500
AT_MOST = 5000


class Node(Broker):
    """One of two; each leads the partition of its own number. Node 1 takes what it is sent, node 0
    never answers a Produce."""

    def __init__(self, number: int, ports: dict[int, int]) -> None:
        self._number, self._ports = number, ports
        super().__init__(lambda _: b"")
        ports[number] = self.port

    def _serve(self, taken: Any) -> None:
        stream = taken.makefile("rb")
        try:
            while length := stream.read(4):
                request = stream.read(struct.unpack(">i", length)[0])
                key, version, correlation = struct.unpack_from(">hhi", request)
                if key == ApiKey.PRODUCE and self._number == 0:
                    continue
                body = self._answer(ApiKey(key), version)
                head = struct.pack(">i", correlation)
                head += b"" if key == ApiKey.API_VERSIONS else b"\0"
                taken.sendall(struct.pack(">i", len(head) + len(body)) + head + body)
        except (OSError, ValueError, struct.error):
            pass  # the test is over

    def _answer(self, key: ApiKey, version: int) -> bytes:
        out = bytearray()
        if key == ApiKey.METADATA:
            part = {"error_code": 0, "leader_epoch": 0, "offline_replicas": []}
            struct_writer(response_schema(key, version))(out, {
                "brokers": [
                    {"node_id": node, "host": "127.0.0.1", "port": port}
                    for node, port in self._ports.items()
                ],
                "controller_id": 1,
                "topics": [{"name": TOPIC, "partitions": [
                    part | {"partition_index": node, "leader_id": node, "replica_nodes": [node],
                            "isr_nodes": [node]}
                    for node in sorted(self._ports)
                ]}],
            })  # fmt: skip
        elif key == ApiKey.PRODUCE:
            part = {"index": self._number, "error_code": 0, "base_offset": 0}
            struct_writer(response_schema(key, version))(out, {
                "responses": [{"name": TOPIC, "partition_responses": [part]}],
            })  # fmt: skip
        else:
            return super()._answer(key, version)
        return bytes(out)


@pytest.fixture
def bootstrap(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setitem(test_consumer_hostile.VERSIONS, ApiKey.PRODUCE, (9, 9))
    ports: dict[int, int] = {}
    nodes = [Node(number, ports) for number in range(2)]
    yield f"127.0.0.1:{ports[1]}"
    for node in nodes:
        node.close()


@contextmanager
def sender(bootstrap: str, **settings: Any) -> Iterator[Producer]:
    producer = Producer(
        bootstrap_servers=bootstrap, acks=1, enable_idempotence=False, batch_size=1, linger_ms=0,
        max_in_flight_requests_per_connection=1, request_timeout_ms=LONG_MS,
        delivery_timeout_ms=2 * LONG_MS, **settings,
    )  # fmt: skip
    yield producer
    producer.close(0)


def went_to(producer: Producer) -> int:
    """The partition of one more record, and with it its node; who takes it has taken it."""
    sent = producer.send(TOPIC, b"x")
    if sent.partition == 1:
        sent.result(60)
    return int(sent.partition)


@pytest.mark.parametrize("adaptive", [True, False])
def test_queues_decide_where_records_go(bootstrap: str, adaptive: bool) -> None:
    with sender(bootstrap, partitioner_adaptive_partitioning_enable=adaptive) as producer:
        slow = sum(went_to(producer) == 0 for _ in range(RECORDS))
    if adaptive:
        assert 0 < slow < RECORDS / 3
    else:
        assert RECORDS / 3 < slow < RECORDS * 2 / 3


@pytest.mark.parametrize("limit_ms", [50, 0])
def test_a_node_that_takes_nothing_gets_nothing(bootstrap: str, limit_ms: int) -> None:
    """Once it has taken nothing for that long; without a limit it gets some all the same."""
    with sender(bootstrap, partitioner_availability_timeout_ms=limit_ms) as producer:
        row = sent = 0
        while row < IN_A_ROW and sent < AT_MOST:
            sent += 1
            row = row + 1 if went_to(producer) == 1 else 0
            if not limit_ms and sent > 2 * IN_A_ROW:
                break
    assert (row == IN_A_ROW) == bool(limit_ms)
