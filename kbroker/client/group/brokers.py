"""The cluster, as the wire of a group wants it."""

from __future__ import annotations

from kbroker.client.cluster import Cluster
from kbroker.client.group.native import LoopChannel
from kbroker.client.group.wire import Channel
from kbroker.ext.client_loop import ClientLoop

__all__ = ["ClusterBrokers"]


class ClusterBrokers:
    """Reaches brokers through a cluster, which several threads may share.

    loop: what gets the connection to the coordinator.
    """

    def __init__(self, cluster: Cluster, loop: ClientLoop) -> None:
        self._cluster = cluster
        self._loop = loop

    def any(self) -> Channel:
        return self._cluster.any_connection()

    def open(self, node_id: int) -> Channel:
        made = self._cluster.retry(lambda: self._cluster.open(node_id), 0.0)  # the wire tries again
        return LoopChannel(self._loop, made)
