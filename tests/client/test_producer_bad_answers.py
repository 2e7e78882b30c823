"""A broker that answers a Produce with nonsense, cuts it, lies or is silent: what was sent is there
once and in order all the same, and where nothing helps the error says so."""

from __future__ import annotations

import random
import struct
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from kbroker.client.errors import DeliveryTimeoutError
from kbroker.client.producer import Producer
from kbroker.ext.testing_producer import read_produce_answer
from tests.client.reading import read_all
from tests.fuzz import produce_answers
from tests.support import wire
from tests.support.middle import CUT, Middle

PRODUCE = 0
RECORDS = 2000


def _garbage(number: int, answer: bytes) -> bytes:
    return answer[:5] + random.Random(number).randbytes(len(answer))


def _short(_: int, answer: bytes) -> bytes:
    return answer[: len(answer) // 2]


def _other_partition(_: int, answer: bytes) -> bytes:
    # Correlation id, tags, topics, uuid, partitions; then the index.
    at = 4 + 1 + 1 + 16 + 1
    return answer[:at] + struct.pack(">i", 77) + answer[at + 4 :]


def _other_topic(_: int, answer: bytes) -> bytes:
    return answer[:6] + bytes(16) + answer[22:]


def _nobody(_: int, answer: bytes) -> bytes:
    """No topic at all."""
    return answer[:5] + b"\x01" + struct.pack(">i", 0) + b"\x00"


def _many(_: int, answer: bytes) -> bytes:
    """Two billion topics."""
    return answer[:5] + b"\xff\xff\xff\xff\x0f" + answer[6:]


def _other_correlation(_: int, answer: bytes) -> bytes:
    return struct.pack(">i", 123456789) + answer[4:]


def _long(_: int, answer: bytes) -> bytes:
    return b"raw" + struct.pack(">i", 2**31 - 1) + answer


def _negative(_: int, answer: bytes) -> bytes:
    return b"raw" + struct.pack(">i", -5) + answer


def _half(_: int, answer: bytes) -> bytes:
    return b"raw" + struct.pack(">i", len(answer)) + answer[:7]


def _cut(_: int, __: bytes) -> bytes:
    return CUT


def _silent(_: int, __: bytes) -> None:
    return None


FAULTS = [
    _garbage, _short, _other_partition, _other_topic, _nobody, _many, _other_correlation, _long,
    _negative, _half, _cut, _silent,
]  # fmt: skip


@pytest.mark.parametrize("version", produce_answers.VERSIONS)
def test_every_version_is_read(version: int) -> None:
    topics = produce_answers.TOPICS
    count = sum(partitions for _, partitions in topics.values())
    for seed in range(20):
        answer = produce_answers.answer(version, random.Random(seed))
        told = read_produce_answer(version, topics, answer)
        assert told is not None
        assert len(told) == count
        for code, base, append, start, faults, text, leader, epoch in told:
            assert code in (0, 3, 6, 10, 45, 46, 87)
            assert base >= 0
            assert append == -1
            assert (start == -1) == (version < 5)
            assert [index for index, _ in faults] == list(range(len(faults)))
            assert text in (None, b"", b"what was wrong")
            assert (leader, epoch) == (-1, -1) or (leader >= 0 and epoch == 7 and version >= 10)
        assert read_produce_answer(version, topics, answer[:-1]) is None
        assert read_produce_answer(version, {"other": (bytes(16), 4)}, answer) is None


@pytest.fixture
def between(start_kbroker: Any) -> Iterator[Any]:
    made = []

    def start(change: Any, ask: Any = None) -> tuple[Middle, Any]:
        middle = Middle(PRODUCE, change, ask)
        made.append(middle)
        broker = start_kbroker({"advertised.listeners": f"PLAINTEXT://127.0.0.1:{middle.port}"})
        middle.to = broker.port
        return middle, broker

    yield start
    for middle in made:
        middle.close()


def test_nothing_is_lost_doubled_or_out_of_order(between: Any, topic: str) -> None:
    """One fault of each kind in turn, between answers that are sound."""

    def change(number: int, answer: bytes) -> bytes | None:
        if number % 4 == 2 and number // 4 < len(FAULTS):
            changed: bytes | None = FAULTS[number // 4](number, answer)
            return changed
        return answer

    middle, broker = between(change)
    wire.create_topic(broker.port, topic, 2)
    with Producer(
        bootstrap_servers=f"127.0.0.1:{middle.port}", batch_size=250, linger_ms=0,
        request_timeout_ms=700, retry_backoff_ms=10, reconnect_backoff_ms=10,
    ) as producer:  # fmt: skip
        sent = [producer.send(topic, b"%d" % i, partition=i % 2) for i in range(RECORDS)]
        producer.flush(90)
        for delivery in sent:
            assert delivery.exception(0) is None
    assert middle.seen > 4 * len(FAULTS)
    found = read_all(broker.bootstrap, topic, RECORDS, 2)
    for partition in range(2):
        mine = [int(record.value or b"") for record in found if record.partition == partition]
        assert mine == list(range(partition, RECORDS, 2))


def test_a_batch_whose_turn_is_over(between: Any, topic: str) -> None:
    """As at a topic that is just coming up: the first batch is refused, the next, on its way
    already, is taken, for a broker that knows nothing of a producer takes any sequence. The first
    is out of order then, however often it is sent."""
    first, second = threading.Event(), threading.Event()

    def ask(number: int, request: bytes) -> bytes:
        if number == 1:
            first.set()
            return request[:-10] + b"?" + request[-9:]  # a value's byte: CORRUPT_MESSAGE, retriable
        second.set()
        return request

    def change(number: int, answer: bytes) -> bytes:
        assert number > 1 or second.wait(60)
        return answer

    middle, broker = between(change, ask)
    wire.create_topic(broker.port, topic, 1)
    with Producer(
        bootstrap_servers=f"127.0.0.1:{middle.port}", linger_ms=0, request_timeout_ms=10_000,
        delivery_timeout_ms=15_000, retry_backoff_ms=10,
    ) as producer:  # fmt: skip
        sent = [producer.send(topic, b"first" * 10)]
        assert first.wait(60)
        sent += [producer.send(topic, b"later" * 10) for _ in range(3)]
        for delivery in sent:
            delivery.result(60)
        assert producer.metrics()["record-retry-total"] >= 1
    found = [record.value for record in read_all(broker.bootstrap, topic, 4, 1)]
    assert sorted(value or b"" for value in found) == [b"first" * 10, *3 * [b"later" * 10]]
    assert found[0] != b"first" * 10


@pytest.mark.parametrize("fault", [_garbage, _silent, _cut])
def test_where_nothing_helps(between: Any, topic: str, fault: Any) -> None:
    middle, broker = between(fault)
    wire.create_topic(broker.port, topic, 1)
    with Producer(
        bootstrap_servers=f"127.0.0.1:{middle.port}", linger_ms=0, request_timeout_ms=300,
        delivery_timeout_ms=1500, retry_backoff_ms=50,
    ) as producer:  # fmt: skip
        began = time.monotonic()
        cpu = time.process_time()
        with pytest.raises(DeliveryTimeoutError, match="the last answer was"):
            producer.send(topic, b"x").result(60)
        assert time.monotonic() - began < 10
        assert time.process_time() - cpu < 1.5  # and no busy loop meanwhile


def test_many_are_taken_where_nothing_goes_on(between: Any, topic: str) -> None:
    """send_batch() keeps step with brokers that answer; one that stopped holds it up a moment."""
    stopped = threading.Event()
    middle, broker = between(lambda _, answer: None if stopped.is_set() else answer)
    wire.create_topic(broker.port, topic, 2)
    values = [bytes(1000)] * 1000
    with Producer(bootstrap_servers=f"127.0.0.1:{middle.port}") as producer:
        for _ in range(20):
            producer.send_batch(topic, values)
        producer.flush(90)
        stopped.set()
        sent = [producer.send_batch(topic, values) for _ in range(16)]
        metrics = producer.metrics()
        assert metrics["buffer-total-bytes"] - metrics["buffer-available-bytes"] >= 16_000_000
        assert not any(one.done() for one in sent)
        producer.purge()
        assert all(one.done() for one in sent)
