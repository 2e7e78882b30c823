"""F7: kill -9 while the disk's limit deletes old segments: what is left is whole and in order."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.faults.test_disk import produce
from tests.reference.crafted_batches import values_of
from tests.support import wire
from tests.support.kafka import dump_log
from tests.support.processes import BrokerProcess
from tests.support.tally import Tally
from tests.support.waits import wait_for
from tests.support.wire import FETCH, LIST_OFFSETS, ConnectionClosedError, WireConnection
from tests.wire.test_connections import fetch_body

CAP = 16 << 20
TOPICS = ("one", "two")


@contextmanager
def writing(broker: BrokerProcess, acked: dict[str, dict[int, int]]) -> Iterator[None]:
    """A thread for each topic that produces numbered records until the broker goes."""

    def write(topic: str) -> None:
        number = max(acked[topic].values(), default=-1) + 1000
        try:
            with WireConnection(broker.port) as connection:
                while True:
                    part = produce(connection, topic, number)
                    assert part["error_code"] == 0, part
                    acked[topic][part["base_offset"]] = number
                    number += 1
        except (ConnectionClosedError, ConnectionError):
            return

    threads = [threading.Thread(target=write, args=(topic,)) for topic in TOPICS]
    for thread in threads:
        thread.start()
    yield
    for thread in threads:
        thread.join()


def offset_at(connection: WireConnection, topic: str, timestamp: int) -> int:
    partition = {"partition_index": 0, "timestamp": timestamp}
    asked = {"replica_id": -1, "topics": [{"name": topic, "partitions": [partition]}]}
    answer = connection.call(LIST_OFFSETS, 6, asked)
    return int(answer["topics"][0]["partitions"][0]["offset"])


def served(broker: BrokerProcess, topic: str) -> dict[int, int]:
    """Offset -> number of all that is left."""
    found: dict[int, int] = {}
    with WireConnection(broker.port) as connection:
        offset, end = (offset_at(connection, topic, which) for which in (-2, -1))
        while offset < end:
            answer = connection.call(FETCH, 11, fetch_body(topic, offset))
            part = answer["responses"][0]["partitions"][0]
            assert part["error_code"] == 0, part
            for at, value in values_of(part["records"]):
                assert at == offset
                assert value is not None
                found[at] = int(value.split(b" ")[0])
                offset += 1
    return found


@pytest.mark.timeout(300)
def test_kill_while_the_oldest_goes(
    start_kbroker: Callable[..., BrokerProcess], tally: Tally
) -> None:
    moments = random.Random(7)
    broker = start_kbroker({"kbroker.disk.bytes.max": str(CAP)})
    acked: dict[str, dict[int, int]] = {topic: {} for topic in TOPICS}
    for topic in TOPICS:
        wire.create_topic(broker.port, topic, 1, {"segment.bytes": "1048576"})
    for _ in range(5):
        with writing(broker, acked):
            more = sum(map(len, acked.values())) + moments.randint(400, 700)  # 20 to 35 MB
            wait_for("records", lambda n=more: sum(map(len, acked.values())) >= n, 60, 0.001)
            broker.kill()
        broker.start()
        for topic in TOPICS:
            left = served(broker, topic)
            first = min(left)
            assert first > 0, "the oldest have gone"
            kept = {offset: number for offset, number in acked[topic].items() if offset >= first}
            assert kept.items() <= left.items()
            assert len(kept) > 20
        tally("F7", tried=1)
    assert broker.stop() == 0
    for topic in TOPICS:
        dump_log(sorted(broker.partition_dir(topic, 0).glob("*.log")))
