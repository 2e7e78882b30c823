"""A cluster spoken to through its controllers alone (KIP-919): for what has to be mended or asked
while no broker serves. They know of no topics' leaders; asking for topics says so."""

from __future__ import annotations

from kbroker.client.address import Address
from kbroker.client.cluster import Cluster
from kbroker.client.errors import BrokerError, UnsupportedApiError, check
from kbroker.client.metadata import Metadata, Node, TopicInfo
from kbroker.protocol import ApiKey

__all__ = ["ControllerCluster"]

_CONTROLLERS = 2  # endpoint type of DescribeCluster (KIP-919)


class ControllerCluster(Cluster):
    """Its nodes are the controllers."""

    def _ask(self, names: list[str] | None, *, create: bool) -> dict[str, TopicInfo | BrokerError]:
        del create
        if names is None or names:
            raise UnsupportedApiError(
                "controllers tell nothing of topics; give bootstrap.servers for that"
            )
        connection = self.any_connection()
        if connection.version_of(ApiKey.DESCRIBE_CLUSTER) < 1:
            raise UnsupportedApiError(f"{connection.address} tells nothing of controllers")
        values = {"endpoint_type": _CONTROLLERS, "include_cluster_authorized_operations": False}
        body = connection.call(ApiKey.DESCRIBE_CLUSTER, values)
        check(int(body.error_code), f"controllers of {connection.address}", body.error_message)
        nodes = {
            int(node.broker_id): Node(
                int(node.broker_id), Address(str(node.host), int(node.port)), node.rack
            )
            for node in body.brokers
        }
        with self._lock:
            self._was_told = True
            self._metadata = Metadata(body.cluster_id, int(body.controller_id), nodes)
        return {}
