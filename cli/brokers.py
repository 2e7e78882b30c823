"""Which brokers of a cluster are meant."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from kbroker.client.cluster import Cluster

__all__ = ["known_broker", "serving"]


def serving(cluster: Cluster) -> list[int]:
    """The ids of the brokers that serve, at least one."""
    cluster.refresh([])
    known = sorted(cluster.nodes)
    if not known:
        raise click.ClickException(
            "the cluster has no broker that serves; `kbroker cluster info` tells of those it had"
        )
    return known


def known_broker(cluster: Cluster, wanted: int | None) -> int:
    """The broker of this id, with None the first one."""
    known = serving(cluster)
    if wanted is not None and wanted not in known:
        there = ", ".join(map(str, known))
        raise click.BadParameter(
            f"there is no broker {wanted}; known: {there}", param_hint="--broker"
        )
    return known[0] if wanted is None else wanted
