"""One data directory, two brokers: Apache Kafka 4.3 serves every record kbroker took, and back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic

from tests.support.kafka import KafkaProcess, dump_log
from tests.support.kbroker import KbrokerProcess
from tests.support.processes import BrokerProcess
from tests.support.waits import wait_for

pytestmark = pytest.mark.long

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PARTITIONS = 3

Row = tuple[int, int, bytes | None, bytes | None, Any, int]
"""Partition, offset, key, value, headers, timestamp."""


class Sent:
    """Sends records and keeps what was sent with the offsets that the broker told."""

    def __init__(self, broker: BrokerProcess, settings: dict[str, Any]) -> None:
        self.producer = Producer({"bootstrap.servers": broker.bootstrap, **settings})
        self.rows: list[Row] = []

    def send(self, topic: str, partition: int, key: Any, value: Any, headers: Any) -> None:
        """One record with a timestamp of its own."""
        when = 1_700_000_000_000 + len(self.rows)

        def told(error: Any, message: Any) -> None:
            assert error is None, error
            sent = (key and key.encode(), value and value.encode(), headers, when)
            self.rows.append((partition, message.offset(), *sent))

        self.producer.produce(
            topic, value, key, partition, timestamp=when, headers=headers, on_delivery=told
        )

    def flush(self) -> list[Row]:
        """Wait for the broker; the rows so far."""
        assert self.producer.flush(60) == 0
        return self.rows


def produce(broker: BrokerProcess, topic: str, label: str) -> list[Row]:
    """Records of every codec, with and without key, value and headers, idempotent."""
    rows = []
    for codec in CODECS:
        sent = Sent(broker, {"compression.type": codec, "enable.idempotence": True,
                             "linger.ms": 20})  # fmt: skip
        for number in range(60):
            key = None if number % 5 == 0 else f"{label}-{number}"
            value = None if number % 7 == 0 else f"{label} {codec} {number} " * 20
            headers = [("codec", codec.encode()), ("none", None)] if number % 3 else None
            sent.send(topic, number % PARTITIONS, key, value, headers)
        rows += sent.flush()
    return rows


def transact(broker: BrokerProcess, topic: str, label: str) -> list[Row]:
    """A committed transaction and an aborted one; the rows of the first."""
    sent = Sent(broker, {"transactional.id": label})
    sent.producer.init_transactions(60)
    rows: list[Row] = []
    for commit in (True, False):
        sent.producer.begin_transaction()
        for number in range(9):
            sent.send(topic, number % PARTITIONS, None, f"{label} {commit} {number}", None)
        flushed = list(sent.flush())
        rows = rows or flushed
        if commit:
            sent.producer.commit_transaction(60)
        else:
            sent.producer.abort_transaction(60)
    return rows


def consume(broker: BrokerProcess, topic: str) -> list[Row]:
    """Every committed record of a topic from its beginning to its end."""
    settings = {
        "bootstrap.servers": broker.bootstrap, "group.id": "swap", "enable.auto.commit": False,
        "enable.partition.eof": True, "isolation.level": "read_committed", "check.crcs": True,
    }  # fmt: skip
    consumer = Consumer(settings)
    rows: list[Row] = []
    left = set(range(PARTITIONS))
    try:
        consumer.assign([TopicPartition(topic, n, OFFSET_BEGINNING) for n in left])
        while left:
            message = consumer.poll(30)
            assert message is not None, f"nothing more of {topic}, partitions {left}"
            if message.error():
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                left.discard(message.partition())
                continue
            rows.append(
                (message.partition(), message.offset(), message.key(), message.value(),
                 message.headers(), message.timestamp()[1])
            )  # fmt: skip
    finally:
        consumer.close()
    return rows


def comparable(rows: list[Row]) -> list[Row]:
    """In the order of the log."""
    return sorted(rows, key=lambda row: row[:2])


def done(futures: dict[Any, Any]) -> None:
    for future in futures.values():
        future.result(30)


def led(broker: BrokerProcess, topics: set[str]) -> bool:
    found = AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=30).topics
    return topics <= set(found) and all(
        partition.leader == 1 for name in topics for partition in found[name].partitions.values()
    )


def brokers(tmp_path: Path) -> tuple[KbrokerProcess, KafkaProcess]:
    """Both on one data directory."""
    kbroker = KbrokerProcess(tmp_path / "kbroker", data_dir=tmp_path / "data")
    return kbroker, KafkaProcess(tmp_path / "kafka", data_dir=tmp_path / "data")


@pytest.mark.parametrize("end", [BrokerProcess.stop, BrokerProcess.kill], ids=["stop", "kill"])
def test_kafka_and_kbroker_take_turns(
    tmp_path: Path, end: Callable[[BrokerProcess], object]
) -> None:
    kbroker, kafka = brokers(tmp_path)
    expected: list[Row] = []
    topics: set[str] = set()
    for turn in range(2):
        for broker in (kbroker, kafka):
            broker.start()
            try:
                wait_for("every topic is led", lambda b=broker, t=topics: led(b, t), 60)
                admin = AdminClient({"bootstrap.servers": broker.bootstrap})
                if not topics:
                    done(admin.create_topics([NewTopic("t", PARTITIONS, 1)]))
                topics = topics | {"t", mine := f"{broker.name}-{turn}"}
                done(admin.create_topics([NewTopic(mine, 1, 1, config={"retention.ms": "7"})]))
                if expected:
                    assert comparable(consume(broker, "t")) == comparable(expected)
                expected += produce(broker, "t", f"{broker.name}{turn}")
                if broker is kafka:
                    expected += transact(broker, "t", f"{broker.name}{turn}")
                assert comparable(consume(broker, "t")) == comparable(expected)
            finally:
                end(broker)
    assert len(expected) > 4 * len(CODECS) * 60
    dump_log(sorted(kbroker.partition_dir("t", 0).glob("*.log")), "--deep-iteration")


@pytest.mark.parametrize("end", [BrokerProcess.stop, BrokerProcess.kill], ids=["stop", "kill"])
def test_kafka_takes_partitions_that_were_never_written(
    tmp_path: Path, end: Callable[[BrokerProcess], object]
) -> None:
    kbroker, kafka = brokers(tmp_path)
    kbroker.start()
    try:
        admin = AdminClient({"bootstrap.servers": kbroker.bootstrap})
        done(admin.create_topics([NewTopic("t", PARTITIONS, 1)]))
    finally:
        end(kbroker)
    for partition in range(PARTITIONS):
        names = [path.name for path in kbroker.partition_dir("t", partition).iterdir()]
        assert names == ["partition.metadata"]
    expected: list[Row] = []
    for broker in (kafka, kbroker):
        broker.start()
        try:
            wait_for("the topic is led", lambda b=broker: led(b, {"t"}), 60)
            assert not list((tmp_path / "data").glob("*-stray"))
            expected += produce(broker, "t", broker.name)
            assert comparable(consume(broker, "t")) == comparable(expected)
        finally:
            end(broker)


def test_topics_and_settings_go_along(tmp_path: Path) -> None:
    kbroker, kafka = brokers(tmp_path)
    for here, there in ((kbroker, kafka), (kafka, kbroker), (kbroker, kafka)):
        gone, kept = f"gone-{here.name}", f"kept-{here.name}"
        here.start()
        try:
            admin = AdminClient({"bootstrap.servers": here.bootstrap})
            done(admin.create_topics([NewTopic(gone, 1, 1)]))
            if kept not in admin.list_topics(timeout=30).topics:
                done(admin.create_topics([NewTopic(kept, 1, 1, config={"segment.ms": "7777777"})]))
                done(admin.create_partitions([NewPartitions(kept, 4)]))
            done(admin.delete_topics([gone]))
        finally:
            here.stop()
        there.start()
        try:
            wait_for("it is led", lambda b=there, k=kept: led(b, {k}), 60)
            admin = AdminClient({"bootstrap.servers": there.bootstrap})
            found = admin.list_topics(timeout=30).topics
            assert gone not in found and len(found[kept].partitions) == 4
            resource = ConfigResource(ConfigResource.Type.TOPIC, kept)
            (future,) = admin.describe_configs([resource]).values()
            assert future.result(30)["segment.ms"].value == "7777777"
        finally:
            there.stop()
