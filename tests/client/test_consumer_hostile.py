"""A consumer whose broker answers nonsense: a clear error, no crash, no loop without an end."""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import threading
from collections.abc import Callable, Iterator

import pytest

from kbroker.client import Consumer
from kbroker.client.errors import CorruptDataError, KafkaError
from kbroker.ext import records
from kbroker.protocol import ApiKey
from kbroker.protocol.encode import struct_writer
from kbroker.protocol.schemas import response_schema

TOPIC = "hostile"
NOW = 1_700_000_000_000
VERSIONS = {ApiKey.METADATA: (9, 9), ApiKey.LIST_OFFSETS: (6, 6), ApiKey.FETCH: (12, 12)}
Answer = Callable[[int], bytes]


class Broker:
    """Speaks just enough for a consumer without a group; `fetched` makes the records' bytes of a
    Fetch answer, or with `raw` the whole body."""

    def __init__(self, fetched: Answer, *, raw: bool = False) -> None:
        self._fetched = fetched
        self._raw = raw
        self.fetches = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for one in self._open:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                taken, _ = self._listener.accept()
                self._open.append(taken)
                self._threads.append(threading.Thread(target=self._serve, args=(taken,)))
                self._threads[-1].start()

    def _serve(self, taken: socket.socket) -> None:
        with contextlib.suppress(OSError, struct.error):
            stream = taken.makefile("rb")
            while length := stream.read(4):
                request = stream.read(struct.unpack(">i", length)[0])
                key, version, correlation = struct.unpack_from(">hhi", request)
                body = self._answer(ApiKey(key), version)
                if key == ApiKey.PRODUCE:  # acks=0
                    continue
                head = struct.pack(">i", correlation)
                head += b"" if key == ApiKey.API_VERSIONS else b"\0"
                taken.sendall(struct.pack(">i", len(head) + len(body)) + head + body)

    def _answer(self, key: ApiKey, version: int) -> bytes:
        if key == ApiKey.API_VERSIONS:
            keys = {**VERSIONS, ApiKey.API_VERSIONS: (0, 3)}
            rows = b"".join(struct.pack(">hhhb", key, *span, 0) for key, span in keys.items())
            return struct.pack(">hb", 0, len(keys) + 1) + rows + struct.pack(">ib", 0, 0)
        out = bytearray()
        writer = struct_writer(response_schema(key, version))
        if key == ApiKey.METADATA:
            part = {"partition_index": 0, "leader_id": 1, "replica_nodes": [1], "isr_nodes": [1]}
            writer(out, {
                "brokers": [{"node_id": 1, "host": "127.0.0.1", "port": self.port}],
                "controller_id": 1,
                "topics": [{"name": TOPIC, "partitions": [part]}],
            })  # fmt: skip
        elif key == ApiKey.LIST_OFFSETS:
            part = {"partition_index": 0, "offset": 0, "timestamp": -1, "leader_epoch": -1}
            writer(out, {"topics": [{"name": TOPIC, "partitions": [part]}]})
        else:
            self.fetches += 1
            data = self._fetched(self.fetches)
            return data if self._raw else fetch_body(data)
        return bytes(out)


def fetch_body(data: bytes | None, topic: bytes = TOPIC.encode(), partition: int = 0) -> bytes:
    """Version 12: one topic with one partition."""
    part = struct.pack(">ihqqqbi", partition, 0, 100, 100, 0, 1, -1)
    n, size = len(data or b"") + 1, b""
    while n >= 0x80:
        size, n = size + bytes([n & 0x7F | 0x80]), n >> 7
    part += size + bytes([n]) + (data or b"") + b"\0"
    named = bytes([len(topic) + 1]) + topic
    return struct.pack(">ihi", 0, 0, 0) + b"\2" + named + b"\2" + part + b"\0" + b"\0"


@pytest.fixture
def hostile() -> Iterator[Callable[..., tuple[Broker, Consumer]]]:
    made: list[tuple[Broker, Consumer]] = []

    def make(fetched: Answer, **how: bool) -> tuple[Broker, Consumer]:
        broker = Broker(fetched, **how)
        consumer = Consumer(
            bootstrap_servers=f"127.0.0.1:{broker.port}",
            auto_offset_reset="earliest",
            retry_backoff_ms=10,
        )
        made.append((broker, consumer))
        consumer.assign([(TOPIC, 0)])
        return made[-1]

    yield make
    for broker, consumer in made:
        consumer.close()
        broker.close()


def batch(offset: int = 0, count: int = 3, **how: object) -> bytes:
    return records.build([(NOW, b"k", b"v" * 50)] * count, base_offset=offset, **how)


def flipped(data: bytes) -> bytes:
    return data[:-3] + bytes([data[-3] ^ 1]) + data[-2:]


BAD = {
    "a bad checksum": flipped(batch()),
    "half a batch": batch()[:-5],
    "a length below a batch's": batch()[:8] + struct.pack(">i", 3) + batch()[12:],
    "a length beyond the answer": batch()[:8] + struct.pack(">i", 1 << 30) + batch()[12:],
    "an old format": batch()[:16] + b"\1" + batch()[17:],
    "an offset below 0": struct.pack(">q", -5) + batch()[8:],
    "an offset at the end of numbers": struct.pack(">q", (1 << 63) - 2) + batch()[8:],
    "zeros": bytes(200),
    "no batch": b"x" * 100,
    "a bomb": records.build([(NOW, None, bytes(90 << 20))] * 3, codec="zstd"),
}


@pytest.mark.parametrize("what", BAD)
def test_records_that_cannot_be_read(
    hostile: Callable[..., tuple[Broker, Consumer]], what: str
) -> None:
    broker, consumer = hostile(lambda n: BAD[what])
    for _ in range(2):
        with pytest.raises(CorruptDataError, match=f"{TOPIC}-0 at offset"):
            consumer.poll(60)
    assert consumer.position((TOPIC, 0)) == 0
    assert broker.fetches < 20, "what is bad is asked for once a poll"


def test_what_was_damaged_on_the_way_is_read_at_the_second_try(
    hostile: Callable[..., tuple[Broker, Consumer]],
) -> None:
    _, consumer = hostile(lambda n: flipped(batch()) if n == 1 else batch())
    with pytest.raises(CorruptDataError, match=f"{TOPIC}-0 at offset 0"):
        consumer.poll(60)
    assert [record.offset for record in consumer.poll(60)] == [0, 1, 2]


def test_records_before_the_bad_one_come_first(
    hostile: Callable[..., tuple[Broker, Consumer]],
) -> None:
    _, consumer = hostile(lambda n: batch() + flipped(batch(3)))
    assert [record.offset for record in consumer.poll(60)] == [0, 1, 2]
    with pytest.raises(CorruptDataError):
        consumer.poll(60)
    assert consumer.position((TOPIC, 0)) == 3
    consumer.seek((TOPIC, 0), 0)
    assert len(consumer.poll_batch(20)) == 3
    with pytest.raises(CorruptDataError):
        consumer.poll_batch(20)


def test_answers_that_are_none(hostile: Callable[..., tuple[Broker, Consumer]]) -> None:
    bodies = [b"", b"\0" * 3, b"\xff" * 60, fetch_body(batch())[:-40], b"\0" * 10 + b"\xff" * 9]
    _, consumer = hostile(lambda n: bodies[n % len(bodies)], raw=True)
    with pytest.raises(CorruptDataError, match="no Fetch answer"):
        consumer.poll(60)


def test_answers_about_something_else(hostile: Callable[..., tuple[Broker, Consumer]]) -> None:
    def answer(n: int) -> bytes:
        if n == 1:
            return fetch_body(batch(), partition=7)
        if n == 2:
            return fetch_body(batch(), b"another")
        return fetch_body(batch())

    _, consumer = hostile(answer, raw=True)
    assert [record.offset for record in consumer.poll(60)] == [0, 1, 2]


def test_any_damage_of_an_answer(hostile: Callable[..., tuple[Broker, Consumer]]) -> None:
    """Bytes changed anywhere: records, an error of the client, or nothing; then sound again."""
    chosen = random.Random(5)
    sound = fetch_body(batch())

    def answer(n: int) -> bytes:
        if n > 300:
            return sound
        bad = bytearray(sound)
        for _ in range(chosen.randrange(1, 4)):
            bad[chosen.randrange(len(bad))] = chosen.choice([0, 1, 0x7F, 0x80, 0xFF])
        return bytes(bad[: chosen.choice([len(bad)] * 3 + [chosen.randrange(len(bad))])])

    broker, consumer = hostile(answer, raw=True)
    for _ in range(60):
        with contextlib.suppress(KafkaError):
            consumer.poll(0.05)
            consumer.seek((TOPIC, 0), 0)
    assert broker.fetches > 0
