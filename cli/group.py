"""`kbroker group`: list, describe, members, lag."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from kbroker.cli.group_scope import Partition, by_topic, described, plural
from kbroker.cli.options import bootstrap_option, one_of, open_cluster, output_option
from kbroker.cli.render import Column, print_json, print_rows, say

if TYPE_CHECKING:
    from kbroker.client.cluster import Cluster
    from kbroker.client.groups import GroupDescription, GroupMember

_LIST = [
    Column("group", "GROUP"),
    Column("type", "TYPE"),
    Column("state", "STATE"),
    Column("protocol_type", "PROTOCOL", wide=True),
    Column("coordinator", "COORDINATOR", number=True, wide=True),
]
_PARTITIONS = [
    Column("topic", "TOPIC"),
    Column("partition", "PARTITION", number=True),
    Column("committed", "COMMITTED", number=True),
    Column("log_end_offset", "NEXT", number=True),
    Column("lag", "LAG", number=True),
    Column("client_id", "CLIENT"),
    Column("host", "HOST"),
    Column("member", "MEMBER", wide=True),
    Column("instance", "INSTANCE", wide=True),
    Column("leader_epoch", "EPOCH", number=True, wide=True),
    Column("metadata", "METADATA", wide=True),
]
_MEMBERS = [
    Column("group", "GROUP"),
    Column("member", "MEMBER"),
    Column("client_id", "CLIENT"),
    Column("host", "HOST"),
    Column("partitions", "PARTITIONS", number=True),
    Column("assigned", "ASSIGNED"),
    Column("instance", "INSTANCE", wide=True),
    Column("rack", "RACK", wide=True),
    Column("epoch", "EPOCH", number=True, wide=True),
    Column("target", "TARGET", wide=True),
    Column("subscribed", "SUBSCRIBED", wide=True),
]
_LAG = [
    Column("group", "GROUP"),
    Column("state", "STATE"),
    Column("members", "MEMBERS", number=True),
    Column("topic", "TOPIC"),
    Column("lag", "LAG", number=True),
    Column("largest", "LARGEST", number=True, wide=True),
    Column("partitions", "PARTITIONS", number=True, wide=True),
]

# Kafka's, of all types of groups.
_STATES = (
    "Empty", "Stable", "PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling",
    "NotReady", "Dead",
)  # fmt: skip
_TYPES = ("classic", "consumer", "share", "streams")

_all_groups = click.option("--all-groups", "-a", "every", is_flag=True, help="All groups.")


@click.command()
@bootstrap_option
@output_option
@click.option("--state", "-s", "states", metavar="STATE", multiple=True, callback=one_of(_STATES),
              help="Only groups in it, as Stable, Empty.")  # fmt: skip
@click.option("--type", "-t", "types", metavar="TYPE", multiple=True, callback=one_of(_TYPES),
              help="Only classic, or only consumer groups.")  # fmt: skip
def list_all(
    bootstrap: str | None, output: str, states: tuple[str, ...], types: tuple[str, ...]
) -> None:
    """List groups with their protocol's type and their state."""
    with open_cluster(bootstrap) as cluster:
        from kbroker.client.groups import list_groups

        rows = [
            {
                "group": group.group_id,
                "type": group.group_type or None,
                "state": group.state or None,
                "protocol_type": group.protocol_type or None,
                "coordinator": group.coordinator,
            }
            for group in list_groups(cluster, states=states, types=types)
        ]
    print_rows(_LIST, rows, output)
    if not rows and output != "json":
        which = "such groups" if states or types else "groups; a consumer with a group.id makes one"
        click.echo(f"No {which}.", err=True)


@click.command()
@click.argument("names", metavar="[GROUP...]", nargs=-1)
@bootstrap_option
@output_option
@_all_groups
def describe(names: tuple[str, ...], bootstrap: str | None, output: str, every: bool) -> None:
    """Show a group's offsets, lag and who reads which partition."""
    with open_cluster(bootstrap) as cluster:
        groups = described(cluster, names, every)
        rows_of = _partitions(cluster, groups)
    found: list[dict[str, Any]] = [
        {
            "group": group.group_id,
            "type": group.group_type,
            "state": group.state,
            "protocol_type": group.protocol_type or None,
            "assignor": group.assignor or None,
            "coordinator": group.coordinator,
            "group_epoch": group.group_epoch,
            "assignment_epoch": group.assignment_epoch,
            "members": len(group.members),
            "lag": _sum(rows_of[group.group_id]),
            "partitions": rows_of[group.group_id],
        }
        for group in groups
    ]
    if output == "json":
        print_json(found)
        return
    for at, group in enumerate(found):
        if at:
            click.echo()
        say(_headline(group))
        if group["partitions"]:
            click.echo()
            print_rows(_PARTITIONS, group["partitions"], output)


def _headline(group: Mapping[str, Any]) -> str:
    parts = [group["type"], group["state"], group["assignor"]]
    parts.append(plural(group["members"], "member") if group["members"] else "no members")
    if group["group_epoch"] is not None:
        parts.append(f"epoch {group['group_epoch']}")
    if group["lag"] is not None:
        parts.append(f"lag {group['lag']}")
    return f"{group['group']}  {', '.join(part for part in parts if part)}"


@click.command()
@click.argument("names", metavar="[GROUP...]", nargs=-1)
@bootstrap_option
@output_option
@_all_groups
def members(names: tuple[str, ...], bootstrap: str | None, output: str, every: bool) -> None:
    """Show a group's members and what is assigned to each."""
    with open_cluster(bootstrap) as cluster:
        groups = described(cluster, names, every)
    rows = [_member(group, member) for group in groups for member in group.members]
    if output != "json":
        for row in rows:
            row |= {key: _spelled(row[key]) for key in ("assigned", "target")}
    print_rows(_MEMBERS, rows, output)
    if not rows and output != "json":
        click.echo("No members.", err=True)


def _member(group: GroupDescription, member: GroupMember) -> dict[str, Any]:
    return {
        "group": group.group_id,
        "member": member.member_id,
        "client_id": member.client_id,
        "host": member.host,
        "partitions": len(member.assigned),
        "assigned": by_topic(member.assigned),
        "instance": member.instance_id,
        "rack": member.rack_id or None,
        "epoch": member.epoch,
        "target": None if member.target is None else by_topic(member.target),
        "subscribed": [
            *member.subscribed,
            *([f"/{member.subscribed_regex}/"] if member.subscribed_regex else []),
        ],
    }


def _spelled(assignment: Mapping[str, Sequence[int]] | None) -> str | None:
    """`flights:0,1 greetings:0`, as --topic takes them."""
    if not assignment:
        return None
    return " ".join(
        f"{topic}:{','.join(map(str, indexes))}" for topic, indexes in assignment.items()
    )


@click.command()
@click.argument("names", metavar="[GROUP...]", nargs=-1)
@bootstrap_option
@output_option
def lag(names: tuple[str, ...], bootstrap: str | None, output: str) -> None:
    """Show how many records groups have still to read, by topic; of all groups unless named."""
    with open_cluster(bootstrap) as cluster:
        groups = described(cluster, names, not names)
        rows_of = _partitions(cluster, groups)
    rows = []
    for group in groups:
        parts = rows_of[group.group_id]
        for topic in dict.fromkeys(part["topic"] for part in parts):
            own = [part for part in parts if part["topic"] == topic]
            known = [part["lag"] for part in own if part["lag"] is not None]
            rows.append({
                "group": group.group_id,
                "state": group.state,
                "members": len(group.members),
                "topic": topic,
                "lag": _sum(own),
                "largest": max(known, default=None),
                "partitions": len(own),
            })  # fmt: skip
    print_rows(_LAG, rows, output)
    if not rows and output != "json":
        click.echo("No group has offsets or partitions.", err=True)


def _partitions(
    cluster: Cluster, groups: Sequence[GroupDescription]
) -> dict[str, list[dict[str, Any]]]:
    """Per group, each partition that is assigned or has a committed offset.

    lag and log_end_offset are None where nothing was committed, or the partition is not there.
    """
    from kbroker.client.group_offsets import committed_offsets
    from kbroker.client.offsets import LATEST, list_offsets

    committed = committed_offsets(cluster, [group.group_id for group in groups])
    owners: dict[str, dict[Partition, GroupMember]] = {
        group.group_id: {key: member for member in group.members for key in member.assigned}
        for group in groups
    }
    wanted = {key for offsets in committed.values() for key in offsets}
    wanted |= {key for assigned in owners.values() for key in assigned}
    there = {
        (topic.name, part.index)
        for topic in (cluster.topics() if wanted else ())
        for part in topic.partitions
        if part.leader >= 0
    }
    ends = list_offsets(cluster, dict.fromkeys(sorted(wanted & there), LATEST))
    rows: dict[str, list[dict[str, Any]]] = {}
    for group, owned in owners.items():
        offsets = committed[group]
        rows[group] = []
        for key in sorted({*offsets, *owned}):
            member, told = owned.get(key), offsets.get(key)
            end = ends[key].offset if key in ends else None
            rows[group].append({
                "topic": key[0],
                "partition": key[1],
                "committed": told.offset if told else None,
                "log_end_offset": end,
                "lag": end - told.offset if told and end is not None else None,
                "client_id": member.client_id if member else None,
                "host": member.host if member else None,
                "member": member.member_id if member else None,
                "instance": member.instance_id if member else None,
                "leader_epoch": told.leader_epoch if told and told.leader_epoch >= 0 else None,
                "metadata": told.metadata or None if told else None,
            })  # fmt: skip
    return rows


def _sum(parts: Sequence[Mapping[str, Any]]) -> int | None:
    """The lag of all partitions that have one."""
    known = [part["lag"] for part in parts if part["lag"] is not None]
    return sum(known) if known else None
