"""The cluster against three nodes of Apache Kafka: leaders move, nodes die, all of them as well."""

from __future__ import annotations

import threading

import pytest

from kbroker.client import admin
from kbroker.client.cluster import Cluster
from kbroker.client.config import admin_config
from kbroker.client.connection import Connection
from kbroker.client.errors import ConnectError
from kbroker.protocol import ApiKey
from tests.support.kafka_cluster import KafkaCluster
from tests.support.waits import wait_for

pytestmark = pytest.mark.long


def reach(bootstrap: str, **more: object) -> Cluster:
    return Cluster.of(admin_config({"bootstrap.servers": bootstrap}, more))


def test_leaders_move_and_nodes_come_back(kafka_cluster: KafkaCluster, topic: str):
    with reach(kafka_cluster.nodes[0].bootstrap, default_api_timeout_ms=60_000) as cluster:
        cluster.retry(lambda: admin.create_topic(cluster, topic, partitions=6))
        info = cluster.retry(lambda: cluster.topic(topic))
        assert {part.leader for part in info.partitions} == {1, 2, 3}
        assert {node.rack for node in cluster.nodes.values()} == {"rack-1", "rack-2", "rack-3"}
        lost = kafka_cluster.node(info.partitions[0].leader)
        lost.kill()
        try:
            with pytest.raises(ConnectError, match="no broker listens"):
                cluster.open(lost.node_id)

            def moved() -> bool:
                cluster.forget(topic)
                return all(part.leader not in (-1, lost.node_id)
                           for part in cluster.topic(topic).partitions)  # fmt: skip

            wait_for("leaders elsewhere", moved, 60)
            after = cluster.topic(topic).partitions[0]
            assert after.leader_epoch > info.partitions[0].leader_epoch
        finally:
            kafka_cluster.start()
        back = cluster.retry(lambda: cluster.open(lost.node_id))
        assert back.version_of(ApiKey.FETCH) >= 12
        back.close()


def test_rebootstrap_when_every_broker_known_is_gone(kafka_cluster: KafkaCluster):
    one, two = kafka_cluster.nodes[:2]
    with (
        reach(f"{one.bootstrap},{two.bootstrap}", default_api_timeout_ms=60_000) as cluster,
        reach(one.bootstrap, metadata_recovery_strategy="none",
              default_api_timeout_ms=1000) as stubborn,
    ):  # fmt: skip
        for each in (cluster, stubborn):
            each.refresh([])
            with each._lock:  # as if the cluster had moved away: nobody lives where it was
                only = {1: each.nodes[1]}
                each._metadata = type(each.metadata)(each.cluster_id, 1, only)
            each.any_connection().close()
        one.kill()
        try:
            cluster.refresh([])
            assert 2 in cluster.nodes
            with pytest.raises(ConnectError):
                stubborn.refresh([])
            assert set(stubborn.nodes) == {1}
        finally:
            kafka_cluster.start()


def test_threads_share_a_cluster_while_nodes_restart(kafka_cluster: KafkaCluster, topic: str):
    with reach(kafka_cluster.bootstrap, default_api_timeout_ms=60_000) as cluster:
        cluster.retry(lambda: admin.create_topic(cluster, topic, partitions=3))
        stop, failures, seen = threading.Event(), [], []

        def ask() -> None:
            used: set[Connection] = set()
            while not stop.is_set():
                try:
                    cluster.retry(lambda: cluster.refresh([topic]))
                    leader = cluster.retry(lambda: cluster.topic(topic)).partitions[0].leader
                    used.add(cluster.retry(lambda at=leader: cluster.connection(at)))
                except ConnectError:
                    continue  # the leader that was told is gone
                except Exception as error:
                    failures.append(error)
                    return
            seen.append(used)

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        for node in kafka_cluster.nodes[:2]:
            node.kill()
            node.start()
        stop.set()
        for thread in threads:
            thread.join(60)
        assert not failures
        assert len(set().union(*seen)) == sum(map(len, seen)), "threads shared a connection"
