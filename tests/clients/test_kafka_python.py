"""kafka-python 3: producer, assigned consumer, admin."""

from __future__ import annotations

from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic

from tests.clients.data import CODECS, Message, check_read, numbered
from tests.support import wire
from tests.support.processes import BrokerProcess


def read_all(broker: BrokerProcess, topic: str, partitions: int) -> list[Any]:
    consumer = KafkaConsumer(
        bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest", group_id=None,
        enable_auto_commit=False, check_crcs=True,
    )  # fmt: skip
    parts = [TopicPartition(topic, index) for index in range(partitions)]
    consumer.assign(parts)
    consumer.seek_to_beginning(*parts)
    ends = consumer.end_offsets(parts)
    records: list[Any] = []
    while any(consumer.position(part) < ends[part] for part in parts):
        for got in consumer.poll(timeout_ms=1000).values():
            records += got
    consumer.close()
    return records


def told(records: list[Any]) -> list[Message]:
    return [Message(r.partition, r.offset, r.key, r.value) for r in records]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("idempotent", [True, False])
def test_producer(target: BrokerProcess, topic: str, codec: str, idempotent: bool) -> None:
    wire.create_topic(target.port, topic, 3)
    producer = KafkaProducer(
        bootstrap_servers=target.bootstrap, acks="all" if idempotent else 1,
        enable_idempotence=idempotent, compression_type=None if codec == "none" else codec,
    )  # fmt: skip
    sent = numbered(2000)
    futures = [producer.send(topic, key=key, value=value) for key, value in sent]
    producer.flush(timeout=30)
    results = [future.get(timeout=10) for future in futures]
    producer.close()
    assert len({(r.partition, r.offset) for r in results}) == len(sent)
    check_read(sent, told(read_all(target, topic, 3)))


def test_headers(target: BrokerProcess, topic: str) -> None:
    wire.create_topic(target.port, topic)
    producer = KafkaProducer(bootstrap_servers=target.bootstrap)
    producer.send(topic, value=b"v", headers=[("a", b"1"), ("b", b"")]).get(timeout=10)
    producer.send(topic, key=b"tombstone", value=None).get(timeout=10)
    producer.close()
    first, second = read_all(target, topic, 1)
    assert list(first.headers) == [("a", b"1"), ("b", b"")]
    assert (second.key, second.value) == (b"tombstone", None)


def test_offsets(target: BrokerProcess, topic: str) -> None:
    wire.create_topic(target.port, topic)
    producer = KafkaProducer(bootstrap_servers=target.bootstrap, linger_ms=0)
    times = []
    for number in range(20):
        times.append(producer.send(topic, value=b"%d" % number).get(timeout=10).timestamp)
    producer.close()
    consumer = KafkaConsumer(bootstrap_servers=target.bootstrap, group_id=None)
    part = TopicPartition(topic, 0)
    assert consumer.beginning_offsets([part]) == {part: 0}
    assert consumer.end_offsets([part]) == {part: 20}
    found = consumer.offsets_for_times({part: times[7]})[part]
    assert times[found.offset] == times[7]
    assert consumer.partitions_for_topic(topic) == {0}
    consumer.close()


def test_admin(target: BrokerProcess, topic: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=target.bootstrap)
    admin.create_topics([NewTopic(topic, num_partitions=2, replication_factor=1)])
    wire.wait_for_topic(target.port, topic, 2)
    assert topic in admin.list_topics()
    (described,) = admin.describe_topics([topic])
    assert len(described["partitions"]) == 2
    assert admin.describe_cluster()["brokers"]
    admin.delete_topics([topic])
    admin.close()
