"""Connections: version agreement, answers late, wrong, cut short."""

from __future__ import annotations

import contextlib
import gc
import re
import socket
import struct
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import kbroker
from kbroker.client.address import Address
from kbroker.client.admin_cluster import describe_features
from kbroker.client.cluster import Cluster, Node
from kbroker.client.connection import Connection, told_version
from kbroker.client.consumer import Consumer
from kbroker.client.errors import (
    ClosedError,
    ConnectError,
    CorruptDataError,
    KafkaError,
    RequestTimeoutError,
    UnsupportedApiError,
)
from kbroker.client.producer import Producer
from kbroker.client.reach import ClusterSettings, Connections, Reach, growing
from kbroker.protocol import ApiKey
from kbroker.protocol.encode import struct_writer
from kbroker.protocol.schemas import response_schema
from tests.support.waits import free_ports

ASKED_VERSIONS = 18


Answer = Callable[[int, int, int], bytes | None]


@contextlib.contextmanager
def broker(answer: Answer) -> Iterator[Address]:
    """A listener whose answers to (api key, version, correlation id) the test makes.

    None closes the connection; b"" is silence.
    """
    listener = socket.create_server(("127.0.0.1", 0))
    served: list[socket.socket] = []

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                peer, _ = listener.accept()
                served.append(peer)
                with contextlib.suppress(OSError, struct.error):
                    while True:
                        (size,) = struct.unpack(">i", peer.recv(4, socket.MSG_WAITALL))
                        frame = peer.recv(size, socket.MSG_WAITALL)
                        said = answer(*struct.unpack_from(">hhi", frame))
                        if said is None:
                            break
                        peer.sendall(said)
                peer.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield Address("127.0.0.1", listener.getsockname()[1])
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for peer in served:
            with contextlib.suppress(OSError):
                peer.shutdown(socket.SHUT_RDWR)
        thread.join()


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def versions_v0(correlation_id: int, error: int, keys: dict[int, tuple[int, int]]) -> bytes:
    listed = b"".join(struct.pack(">hhh", key, *span) for key, span in keys.items())
    return framed(struct.pack(">ihi", correlation_id, error, len(keys)) + listed)


def old_broker(keys: dict[int, tuple[int, int]]) -> Answer:
    """A broker that knows ApiVersions 0 alone, and answers nothing else."""

    def answer(key: int, version: int, correlation_id: int) -> bytes:
        if key != ASKED_VERSIONS:
            return b""
        error = 0 if version == 0 else 35
        return versions_v0(correlation_id, error, {ASKED_VERSIONS: (0, 0), **keys})

    return answer


def test_versions_are_agreed_with_a_broker_that_knows_only_the_first() -> None:
    with broker(old_broker({3: (0, 11), 60: (3, 4)})) as address:
        connection = Connection(address, timeout_s=10)
        assert connection.version_of(ApiKey.METADATA) == 11
        with pytest.raises(UnsupportedApiError, match="speaks DESCRIBE_CLUSTER 3-4"):
            connection.version_of(ApiKey.DESCRIBE_CLUSTER)
        with pytest.raises(UnsupportedApiError, match="does not offer FETCH"):
            connection.version_of(ApiKey.FETCH)
        connection.close()


def test_brokers_are_told_which_client_asks() -> None:
    """By name and version, in the form of KIP-511: others are refused as INVALID_REQUEST."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        frames: list[bytes] = []

        def serve() -> None:
            peer, _ = listener.accept()
            with peer:
                (size,) = struct.unpack(">i", peer.recv(4, socket.MSG_WAITALL))
                frames.append(peer.recv(size, socket.MSG_WAITALL))

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(ConnectError):
            Connection(Address("127.0.0.1", listener.getsockname()[1]))
        thread.join()
    told = [b"kbroker", kbroker.__version__.encode()]
    assert b"".join(bytes([len(one) + 1]) + one for one in told) in frames[0]
    asked: list[Mapping[str, str]] = []

    def call(_: ApiKey, values: Mapping[str, str], **_more: object) -> None:
        asked.append(values)
        raise ClosedError

    connection = SimpleNamespace(version_of=lambda _: 4, call=call)
    cluster: Any = SimpleNamespace(any_connection=lambda: connection, retry=lambda ask: ask())
    with pytest.raises(ClosedError):
        describe_features(cluster)
    assert [value.encode() for value in asked[0].values()] == told


@pytest.mark.parametrize("version", [kbroker.__version__, "1!2.0rc1.post2.dev3+local.7"])
def test_a_version_is_told_in_the_form_that_brokers_take(version: str) -> None:
    assert re.fullmatch(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?", told_version(version))


def test_silence_runs_into_the_time_limit() -> None:
    with broker(old_broker({3: (0, 11)})) as address:
        connection = Connection(address, timeout_s=10)
        with pytest.raises(RequestTimeoutError, match=r"did not answer METADATA within 0\.05 s"):
            connection.call(ApiKey.METADATA, {"topics": []}, timeout_s=0.05)
        assert connection.closed
        with pytest.raises(ConnectError, match="is closed"):
            connection.call(ApiKey.METADATA, {"topics": []})


def test_a_closed_connection_is_told() -> None:
    with (
        broker(lambda *_: None) as address,
        pytest.raises(ConnectError, match="closed the connection"),
    ):
        Connection(address, timeout_s=10)


def test_a_reset_is_told_with_what_may_be_wrong() -> None:
    """So ends what a broker that speaks TLS leaves unread."""
    listener = socket.create_server(("127.0.0.1", 0))

    def reset() -> None:
        peer, _ = listener.accept()
        peer.recv(1)
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.close()

    thread = threading.Thread(target=reset)
    thread.start()
    with pytest.raises(ConnectError, match=r"broke: .*; .* security\.protocol has to say so"):
        Connection(Address("127.0.0.1", listener.getsockname()[1]), timeout_s=10)
    thread.join(10)
    listener.close()


def test_another_protocol_is_told() -> None:
    with (
        broker(lambda *_: b"HTTP/1.1 400 Bad Request\r\n\r\n") as address,
        pytest.raises(CorruptDataError, match="does not speak the Kafka protocol"),
    ):
        Connection(address, timeout_s=10)


def test_the_wrong_correlation_id_is_told() -> None:
    def answer(_key: int, version: int, correlation_id: int) -> bytes:
        return versions_v0(correlation_id + (version == 0), 35 if version else 0, {18: (0, 0)})

    with broker(answer) as address, pytest.raises(CorruptDataError, match="was due"):
        Connection(address, timeout_s=10)


def test_no_broker_is_told_with_what_to_do() -> None:
    with pytest.raises(ConnectError, match="`kbroker start` runs one"):
        Connection(Address("127.0.0.1", free_ports(1)[0]), timeout_s=10)


def test_a_name_that_is_none_is_told() -> None:
    with pytest.raises(ConnectError, match="cannot reach"):
        Connection(Address("no-such-host.invalid", 1), timeout_s=10)


@pytest.mark.parametrize("backoff_ms", [50, 5000])
def test_the_reason_is_that_of_an_attempt_that_had_time(backoff_ms: int) -> None:
    """The pause before the next one may be longer than what is left of a call."""
    settings = {"reconnect_backoff_ms": backoff_ms, "reconnect_backoff_max_ms": backoff_ms}
    told = "security.protocol has to say so"
    with broker(lambda *_: None) as address:
        with (
            Producer(bootstrap_servers=str(address), max_block_ms=600, **settings) as producer,
            pytest.raises(ConnectError, match=told),
        ):
            producer.send("topic", b"x")
        with Consumer(bootstrap_servers=str(address), **settings) as consumer:
            for call in (consumer.end_offsets, consumer.beginning_offsets):
                with pytest.raises(ConnectError, match=told):
                    call([("topic", 0)], 0.6)


def test_an_attempt_that_had_less_time_tells_the_reason_of_the_one_before() -> None:
    """So does one that had a little more time."""
    answers = 0

    def answer(_key: int, _version: int, _id: int) -> bytes | None:
        nonlocal answers
        answers += 1
        if answers == 1:
            threading.Event().wait(0.2)
        return None if answers == 1 else b""

    with broker(answer) as address:
        reach = Reach(ClusterSettings(reconnect_backoff_s=0.0))
        with pytest.raises(ConnectError, match="closed the connection"):
            reach.connect(address, lambda _: None, float)
        for left_s in 0.05, 0.25:
            with pytest.raises(ConnectError, match="closed the connection"):
                reach.connect(address, lambda _: None, lambda _, left_s=left_s: left_s)
        with pytest.raises(RequestTimeoutError, match=r"API_VERSIONS within 0\.[34]"):
            reach.connect(address, lambda _: None, lambda _: 0.4)


def test_a_reason_that_is_kept_keeps_nobody() -> None:
    """Its frames would lead back to who keeps it."""
    (port,) = free_ports(1)
    reach = Reach(ClusterSettings(reconnect_backoff_s=0.0))
    with contextlib.suppress(ConnectError):
        reach.connect(Address("127.0.0.1", port), lambda _: None, float)
    gone = weakref.ref(reach)
    gc.disable()
    try:
        del reach
        assert gone() is None
    finally:
        gc.enable()


def test_pauses_grow_up_to_their_limit() -> None:
    """Twice as long each time, a fifth more or less, so that clients do not come all at once."""
    for failures in range(12):
        wanted_s = 0.1 * 2 ** max(failures - 1, 0)
        found = [growing(0.1, 10.0, failures) for _ in range(200)]
        assert all(min(0.8 * wanted_s, 10.0) <= one <= min(1.2 * wanted_s, 10.0) for one in found)
        if wanted_s < 8:
            assert max(found) - min(found) > 0.2 * wanted_s
    assert growing(0.1, 10.0, 10**6) == 10.0
    assert growing(0.0, 10.0, 5) == 0.0


def test_bootstrap_takes_the_first_address_that_answers() -> None:
    with broker(old_broker({3: (0, 11)})) as address:
        cluster = Cluster(f"127.0.0.1:{free_ports(1)[0]},{address}", timeout_s=10)
        assert cluster.any_connection().address == address
        assert cluster.any_connection() is cluster.any_connection()
        cluster.any_connection().close()
    with pytest.raises(KafkaError, match="no broker listens"):
        cluster.any_connection()
    cluster.close()
    with pytest.raises(ClosedError):
        cluster.any_connection()
    with pytest.raises(ValueError, match="no bootstrap server"):
        Cluster(" , ")


def test_no_socket_is_left() -> None:
    gc.collect()  # what other tests left to it is not closed in between
    before = len(list(Path("/proc/self/fd").iterdir()))
    with broker(lambda *_: None) as address, contextlib.suppress(ConnectError):
        Connection(address, timeout_s=10)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_an_advertised_address_that_is_none_is_told_as_such() -> None:
    with broker(old_broker({3: (0, 11)})) as address:
        cluster = Cluster(str(address), timeout_s=10)
        nowhere = Address("127.0.0.1", free_ports(1)[0])
        told = {7: Node(7, nowhere, None), 8: Node(8, address, None)}
        cluster.learn_leaders([], told.values())
        assert cluster.connection(8).address == address
        with pytest.raises(ConnectError, match="the broker advertises this address"):
            cluster.connection(7)
        cluster.close()


def metadata_v13(correlation_id: int, error: int, node: Address) -> bytes:
    out = bytearray(struct.pack(">ib", correlation_id, 0))
    brokers = [{"node_id": 1, "host": node.host, "port": node.port}]
    answer = {"brokers": brokers, "controller_id": 1, "error_code": error}
    struct_writer(response_schema(ApiKey.METADATA, 13))(out, answer)
    return framed(bytes(out))


def told_by(made: list[bytes], known: Answer) -> Answer:
    """A broker that answers Metadata with these in turn; b"": not at all."""

    def answer(key: int, version: int, correlation_id: int) -> bytes | None:
        if key != ApiKey.METADATA:
            return known(key, version, correlation_id)
        frame = bytearray(made.pop(0))
        frame[4:8] = struct.pack(">i", correlation_id)
        return bytes(frame)

    return answer


def test_a_broker_may_demand_to_bootstrap_again() -> None:
    known = old_broker({ApiKey.METADATA: (9, 13)})
    told: list[bytes] = []
    with broker(told_by(told, known)) as address:
        told += [metadata_v13(0, code, address) for code in (0, 129, 0)]
        with Cluster(str(address), timeout_s=10) as cluster:
            cluster.refresh([])
            cluster.refresh([])
            assert not told and set(cluster.nodes) == {1}
            assert cluster.metrics()["rebootstrap-total"] == 1


def test_brokers_that_give_no_metadata_for_long_are_given_up() -> None:
    known = old_broker({ApiKey.METADATA: (9, 13)})
    told: list[bytes] = []
    with broker(known) as silent, broker(told_by(told, known)) as address:
        told += [metadata_v13(0, 0, silent), metadata_v13(0, 0, address)]
        settings = ClusterSettings(timeout_s=0.1, call_timeout_s=20, rebootstrap_trigger_s=0.05)
        with Cluster(str(address), settings=settings) as cluster:
            cluster.refresh([])
            assert cluster.nodes[1].address == silent
            cluster.any_connection().close()
            cluster.refresh([])
            assert cluster.nodes[1].address == address
            assert cluster.metrics()["rebootstrap-total"] == 1


@pytest.mark.parametrize("address", [
    Address("127.0.0.1", 65536), Address("127.0.0.1", -1), Address("a" * 64, 1),
    Address("a\0b", 1), Address("", 1), Address("..", 1), Address("\udcff", 1),
])  # fmt: skip
def test_addresses_that_no_broker_can_have(address: Address) -> None:
    with pytest.raises(ConnectError):
        Connection(address, timeout_s=1)


def test_connections_cut_off_in_their_making_can_be_dropped() -> None:
    """An exception of a signal handler may come before `__init__` has run."""
    Connections.__new__(Connections).__del__()
