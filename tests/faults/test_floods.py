"""F16, F17 and F19: clients that do not read, come and go, hold what there is, and never wait."""

from __future__ import annotations

import resource
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest

from tests.reference.crafted_batches import batch
from tests.support import wire
from tests.support.processes import BrokerProcess
from tests.support.rounds import rounds, scaled
from tests.support.tally import Tally
from tests.support.waits import wait_for
from tests.support.wire import (
    API_VERSIONS,
    CREATE_TOPICS,
    DESCRIBE_CLUSTER,
    FETCH,
    LIST_OFFSETS,
    METADATA,
    PRODUCE,
    WireConnection,
)  # fmt: skip
from tests.wire.test_bad_input import is_closed, watched
from tests.wire.test_connections import fetch_body, frame, produce_body

LONG = pytest.mark.long
StartBroker = Callable[..., BrokerProcess]
POLICY_VIOLATION = 44
RST_ON_CLOSE = struct.pack("ii", 1, 0)

#: With ports of its own: the kernel looks through those in use for whoever connects from there.
NEIGHBOUR = ("127.0.0.2", 0)


@contextmanager
def many_files() -> Iterator[int]:
    """As many open files as this process may have; yields how many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        yield hard
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def filled_topic(port: int) -> None:
    wire.create_topic(port, "large")
    for _ in range(4):
        wire.call_once(port, PRODUCE, 9, produce_body("large", batch(b"x" * 900_000)))


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("count", [100, pytest.param(2000, marks=LONG)])
def test_who_never_reads_costs_nothing(
    start_kbroker: StartBroker, count: int, tally: Tally
) -> None:
    """Each asks for 40 MB and reads none of it: no memory is held for it, others are served."""
    broker = start_kbroker()
    filled_topic(broker.port)
    asked = frame(FETCH, 11, fetch_body("large", 0, max_bytes=1 << 20)) * 40
    with many_files(), watched(broker) as client, ExitStack() as held:
        for _ in range(count):
            sock = socket.socket()
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.connect(("127.0.0.1", broker.port))
            sock.settimeout(60)
            sock.sendall(asked)
            held.enter_context(sock)
        wait_for("each holds its connection", lambda: broker.open_files() > count, 60)
        tally("F16", control=1)
        rounds = client.rounds
        wait_for("the healthy client goes on", lambda: client.rounds > rounds + 5, 60)
    tally("F16", tried=count)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    # What a connection leaves behind shows in thousands; the held ones are the limit of files.
    ("held", "comers"),
    [(500, 3000), pytest.param(19_000, scaled(100_000, full=1_000_000), marks=LONG)],
)
def test_who_comes_and_goes(
    start_kbroker: StartBroker, held: int, comers: int, tally: Tally
) -> None:
    """Many stay and say nothing, many more connect and reset: in the end all is given back."""
    broker = start_kbroker()
    before = broker.open_files()
    with many_files() as limit, ExitStack() as sockets, watched(broker):
        for _ in range(min(held, limit - 500)):
            sockets.enter_context(
                socket.create_connection(("127.0.0.1", broker.port), source_address=NEIGHBOUR)
            )
        wait_for("they are all served", lambda: broker.open_files() > before + held * 0.9, 120)
        tally("F17", control=broker.open_files() - before)
        for _ in range(comers):
            sock = socket.create_connection(("127.0.0.1", broker.port))
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RST_ON_CLOSE)
            sock.close()
        sockets.close()
    wait_for("all is given back", lambda: broker.open_files() <= before + 8, 60)
    wire.call_once(broker.port, API_VERSIONS, 0)
    tally("F17", tried=held + comers)


@pytest.mark.timeout(600)
def test_no_descriptor_left(start_kbroker: StartBroker, tally: Tally) -> None:
    """A broker whose connections may take no more files does not spin, serves whom it has, with an
    API that nobody asked for before, refuses new topics, and recovers."""
    broker = start_kbroker()
    with WireConnection(broker.port) as first:
        first.call(METADATA, 9, {"topics": []})
        limit = broker.open_files() + 100
        _, hard = resource.prlimit(broker.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, (limit, hard))
        late = [socket.create_connection(("127.0.0.1", broker.port)) for _ in range(200)]
        wait_for("they get no more", lambda: "cannot accept" in broker.log_text(), 60)
        used, seen = broker.processor_s(), broker.open_files()
        assert not any(is_closed(sock) for sock in late[:5])
        for _ in range(50):
            first.call(METADATA, 9, {"topics": []})
        assert first.call(DESCRIBE_CLUSTER, 1, {})["error_code"] == 0
        made = {"name": "late", "num_partitions": 1, "replication_factor": 1}
        answer = first.call(CREATE_TOPICS, 7, {"topics": [made], "timeout": 30_000})
        assert answer["topics"][0]["error_code"] == POLICY_VIOLATION, answer
        assert broker.processor_s() - used < 2
        assert seen < limit and not answers_soon(broker.port)
        tally("F17", tried=len(late), control=1)
        for sock in late:
            sock.close()
        resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, (hard, hard))
    wire.call_once(broker.port, API_VERSIONS, 0)


def answers_soon(port: int) -> bool:
    with WireConnection(port) as connection:
        connection.send(API_VERSIONS, 0)
        return not connection.is_silent(0.3)


# --- F19 ----------------------------------------------------------------------------------------

REQUESTS = 10_000


def in_order(expected: list[int], got: list[int]) -> bool:
    """Every answer, each in its request's turn."""
    return got == expected


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("rounds", rounds(1, long=15, full=100))
def test_ten_thousand_requests_before_the_first_answer_is_read(
    start_kbroker: StartBroker, topic: str, rounds: int, tally: Tally
) -> None:
    """Of both planes, and a thousand without answers among them: answered in their order."""
    broker = start_kbroker()
    wire.create_topic(broker.port, topic)
    kinds = [
        (API_VERSIONS, 0, {}),
        (PRODUCE, 9, produce_body(topic, batch(b"x"), acks=0)),
        (METADATA, 9, {"topics": []}),
        (FETCH, 11, fetch_body(topic, 0, max_bytes=100)),
        (LIST_OFFSETS, 6, {"replica_id": -1, "topics": []}),
    ]
    for turn in range(rounds):
        expected: list[int] = []
        data = bytearray()
        for number in range(REQUESTS):
            key, version, body = kinds[number % 5 if number % 2 else 0]
            data += frame(key, version, body, correlation_id=number)
            if key != PRODUCE:
                expected.append(number)
        got = answers_to(broker.port, bytes(data), len(expected))
        tally("F19", tried=1, lost=int(not in_order(expected, got)))
        assert in_order(expected, got)
        swapped = [*got[:100], got[101], got[100], *got[102:]]
        tally("F19", control=int(not in_order(expected, swapped)))
        assert turn or not in_order(expected, swapped)


def answers_to(port: int, data: bytes, count: int) -> list[int]:
    """Correlation ids in the order in which they come; reading begins when no more can be sent."""
    got: list[int] = []
    with WireConnection(port, timeout_s=120) as connection:
        connection.socket.setblocking(False)
        sent = 0
        while sent < len(data):
            try:
                sent += connection.socket.send(data[sent : sent + 65536])
            except BlockingIOError:
                connection.socket.settimeout(120)
                got.append(struct.unpack_from(">i", connection.receive_frame())[0])
                connection.socket.setblocking(False)
        connection.socket.settimeout(120)
        while len(got) < count:
            got.append(struct.unpack_from(">i", connection.receive_frame())[0])
    return got
