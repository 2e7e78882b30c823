"""`kbroker cluster health`: whether every partition has a leader and all its replicas."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from kbroker.cli.options import (
    SECONDS_MAX,
    Real,
    bootstrap_option,
    open_cluster,
    output_option,
)
from kbroker.cli.render import print_json

if TYPE_CHECKING:
    from kbroker.client.cluster import Cluster

_PAUSE_S = 0.2
_LOOK_S, _UNHURRIED_S = 1.0, 30.0  # for a broker's answers, with and without --wait
_SHOWN = 10  # of each kind of trouble, in words


@click.command()
@bootstrap_option
@output_option
@click.option(
    "--wait",
    type=Real(0, SECONDS_MAX),
    default=0.0,
    metavar="SECONDS",
    help="Wait for it to be healthy, or to be there at all, for at most so long.",
)
def health(bootstrap: str | None, output: str, wait: float) -> int:
    """Show whether the cluster is well. Exit status 0: it is."""
    from kbroker.client.errors import ConnectError, RequestTimeoutError

    deadline = time.monotonic() + wait
    while True:
        try:
            limit_s = max(deadline - time.monotonic(), _LOOK_S) if wait else _UNHURRIED_S
            with open_cluster(bootstrap, timeout_s=limit_s) as cluster:
                told = look(cluster)
            if told["healthy"]:
                break
        except (ConnectError, RequestTimeoutError):
            if time.monotonic() >= deadline:
                raise
        if time.monotonic() >= deadline:
            break
        time.sleep(_PAUSE_S)
    if output == "json":
        print_json(told)
    else:
        _print(told)
    return 0 if told["healthy"] else 1


def look(cluster: Cluster) -> dict[str, Any]:
    """How the cluster is, as -o json tells it."""
    from kbroker.client.admin_cluster import describe_cluster, log_dirs
    from kbroker.client.errors import AuthorizationError

    told = describe_cluster(cluster, fenced=True)
    topics = cluster.topics()
    parts = [(f"{topic.name}-{part.index}", part) for topic in topics for part in topic.partitions]
    serving = sorted(cluster.nodes)
    folders = log_dirs(cluster, serving, [])
    off = [f"{folder.path} of broker {folder.node_id}: {folder.error}"
           for node in folders.succeeded.values() for folder in node if folder.error]  # fmt: skip
    errors = folders.errors
    unseen = [node for node, error in errors.items() if isinstance(error, AuthorizationError)]
    off += [str(error) for node, error in errors.items() if node not in unseen]
    trouble: dict[str, list[str]] = {
        "without_leader": [name for name, part in parts if part.leader < 0],
        "under_replicated": [name for name, part in parts if len(part.isr) < len(part.replicas)],
        "fenced_brokers": [str(node) for node in told.fenced],
        "log_dirs_offline": off,
    }
    return {
        "healthy": told.controller_id >= 0 and not any(trouble.values()),
        "cluster_id": told.cluster_id,
        "controller": told.controller_id if told.controller_id >= 0 else None,
        "brokers": len(serving),
        "partitions": len(parts),
        **trouble,
        "log_dirs_unseen": unseen,
    }


_WORDS = {
    "without_leader": "partitions without a leader",
    "under_replicated": "partitions short of replicas",
    "fenced_brokers": "brokers that do not serve",
    "log_dirs_offline": "log directories that are off",
}


def _print(told: dict[str, Any]) -> None:
    brokers = "1 broker" if told["brokers"] == 1 else f"{told['brokers']} brokers"
    state = "healthy" if told["healthy"] else "NOT healthy"
    click.echo(f"{state}: {brokers}, {told['partitions']} partitions")
    if told["controller"] is None:
        click.echo("no controller")
    for line in troubles(told):
        click.echo(line)
    if told["log_dirs_unseen"]:
        click.echo(f"log directories: {unseen_text(told)}")


def unseen_text(told: dict[str, Any]) -> str:
    """Whose log directories the user may not see, be they well or not."""
    nodes = ", ".join(map(str, told["log_dirs_unseen"][:_SHOWN]))
    return f"those of broker {nodes}: this user may not see them (DESCRIBE of the cluster)"


def troubles(told: dict[str, Any]) -> Iterator[str]:
    """What is wrong, in words."""
    for key, words in _WORDS.items():
        if told[key]:
            more = len(told[key]) - _SHOWN
            names = ", ".join(told[key][:_SHOWN]) + (f" and {more} more" if more > 0 else "")
            yield f"{words}: {len(told[key])}: {names}"
