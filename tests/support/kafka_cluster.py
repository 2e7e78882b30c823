"""Three nodes of Apache Kafka 4.3 in combined mode: leaders move, brokers are killed on the way.

A topic's replicas default to 3, in sync at least 2, so that any one node may go.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tests.support.kafka import KafkaProcess, run_tool
from tests.support.waits import free_ports

NODES = 3
_CLUSTER_ID = "a2Jyb2tlci10ZXN0cy0wMw"


class KafkaNode(KafkaProcess):
    """One node of the cluster."""

    start_timeout_s = 120.0

    def __init__(self, home: Path, node_id: int, voters: str, ports: tuple[int, int]) -> None:
        super().__init__(home, heap_mib=384)
        self.node_id = node_id
        self.port, self.controller_port = ports
        self.voters = voters

    def properties(self) -> dict[str, str]:
        replicated = {
            f"{name}.replication.factor": "3"
            for name in ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic")
        }
        own = {
            "node.id": str(self.node_id),
            "broker.rack": f"rack-{self.node_id}",
            "controller.quorum.voters": self.voters,
            "default.replication.factor": "3",
            "min.insync.replicas": "2",
            "transaction.state.log.min.isr": "2",
            "share.coordinator.state.topic.min.isr": "2",
            "offsets.topic.num.partitions": "6",
            "transaction.state.log.num.partitions": "6",
            "num.partitions": "6",
            "broker.session.timeout.ms": "3000",
            "broker.heartbeat.interval.ms": "500",
            "controlled.shutdown.enable": "true",
            "unclean.leader.election.enable": "false",
            "auto.create.topics.enable": "false",  # a deleted one that clients use stays deleted
            "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
        }
        base = super().properties()
        del base["controller.quorum.bootstrap.servers"]
        return base | replicated | own

    def _format(self, config: Path) -> None:
        done = run_tool("storage", "format", "-t", _CLUSTER_ID, "-c", str(config))
        assert done.returncode == 0, done.stdout + done.stderr


class KafkaCluster:
    """The three nodes; `nodes[i]` has the id i + 1. Each may be killed, stopped, started alone."""

    def __init__(self, home: Path) -> None:
        ports = free_ports(2 * NODES)
        voters = ",".join(f"{i + 1}@127.0.0.1:{ports[2 * i + 1]}" for i in range(NODES))
        self.nodes = [
            KafkaNode(home / f"node-{i + 1}", i + 1, voters, (ports[2 * i], ports[2 * i + 1]))
            for i in range(NODES)
        ]

    @property
    def bootstrap(self) -> str:
        """The addresses of all nodes."""
        return ",".join(node.bootstrap for node in self.nodes)

    def node(self, node_id: int) -> KafkaNode:
        """The node of this id."""
        return self.nodes[node_id - 1]

    def start(self) -> None:
        """Starts the nodes that do not run, and waits until all serve."""
        started = [node for node in self.nodes if not node.is_running()]
        for node in started:
            node.launch()
        for node in started:
            node.wait_until_ready()

    def kill(self) -> None:
        """Kills all nodes."""
        for node in self.nodes:
            node.kill()


def running_cluster(home: Path) -> Iterator[KafkaCluster]:
    """The body of a fixture: a cluster that runs, and is killed afterwards."""
    cluster = KafkaCluster(home)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.kill()
