"""The producer against brokers: what was sent is there, once, in order; what fails says why."""

from __future__ import annotations

import asyncio
import functools
import logging
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kbroker.client.admin import delete_topics
from kbroker.client.cluster import Cluster
from kbroker.client.errors import (
    BufferExhaustedError,
    ClosedError,
    ConfigError,
    DeliveryTimeoutError,
    KafkaError,
    PurgedError,
    RecordTooLargeError,
    UndeliveredError,
)
from kbroker.client.producer import Delivery, Producer
from kbroker.ext.debug import live_objects
from tests.client.reading import read_all
from tests.support import wire
from tests.support.processes import BrokerProcess
from tests.support.tree import ROOT
from tests.support.waits import wait_for


def producer_of(broker: BrokerProcess, **settings: Any) -> Producer:
    return Producer(bootstrap_servers=broker.bootstrap, **settings)


def test_a_topic_that_nobody_sends_to_is_not_asked_for(kbroker: BrokerProcess, topic: str) -> None:
    wire.create_topic(kbroker.port, topic)
    with producer_of(kbroker, linger_ms=0) as producer:
        producer.send(topic, b"one").result(60)
        driver = producer.driver
        assert driver.topic_names(60.0) == [topic]
        wait_for("it is idle", lambda: driver.topic_names(0.1) == [], 60)
        producer.send(topic, b"two").result(60)
        assert driver.topic_names(60.0) == [topic]


def test_a_record_is_there_as_it_was_sent(target: BrokerProcess, topic: str) -> None:
    wire.create_topic(target.port, topic, 2)
    headers = [("a", b"1"), ("b", None), ("a", b"")]
    with producer_of(target) as producer:
        sent = producer.send(
            topic, b"value", b"key", partition=1, headers=headers, timestamp_ms=1_700_000_000_123
        )
        told = sent.result(60)
        assert (sent.offset, sent.partition, sent.error) == (0, 1, None)
        assert sent.timestamp_ms == 1_700_000_000_123
        tombstone = producer.send(topic, None, b"key", partition=1)
        assert tombstone.result(60).offset == 1
    assert told == (topic, 1, 0, 1_700_000_000_123, 3, 5)
    first, second = read_all(target.bootstrap, topic, 2, 2)
    assert (first.partition, first.key, first.value) == (1, b"key", b"value")
    assert first.headers == headers
    assert first.timestamp_ms == 1_700_000_000_123
    assert second.value is None


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_is_read_by_others(target: BrokerProcess, topic: str, codec: str) -> None:
    wire.create_topic(target.port, topic, 1)
    values = [b"%d " % i * (i % 40) for i in range(5000)]
    with producer_of(target, compression_type=codec, batch_size=4000) as producer:
        sent = [producer.send(topic, value) for value in values]
        producer.flush(float("inf"))
        metrics = producer.metrics()
    assert metrics["connection-creation-total"] > 0 and metrics["rebootstrap-total"] == 0
    assert [delivery.result(0).offset for delivery in sent] == list(range(5000))
    assert [record.value for record in read_all(target.bootstrap, topic, 5000)] == values
    if codec != "none":
        # Plain bytes of several batch.size go into a batch once it is seen how they shrink.
        assert metrics["outgoing-byte-total"] < sum(map(len, values))


@pytest.mark.parametrize(
    ("codec", "levels"), [("gzip", (1, 9)), ("lz4", (1, 17)), ("zstd", (-100, 1, 19))]
)
def test_levels_come_to_the_codec(
    kbroker: BrokerProcess, topic: str, codec: str, levels: tuple[int, ...]
) -> None:
    """The higher one is, the fewer bytes are sent of the same text."""
    wire.create_topic(kbroker.port, topic, 1)
    draws = random.Random(7)
    words = [draws.randbytes(draws.randint(2, 9)).hex() for _ in range(500)]
    value = " ".join(draws.choices(words, k=20_000)).encode()
    sizes = []
    for level in levels:
        level_of = {f"compression.{codec}.level": level, "compression.type": codec}
        with Producer(
            {"bootstrap.servers": kbroker.bootstrap, "max.request.size": 2**22, **level_of}
        ) as producer:
            producer.send(topic, value).result(60)
            sizes.append(producer.metrics()["outgoing-byte-total"])
    assert sizes == sorted(sizes, reverse=True) and len({*sizes}) == len(levels)
    assert sizes[-1] < len(value) / 2


@pytest.mark.parametrize(("acks", "idempotent"), [(0, False), (1, False), ("all", False)])
def test_acks(target: BrokerProcess, topic: str, acks: Any, idempotent: bool) -> None:
    wire.create_topic(target.port, topic, 1)
    with producer_of(target, acks=acks, enable_idempotence=idempotent) as producer:
        sent = [producer.send(topic, b"%d" % i) for i in range(300)]
        producer.flush(20)
        offsets = [delivery.result(60).offset for delivery in sent]
    assert offsets == ([-1] * 300 if acks == 0 else list(range(300)))
    found = read_all(target.bootstrap, topic, 300)
    assert [record.value for record in found] == [b"%d" % i for i in range(300)]


def test_callbacks_come_in_order_and_hurt_nobody(
    target: BrokerProcess, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    wire.create_topic(target.port, topic, 1)
    seen: list[int] = []

    def note(delivery: Any) -> None:
        seen.append(delivery.result(0).offset)
        if len(seen) == 3:
            raise RuntimeError("of the user's own making")
        if len(seen) == 5:
            raise SystemExit("not for a callback to say")

    with producer_of(target) as producer, caplog.at_level(logging.ERROR):
        for number in range(1000):
            producer.send(topic, b"%d" % number, on_delivery=note)
        producer.flush(20)
        assert seen == list(range(1000))
        late = producer.send(topic, b"late")
        late.result(60)
        late.add_done_callback(note)
    assert len(seen) == 1001
    assert "of the user's own making" in caplog.text
    assert "not for a callback to say" in caplog.text
    caplog.clear()  # its tracebacks hold deliveries


def test_what_cannot_be_sent_is_told(target: BrokerProcess, topic: str) -> None:
    wire.create_topic(target.port, topic, 1)
    with producer_of(target, max_request_size=5000) as producer:
        with pytest.raises(TypeError, match="topic: NoneType is not str"):
            producer.send(None, b"")  # type: ignore[arg-type]
        for arguments, error, text in (
            (("x" * 3,), TypeError, "value: str is not bytes"),
            ((b"", 5), TypeError, "key: int is not bytes"),
        ):
            with pytest.raises(error, match=text):
                producer.send(topic, *arguments)  # type: ignore[arg-type]
        for no_name in (b"t", None):
            with pytest.raises(TypeError, match=f"topic: {type(no_name).__name__} is not str"):
                producer.send(no_name, b"")  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="headers: 'ab' is no pair"):
            producer.send(topic, b"", headers=["ab"])  # type: ignore[list-item]
        with pytest.raises(ValueError, match=r"partition: topic .* has 1, so none 7"):
            producer.send(topic, b"", partition=7)
        for time_ms in (-5, 1 << 63):
            with pytest.raises(ValueError, match=f"timestamp_ms: {time_ms!r}"):
                producer.send(topic, b"", timestamp_ms=time_ms)
        for no_time in ("now", 1.5):
            with pytest.raises(TypeError, match=f"timestamp_ms: {no_time!r}"):
                producer.send(topic, b"", timestamp_ms=no_time)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="on_delivery: int cannot be called"):
            producer.send(topic, b"", on_delivery=5)  # type: ignore[arg-type]
        with pytest.raises(RecordTooLargeError, match=r"max\.request\.size"):
            producer.send(topic, b"x" * 6000)
        huge = bytes(1 << 31)  # more than any length of the protocol can tell; never touched
        for arguments, more in (((huge,), {}), ((b"", huge), {}), ((), {"headers": {"h": huge}})):
            with pytest.raises(RecordTooLargeError, match=r"max\.request\.size"):
                producer.send(topic, *arguments, **more)  # type: ignore[arg-type]
        with pytest.raises(RecordTooLargeError, match=r"max\.request\.size"):
            producer.send_batch(topic, [huge])
        with pytest.raises(KafkaError, match="INVALID_TOPIC_EXCEPTION"):
            producer.send("no such/topic", b"")
        assert producer.send(topic, b"still").result(60).offset == 0
    with pytest.raises(ClosedError, match="closed"):
        producer.send(topic, b"")
    with pytest.raises(ConfigError, match=r"partitioner\.class"):
        producer_of(target, partitioner_class="nonsense")


def test_a_batch_that_is_too_large_is_split(target: BrokerProcess, topic: str) -> None:
    wire.create_topic(target.port, topic, 1, {"max.message.bytes": "3000"})
    values = [b"%04d" % i + b"." * 96 for i in range(2000)]
    done: list[int] = []
    with producer_of(target, batch_size=50_000, max_request_size=200_000) as producer:
        sent = [
            producer.send(topic, value, on_delivery=lambda d: done.append(d.result(0).offset))
            for value in values
        ]
        producer.flush(60)
        assert producer.metrics()["batch-split-total"] > 0
        assert [delivery.result(0).offset for delivery in sent] == list(range(2000))
        with pytest.raises(KafkaError, match="MESSAGE_TOO_LARGE"):
            producer.send(topic, b"x" * 4000).result(60)
        assert producer.send(topic, b"after").result(60).offset == 2000
    assert done == list(range(2000))
    assert [r.value for r in read_all(target.bootstrap, topic, 2001)] == [*values, b"after"]


def test_what_was_sent_before_an_error_is_delivered(target: BrokerProcess, topic: str) -> None:
    wire.create_topic(target.port, topic, 1)
    for offset, kind in enumerate((ZeroDivisionError, SystemExit, asyncio.CancelledError)):
        with pytest.raises(kind), producer_of(target, linger_ms=60_000) as producer:
            sent = producer.send(topic, b"x")
            raise kind
        assert sent.result(0).offset == offset

    def sending() -> Iterator[Delivery]:
        with producer_of(target, linger_ms=60_000) as producer:
            yield producer.send(topic, b"x")

    left = sending()
    sent = next(left)
    left.close()  # type: ignore[attr-defined]
    assert sent.result(0).offset == 3


def test_ctrl_c_delivers_and_dropped_producer_warns(
    target: BrokerProcess, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    wire.create_topic(target.port, topic, 1)
    with pytest.raises(KeyboardInterrupt), producer_of(target, linger_ms=60_000) as producer:
        sent = producer.send(topic, b"y")
        assert (sent.offset, sent.error) == (None, None)
        raise KeyboardInterrupt
    assert (sent.offset, sent.error) == (0, None)
    assert "interrupted; delivering 1 batches of records" in caplog.text
    caplog.clear()
    producer = producer_of(target, linger_ms=60_000)
    sent = producer.send(topic, b"y")
    del producer
    assert isinstance(sent.exception(60), UndeliveredError)
    assert "was not closed: 1 batches" in caplog.text


def test_close_delivers_all_that_other_threads_were_told_is_taken(
    target: BrokerProcess, topic: str
) -> None:
    """Some of them wait for memory meanwhile, or are in the middle of a batch."""
    wire.create_topic(target.port, topic, 2)
    taken: list[Any] = []
    refused: list[Exception] = []

    def work(send: Callable[[], Any]) -> None:
        try:
            while True:
                taken.append(send())
        except ClosedError as error:
            refused.append(error)

    for _ in range(5):
        producer = producer_of(target, buffer_memory=100_000, batch_size=5000)
        one = functools.partial(producer.send, topic, b"." * 100)
        many = functools.partial(producer.send_batch, topic, [b"." * 100] * 300)
        producer.send(topic, b"").result(60)
        threads = [threading.Thread(target=work, args=(send,)) for send in (one, one, many, many)]
        for thread in threads:
            thread.start()
        wait_for("all are at it", lambda: len(taken) > 1000, 60)
        producer.close(60)
        assert all(delivery.done() for delivery in taken)
        for thread in threads:
            thread.join(60)
        taken.extend(error.delivery for error in refused if hasattr(error, "delivery"))
        assert [delivery.exception(0) for delivery in taken] == [None] * len(taken)
        assert len(refused) == len(threads)
        taken.clear()
        refused.clear()


def test_ctrl_c_ends_a_wait_for_memory(start_kbroker: Any, topic: str) -> None:
    """Another thread that waits goes on; its place in the queue, and the memory, are its own."""
    broker = start_kbroker()
    wire.create_topic(broker.port, topic, 1)
    producer = producer_of(broker, buffer_memory=40_000, batch_size=10_000)
    producer.send(topic, b"first").result(60)
    broker.kill()
    other: list[Delivery] = []
    thread = threading.Thread(target=lambda: other.append(producer.send(topic, b"y" * 1000)))
    sends = (
        lambda: [producer.send(topic, b"x" * 1000) for _ in range(100)],
        lambda: producer.send_batch(topic, [b"x" * 1000] * 100),
    )
    for send in sends:
        timer = threading.Timer(1.0, signal.raise_signal, (signal.SIGINT,))
        timer.start()
        began = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            send()
        assert time.monotonic() - began < 20, "not after max.block.ms"
        timer.join()
        if not thread.is_alive() and not other:
            thread.start()
            wait_for("it waits", lambda: producer.metrics()["waiting-threads"] == 1, 60)
    broker.start()
    thread.join(60)
    assert other[0].result(60).offset > 0
    producer.flush(60)
    assert producer.metrics()["buffer-available-bytes"] == 40_000
    producer.close()


def test_many_threads_and_topics(target: BrokerProcess, topic: str) -> None:
    for number in range(3):
        wire.create_topic(target.port, f"{topic}-{number}", 4)

    def work(name: int) -> None:
        for number in range(2000):
            producer.send(f"{topic}-{number % 3}", b"%d %d" % (name, number), b"%d" % name)

    with producer_of(target, buffer_memory=200_000, batch_size=2000) as producer:
        threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        producer.flush(60)
        assert producer.metrics()["buffer-available-bytes"] == 200_000
    for number in range(3):
        count = 4 * len(range(number, 2000, 3))
        found = read_all(target.bootstrap, f"{topic}-{number}", count, 4)
        for name in range(4):
            mine = [r.value for r in found if r.key == b"%d" % name]
            assert mine == [b"%d %d" % (name, i) for i in range(number, 2000, 3)]


def test_nobody_there() -> None:
    with (
        Producer(bootstrap_servers="127.0.0.1:1", max_block_ms=200) as producer,
        pytest.raises(KafkaError, match="no broker listens"),
    ):
        producer.send("nowhere", b"")


def test_what_waits_for_a_broker_that_died(start_kbroker: Any, topic: str) -> None:
    broker = start_kbroker()
    wire.create_topic(broker.port, topic, 1)
    before = live_objects()
    producer = producer_of(
        broker, buffer_memory=40_000, batch_size=10_000, max_block_ms=300, linger_ms=0,
        request_timeout_ms=500, delivery_timeout_ms=1500,
    )  # fmt: skip
    producer.send(topic, b"first").result(60)
    broker.kill()
    sent = []
    with pytest.raises(BufferExhaustedError, match=r"buffer\.memory .*40000 bytes"):
        for _ in range(1000):
            sent.append(producer.send(topic, b"x" * 1000))
    with pytest.raises(BufferExhaustedError, match=r"buffer\.memory .*40000 bytes"):
        producer.send_batch(topic, [b"x" * 1000] * 100)
    with pytest.raises(DeliveryTimeoutError, match="look whether its leader can be reached"):
        sent[0].result(60)
    producer.flush(20)
    assert all(isinstance(d.exception(0), DeliveryTimeoutError) for d in sent)
    purged = producer.send(topic, b"purged")
    producer.purge()
    with pytest.raises(PurgedError):
        purged.result(60)
    left = producer.send(topic, b"left")
    producer.close(0)
    with pytest.raises(UndeliveredError):
        left.result(60)
    del sent, purged, left, producer
    wait_for("no batch left", lambda: live_objects() == before, 60)


def test_order_and_exactly_once_over_kills(start_kbroker: Any, topic: str) -> None:
    broker = start_kbroker()
    wire.create_topic(broker.port, topic, 3)
    with producer_of(broker, linger_ms=1, batch_size=2000, retry_backoff_ms=20) as producer:
        sent = []
        for round_ in range(4):
            for number in range(3000):
                value = b"%d" % (round_ * 3000 + number)
                sent.append(producer.send(topic, value, partition=number % 3))
                if number == 1500 and round_ > 0:
                    broker.kill()
                    broker.start()
        producer.flush(60)
        told = [delivery.result(0) for delivery in sent]
    found = read_all(broker.bootstrap, topic, 12_000, 3)
    for partition in range(3):
        mine = [int(r.value or b"") for r in found if r.partition == partition]
        assert mine == [i for i in range(12_000) if i % 3 == partition]
        offsets = [t.offset for t in told if t.partition == partition]
        # -1: a duplicate that the broker knows to be one, but no longer where it lies.
        assert [o for o in offsets if o >= 0] == [i for i, o in enumerate(offsets) if o >= 0]


def test_a_producer_that_is_dropped_leaves_nothing(target: BrokerProcess, topic: str) -> None:
    wire.create_topic(target.port, topic, 1)
    names = {thread.name for thread in threading.enumerate()}
    producer = producer_of(target)
    producer.send(topic, b"x").result(60)
    del producer
    wait_for("its thread ends", lambda: {t.name for t in threading.enumerate()} <= names, 60)


PROGRAM = """
import os, sys
from kbroker.client.errors import ForkError
from kbroker.client.producer import Producer
producer = Producer(bootstrap_servers=sys.argv[1])
producer.send(sys.argv[2], b"x").result(60)
pid = os.fork()
if pid == 0:
    try:
        producer.send(sys.argv[2], b"y")
    except ForkError as error:
        os._exit(7 if "fork" in str(error) else 8)
    os._exit(9)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
producer.send(sys.argv[2], b"z").result(60)
producer.send(sys.argv[2], b"not waited for")
"""


def test_fork_and_exit(target: BrokerProcess, topic: str) -> None:
    wire.create_topic(target.port, topic, 1)
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", PROGRAM, target.bootstrap, topic],
        capture_output=True, text=True, timeout=60, check=False, cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - began < 30


FORKED = """
import os, sys
from kbroker.client.errors import ForkError
from kbroker.client.producer import Producer
producer = Producer(bootstrap_servers=sys.argv[1], linger_ms=60_000)
producer.send(sys.argv[2], b"the parent's")
pid = os.fork()
if pid == 0:
    told = 0
    for call in (producer.flush, producer.purge, lambda: producer.send(sys.argv[2], b"y")):
        try:
            call()
        except ForkError:
            told += 1
    with producer:
        pass
    producer.close()
    sys.exit(told)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 3
producer.close()
"""


def test_a_child_of_fork_waits_for_nothing(target: BrokerProcess, topic: str) -> None:
    """Neither where it ends as any program does."""
    wire.create_topic(target.port, topic, 1)
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", FORKED, target.bootstrap, topic],
        capture_output=True, text=True, timeout=60, check=False, cwd=ROOT,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert [r.value for r in read_all(target.bootstrap, topic, 1)] == [b"the parent's"]


def test_a_topic_that_was_deleted_and_made_again(target: BrokerProcess, topic: str) -> None:
    with (
        producer_of(target, retry_backoff_ms=20) as producer,
        Cluster(target.bootstrap, timeout_s=20) as cluster,
    ):
        for _ in range(3):
            wire.create_topic(target.port, topic, 1)
            sent = [producer.send(topic, b"%d" % number) for number in range(500)]
            producer.flush(60)
            assert [delivery.result(0).offset for delivery in sent] == list(range(500))
            delete_topics(cluster, [topic])
