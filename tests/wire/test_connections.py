"""What a connection may do: order, pieces, limits, and what closes it."""

from __future__ import annotations

import struct
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from kio.index import load_request_schema

from tests.reference.crafted_batches import batch, values_of
from tests.support import messages, wire
from tests.support.processes import BrokerProcess
from tests.support.sasl import SecuredBroker
from tests.support.waits import wait_for
from tests.support.wire import (
    API_VERSIONS,
    FETCH,
    INCREMENTAL_ALTER_CONFIGS,
    METADATA,
    PRODUCE,
    WireConnection,
)

StartBroker = Callable[..., BrokerProcess]


def produce_body(topic: str, data: bytes | None, acks: int = -1) -> dict[str, object]:
    partition = {"index": 0, "records": data}
    topics = [{"name": topic, "partition_data": [partition]}]
    return {"acks": acks, "timeout": 10000, "topic_data": topics}


def fetch_body(topic: str, offset: int, **fields: object) -> dict[str, object]:
    partition = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
    topics = [{"topic": topic, "partitions": [partition]}]
    return {"replica_id": -1, "max_wait": 0, "min_bytes": 0, "topics": topics} | fields


def offsets_body(topic: str, timestamp: int, **fields: object) -> dict[str, object]:
    partition = {"partition_index": 0, "timestamp": timestamp}
    return {"replica_id": -1, "topics": [{"name": topic, "partitions": [partition]}]} | fields


def frame(api: int, version: int, body: dict[str, object], correlation_id: int = 7) -> bytes:
    data = messages.encode(load_request_schema(api, version), body)
    return messages.request_frame(api, version, data, correlation_id)


def still_serves(broker: BrokerProcess) -> None:
    """Another connection is answered as if nothing had happened."""
    assert wire.call_once(broker.port, API_VERSIONS, 0)["error_code"] == 0


# --- order and pieces ---------------------------------------------------------------------------


def test_pipelined_answers_leave_in_order(target: BrokerProcess, topic: str) -> None:
    """Requests of both planes, sent without reading; quick ones do not overtake slow ones."""
    wire.create_topic(target.port, topic)
    kinds: list[tuple[int, int, dict[str, object]]] = [
        (PRODUCE, 9, produce_body(topic, batch(b"x" * 100))),
        (METADATA, 9, {"topics": [{"name": topic}]}),
        (FETCH, 11, fetch_body(topic, 0)),
        (API_VERSIONS, 0, {}),
        (PRODUCE, 3, produce_body(topic, batch(b"y"), acks=1)),
    ]
    with WireConnection(target.port) as connection:
        sent = [
            (api, version, connection.send(api, version, body)) for api, version, body in kinds * 40
        ]
        offsets = []
        for api, version, correlation_id in sent:
            answer = connection.receive(api, version, correlation_id)
            if api == PRODUCE:
                offsets.append(answer["responses"][0]["partition_responses"][0]["base_offset"])
    assert offsets == list(range(80))


def test_a_waiting_fetch_holds_back_later_answers(target: BrokerProcess, topic: str) -> None:
    """The answer of a request behind a long poll comes after the long poll's."""
    wire.create_topic(target.port, topic)
    with WireConnection(target.port) as connection:
        waiting = connection.send(FETCH, 11, fetch_body(topic, 0, max_wait=400, min_bytes=1))
        behind = connection.send(API_VERSIONS, 0)
        assert connection.receive(FETCH, 11, waiting)["error_code"] == 0
        connection.receive(API_VERSIONS, 0, behind)


def test_a_fetch_wakes_when_records_come(target: BrokerProcess, topic: str) -> None:
    wire.create_topic(target.port, topic)
    with WireConnection(target.port) as connection:
        waiting = connection.send(FETCH, 11, fetch_body(topic, 0, max_wait=30_000, min_bytes=1))
        assert connection.is_silent(0.2)
        wire.call_once(target.port, PRODUCE, 9, produce_body(topic, batch(b"news")))
        answer = connection.receive(FETCH, 11, waiting)
    records = answer["responses"][0]["partitions"][0]["records"]
    assert values_of(records) == [(0, b"news")]


def test_min_bytes_holds_a_fetch_until_there_is_enough(target: BrokerProcess, topic: str) -> None:
    wire.create_topic(target.port, topic)
    with WireConnection(target.port) as connection:
        body = fetch_body(topic, 0, max_wait=30_000, min_bytes=2000)
        waiting = connection.send(FETCH, 11, body)
        for _ in range(3):
            assert connection.is_silent(0.05)
            wire.call_once(target.port, PRODUCE, 9, produce_body(topic, batch(b"x" * 700)))
        answer = connection.receive(FETCH, 11, waiting)
    assert len(values_of(answer["responses"][0]["partitions"][0]["records"])) == 3


def test_a_frame_in_pieces(target: BrokerProcess, topic: str) -> None:
    """Byte by byte, and two frames cut across their border."""
    wire.create_topic(target.port, topic)
    data = frame(PRODUCE, 9, produce_body(topic, batch(b"slow")))
    with WireConnection(target.port) as connection:
        for byte in data:
            connection.send_bytes(bytes([byte]))
        connection.receive(PRODUCE, 9, 7)
        two = data + data
        connection.send_bytes(two[: len(data) + 9])
        connection.receive(PRODUCE, 9, 7)
        assert connection.is_silent(0.05)
        connection.send_bytes(two[len(data) + 9 :])
        answer = connection.receive(PRODUCE, 9, 7)
    assert answer["responses"][0]["partition_responses"][0]["base_offset"] == 2


def test_a_slow_reader_gets_everything(target: BrokerProcess, topic: str) -> None:
    """Answers larger than any socket buffer wait for their reader, whole and in order."""
    wire.create_topic(target.port, topic)
    for number in range(8):
        wire.call_once(
            target.port, PRODUCE, 9, produce_body(topic, batch(b"%d" % number * 900_000))
        )
    with WireConnection(target.port) as connection:
        sent = [connection.send(FETCH, 11, fetch_body(topic, n)) for n in range(8)]
        still_serves(target)
        for offset, correlation_id in enumerate(sent):
            answer = connection.receive(FETCH, 11, correlation_id)
            (first, *_) = values_of(answer["responses"][0]["partitions"][0]["records"])
            assert first == (offset, b"%d" % offset * 900_000)


def test_closing_before_the_answer(target: BrokerProcess, topic: str) -> None:
    """A client that leaves while its fetch waits disturbs nobody."""
    wire.create_topic(target.port, topic)
    for _ in range(50):
        connection = WireConnection(target.port)
        connection.send(FETCH, 11, fetch_body(topic, 0, max_wait=30_000, min_bytes=1))
        connection.send(PRODUCE, 9, produce_body(topic, batch(b"x")))
        connection.close()
    still_serves(target)


# --- headers ------------------------------------------------------------------------------------


@pytest.mark.parametrize("client_id", [None, "", "x" * 200, "ünï"])
@pytest.mark.parametrize(("api", "version"), [(API_VERSIONS, 0), (METADATA, 0), (METADATA, 12)])
def test_client_ids(target: BrokerProcess, client_id: str | None, api: int, version: int) -> None:
    body = {"topics": [{"name": "none"}], "allow_auto_topic_creation": False}
    if api == API_VERSIONS:
        body = {}
    elif version == 0:
        body.pop("allow_auto_topic_creation")
        body["topics"] = []
    data = messages.encode(load_request_schema(api, version), body)
    with WireConnection(target.port) as connection:
        connection.send_bytes(messages.request_frame(api, version, data, 9, client_id))
        connection.receive(api, version, 9)


@pytest.mark.parametrize("correlation_id", [0, -1, 2**31 - 1, -(2**31)])
def test_correlation_ids(target: BrokerProcess, correlation_id: int) -> None:
    with WireConnection(target.port) as connection:
        connection.send_bytes(messages.request_frame(API_VERSIONS, 0, b"", correlation_id))
        connection.receive(API_VERSIONS, 0, correlation_id)


def test_unknown_tagged_fields_are_skipped(target: BrokerProcess, topic: str) -> None:
    """In the header and in the body, on both planes."""
    wire.create_topic(target.port, topic)
    tags = {"_tags": {1000: b"later", 77777: b""}}
    for api, version, body in (
        (METADATA, 12, {"topics": [{"name": topic} | tags]} | tags),
        (PRODUCE, 9, produce_body(topic, batch(b"x")) | tags),
        (FETCH, 12, fetch_body(topic, 0) | tags),
    ):
        data = messages.encode(load_request_schema(api, version), body)
        head = struct.pack(">hhih", api, version, 5, -1) + b"\x01\xe8\x07\x03abc"
        with WireConnection(target.port) as connection:
            connection.send_bytes(struct.pack(">i", len(head) + len(data)) + head + data)
            connection.receive(api, version, 5)


# --- what is answered with an error, and what closes --------------------------------------------


@pytest.mark.parametrize("version", [5, 99, 32767, -1])
def test_unknown_version_of_api_versions(target: BrokerProcess, version: int) -> None:
    """KIP-511: the answer is a version 0 one with UNSUPPORTED_VERSION, and the client goes on."""
    head = struct.pack(">hhih", API_VERSIONS, version, 3, -1) + b"\0"
    with WireConnection(target.port) as connection:
        connection.send_bytes(struct.pack(">i", len(head)) + head)
        answer = connection.receive(API_VERSIONS, 0, 3)
        assert answer["error_code"] == 35
        own = next(row for row in answer["api_keys"] if row["api_key"] == API_VERSIONS)
        assert (own["min_version"], own["max_version"]) == (0, 4)
        assert connection.call(API_VERSIONS, 0)["error_code"] == 0


@pytest.mark.parametrize(
    ("key", "version"),
    [(999, 0), (-1, 0), (32767, 32767), (METADATA, 99), (METADATA, -1), (PRODUCE, 2), (PRODUCE, 14),
     (PRODUCE, 0), (FETCH, 3), (FETCH, 19), (4, 0), (7, 0)],
)  # fmt: skip
def test_unknown_key_or_version_closes(target: BrokerProcess, key: int, version: int) -> None:
    head = struct.pack(">hhih", key, version, 3, -1)
    with WireConnection(target.port) as connection:
        connection.send_bytes(struct.pack(">i", len(head) + 50) + head + bytes(50))
        connection.wait_closed()
    still_serves(target)


@pytest.mark.parametrize("length", [-1, -(2**31), 2**31 - 1, 100 * 1024 * 1024 + 1])
def test_bad_frame_length_closes(target: BrokerProcess, length: int) -> None:
    with WireConnection(target.port) as connection:
        connection.send_bytes(struct.pack(">i", length))
        connection.wait_closed()
    still_serves(target)


@pytest.mark.parametrize(
    "start",
    [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"SSH-2.0-OpenSSH\r\n",
     b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"r" * 40],
    ids=["http", "ssh", "tls"],
)  # fmt: skip
def test_another_protocol_closes(target: BrokerProcess, start: bytes) -> None:
    with WireConnection(target.port) as connection:
        connection.send_bytes(start)
        connection.wait_closed()
    still_serves(target)


@pytest.mark.parametrize(("api", "version"), [(PRODUCE, 9), (FETCH, 11), (METADATA, 9)])
def test_a_body_that_ends_early_closes(
    target: BrokerProcess, topic: str, api: int, version: int
) -> None:
    """The frame is whole, but what is in it is not."""
    wire.create_topic(target.port, topic)
    bodies = {PRODUCE: produce_body(topic, batch(b"x")), FETCH: fetch_body(topic, 0),
              METADATA: {"topics": [{"name": topic}]}}  # fmt: skip
    whole = frame(api, version, bodies[api])
    for size in (len(whole) - 3, len(whole) // 2, 24):
        cut = struct.pack(">i", size - 4) + whole[4:size]
        with WireConnection(target.port) as connection:
            connection.send_bytes(cut)
            connection.wait_closed()
    still_serves(target)


def test_answers_before_a_bad_frame_still_come(target: BrokerProcess) -> None:
    with WireConnection(target.port) as connection:
        good = connection.send(METADATA, 9, {"topics": []})
        answer = connection.receive(METADATA, 9, good)
        connection.send_bytes(struct.pack(">i", -5))
        connection.wait_closed()
    assert answer["brokers"]


# --- acks=0 -------------------------------------------------------------------------------------


def test_acks_0_has_no_answer(target: BrokerProcess, topic: str) -> None:
    """Nothing comes for it; the answer of the next request is the next answer."""
    wire.create_topic(target.port, topic)
    with WireConnection(target.port) as connection:
        for _ in range(100):
            connection.send(PRODUCE, 9, produce_body(topic, batch(b"quiet"), acks=0))
        answer = connection.call(PRODUCE, 9, produce_body(topic, batch(b"loud")))
    assert answer["responses"][0]["partition_responses"][0]["base_offset"] == 100


def test_an_error_of_acks_0_closes(target: BrokerProcess, topic: str) -> None:
    """The only way to tell a client that asked for no answer."""
    wire.create_topic(target.port, topic)
    with WireConnection(target.port) as connection:
        connection.send(PRODUCE, 9, produce_body(topic, batch(b"x", crc=1), acks=0))
        connection.wait_closed()
    still_serves(target)


# --- limits of the broker -----------------------------------------------------------------------


def test_connections_per_ip(start_target: StartBroker) -> None:
    """One too many is closed; a place that comes free can be had again."""
    broker = start_target({"max.connections.per.ip": "5"})
    wait_for("no connection of the start", lambda: answers_with(broker, 5), 60)


def answers_with(broker: BrokerProcess, limit: int) -> bool:
    """True where `limit` connections are served at once and the next one is closed."""
    held: list[WireConnection] = []
    try:
        for _ in range(limit):
            connection = WireConnection(broker.port)
            held.append(connection)
            connection.call(API_VERSIONS, 0)
        with WireConnection(broker.port) as extra:
            extra.wait_closed(5)
    except wire.ConnectionClosedError:
        return False
    finally:
        for connection in held:
            connection.close()
    return True


def test_limits_of_connections_change_while_the_broker_runs(start_kbroker: StartBroker) -> None:
    """Dynamic in Kafka too, where the broker has connections of its own. They outlive a start."""
    broker = start_kbroker()
    with WireConnection(broker.port) as admin:
        for settings, limit in (
            ({"max.connections.per.ip": "4"}, 3),
            ({"max.connections.per.ip.overrides": "localhost:6,10.9.8.7:1"}, 5),
        ):
            configs = [{"name": name, "value": value, "config_operation": 0}
                       for name, value in settings.items()]  # fmt: skip
            resource = {"resource_type": 4, "resource_name": "", "configs": configs}
            answer = admin.call(INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource]})
            assert answer["responses"][0]["error_code"] == 0, answer
            wait_for(f"{limit} more connections", lambda n=limit: answers_with(broker, n), 60)
    broker.restart()
    wait_for("the limit of before", lambda: answers_with(broker, 6), 60)


def test_the_inner_listener_has_room_whatever_others_hold(tmp_path: Path) -> None:
    """max.connections is not its; another's that was quiet for longest goes instead, and nobody of
    others is accepted until there is room."""
    with SecuredBroker(tmp_path, {"max.connections": "3"}) as broker, ExitStack() as stack:
        held = [stack.enter_context(WireConnection(broker.sasl_port)) for _ in range(2)]
        held[0].call(API_VERSIONS, 0)
        for _ in range(3):
            inner = stack.enter_context(WireConnection(broker.port))
            inner.call(API_VERSIONS, 0)
        for one in held:
            one.wait_closed(60)
        late = stack.enter_context(WireConnection(broker.sasl_port))
        correlation_id = late.send(API_VERSIONS, 0)
        assert late.is_silent(0.5)
        inner.close()
        assert late.receive(API_VERSIONS, 0, correlation_id)["error_code"] == 0


def test_idle_connections_are_closed(start_target: StartBroker) -> None:
    """One that talks stays, one that is silent goes."""
    broker = start_target({"connections.max.idle.ms": "1500"})
    with WireConnection(broker.port) as talker, WireConnection(broker.port) as silent:
        silent.socket.settimeout(0.05)

        def is_closed() -> bool:
            talker.call(API_VERSIONS, 0)
            try:
                return silent.socket.recv(1) == b""
            except TimeoutError:
                return False

        wait_for("the silent connection is closed", is_closed, 60)
        talker.call(API_VERSIONS, 0)


def test_request_size_limit(start_target: StartBroker) -> None:
    broker = start_target({"socket.request.max.bytes": "10000"})
    with WireConnection(broker.port) as connection:
        body = {"topics": [{"name": "x" * 200}] * 40, "allow_auto_topic_creation": False}
        connection.call(METADATA, 9, body)
        connection.send_bytes(struct.pack(">i", 10001))
        connection.wait_closed()
    still_serves(broker)


def test_connections_in_all(start_target: StartBroker) -> None:
    """Beyond max.connections a client waits to be accepted until a place comes free."""
    broker = start_target({"max.connections": "8"})
    held = [WireConnection(broker.port) for _ in range(8)]
    served = [connection for connection in held if is_served(connection)]
    with WireConnection(broker.port) as extra:
        correlation_id = extra.send(API_VERSIONS, 0)
        assert extra.is_silent(0.3)
        served[0].close()
        extra.receive(API_VERSIONS, 0, correlation_id)
    for connection in held:
        connection.close()


def is_served(connection: WireConnection) -> bool:
    """True where the connection was accepted; a broker may count some of its own as well."""
    correlation_id = connection.send(API_VERSIONS, 0)
    if connection.is_silent(1):
        return False
    connection.receive(API_VERSIONS, 0, correlation_id)
    return True


def test_null_records(start_kbroker: StartBroker, topic: str) -> None:
    """Answered like empty ones. Not compared with Kafka 4.3, which never answers them."""
    broker = start_kbroker()
    wire.create_topic(broker.port, topic)
    answer = wire.call_once(broker.port, PRODUCE, 9, produce_body(topic, None))
    assert answer["responses"][0]["partition_responses"][0]["error_code"] == 87
