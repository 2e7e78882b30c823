"""The cluster, as the wire of a group wants it."""

from __future__ import annotations

from kbroker.client.cluster import Cluster
from kbroker.client.group.wire import Channel

__all__ = ["ClusterBrokers"]


class ClusterBrokers:
    """Reaches brokers through a cluster, which several threads may share."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def any(self) -> Channel:
        return self._cluster.any_connection()

    def open(self, node_id: int) -> Channel:
        return self._cluster.open(node_id)
