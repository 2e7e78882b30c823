"""F9: an answer that is begun, with regions of files in it, and given up since a read fails.

The connection ends, and nothing of the answer is sent. What the client had asked for before is in
the output at that moment: the regions of the broken answer may not be taken for a part of that.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.reference.crafted_batches import batch, values_of
from tests.support import wire
from tests.support.certificates import Authority
from tests.support.kbroker import KbrokerProcess
from tests.support.tally import Tally
from tests.support.wire import (
    API_VERSIONS,
    FETCH,
    PRODUCE,
    ConnectionClosedError,
    WireConnection,
)
from tests.wire.test_connections import fetch_body, frame

StartBroker = Callable[..., KbrokerProcess]
LARGE = 20_000  # goes by sendfile
SMALL = 5_000  # is copied, by a read that can fail
LEFT = 200
AHEAD = 3


def fill(port: int, topic: str) -> None:
    """A large record in partition 0, a small one in partition 1."""
    wire.create_topic(port, topic, 2)
    with WireConnection(port) as connection:
        for index, size in ((0, LARGE), (1, SMALL)):
            data = [{"index": index, "records": batch(b"x" * size)}]
            topics = [{"name": topic, "partition_data": data}]
            connection.call(PRODUCE, 9, {"acks": -1, "timeout": 10_000, "topic_data": topics})


def fetch_both(topic: str) -> dict[str, object]:
    parts = [
        {"partition": index, "fetch_offset": 0, "partition_max_bytes": 1 << 20} for index in (0, 1)
    ]
    return fetch_body(topic, 0, topics=[{"topic": topic, "partitions": parts}])


@contextmanager
def cut(log: Path) -> Iterator[None]:
    """The file is shorter than the broker knows, as with a disk that lost its end; then whole."""
    content = log.read_bytes()
    os.truncate(log, LEFT)
    try:
        yield
    finally:
        with log.open("r+b") as file:
            file.write(content)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("over", ["PLAINTEXT", "SSL"])
def test_an_answer_given_up_behind_others(
    start_kbroker: StartBroker, topic: str, over: str, authority: Authority, tally: Tally
) -> None:
    settings = {"ssl.keystore.location": str(authority.issue("broker").pem)}
    broker = start_kbroker(settings, listeners=("SSL",))
    port, tls = broker.port, None
    if over == "SSL":
        port = broker.ports["SSL"]
        tls = ssl.create_default_context(cafile=str(authority.certificate))
    fill(broker.port, topic)
    (log,) = broker.partition_dir(topic, 1).glob("*.log")
    files = broker.open_files()
    ahead = frame(API_VERSIONS, 0, {})
    with cut(log):
        for _ in range(10):
            with WireConnection(port, tls=tls) as connection:
                connection.send_bytes(ahead * AHEAD + frame(FETCH, 11, fetch_both(topic)))
                for _ in range(AHEAD):
                    connection.receive(API_VERSIONS, 0, 7)
                with pytest.raises((ConnectionClosedError, ssl.SSLError)):
                    connection.receive_frame()
            assert broker.is_running()
    tally("F9", tried=10)
    with WireConnection(port, tls=tls) as connection:
        answer = connection.call(FETCH, 11, fetch_both(topic))
        found = [values_of(part["records"]) for part in answer["responses"][0]["partitions"]]
        assert found == [[(0, b"x" * LARGE)], [(0, b"x" * SMALL)]]
    assert broker.open_files() <= files + 1, "a region keeps its file"
