"""The project's own client against a broker, Apache Kafka first."""

from __future__ import annotations

import time

import pytest

from kbroker.client.admin import create_partitions, create_topic, delete_topics
from kbroker.client.admin_cluster import describe_cluster, describe_log_dirs
from kbroker.client.cluster import Cluster
from kbroker.client.errors import BrokerError, KafkaError
from kbroker.client.fetch import Reader
from kbroker.client.offsets import EARLIEST, LATEST, MAX_TIMESTAMP, list_offsets
from kbroker.client.produce import Producer
from tests.support.processes import BrokerProcess
from tests.support.waits import wait_for


@pytest.fixture
def cluster(target: BrokerProcess):
    with Cluster(target.bootstrap, timeout_s=20) as cluster:
        yield cluster


def read(reader: Reader, count: int) -> list[tuple[int, int, bytes | None]]:
    """(partition, offset, value) of so many records."""
    found: list[tuple[int, int, bytes | None]] = []

    def enough() -> bool:
        found.extend((r.partition, r.offset, r.value) for r in reader.poll(max_wait_ms=100))
        return len(found) >= count

    wait_for(f"{count} records", enough, 20)
    return found


def test_records_arrive_once_and_in_order_over_many_requests(cluster: Cluster, topic: str) -> None:
    create_topic(cluster, topic, partitions=3)
    producer = Producer(cluster, batch_bytes=2000)
    for number in range(3000):
        producer.send(topic, b"%d" % number, key=b"%d" % (number % 50))
    delivered = producer.flush()
    assert sum(batch.records for batch in delivered) == 3000
    positions = {(topic, index): 0 for index in range(3)}
    reader = Reader(cluster, positions, partition_max_bytes=4000)
    found = read(reader, 3000)
    for index in range(3):
        offsets = [offset for partition, offset, _ in found if partition == index]
        assert offsets == list(range(len(offsets)))
    assert sorted(int(value or b"") for _, _, value in found) == list(range(3000))
    assert reader.positions == {
        key: at.offset
        for key, at in list_offsets(cluster, dict.fromkeys(positions, LATEST)).items()
    }


def test_a_reader_of_a_topic_that_is_deleted_is_told_in_seconds(
    cluster: Cluster, topic: str
) -> None:
    create_topic(cluster, topic)
    reader = Reader(cluster, {(topic, 0): 0})
    assert list(reader.poll(max_wait_ms=10)) == []
    delete_topics(cluster, [topic]).checked()
    began = time.monotonic()
    with pytest.raises(BrokerError) as told:
        while time.monotonic() < began + 20:
            list(reader.poll(max_wait_ms=10))
    assert told.value.code == 3  # UNKNOWN_TOPIC_OR_PARTITION
    assert time.monotonic() < began + 10


def test_a_reader_waits_for_what_comes_and_may_forget_a_partition(
    cluster: Cluster, topic: str
) -> None:
    create_topic(cluster, topic, partitions=2)
    reader = Reader(cluster, {(topic, 0): 0, (topic, 1): 0})
    assert list(reader.poll(max_wait_ms=10)) == []
    producer = Producer(cluster)
    for index in (0, 1):
        producer.send(topic, b"first", partition=index)
    producer.flush()
    assert len(read(reader, 2)) == 2
    del reader.positions[topic, 0]
    for index in (0, 1):
        producer.send(topic, b"second", partition=index)
    producer.flush()
    assert read(reader, 1) == [(1, 1, b"second")]
    reader.positions[topic, 0] = 1
    assert read(reader, 1) == [(0, 1, b"second")]


def test_offset_out_of_range_is_told(cluster: Cluster, topic: str) -> None:
    create_topic(cluster, topic, partitions=1)
    with pytest.raises(BrokerError, match=f"{topic}-0 at offset 5.*OFFSET_OUT_OF_RANGE"):
        list(Reader(cluster, {(topic, 0): 5}).poll(max_wait_ms=10))


def test_special_offsets_and_those_by_time(cluster: Cluster, topic: str) -> None:
    create_topic(cluster, topic, partitions=1)
    producer = Producer(cluster, idempotent=False)
    for timestamp_ms in (1000, 3000, 2000):
        producer.send(topic, b"x", timestamp_ms=timestamp_ms)
        producer.flush()
    key = (topic, 0)
    for asked, offset, timestamp_ms in (
        (EARLIEST, 0, -1),
        (LATEST, 3, -1),
        (MAX_TIMESTAMP, 1, 3000),
        (1500, 1, 3000),
        (1000, 0, 1000),
        (9000, -1, -1),
    ):
        found = list_offsets(cluster, {key: asked})[key]
        assert (found.offset, found.timestamp_ms) == (offset, timestamp_ms)


def test_new_partitions_are_found(cluster: Cluster, topic: str) -> None:
    create_topic(cluster, topic, partitions=1)
    with pytest.raises(KafkaError, match="has no partition 1"):
        Reader(cluster, {(topic, 1): 0}).poll().__next__()
    create_partitions(cluster, {topic: 2}).checked()
    Producer(cluster).send(topic, b"x", partition=1)


def test_the_cluster_and_its_disks(cluster: Cluster, topic: str) -> None:
    create_topic(cluster, topic, partitions=2)
    told = describe_cluster(cluster)
    ((node_id, host, port, _),) = told.brokers
    assert cluster.nodes[node_id].address.port == port
    assert host == "127.0.0.1"
    logs = describe_log_dirs(cluster, [cluster.topic(topic)])
    assert sorted((log.topic, log.partition, log.size_bytes) for log in logs) == [
        (topic, 0, 0),
        (topic, 1, 0),
    ]


def test_a_producer_and_a_reader_outlive_a_restart(start_target, topic: str) -> None:
    broker = start_target({"auto.create.topics.enable": "true", "num.partitions": "1"})
    with Cluster(broker.bootstrap, timeout_s=60) as cluster:
        producer = Producer(cluster)
        producer.send(topic, b"before")
        producer.flush()
        reader = Reader(cluster, {(topic, 0): 0})
        assert read(reader, 1) == [(0, 0, b"before")]
        broker.restart()
        producer.send(topic, b"after")
        producer.flush()
        assert read(reader, 1) == [(0, 1, b"after")]
