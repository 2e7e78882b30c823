"""Produce, Fetch and ListOffsets go from socket to socket while the broker's GIL is held.

A test hook of the broker (KBROKER_TEST_HOOKS=1, SIGUSR2) takes the GIL and keeps it until the next
such signal, a minute at most; it prints a line before and after. No clock is asked: that all of
this happened while the GIL was held is told by the second line, which must not be there yet when
the work is done, and by a Metadata request of before, which must still be unanswered.
"""

from __future__ import annotations

import signal
import ssl
import threading
from collections.abc import Callable, Iterator

import pytest

from tests.reference.crafted_batches import batch, values_of
from tests.support import wire
from tests.support.certificates import Authority
from tests.support.kbroker import KbrokerProcess
from tests.support.waits import wait_for
from tests.support.wire import (
    API_VERSIONS,
    FETCH,
    LIST_OFFSETS,
    METADATA,
    PRODUCE,
    WireConnection,
)
from tests.wire.test_connections import fetch_body, offsets_body, produce_body

HELD, FREE = "test hook: the GIL is held", "test hook: the GIL is free"
ROUNDS, AT_ONCE = 50, 20


Connect = Callable[[], WireConnection]


@pytest.fixture
def held(
    start_kbroker: Callable[..., KbrokerProcess], topic: str, authority: Authority
) -> Iterator[KbrokerProcess]:
    """A broker with a topic of small segments; the test takes its GIL by `hold`."""
    store = authority.issue("broker").pem
    settings = {"num.network.threads": "2", "ssl.keystore.location": str(store)}
    broker = start_kbroker(settings, hooks=True, listeners=("SSL",))
    wire.create_topic(broker.port, topic, 1, {"segment.bytes": "1048576"})
    yield broker
    if is_held(broker):  # a test failed on its way
        free(broker)


@pytest.fixture(params=["PLAINTEXT", "SSL"])
def connect(request: pytest.FixtureRequest, held: KbrokerProcess, authority: Authority) -> Connect:
    """Makes a connection; TLS is shaken hands over by the network threads alone."""
    if request.param == "PLAINTEXT":
        return lambda: WireConnection(held.port)
    context = ssl.create_default_context(cafile=str(authority.certificate))
    return lambda: WireConnection(held.ports["SSL"], tls=context)


def hold(broker: KbrokerProcess) -> None:
    """Returns when the broker says that its GIL is taken."""
    before = broker.log_text().count(HELD)
    broker.process.send_signal(signal.SIGUSR2)  # type: ignore[union-attr]
    wait_for("the GIL is held", lambda: broker.log_text().count(HELD) > before, 60)


def free(broker: KbrokerProcess) -> None:
    """Has the broker give its GIL back."""
    broker.process.send_signal(signal.SIGUSR2)  # type: ignore[union-attr]
    wait_for("the GIL is free", lambda: not is_held(broker), 60)


def is_held(broker: KbrokerProcess) -> bool:
    text = broker.log_text()
    return text.count(HELD) > text.count(FREE)


def produce(connection: WireConnection, topic: str, value: bytes, acks: int = -1) -> int:
    answer = connection.call(PRODUCE, 9, produce_body(topic, batch(value), acks))
    (part,) = answer["responses"][0]["partition_responses"]
    assert part["error_code"] == 0
    return int(part["base_offset"])


def fetch(connection: WireConnection, topic: str, offset: int) -> bytes | None:
    """The value at an offset; what acks=1 told is there once it is on the disk."""
    body = fetch_body(topic, offset, max_wait=10_000, min_bytes=1)
    answer = connection.call(FETCH, 11, body)
    return values_of(answer["responses"][0]["partitions"][0]["records"])[0][1]


def produce_and_fetch(connection: WireConnection, topic: str, first: int) -> int:
    """So many of each in flight at once, acks=1 and acks=all in turn; the next offset."""
    values = [b"%d " % number + b"x" * 1500 for number in range(first, first + AT_ONCE)]
    sent = [
        connection.send(PRODUCE, 9, produce_body(topic, batch(value), (-1, 1)[at % 2]))
        for at, value in enumerate(values)
    ]
    for at, correlation_id in enumerate(sent):
        answer = connection.receive(PRODUCE, 9, correlation_id)
        (part,) = answer["responses"][0]["partition_responses"]
        assert (part["error_code"], part["base_offset"]) == (0, first + at)
    sent = [
        connection.send(FETCH, 11, fetch_body(topic, first + at, max_wait=10_000, min_bytes=1))
        for at in range(AT_ONCE)
    ]
    for at, correlation_id in enumerate(sent):
        answer = connection.receive(FETCH, 11, correlation_id)
        records = answer["responses"][0]["partitions"][0]["records"]
        assert values_of(records)[0] == (first + at, values[at])
    return first + AT_ONCE


def look_up(connection: WireConnection, topic: str, end: int) -> None:
    """Both ends of a log that holds `end` records, and records by time, by both isolations."""
    for level in (0, 1):
        for timestamp, offset in ((-1, end), (-2, 0), (0, 0), (2**62, -1)):
            body = offsets_body(topic, timestamp, isolation_level=level)
            (found,) = connection.call(LIST_OFFSETS, 7, body)["topics"][0]["partitions"]
            assert (found["error_code"], found["offset"]) == (0, offset)


def unanswered(connection: WireConnection, topic: str) -> int:
    """Asks the control plane until it does not answer; the id of the request that it holds.

    The broker tells that it takes the GIL before it does.
    """
    while True:
        correlation_id = connection.send(METADATA, 9, {"topics": [{"name": topic}]})
        if connection.is_silent(0.2):
            return correlation_id
        connection.receive(METADATA, 9, correlation_id)


def test_data_plane_needs_no_gil(held: KbrokerProcess, connect: Connect, topic: str) -> None:
    """Connections of before, thousands of requests, a roll, a long poll, connections that come."""
    connection, poller, control = connect(), connect(), connect()
    produce(connection, topic, b"before")
    hold(held)
    stuck = unanswered(control, topic)
    offset = 1
    for _ in range(ROUNDS):
        offset = produce_and_fetch(connection, topic, offset)
        look_up(connection, topic, offset)
    body = fetch_body(topic, offset, max_wait=60_000, min_bytes=1)
    polled = poller.send(FETCH, 11, body)
    for _ in range(50):
        with connect() as newcomer:
            newcomer.call(API_VERSIONS, 3, {})
            assert fetch(newcomer, topic, 0) == b"before"
    produce(connection, topic, b"wakes the poll")
    answer = poller.receive(FETCH, 11, polled)
    assert values_of(answer["responses"][0]["partitions"][0]["records"]) == [
        (offset, b"wakes the poll")
    ]
    assert is_held(held), "the work was done only when the GIL was free"
    assert control.is_silent(0.05)
    free(held)
    control.receive(METADATA, 9, stuck)
    segments = sorted(held.partition_dir(topic, 0).glob("*.log"))
    assert len(segments) > 1
    for each in (connection, poller, control):
        each.close()


def test_many_connections_at_once(held: KbrokerProcess, connect: Connect, topic: str) -> None:
    """Sixteen clients of before, each with requests in flight."""
    connections = [connect() for _ in range(16)]
    hold(held)
    errors: list[BaseException] = []

    def work(connection: WireConnection) -> None:
        try:
            for _ in range(20):
                ids = [
                    connection.send(PRODUCE, 9, produce_body(topic, batch(b"m"))) for _ in range(5)
                ]
                for correlation_id in ids:
                    connection.receive(PRODUCE, 9, correlation_id)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(each,)) for each in connections]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert is_held(held)
    free(held)
    for each in connections:
        each.close()
