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
from kio.index import load_request_schema

from kbroker.client.errors import DeliveryTimeoutError, OutOfOrderSequenceNumberError
from kbroker.client.producer import Producer
from kbroker.ext.client_delivery import Delivery
from kbroker.ext.testing_producer import read_produce_answer, sequence_precedes
from tests.client.reading import read_all
from tests.fuzz import produce_answers
from tests.reference.crafted_batches import parse_batches
from tests.support import messages, wire
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


def test_sequences_wrap() -> None:
    last = 2**31 - 1
    for sequence, other in [(0, 1), (5, 2**30), (last - 1, last), (last, 0), (last - 99, 500)]:
        assert sequence_precedes(sequence, other)
        assert not sequence_precedes(other, sequence)
    assert not sequence_precedes(7, 7)


@pytest.fixture
def between(start_kbroker: Any) -> Iterator[Any]:
    made = []

    def start(change: Any, ask: Any = None, api: int = PRODUCE) -> tuple[Middle, Any]:
        middle = Middle(api, change, ask)
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


FIRST, SECOND, THIRD, OTHER = (name * 10 for name in (b"first", b"second", b"third", b"other"))
NOT_ENOUGH_REPLICAS, OUT_OF_ORDER_SEQUENCE = 19, 45


class Seen:
    """Produce requests of one record each that came by, and which of them an answer is for."""

    def __init__(self) -> None:
        self.came = {value: threading.Event() for value in (FIRST, SECOND, THIRD, OTHER)}
        self.batches: list[tuple[bytes, dict[str, Any]]] = []
        self._values: dict[bytes, bytes] = {}  # by correlation id

    def ask(self, _: int, request: bytes) -> bytes:
        version, client = struct.unpack_from(">2xh4xh", request)
        body = messages.decode(load_request_schema(PRODUCE, version), request[10 + client + 1 :])
        data = body["topic_data"][0]["partition_data"][0]["records"]
        (batch,) = parse_batches(data)
        (record,) = batch["records"]
        self.batches.append((record["value"], batch))
        self._values[request[4:8]] = record["value"]
        self.came[record["value"]].set()
        return request

    def spoil_first(self, number: int, request: bytes) -> bytes:
        """The same; the first batch comes broken at first: CORRUPT_MESSAGE, retriable."""
        is_first = FIRST in request and not self.came[FIRST].is_set()
        self.ask(number, request)
        return request[:-10] + b"?" + request[-9:] if is_first else request

    def answered(self, answer: bytes) -> bytes:
        """The value."""
        return self._values[answer[:4]]


def _refused(answer: bytes, code: int) -> bytes:
    # Correlation id, tags, topics, uuid, partitions, index; then the code.
    at = 4 + 1 + 1 + 16 + 1 + 4
    return answer[:at] + struct.pack(">h", code) + answer[at + 2 :]


def producer_at(middle: Middle) -> Producer:
    """Each record is a batch."""
    return Producer(
        bootstrap_servers=f"127.0.0.1:{middle.port}", linger_ms=0, batch_size=1,
        request_timeout_ms=10_000, delivery_timeout_ms=30_000, retry_backoff_ms=10,
        reconnect_backoff_ms=10,
    )  # fmt: skip


def log_of(port: int, topic: str) -> list[dict[str, Any]]:
    """All batches that a broker has of its only partition."""
    part = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
    body = {"replica_id": -1, "max_wait": 0, "min_bytes": 0, "isolation_level": 0,
            "topics": [{"topic": topic, "partitions": [part]}]}  # fmt: skip
    answer = wire.call_once(port, wire.FETCH, 11, body)
    return parse_batches(answer["responses"][0]["partitions"][0]["records"])


def values_of(port: int, topic: str) -> list[bytes]:
    return [record["value"] for batch in log_of(port, topic) for record in batch["records"]]


def send_three(producer: Producer, topic: str, seen: Seen, sent: threading.Event) -> list[Delivery]:
    """The second and third one when the first is on its way."""
    deliveries = [producer.send(topic, FIRST)]
    assert seen.came[FIRST].wait(60)
    deliveries += [producer.send(topic, value) for value in (SECOND, THIRD)]
    sent.set()
    return deliveries


def test_the_first_batch_of_a_producer_goes_alone(between: Any, topic: str) -> None:
    """As at a topic that is just coming up: it is refused. A broker that knows nothing of a
    producer takes any sequence, so it would have taken the next one in its place."""
    seen, sent = Seen(), threading.Event()
    early: list[bool] = []

    def change(_: int, answer: bytes) -> bytes:
        if seen.answered(answer) == FIRST and not early:
            assert sent.wait(60)
            early.append(seen.came[SECOND].wait(0.5))
        return answer

    middle, broker = between(change, seen.spoil_first)
    wire.create_topic(broker.port, topic, 1)
    with producer_at(middle) as producer:
        for delivery in send_three(producer, topic, seen, sent):
            delivery.result(60)
        assert producer.metrics()["record-retry-total"] >= 1
    assert early == [False]
    assert values_of(broker.port, topic) == [FIRST, SECOND, THIRD]


def test_a_first_batch_that_is_refused_puts_nothing_out_of_order(between: Any, topic: str) -> None:
    """The answer to one behind it is lost, which might have been taken."""
    seen, sent = Seen(), threading.Event()
    held, cut = threading.Event(), threading.Event()

    def change(_: int, answer: bytes) -> bytes:
        value = seen.answered(answer)
        if value == FIRST and not held.is_set():
            held.set()
            assert sent.wait(60)
            seen.came[THIRD].wait(1)  # or it waits for this answer
        if value == THIRD and not cut.is_set():
            cut.set()
            return CUT
        return answer

    middle, broker = between(change, seen.spoil_first)
    wire.create_topic(broker.port, topic, 1)
    with producer_at(middle) as producer:
        for delivery in send_three(producer, topic, seen, sent):
            delivery.result(60)
    assert cut.is_set()
    assert values_of(broker.port, topic) == [FIRST, SECOND, THIRD]


def test_a_batch_whose_turn_is_over(between: Any, topic: str) -> None:
    """It is out of order, and the one behind it was taken: it fails at once, and what is on its way
    keeps its sequences, for it may have been taken, too."""
    seen, sent = Seen(), threading.Event()
    refused, cut = threading.Event(), threading.Event()

    def change(_: int, answer: bytes) -> bytes:
        value = seen.answered(answer)
        if value == FIRST and not refused.is_set():
            assert sent.wait(60) and seen.came[THIRD].wait(60)
            refused.set()
            return _refused(answer, NOT_ENOUGH_REPLICAS)
        if value == FIRST:
            return _refused(answer, OUT_OF_ORDER_SEQUENCE)
        if value == THIRD and not cut.is_set():
            cut.set()
            return CUT
        return answer

    middle, broker = between(change, seen.ask)
    wire.create_topic(broker.port, topic, 1)
    with producer_at(middle) as producer:
        producer.send(topic, OTHER).result(60)  # the broker knows the producer
        began = time.monotonic()
        over, *others = send_three(producer, topic, seen, sent)
        with pytest.raises(OutOfOrderSequenceNumberError):
            over.result(60)
        assert time.monotonic() - began < 15
        for delivery in [*others, producer.send(topic, OTHER)]:
            delivery.result(60)
    numbers = [
        (batch["producer_id"], batch["producer_epoch"], batch["base_sequence"])
        for value, batch in seen.batches
        if value == THIRD
    ]
    assert len(numbers) > 1
    assert len(set(numbers)) == 1
    # Its answers were forged: it is there.
    assert values_of(broker.port, topic) == [OTHER, FIRST, SECOND, THIRD, OTHER]


def test_one_producer_id_is_asked_for(between: Any, topic: str) -> None:
    """It comes late, and is wished for all the while."""
    asked, again = threading.Event(), threading.Event()

    def ask(number: int, request: bytes) -> bytes:
        (asked if number == 1 else again).set()
        return request

    def change(_: int, answer: bytes) -> bytes:
        again.wait(0.3)
        return answer

    middle, broker = between(change, ask, wire.INIT_PRODUCER_ID)
    wire.create_topic(broker.port, topic, 1)
    with producer_at(middle) as producer:
        sent = [producer.send(topic, b"early")]
        assert asked.wait(60)
        sent += [producer.send(topic, b"%d" % number) for number in range(20)]
        for delivery in sent:
            delivery.result(60)
        assert not again.wait(0.5)
        producer.send(topic, b"late").result(60)
    assert middle.seen == 1
    assert len({batch["producer_id"] for batch in log_of(broker.port, topic)}) == 1


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
