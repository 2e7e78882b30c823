"""Who belongs to the cluster: a broker that is gone is forgotten, controllers come and go."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from kbroker.client.address import Address
from kbroker.client.admin import limit_ms
from kbroker.client.cluster import Cluster
from kbroker.client.errors import check
from kbroker.protocol import ApiKey

__all__ = ["add_voter", "remove_voter", "unregister_broker"]


def unregister_broker(cluster: Cluster, node: int) -> None:
    """Forgets a broker that does not serve any more (KIP-631)."""
    _change(cluster, ApiKey.UNREGISTER_BROKER, {"broker_id": node}, f"broker {node}")


def add_voter(
    cluster: Cluster,
    node: int,
    directory: uuid.UUID,
    listeners: Mapping[str, tuple[str, int]],
    *,
    cluster_id: str | None = None,
) -> None:
    """Takes a controller, with the id of its metadata log's directory and its (host, port) by
    listener, into the quorum (KIP-853). cluster_id: of another cluster the request is refused."""
    values = {
        "cluster_id": cluster_id,
        "timeout": limit_ms(cluster),
        "voter_id": node,
        "voter_directory_id": directory,
        "listeners": [
            {"name": name, "host": address.host, "port": address.port}
            for name, address in ((name, Address(*told)) for name, told in listeners.items())
        ],
    }
    _change(cluster, ApiKey.ADD_RAFT_VOTER, values, f"voter {node}")


def remove_voter(
    cluster: Cluster, node: int, directory: uuid.UUID, *, cluster_id: str | None = None
) -> None:
    """Takes a controller out of the quorum (KIP-853)."""
    values = {"cluster_id": cluster_id, "voter_id": node, "voter_directory_id": directory}
    _change(cluster, ApiKey.REMOVE_RAFT_VOTER, values, f"voter {node}")


def _change(cluster: Cluster, api: ApiKey, values: Mapping[str, Any], subject: str) -> None:
    def ask() -> None:
        body = cluster.controller().call(api, values)
        check(body.error_code, subject, body.error_message)

    cluster.retry(ask)
