"""`kbroker topic`: list, describe, create, delete, add-partitions, alter-config."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from kbroker.cli.nearest import did_you_mean
from kbroker.cli.options import bootstrap_option, key_values, open_cluster, output_option
from kbroker.cli.render import Column, human_bytes, print_json, print_rows, say

if TYPE_CHECKING:
    from kbroker.client.cluster import Cluster, TopicInfo

_LIST = [
    Column("name", "NAME"),
    Column("partitions", "PARTITIONS", number=True),
    Column("replication_factor", "REPLICAS", number=True),
    Column("topic_id", "ID", wide=True),
    Column("internal", "INTERNAL", wide=True),
]
_PARTITIONS = [
    Column("partition", "PARTITION", number=True),
    Column("log_start_offset", "FIRST", number=True),
    Column("log_end_offset", "NEXT", number=True),
    Column("records", "RECORDS", number=True),
    Column("size_bytes", "BYTES", number=True),
    Column("leader", "LEADER", number=True),
    Column("leader_epoch", "EPOCH", number=True, wide=True),
    Column("replicas", "REPLICAS", wide=True),
    Column("isr", "IN SYNC", wide=True),
]
_CONFIGS = [
    Column("name", "SETTING"),
    Column("value", "VALUE"),
    Column("source", "FROM"),
    Column("kind", "TYPE", wide=True),
]


@click.command()
@bootstrap_option
@output_option
@click.option("--internal/--no-internal", "-i", default=False, help="Internal topics too.")
def list_topics(bootstrap: str | None, output: str, internal: bool) -> None:
    """List topics."""
    with open_cluster(bootstrap) as cluster:
        rows = [
            {
                "name": topic.name,
                "partitions": len(topic.partitions),
                "replication_factor": len(topic.partitions[0].replicas) if topic.partitions else 0,
                "topic_id": str(topic.topic_id),
                "internal": topic.internal,
            }
            for topic in cluster.topics(internal=internal)
        ]
    print_rows(_LIST, rows, output)
    if not rows and output != "json":
        click.echo("No topics; `kbroker topic create NAME` makes one.", err=True)


@click.command()
@click.argument("names", metavar="TOPIC...", nargs=-1, required=True)
@bootstrap_option
@output_option
@click.option("--all-configs", "-a", is_flag=True, help="Not only the settings of its own.")
def describe(names: tuple[str, ...], bootstrap: str | None, output: str, all_configs: bool) -> None:
    """Show a topic's partitions, offsets and settings."""
    with open_cluster(bootstrap) as cluster:
        found = [_description(cluster, name, all_configs) for name in names]
    if output == "json":
        print_json(found)
        return
    for at, topic in enumerate(found):
        if at:
            click.echo()
        say(
            f"{topic['name']}  id {topic['topic_id']}  {topic['records']} records,"
            f" {human_bytes(topic['size_bytes'])} on disk"
        )
        click.echo()
        print_rows(_PARTITIONS, topic["partitions"], output)
        if topic["configs"]:
            click.echo()
            print_rows(_CONFIGS, topic["configs"], output)


def _description(cluster: Cluster, name: str, all_configs: bool) -> dict[str, Any]:
    from kbroker.client.admin_configs import TOPIC, describe_configs

    topic = cluster.topic(name)
    partitions = _partitions(cluster, topic)
    configs = [
        {"name": entry.name, "value": entry.value, "source": entry.source, "kind": entry.kind}
        for entry in describe_configs(cluster, TOPIC, name)
        if all_configs or entry.source == "topic"
    ]
    return {
        "name": name,
        "topic_id": str(topic.topic_id),
        "internal": topic.internal,
        "records": sum(part["records"] for part in partitions),
        "size_bytes": sum(part["size_bytes"] for part in partitions),
        "partitions": partitions,
        "configs": configs,
    }


def _partitions(cluster: Cluster, topic: TopicInfo) -> list[dict[str, Any]]:
    from kbroker.client.admin_cluster import describe_log_dirs
    from kbroker.client.offsets import EARLIEST, LATEST, list_offsets

    every = [(topic.name, part.index) for part in topic.partitions]
    first = list_offsets(cluster, dict.fromkeys(every, EARLIEST))
    following = list_offsets(cluster, dict.fromkeys(every, LATEST))
    sizes: dict[int, int] = {}
    for log in describe_log_dirs(cluster, [topic]):
        if log.node_id == topic.partitions[log.partition].leader:
            sizes[log.partition] = log.size_bytes
    return [
        {
            "partition": part.index,
            "log_start_offset": first[topic.name, part.index].offset,
            "log_end_offset": following[topic.name, part.index].offset,
            "records": following[topic.name, part.index].offset
            - first[topic.name, part.index].offset,
            "size_bytes": sizes.get(part.index, 0),
            "leader": part.leader,
            "leader_epoch": part.leader_epoch,
            "replicas": list(part.replicas),
            "isr": list(part.isr),
        }
        for part in topic.partitions
    ]


@click.command()
@click.argument("names", metavar="TOPIC...", nargs=-1, required=True)
@bootstrap_option
@click.option("--partitions", "-p", type=click.IntRange(1), help="Default: the broker's.")
@click.option("--replicas", "-r", type=click.IntRange(1), help="Default: the broker's.")
@click.option("--config", "-c", "configs", multiple=True, metavar="KEY=VALUE", help="A setting.")
@click.option("--compact", is_flag=True, help="Short for -c cleanup.policy=compact.")
@click.option("--if-not-exists", is_flag=True, help="No error where it exists already.")
@click.option("--dry-run", is_flag=True, help="Only let the broker check.")
def create(
    names: tuple[str, ...],
    bootstrap: str | None,
    partitions: int | None,
    replicas: int | None,
    configs: tuple[str, ...],
    compact: bool,
    if_not_exists: bool,
    dry_run: bool,
) -> None:
    """Create a topic."""
    settings = key_values(configs, "--config")
    if compact:
        settings["cleanup.policy"] = "compact"
    with open_cluster(bootstrap) as cluster:
        from kbroker.client.admin import create_topic
        from kbroker.client.errors import BrokerError

        for name in names:
            try:
                made = create_topic(
                    cluster,
                    name,
                    partitions=partitions or -1,
                    replication_factor=replicas or -1,
                    configs=settings,
                    validate_only=dry_run,
                )
            except BrokerError as error:
                if not (if_not_exists and error.name == "TOPIC_ALREADY_EXISTS"):
                    raise
                say(f"topic {name} exists already")
            else:
                plural = "" if made.partitions == 1 else "s"
                count = f"{made.partitions} partition{plural}"
                say(f"topic {name} {'could be ' if dry_run else ''}created with {count}")


@click.command()
@click.argument("names", metavar="TOPIC...", nargs=-1, required=True)
@bootstrap_option
@click.option("--if-exists", is_flag=True, help="No error where it does not exist.")
@click.option("--dry-run", is_flag=True, help="Only say what would be deleted.")
def delete(names: tuple[str, ...], bootstrap: str | None, if_exists: bool, dry_run: bool) -> None:
    """Delete topics with all their records."""
    with open_cluster(bootstrap) as cluster:
        from kbroker.client.admin import delete_topics
        from kbroker.client.errors import BrokerError

        for name in names:
            try:
                if dry_run:
                    cluster.topic(name)
                else:
                    delete_topics(cluster, [name]).checked()
            except BrokerError as error:
                if not (if_exists and error.name == "UNKNOWN_TOPIC_OR_PARTITION"):
                    raise
                say(f"topic {name} does not exist")
            else:
                say(f"topic {name} {'would be ' if dry_run else ''}deleted")


@click.command()
@click.argument("name", metavar="TOPIC")
@bootstrap_option
@click.option("--num", "-n", type=click.IntRange(1), help="How many to add.")
@click.option("--total", "-t", type=click.IntRange(1), help="How many there shall be.")
@click.option("--dry-run", is_flag=True, help="Only let the broker check.")
def add_partitions(
    name: str, bootstrap: str | None, num: int | None, total: int | None, dry_run: bool
) -> None:
    """Add partitions to a topic. Keys then go to other partitions than before."""
    if (num is None) == (total is None):
        raise click.UsageError("give one of --num and --total")
    with open_cluster(bootstrap) as cluster:
        from kbroker.client.admin import create_partitions

        wanted = total if total is not None else len(cluster.topic(name).partitions) + (num or 0)
        create_partitions(cluster, {name: wanted}, validate_only=dry_run).checked()
    say(f"topic {name} {'could have' if dry_run else 'has'} {wanted} partitions")


@click.command()
@click.argument("names", metavar="TOPIC...", nargs=-1, required=True)
@bootstrap_option
@click.option("--set", "-s", "settings", multiple=True, metavar="KEY=VALUE", help="Set it.")
@click.option("--delete", "-d", "deleted", multiple=True, metavar="KEY", help="Back to default.")
@click.option("--dry-run", is_flag=True, help="Only let the broker check.")
def alter_config(
    names: tuple[str, ...],
    bootstrap: str | None,
    settings: tuple[str, ...],
    deleted: tuple[str, ...],
    dry_run: bool,
) -> None:
    """Set and unset a topic's settings."""
    values = key_values(settings, "--set")
    if not values and not deleted:
        raise click.UsageError("nothing to change; give --set KEY=VALUE or --delete KEY")
    with open_cluster(bootstrap) as cluster:
        from kbroker.client.admin_configs import TOPIC, alter_configs

        for name in names:
            unset = _unset(cluster, name, deleted)
            alter_configs(
                cluster, TOPIC, name, set_values=values, delete=deleted, validate_only=dry_run
            )
            if values or len(unset) < len(deleted):
                say(f"topic {name} {'could be ' if dry_run else ''}changed")
            for key in unset:
                say(f"topic {name} has no {key} of its own: it is at its default already")


def _unset(cluster: Cluster, name: str, keys: Sequence[str]) -> list[str]:
    """Those of these settings that the topic has not set. ClickException for one that is none."""
    from kbroker.client.admin_configs import TOPIC, describe_configs

    if not keys:
        return []
    sources = {entry.name: entry.source for entry in describe_configs(cluster, TOPIC, name)}
    for key in keys:
        if key not in sources:
            hint = did_you_mean(key, sources)
            raise click.ClickException(f"topics have no setting {key!r}{hint}")
    return [key for key in keys if sources[key] != "topic"]
