"""F21 and F22: batches that lie about themselves, and bombs."""

from __future__ import annotations

import gzip
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import cache

import pytest

from tests.differential.crafted import crafted
from tests.reference.crafted_batches import (
    GZIP,
    LZ4,
    SNAPPY,
    ZSTD,
    Batch,
    Record,
    batch,
    compress,
    parse_batches,
    varint,
)
from tests.support import wire
from tests.support.processes import BrokerProcess
from tests.support.tally import Tally
from tests.support.wire import FETCH, LIST_OFFSETS, PRODUCE, WireConnection
from tests.wire.test_connections import fetch_body, produce_body, still_serves

LONG = pytest.mark.long
StartBroker = Callable[..., BrokerProcess]
#: A compressed batch of a topic that asks for nothing else is stored as it came.
UNREAD = {f"{codec} of garbage" for codec in ("gzip", "snappy", "lz4", "zstd")}


def produce(connection: WireConnection, topic: str, data: bytes) -> tuple[int, int]:
    """Error code and base offset."""
    answer = connection.call(PRODUCE, 9, produce_body(topic, data))
    part = answer["responses"][0]["partition_responses"][0]
    return int(part["error_code"]), int(part["base_offset"])


def broken_records(connection: WireConnection, topic: str) -> list[str]:
    """What a reader could not make sense of, of all that is stored."""
    found, offset = [], 0
    while True:
        answer = connection.call(FETCH, 11, fetch_body(topic, offset))
        part = answer["responses"][0]["partitions"][0]
        assert part["error_code"] == 0, part
        if not part["records"]:
            return found
        for one in parse_batches(part["records"]):
            if "records" not in one:
                break
            deltas = [record["offset_delta"] for record in one["records"]]
            right = one["crc_is_right"] and one["magic"] == 2 and one["base_offset"] == offset
            if not right or deltas != list(range(one["last_offset_delta"] + 1)):
                found.append(f"at {offset}: {one}")
            offset = one["base_offset"] + one["last_offset_delta"] + 1


def test_batches_that_lie(start_kbroker: StartBroker, tally: Tally) -> None:
    """Refused with nothing appended, or stored so that every reader can make sense of it."""
    broker = start_kbroker()
    lies = crafted(int(time.time() * 1000))
    refused = stored = wrong = 0
    with WireConnection(broker.port, timeout_s=60) as connection:
        for number, (name, data) in enumerate(lies.items()):
            topic = f"lies-{number}"
            wire.create_topic(broker.port, topic)
            assert produce(connection, topic, batch(b"before")) == (0, 0)
            code, _ = produce(connection, topic, data)
            refused, stored = refused + (code != 0), stored + (code == 0)
            _, after = produce(connection, topic, batch(b"after"))
            wrong += after != 1 if code else after < 2
            if name not in UNREAD:
                wrong += len(broken_records(connection, topic))
    tally("F21", tried=refused, lost=wrong, control=stored)
    assert not wrong
    assert refused > 40 and stored > 10, (refused, stored)


# --- F22 ----------------------------------------------------------------------------------------

MIB = 1 << 20
CODECS = {"gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD}
#: What the broker may take for all of them together, beyond what it has.
GROWTH_MAX_KIB = 500 * 1024


@cache
def bomb(codec: int, plain_bytes: int) -> bytes:
    """A batch of one record of zeros; small on the wire where the codec can make it so."""
    body = b"\0" + varint(0) + varint(0) + varint(-1) + varint(plain_bytes) + bytes(plain_bytes)
    plain = varint(len(body) + 1) + body + varint(0)
    return Batch(codec=codec, payload=compress(codec, plain), records=[Record()]).encode()


class Watch(threading.Thread):
    """Notes the most memory that a broker has held."""

    def __init__(self, broker: BrokerProcess) -> None:
        super().__init__(daemon=True)
        self.broker, self.before = broker, broker.resident_kib()
        self.most_kib, self.stopping = 0, threading.Event()

    def run(self) -> None:
        while not self.stopping.wait(0.01):
            self.most_kib = max(self.most_kib, self.broker.resident_kib())

    def growth_kib(self) -> int:
        self.stopping.set()
        self.join()
        return self.most_kib - self.before


def drop(port: int, topic: str, data: bytes, answers: list[int]) -> None:
    with WireConnection(port, timeout_s=240) as connection:
        code, _ = produce(connection, topic, data)
        answers.append(code)
        part = {"partition_index": 0, "timestamp": 0}
        asked = {"replica_id": -1, "topics": [{"name": topic, "partitions": [part]}]}
        connection.call(LIST_OFFSETS, 6, asked)


TOPICS = {
    "plain": {"max.message.bytes": "104857600"},
    "compacted": {"max.message.bytes": "104857600", "cleanup.policy": "compact"},
    "recompressed": {"max.message.bytes": "104857600", "compression.type": "zstd"},
}


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(
    ("mib", "at_once"),
    [(128, 4), pytest.param(1024, 16, marks=LONG)],
)
def test_bombs(
    start_kbroker: StartBroker, codec: str, mib: int, at_once: int, tally: Tally
) -> None:
    """On a topic that stores what comes, one that is compacted, one that compresses anew; then
    asked for by time, which looks inside. Refused or stored unread, and the memory is bounded."""
    if codec == "snappy":
        mib = min(mib, 256)  # on the wire a twentieth of it
    data = bomb(CODECS[codec], mib * MIB)
    broker = start_kbroker()
    for topic, configs in TOPICS.items():
        wire.create_topic(broker.port, topic, 1, configs)
    still_serves(broker)
    watch = Watch(broker)
    watch.start()
    answers: dict[str, list[int]] = {topic: [] for topic in TOPICS}
    for topic, told in answers.items():
        drops = [
            threading.Thread(target=drop, args=(broker.port, topic, data, told))
            for _ in range(at_once)
        ]
        for thread in drops:
            thread.start()
        for thread in drops:
            thread.join()
    growth_kib = watch.growth_kib()
    tally("F22", tried=3 * at_once, lost=int(growth_kib > GROWTH_MAX_KIB))
    assert growth_kib < GROWTH_MAX_KIB, f"{growth_kib} KiB; {answers}"
    assert [len(told) for told in answers.values()] == [at_once] * 3, answers
    # What is compressed as its topic asks for is stored unread.
    opened = ["compacted"] if codec == "zstd" else ["compacted", "recompressed"]
    assert not any(code == 0 for topic in opened for code in answers[topic])
    still_serves(broker)
    assert broker.is_running()


def test_control_who_unpacks_a_bomb_takes_its_size(tally: Tally) -> None:
    """It is one: whoever decompresses it without a bound holds all of it."""
    small = gzip.compress(bytes(256 * MIB), 1)
    assert len(small) < 2 * MIB
    script = ("import gzip, resource, sys; gzip.decompress(sys.stdin.buffer.read()); "
              "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)")  # fmt: skip
    told = subprocess.run(
        [sys.executable, "-c", script], input=small, capture_output=True, check=True
    )
    grown = int(told.stdout) > 256 * 1024
    tally("F22", control=int(grown))
    assert grown and resource.getpagesize()
