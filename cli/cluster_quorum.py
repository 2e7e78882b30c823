"""`kbroker cluster quorum`: the controllers, and how much each has of the metadata log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kbroker.cli.options import bootstrap_option, open_cluster, output_option
from kbroker.cli.render import Column, print_json, print_rows

if TYPE_CHECKING:
    from kbroker.client.admin_cluster import Quorum, QuorumReplica

_REPLICAS = [
    Column("node", "NODE", number=True),
    Column("role", "ROLE"),
    Column("log_end_offset", "LOG END", number=True),
    Column("behind", "BEHIND", number=True),
    Column("behind_ms", "BEHIND MS", number=True),
    Column("last_fetch_ms", "LAST FETCH", number=True, wide=True),
    Column("last_caught_up_ms", "CAUGHT UP", number=True, wide=True),
]


@click.command()
@bootstrap_option
@output_option
def quorum(bootstrap: str | None, output: str) -> None:
    """Show who holds the metadata log, who leads, and how far the others are behind."""
    with open_cluster(bootstrap) as cluster:
        from kbroker.client.admin_cluster import describe_quorum

        told = describe_quorum(cluster)
    found: dict[str, Any] = {
        "leader": told.leader_id,
        "leader_epoch": told.leader_epoch,
        "high_watermark": told.high_watermark,
        "replicas": _replicas(told),
    }
    if output == "json":
        print_json(found)
        return
    click.echo(
        f"leader {told.leader_id}, epoch {told.leader_epoch},"
        f" high watermark {told.high_watermark}"
    )
    click.echo()
    print_rows(_REPLICAS, found["replicas"], output)


def _replicas(told: Quorum) -> list[dict[str, Any]]:
    """Voters, then observers."""
    leader = next((one for one in told.voters if one.node_id == told.leader_id), None)
    rows = []
    for role, replicas in (("voter", told.voters), ("observer", told.observers)):
        for one in sorted(replicas, key=lambda replica: replica.node_id):
            is_leader = leader is not None and one.node_id == leader.node_id
            rows.append({
                "node": one.node_id,
                "role": "leader" if role == "voter" and is_leader else role,
                "log_end_offset": _known(one.log_end_offset),
                "behind": _behind(leader, one),
                "behind_ms": _behind_ms(leader, one),
                "last_fetch_ms": _known(one.last_fetch_ms),
                "last_caught_up_ms": _known(one.last_caught_up_ms),
            })  # fmt: skip
    return rows


def _known(number: int) -> int | None:
    return number if number >= 0 else None


def _behind(leader: QuorumReplica | None, one: QuorumReplica) -> int | None:
    """Records of the leader's log that a replica has not."""
    if leader is None or min(leader.log_end_offset, one.log_end_offset) < 0:
        return None
    return max(leader.log_end_offset - one.log_end_offset, 0)


def _behind_ms(leader: QuorumReplica | None, one: QuorumReplica) -> int | None:
    """How long ago it had all that the leader had."""
    if leader is None or min(leader.last_caught_up_ms, one.last_caught_up_ms) < 0:
        return None
    return max(leader.last_caught_up_ms - one.last_caught_up_ms, 0)
