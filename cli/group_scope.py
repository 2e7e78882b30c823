"""Which groups and which partitions a command means, and whether a group is in use."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from kbroker.client.cluster import Cluster
    from kbroker.client.groups import GroupDescription

__all__ = [
    "Partition",
    "TopicScope",
    "active",
    "by_topic",
    "consumer_groups",
    "described",
    "expand",
    "parse_topics",
    "plural",
]

Partition = tuple[str, int]
TopicScope = list[tuple[str, tuple[int, ...]]]

_INDEX_DIGITS_MAX = 10  # of an int32
_INACTIVE = frozenset({"Empty", "Dead"})


def consumer_groups(cluster: Cluster) -> list[str]:
    """What --all-groups stands for: every group of consumers, and of offsets alone."""
    from kbroker.client.groups import list_groups

    return [group.group_id for group in list_groups(cluster) if group.consumes]


def described(cluster: Cluster, names: Collection[str], every: bool) -> list[GroupDescription]:
    """The groups that were named, or all; raises for one that does not exist."""
    from kbroker.client.errors import BrokerError
    from kbroker.client.groups import describe_groups
    from kbroker.errors import ErrorCode

    if bool(names) == every:
        raise click.UsageError("give either GROUP or --all-groups")
    wanted = consumer_groups(cluster) if every else list(dict.fromkeys(names))
    found = describe_groups(cluster, wanted)
    for name in wanted:
        if name not in found and not every:
            raise BrokerError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {name!r}")
    return [found[name] for name in wanted if name in found]


def active(group: GroupDescription | None) -> str | None:
    """Why a group cannot be touched from outside, or None where it can."""
    if group is None or group.state in _INACTIVE:
        return None
    members = plural(len(group.members), "member")
    return (
        f"group {group.group_id!r} is in use ({group.state}, {members}); stop its consumers first"
    )


def parse_topics(texts: Iterable[str]) -> TopicScope:
    """`T` and `T:P[,P...]` as topic and partitions, none for all of them."""
    found: TopicScope = []
    for text in texts:
        topic, colon, listed = text.rpartition(":")
        if not colon:
            found.append((text, ()))
            continue
        parts = [part.strip() for part in listed.split(",")]
        if not topic or not all(_is_index(part) for part in parts):
            raise click.BadParameter(
                f"{text!r}: write TOPIC or TOPIC:PARTITION[,PARTITION...]", param_hint="--topic"
            )
        found.append((topic, tuple(int(part) for part in parts)))
    return found


def _is_index(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _INDEX_DIGITS_MAX


def expand(cluster: Cluster, scope: TopicScope) -> list[Partition]:
    """The partitions that a scope means, each once; raises for those that do not exist."""
    from kbroker.client.offsets import leader_of

    found: dict[Partition, None] = {}
    for topic, indexes in scope:
        for index in indexes or [part.index for part in cluster.topic(topic).partitions]:
            leader_of(cluster, topic, index)
            found[topic, index] = None
    return sorted(found)


def by_topic(partitions: Iterable[Partition]) -> dict[str, list[int]]:
    """Topic to its indexes, both sorted."""
    found: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        found.setdefault(topic, []).append(index)
    return found


def plural(count: int, noun: str) -> str:
    """`1 member`, `2 members`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"
