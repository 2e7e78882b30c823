"""The cluster, as the wire of a group wants it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.client.cluster import Cluster
from kbroker.client.group.wire import Channel

if TYPE_CHECKING:
    from kbroker.ext.client_loop import ClientLoop

__all__ = ["ClusterBrokers"]


class ClusterBrokers:
    """Reaches brokers through a cluster, which several threads may share.

    loop: what gets the connection to the coordinator, None: the group keeps it to itself.
    """

    def __init__(self, cluster: Cluster, loop: ClientLoop | None = None) -> None:
        self._cluster = cluster
        self._loop = loop

    def any(self) -> Channel:
        return self._cluster.any_connection()

    def open(self, node_id: int) -> Channel:
        connection = self._cluster.open(node_id)
        if self._loop is None:
            return connection
        from kbroker.client.group.native import LoopChannel

        return LoopChannel(self._loop, connection)
