"""`kbroker cluster`: info, api-versions, logdirs, features. Health is cluster_health's."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click

from kbroker.cli.brokers import known_broker, serving
from kbroker.cli.options import bootstrap_option, open_cluster, output_option
from kbroker.cli.render import Column, human_bytes, print_json, print_rows

if TYPE_CHECKING:
    from kbroker.client.admin_cluster import LogDir
    from kbroker.client.cluster import Cluster

_BROKERS = [
    Column("id", "BROKER", number=True),
    Column("host", "HOST"),
    Column("port", "PORT", number=True),
    Column("rack", "RACK"),
    Column("controller", "CONTROLLER"),
    Column("fenced", "FENCED", wide=True),
]
_VERSIONS = [
    Column("broker", "BROKER", number=True),
    Column("key", "KEY", number=True),
    Column("api", "API"),
    Column("min", "FROM", number=True),
    Column("max", "TO", number=True),
    Column("used", "USED", number=True),
]
_LOG_DIRS = [
    Column("broker", "BROKER", number=True),
    Column("path", "LOG DIRECTORY"),
    Column("partitions", "PARTITIONS", number=True),
    Column("size", "SIZE", number=True),
    Column("usable", "FREE", number=True),
    Column("total", "OF", number=True),
    Column("error", "ERROR"),
]
_LOGS = [
    Column("broker", "BROKER", number=True),
    Column("topic", "TOPIC"),
    Column("partition", "PARTITION", number=True),
    Column("size_bytes", "BYTES", number=True),
    Column("offset_lag", "BEHIND", number=True, wide=True),
    Column("is_future", "MOVING HERE", wide=True),
    Column("path", "LOG DIRECTORY", wide=True),
]
_FEATURES = [
    Column("feature", "FEATURE"),
    Column("min", "FROM", number=True),
    Column("max", "TO", number=True),
    Column("level", "IN FORCE", number=True),
]

_brokers_option = click.option(
    "--broker", "wanted", type=click.IntRange(0), multiple=True, help="This broker alone."
)


@click.command()
@bootstrap_option
@output_option
def info(bootstrap: str | None, output: str) -> None:
    """Show the cluster's id, its brokers and how much it has."""
    with open_cluster(bootstrap) as cluster:
        from kbroker.client.admin_cluster import describe_cluster

        told = describe_cluster(cluster, fenced=True)
        topics = cluster.topics()
    own = [topic for topic in topics if not topic.internal]
    found: dict[str, Any] = {
        "cluster_id": told.cluster_id,
        "controller": told.controller_id,
        "topics": len(own),
        "internal_topics": len(topics) - len(own),
        "partitions": sum(len(topic.partitions) for topic in topics),
        "brokers": [
            {
                "id": number,
                "host": host,
                "port": port,
                "rack": rack,
                "controller": number == told.controller_id,
                "fenced": number in told.fenced,
            }
            for number, host, port, rack in told.brokers
        ],
    }
    if output == "json":
        print_json(found)
        return
    click.echo(
        f"cluster {found['cluster_id']}  {found['topics']} topics and {found['internal_topics']}"
        f" internal, {found['partitions']} partitions in all"
    )
    click.echo()
    print_rows(_BROKERS, found["brokers"], output)


@click.command()
@bootstrap_option
@output_option
@_brokers_option
def api_versions(bootstrap: str | None, output: str, wanted: tuple[int, ...]) -> None:
    """Show which APIs brokers answer, in which versions, and which of them this client takes."""
    with open_cluster(bootstrap) as cluster:
        from kbroker.client.messages import VERSIONS
        from kbroker.protocol import ApiKey

        names = {int(key): key.name for key in ApiKey}
        rows = []
        for node in _nodes(cluster, wanted):
            for key, (low, high) in sorted(cluster.connection(node).broker_versions.items()):
                ours = VERSIONS.get(ApiKey(key)) if key in names else None
                used = min(high, ours[1]) if ours else -1
                rows.append({
                    "broker": node,
                    "key": key,
                    "api": names.get(key),
                    "min": low,
                    "max": high,
                    "used": used if ours and used >= max(low, ours[0]) else None,
                })  # fmt: skip
    print_rows(_VERSIONS, rows, output)


@click.command()
@bootstrap_option
@output_option
@_brokers_option
@click.option("--topic", "-t", "topics", metavar="TOPIC", multiple=True, help="Its logs alone.")
@click.option("--partitions", "-p", "each", is_flag=True, help="A line for each log.")
def logdirs(
    bootstrap: str | None,
    output: str,
    wanted: tuple[int, ...],
    topics: tuple[str, ...],
    each: bool,
) -> None:
    """Show brokers' log directories, with sizes and what is free."""
    with open_cluster(bootstrap) as cluster:
        from kbroker.client.admin_cluster import log_dirs

        chosen = [cluster.topic(name) for name in topics] if topics else None
        told = log_dirs(cluster, _nodes(cluster, wanted), chosen).checked()
    folders = [folder for node in told.values() for folder in node]
    if each:
        print_rows(_LOGS, _logs(folders), output)
        return
    rows = [_log_dir(folder) for folder in folders]
    if output == "json":
        print_json(rows)
        return
    for row in rows:
        row |= {
            "size": human_bytes(row["size_bytes"]),
            "usable": None if row["usable_bytes"] is None else human_bytes(row["usable_bytes"]),
            "total": None if row["total_bytes"] is None else human_bytes(row["total_bytes"]),
        }
    print_rows(_LOG_DIRS, rows, output)


def _log_dir(folder: LogDir) -> dict[str, Any]:
    return {
        "broker": folder.node_id,
        "path": folder.path,
        "partitions": len(folder.partitions),
        "size_bytes": sum(log.size_bytes for log in folder.partitions),
        "usable_bytes": None if folder.usable_bytes < 0 else folder.usable_bytes,
        "total_bytes": None if folder.total_bytes < 0 else folder.total_bytes,
        "error": None if folder.error is None else str(folder.error),
    }


def _logs(folders: Iterable[LogDir]) -> list[dict[str, Any]]:
    rows = [
        {
            "broker": log.node_id,
            "topic": log.topic,
            "partition": log.partition,
            "size_bytes": log.size_bytes,
            "offset_lag": log.offset_lag,
            "is_future": log.is_future,
            "path": log.log_dir,
        }
        for folder in folders
        for log in folder.partitions
    ]
    return sorted(rows, key=lambda row: (row["broker"], row["topic"], row["partition"]))


@click.command()
@bootstrap_option
@output_option
def features(bootstrap: str | None, output: str) -> None:
    """Show the cluster's features: levels that brokers support, and those in force."""
    with open_cluster(bootstrap) as cluster:
        from kbroker.client.admin_cluster import describe_features

        told = describe_features(cluster)
    rows = [
        {
            "feature": name,
            "min": feature.min_supported,
            "max": feature.max_supported,
            "level": feature.level,
        }
        for name, feature in told.features.items()
    ]
    print_rows(_FEATURES, rows, output)


def _nodes(cluster: Cluster, wanted: Iterable[int]) -> list[int]:
    """The brokers meant, or all."""
    return sorted({known_broker(cluster, node) for node in wanted}) or serving(cluster)
