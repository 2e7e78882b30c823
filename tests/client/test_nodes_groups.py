"""Groups of both protocols while their coordinators die, in three nodes of Apache Kafka."""

from __future__ import annotations

import pytest

from kbroker.client import Admin, NewTopic
from kbroker.client.coordinators import find_coordinators
from tests.client.traffic import PARTITIONS, SLOW_S, Follower, Sender, goes_on, reckon, running
from tests.support.kafka_cluster import KafkaCluster
from tests.support.waits import wait_for

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

PROTOCOLS = {
    "range": {"partition_assignment_strategy": ["range"], "session_timeout_ms": 10_000},
    "cooperative": {
        "partition_assignment_strategy": ["cooperative-sticky"], "session_timeout_ms": 10_000,
    },
    "consumer": {"group_protocol": "consumer"},
}  # fmt: skip


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_coordinator_is_killed(kafka_cluster: KafkaCluster, topic: str, protocol: str):
    """What was acknowledged reaches some member, and what is committed is the end of the log."""
    name, group = f"grouped-{topic}", f"group-{topic}"
    with Admin(bootstrap_servers=kafka_cluster.bootstrap) as admin:
        admin.create_topics([NewTopic(name, PARTITIONS, 3)])
        sender = Sender(kafka_cluster.bootstrap, name)
        settings = {"group_id": group, "auto_commit_interval_ms": 200, **PROTOCOLS[protocol]}
        members = [Follower(kafka_cluster.bootstrap, name, **settings) for _ in range(2)]
        with running(*members):
            with running(sender):
                for member in members:
                    goes_on("each member reads", member.count)
                for _ in range(2):
                    node = find_coordinators(admin._cluster, [group])[group]
                    kafka_cluster.node(node).kill()
                    for member in members:
                        goes_on("each reads without that coordinator", member.count, 400)
                    kafka_cluster.start()
                goes_on("with all nodes", sender.count)
            acked = {
                (partition, number) for partition, of in sender.acked.items() for number in of
            }
            wait_for("all is read", lambda: acked <= seen(members), SLOW_S, 0.5)
            metrics = [member.consumer.metrics() for member in members if member.consumer]
        assert all(told["rebalance-total"] >= 1 for told in metrics)
        assert all(told["commit-total"] >= 1 and told["commit-latency-max"] > 0 for told in metrics)
        assert all(0 <= told["last-heartbeat-seconds-ago"] < 10 for told in metrics)
        assert sum(told["assigned-partitions"] for told in metrics) == PARTITIONS
        assert not sender.refused
        log = reckon(kafka_cluster.bootstrap, sender)
        told = admin.list_group_offsets([group])[group]
        ends = {(name, at): records[-1][0] + 1 for at, records in log.items()}
        assert {where: one.offset for where, one in told.items()} == ends


def seen(members: list[Follower]) -> set[tuple[int, int]]:
    """(partition, number) that any of them was given."""
    return {
        (partition, number)
        for member in members
        for partition, records in list(member.seen.items())
        for _, number in list(records)
    }
