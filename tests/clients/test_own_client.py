"""The project's own client against a broker, Apache Kafka first."""

from __future__ import annotations

import pytest

from kbroker.client import Producer
from kbroker.client.admin import create_partitions, create_topic
from kbroker.client.admin_cluster import describe_cluster, describe_log_dirs
from kbroker.client.cluster import Cluster
from kbroker.client.errors import KafkaError
from kbroker.client.offsets import EARLIEST, LATEST, MAX_TIMESTAMP, list_offsets
from tests.support.processes import BrokerProcess


@pytest.fixture
def cluster(target: BrokerProcess):
    with Cluster(target.bootstrap, timeout_s=20) as cluster:
        yield cluster


def test_special_offsets_and_those_by_time(
    target: BrokerProcess, cluster: Cluster, topic: str
) -> None:
    create_topic(cluster, topic, partitions=1)
    with Producer(bootstrap_servers=target.bootstrap) as producer:
        for timestamp_ms in (1000, 3000, 2000):
            producer.send(topic, b"x", timestamp_ms=timestamp_ms).result(20)
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
        list_offsets(cluster, {(topic, 1): LATEST})
    create_partitions(cluster, {topic: 2}).checked()
    cluster.forget(topic)
    assert list_offsets(cluster, {(topic, 1): LATEST})[topic, 1].offset == 0


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
