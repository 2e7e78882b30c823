"""Quotas as a client meets them: what it is told, how long it is not read, how exact that is."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kio.index import load_request_schema

from tests.reference.crafted_batches import batch
from tests.support import messages, wire
from tests.support.kbroker import KbrokerProcess
from tests.support.processes import BrokerProcess
from tests.support.waits import passes, wait_for
from tests.support.wire import (
    API_VERSIONS,
    FETCH,
    LIST_OFFSETS,
    METADATA,
    PRODUCE,
    WireConnection,
)
from tests.wire.test_connections import offsets_body

StartBroker = Callable[..., BrokerProcess]
CREATE_TOPICS, DESCRIBE, ALTER = 19, 48, 49
SHORT = {"quota.window.num": "3", "kbroker.durability": "page-cache"}
RECORD = b"x" * 20_000
MEASURED_S = 12
SETTLE_S = 6


def set_quota(broker: BrokerProcess, parts: dict[str, str | None], **quotas: float | None) -> None:
    entry = {
        "entity": [{"entity_type": kind, "entity_name": name} for kind, name in parts.items()],
        "ops": [
            {"key": key, "value": value or 0.0, "remove": value is None}
            for key, value in quotas.items()
        ],
    }
    answer = wire.call_once(broker.port, ALTER, 1, {"entries": [entry], "validate_only": False})
    assert answer["entries"][0]["error_code"] == 0, answer


def frame(api: int, version: int, body: dict[str, Any], client_id: str) -> bytes:
    data = messages.encode(load_request_schema(api, version), body)
    return messages.request_frame(api, version, data, 7, client_id)


class Client:
    """A connection with a client id of its own."""

    def __init__(self, broker: BrokerProcess, client_id: str) -> None:
        self.connection = WireConnection(broker.port)
        self.client_id = client_id

    def send(self, api: int, version: int, body: dict[str, Any]) -> None:
        self.connection.send_bytes(frame(api, version, body, self.client_id))

    def call(self, api: int, version: int, body: dict[str, Any]) -> dict[str, Any]:
        self.send(api, version, body)
        return self.connection.receive(api, version, 7)

    def produce(self, topic: str, *, acks: int = -1, version: int = 9) -> int:
        """Sends a record; the throttle time that the answer tells, ms."""
        body = produce_body(topic, acks)
        if acks == 0:
            self.send(PRODUCE, version, body)
            return 0
        answer = self.call(PRODUCE, version, body)
        assert answer["responses"][0]["partition_responses"][0]["error_code"] == 0
        return int(answer["throttle_time"])

    def fetch(self, topic: str, bytes_max: int = 1 << 20) -> tuple[int, int]:
        """Throttle time, and bytes of records."""
        part = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": bytes_max}
        topics = [{"topic": topic, "partitions": [part]}]
        body = {"replica_id": -1, "max_wait": 0, "min_bytes": 0, "max_bytes": bytes_max,
                "topics": topics, "session_epoch": -1}  # fmt: skip
        answer = self.call(FETCH, 11, body)
        assert answer["error_code"] == 0
        found = [part for one in answer["responses"] for part in one["partitions"]]
        return int(answer["throttle_time"]), sum(len(part["records"] or b"") for part in found)


def produce_body(topic: str, acks: int = -1) -> dict[str, Any]:
    part = {"index": 0, "records": batch(RECORD)}
    return {
        "acks": acks,
        "timeout": 60_000,
        "topic_data": [{"name": topic, "partition_data": [part]}],
    }


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KbrokerProcess]:
    broker = KbrokerProcess(tmp_path_factory.mktemp("limited"), SHORT)
    broker.start()
    yield broker
    broker.kill()


@pytest.fixture
def client(limited: BrokerProcess, topic: str) -> Iterator[Client]:
    """A client of an id that no other test has."""
    wire.create_topic(limited.port, topic)
    made = Client(limited, f"client-{topic}")
    yield made
    made.connection.close()


def test_a_producer_over_its_quota_is_told_and_not_read(
    limited: BrokerProcess, topic: str, client: Client
) -> None:
    """30,000 bytes a second, two seconds go ahead: the third and fourth request are too much."""
    set_quota(limited, {"client-id": client.client_id}, producer_byte_rate=30_000)
    told = [client.produce(topic) for _ in range(3)]
    assert told[:2] == [0, 0] and told[2] >= 0
    before = time.monotonic()
    told.append(client.produce(topic))
    assert told[3] > 500 or told[2] > 0
    began = time.monotonic()
    client.call(API_VERSIONS, 0, {})
    assert time.monotonic() - began >= max(told[3], 1) / 1000 - 0.05, "it was not read meanwhile"
    assert began >= before
    other = Client(limited, "somebody-else")
    assert other.produce(topic) == 0
    other.connection.close()


def test_requests_that_wait_are_handled_later_and_in_order(
    limited: BrokerProcess, topic: str, client: Client
) -> None:
    set_quota(limited, {"client-id": client.client_id}, producer_byte_rate=100_000)
    data = frame(PRODUCE, 9, produce_body(topic), client.client_id)
    began = time.monotonic()
    client.connection.send_bytes(data * 20)
    answers = [client.connection.receive(PRODUCE, 9, 7) for _ in range(20)]
    offsets = [a["responses"][0]["partition_responses"][0]["base_offset"] for a in answers]
    assert offsets == list(range(20))
    # 400,000 bytes, of which two windows' worth goes ahead
    assert time.monotonic() - began >= 1.5
    assert max(answer["throttle_time"] for answer in answers) > 0


def test_acks_0_is_throttled_by_bytes(limited: BrokerProcess, topic: str, client: Client) -> None:
    set_quota(limited, {"client-id": client.client_id}, producer_byte_rate=20_000)
    began = time.monotonic()
    for _ in range(4):
        client.produce(topic, acks=0)
    client.call(API_VERSIONS, 0, {})
    assert time.monotonic() - began >= 0.5


def rate_of(step: Callable[[], int], rate: int) -> float:
    """Bytes a second over MEASURED_S of a client that asks as fast as it can; a step gives what it
    took.

    What empty windows let go ahead comes back when it leaves them: bursts and pauses for a while,
    which say nothing over so short a time. So the client keeps to its rate by itself until all
    windows are full. From an answer to an answer, so that no request counts in part.

    There is no such test of request_percentage: what it limits is time that the broker takes of its
    own threads, with what they wait for a processor. A client sees the processor's time alone.
    """
    began, taken = time.monotonic(), 0
    while (elapsed := time.monotonic() - began) < SETTLE_S:
        if taken < rate * elapsed:
            taken += step()
        else:
            passes(5)
    taken, began = 0, time.monotonic()
    while (elapsed := time.monotonic() - began) < MEASURED_S:
        taken += step()
    return taken / elapsed


@pytest.mark.long
@pytest.mark.parametrize("rate", [200_000, 1_000_000])
def test_a_producers_rate_is_kept(
    limited: BrokerProcess, topic: str, client: Client, rate: int
) -> None:
    """Within 5 in 100; below it a slow machine may be."""
    set_quota(limited, {"client-id": client.client_id}, producer_byte_rate=rate)
    size = len(frame(PRODUCE, 9, produce_body(topic), client.client_id)) - 4

    def step() -> int:
        client.produce(topic)
        return size

    measured = rate_of(step, rate)
    assert 0.7 * rate <= measured <= 1.05 * rate


@pytest.mark.long
@pytest.mark.parametrize("rate", [200_000, 1_000_000])
def test_a_consumers_rate_is_kept(
    limited: BrokerProcess, topic: str, client: Client, rate: int
) -> None:
    """The same of records that are fetched; what else is in the answers is a hundredth."""
    client.produce(topic)
    set_quota(limited, {"client-id": client.client_id}, consumer_byte_rate=rate)
    measured = rate_of(lambda: client.fetch(topic)[1], rate)
    assert 0.7 * rate <= measured <= 1.05 * rate


def test_a_fetch_over_its_quota_is_empty(
    limited: BrokerProcess, topic: str, client: Client
) -> None:
    filler = Client(limited, "filler")
    for _ in range(10):
        filler.produce(topic)
    set_quota(limited, {"client-id": client.client_id}, consumer_byte_rate=30_000)
    size = wait_for("a first answer", lambda: client.fetch(topic)[1], 60)
    assert 20_000 <= size <= 60_000, "no more than all windows may have"
    throttle_ms, size = client.fetch(topic)
    assert throttle_ms > 0 and size == 0
    began = time.monotonic()
    throttle_after, size = client.fetch(topic)
    assert time.monotonic() - began >= throttle_ms / 1000 - 0.05
    assert (throttle_after, size > 0) in ((0, True), (throttle_after, False))
    filler.connection.close()


def test_time_of_both_planes_counts(limited: BrokerProcess, topic: str, client: Client) -> None:
    set_quota(limited, {"client-id": client.client_id}, request_percentage=0.001)
    for api, version, body in (
        (METADATA, 9, {"topics": [{"name": topic}]}),
        (LIST_OFFSETS, 6, offsets_body(topic, -1)),
        (LIST_OFFSETS, 6, offsets_body(topic, 0)),
        (API_VERSIONS, 1, {}),
        (API_VERSIONS, 3, {"client_software_name": "a", "client_software_version": "1"}),
    ):
        told = [client.call(api, version, body) for _ in range(3)]
        assert 0 < told[-1]["throttle_time"] <= 1000, "at most a window"
    assert told[-1]["api_keys"] == told[0]["api_keys"]
    assert client.produce(topic) > 0
    set_quota(limited, {"client-id": client.client_id}, request_percentage=None)
    client.produce(topic)
    assert client.produce(topic) == 0


def test_a_change_holds_for_the_next_request(
    limited: BrokerProcess, topic: str, client: Client
) -> None:
    parts = {"client-id": client.client_id}
    assert client.produce(topic) == 0
    set_quota(limited, parts, producer_byte_rate=1000)
    assert client.produce(topic) > 1000
    late = Client(limited, client.client_id)
    assert late.produce(topic) > 1000, "the limit is that of all its connections"
    set_quota(limited, parts, producer_byte_rate=None)
    free = Client(limited, client.client_id)
    assert [free.produce(topic) for _ in range(3)] == [0, 0, 0]
    free.connection.close()
    late.connection.close()


def test_defaults_and_users(limited: BrokerProcess, topic: str, client: Client) -> None:
    """Each client id has the default for itself; ANONYMOUS has one for all."""
    set_quota(limited, {"client-id": None}, producer_byte_rate=15_000)
    try:
        other = Client(limited, client.client_id + "-2")
        assert (client.produce(topic), other.produce(topic)) == (0, 0)
        assert client.produce(topic) > 0
        nameless = Client(limited, "")
        assert [nameless.produce(topic) for _ in range(3)] == [0, 0, 0], "as in Apache Kafka"
        set_quota(limited, {"user": "ANONYMOUS"}, producer_byte_rate=10_000_000)
        third = Client(limited, client.client_id + "-3")
        assert [third.produce(topic) for _ in range(3)] == [0, 0, 0]
        for one in (other, nameless, third):
            one.connection.close()
    finally:
        set_quota(limited, {"client-id": None}, producer_byte_rate=None)
        set_quota(limited, {"user": "ANONYMOUS"}, producer_byte_rate=None)


def test_quotas_outlive_the_broker(start_kbroker: StartBroker, topic: str) -> None:
    broker = start_kbroker(SHORT)
    wire.create_topic(broker.port, topic)
    set_quota(broker, {"client-id": "c"}, producer_byte_rate=1000)
    broker.stop()
    broker.start()
    client = Client(broker, "c")
    assert client.produce(topic) > 1000
    client.connection.close()


# ---- connections


def test_connections_of_an_address(start_kbroker: StartBroker) -> None:
    """10 a second, of which two seconds' worth goes ahead; others are closed after a while."""
    broker = start_kbroker(SHORT)
    set_quota(broker, {"ip": "127.0.0.1"}, connection_creation_rate=10)
    outcomes = []
    for _ in range(40):
        with socket.create_connection(("127.0.0.1", broker.port), timeout=60) as one:
            one.sendall(frame(API_VERSIONS, 0, {}, "c"))
            outcomes.append(_is_answered(one))
    assert 15 <= outcomes.count(True) < 40 and not outcomes[-1]
    wait_for("a place", lambda: _connects(broker.port), 60)
    set_quota_over(broker, connection_creation_rate=None)
    assert all(_connects(broker.port) for _ in range(30))


def _is_answered(connection: socket.socket) -> bool:
    try:
        return bool(connection.recv(4))
    except ConnectionResetError:
        return False


def _connects(port: int) -> bool:
    with socket.create_connection(("127.0.0.1", port), timeout=60) as one:
        one.sendall(frame(API_VERSIONS, 0, {}, "c"))
        return _is_answered(one)


def set_quota_over(broker: BrokerProcess, **quotas: float | None) -> None:
    """As soon as this address gets through."""

    def is_set() -> bool:
        try:
            set_quota(broker, {"ip": "127.0.0.1"}, **quotas)
        except wire.ConnectionClosedError:
            return False
        return True

    wait_for("the quota to be set", is_set, 60)


def test_connections_a_second_of_a_listener(start_kbroker: StartBroker) -> None:
    """Nobody is refused, they come later."""
    broker = start_kbroker(SHORT | {"max.connection.creation.rate": "10"})
    began = time.monotonic()
    assert all(_connects(broker.port) for _ in range(45))
    assert time.monotonic() - began >= 1.5


def test_connections_of_a_listener(start_kbroker: StartBroker) -> None:
    broker = start_kbroker({"listener.name.plaintext.max.connections": "3"})
    held = [socket.create_connection(("127.0.0.1", broker.port)) for _ in range(3)]
    for one in held:
        one.sendall(frame(API_VERSIONS, 0, {}, "c"))
        assert _is_answered(one)
    with socket.create_connection(("127.0.0.1", broker.port), timeout=60) as late:
        late.sendall(frame(API_VERSIONS, 0, {}, "c"))
        late.settimeout(1)
        with pytest.raises(TimeoutError):
            late.recv(4)
        late.settimeout(60)
        held.pop().close()
        assert _is_answered(late)
    for one in held:
        one.close()


# ---- hostility


def test_client_ids_without_end(limited: BrokerProcess) -> None:
    """100,000 client ids over one connection, each with the default's limit, and ids of 32 KB."""
    set_quota(limited, {"client-id": None}, request_percentage=50)
    try:
        before = limited.resident_kib()
        with WireConnection(limited.port) as connection:
            for first in range(0, 100_000, 2000):
                ids = (f"{number}-{'y' * 60}" for number in range(first, first + 2000))
                connection.send_bytes(b"".join(frame(API_VERSIONS, 0, {}, one) for one in ids))
                for _ in range(2000):
                    connection.receive_frame()
        assert limited.resident_kib() - before < 100 << 10
        with WireConnection(limited.port) as connection:
            for number in range(200):
                name = f"{number:05}" + "z" * 32_000
                connection.send_bytes(frame(API_VERSIONS, 0, {}, name))
                connection.receive_frame()
        assert limited.resident_kib() - before < 100 << 10
        assert wire.call_once(limited.port, API_VERSIONS, 0)["error_code"] == 0
    finally:
        set_quota(limited, {"client-id": None}, request_percentage=None)
