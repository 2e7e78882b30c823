"""kafka-consumer-groups --describe: offsets, members or states of groups."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from kbroker.cli.kafka.groups import named_groups
from kbroker.cli.kafka.options import Given
from kbroker.cli.kafka.tool import say, shown, warn

if TYPE_CHECKING:
    from kbroker.client.cluster import Cluster
    from kbroker.client.group_offsets import CommittedOffset
    from kbroker.client.groups import GroupDescription, GroupMember

__all__ = ["check_consumes", "describe", "leader_problem"]

Partition = tuple[str, int]
_REBALANCING = ("PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling")
_NONE = "-"


def describe(cluster: Cluster, given: Given) -> None:
    """Shows the groups, each with a heading of its own."""
    verbose = given.has("verbose")
    groups = _described(cluster, named_groups(cluster, given))
    if given.has("members"):
        for group in groups:
            _members(group, verbose)
    elif given.has("state"):
        cluster.refresh([])
        for group in groups:
            _state(cluster, group, verbose)
    else:
        from kbroker.client.group_offsets import committed_offsets

        committed = committed_offsets(cluster, [group.group_id for group in groups])
        tables = [(group, _rows(cluster, group, committed[group.group_id])) for group in groups]
        for group, rows in tables:
            if _tell_state(group, len(rows)):
                _offsets(rows, verbose)


def _described(cluster: Cluster, names: list[str]) -> list[GroupDescription]:
    """The groups by name; ValueError where one is none, or is not a group of consumers."""
    from kbroker.client.groups import describe_groups

    found = describe_groups(cluster, names)
    for name in names:
        if name not in found:
            raise ValueError(
                "org.apache.kafka.common.errors.GroupIdNotFoundException:"
                f" Group {name} not found."
            )
        check_consumes(found[name])
    return [found[name] for name in sorted(found)]


def check_consumes(group: GroupDescription) -> None:
    """ValueError for a group of others than consumers, as Connect's."""
    if group.protocol_type not in ("", "consumer"):
        raise ValueError(
            f"java.lang.IllegalArgumentException: GroupId {group.group_id} is not a consumer group"
            f" ({group.protocol_type})."
        )


def _tell_state(group: GroupDescription, rows: int) -> bool:
    """Tells on standard error of a group that is not at work; True where there is more to show."""
    name = shown(group.group_id, sys.stderr)
    if group.state == "Empty":
        warn(f"\nConsumer group '{name}' has no active members.")
    elif group.state in _REBALANCING:
        warn(f"\nWarning: Consumer group '{name}' is rebalancing.")
    return rows > 0


def _rows(
    cluster: Cluster, group: GroupDescription, committed: dict[Partition, CommittedOffset]
) -> list[list[str]]:
    """A row for each partition that a member has, the members with most first, and then for each
    that has an offset alone."""
    busy = [member for member in group.members if member.assigned]
    busy.sort(key=lambda member: -len(member.assigned))
    owned = {key for member in busy for key in member.assigned}
    left = tuple(sorted(key for key in committed if key not in owned))
    ends = _ends(cluster, {*owned, *left})
    rows: list[list[str]] = []

    def add(keys: Iterable[Partition], member: GroupMember | None) -> None:
        for topic, index in sorted(keys):
            told, end = committed.get((topic, index)), ends.get((topic, index))
            epoch = told.leader_epoch if told and told.leader_epoch >= 0 else None
            lag = end - told.offset if told and end is not None else None
            rows.append([
                group.group_id, topic, str(index), _shown(epoch),
                _shown(told.offset if told else None), _shown(end), _shown(lag),
                member.member_id if member else _NONE, _host(member) if member else _NONE,
                member.client_id if member else _NONE,
            ])  # fmt: skip

    for member in busy:
        add(member.assigned, member)
    add(left, None)
    return rows


def _shown(value: int | None) -> str:
    return _NONE if value is None else str(value)


def _host(member: GroupMember) -> str:
    """As brokers tell it: an address without a name is written with a slash."""
    return f"/{member.host}"


def _ends(cluster: Cluster, keys: set[Partition]) -> dict[Partition, int]:
    """The end of each partition that has a leader."""
    from kbroker.client.offsets import LATEST, list_offsets

    led = leader_problem(cluster, keys)
    wanted = dict.fromkeys(sorted(key for key in keys if led[key] is None), LATEST)
    return {key: at.offset for key, at in list_offsets(cluster, wanted).items()}


def leader_problem(cluster: Cluster, keys: Iterable[Partition]) -> dict[Partition, str | None]:
    """What is wrong with partitions: "do not exist", "have no leader", or None. ValueError for a
    topic that is not there at all."""
    from kbroker.cli.kafka.java import caused_text
    from kbroker.client.errors import BrokerError

    wanted = sorted({topic for topic, _ in keys})
    found = cluster.describe(wanted) if wanted else {}
    leaders: dict[Partition, int] = {}
    for topic in wanted:
        info = found[topic]
        if isinstance(info, BrokerError):
            raise ValueError(caused_text(info))
        leaders |= {(topic, part.index): part.leader for part in info.partitions}
    problems: dict[Partition, str | None] = {}
    for key in keys:
        problems[key] = None if leaders.get(key, -1) >= 0 else "have no leader"
        if key not in leaders:
            problems[key] = "do not exist"
    return problems


def _print(rows: Sequence[Sequence[str]], widths: Sequence[int]) -> None:
    """Rows, each behind a line break; the last column is not filled up."""
    for row in rows:
        cells = [shown(cell).ljust(width) for cell, width in zip(row, widths, strict=True)]
        say("\n" + " ".join(cells), end="")
    say()


def _widest(rows: Sequence[Sequence[str]], column: int, least: int) -> int:
    return max(least, *(len(row[column]) for row in rows))


_OFFSETS = ("GROUP", "TOPIC", "PARTITION", "LEADER-EPOCH", "CURRENT-OFFSET", "LOG-END-OFFSET",
            "LAG", "CONSUMER-ID", "HOST", "CLIENT-ID")  # fmt: skip


def _offsets(rows: list[list[str]], verbose: bool) -> None:
    widths = [_widest(rows, 0, 15), _widest(rows, 1, 15), 10, 15, 15, 15, 15,
              _widest(rows, 7, 15), _widest(rows, 8, 15), 0]  # fmt: skip
    table = [list(_OFFSETS), *rows]
    if not verbose:
        table, widths = [row[:3] + row[4:] for row in table], widths[:3] + widths[4:]
    _print(table, widths)


def _assigned(partitions: Iterable[Partition] | None) -> str:
    """TOPIC:P,P;TOPIC:P"""
    by_topic: dict[str, list[int]] = {}
    for topic, index in sorted(partitions or ()):
        by_topic.setdefault(topic, []).append(index)
    told = (f"{topic}:{','.join(map(str, indexes))}" for topic, indexes in by_topic.items())
    return ";".join(sorted(told)) or _NONE


def _members(group: GroupDescription, verbose: bool) -> None:
    """The heading is there even where there is no member, as in Kafka's tool."""
    _tell_state(group, len(group.members))
    static = any(member.instance_id for member in group.members)
    kinds = {member.upgraded for member in group.members}
    migrates = {True, False} <= kinds
    rows = [["GROUP", "CONSUMER-ID", "GROUP-INSTANCE-ID", "HOST", "CLIENT-ID", "#PARTITIONS",
             "CURRENT-EPOCH", "CURRENT-ASSIGNMENT", "TARGET-EPOCH", "TARGET-ASSIGNMENT",
             "UPGRADED"]]  # fmt: skip
    for member in group.members:
        upgraded = _NONE if member.upgraded is None else str(member.upgraded).lower()
        rows.append([
            group.group_id, member.member_id, member.instance_id or "", _host(member),
            member.client_id, str(len(member.assigned)), _shown(member.epoch),
            _assigned(member.assigned), _shown(group.assignment_epoch), _assigned(member.target),
            upgraded,
        ])  # fmt: skip
    body = rows[1:] or [[""] * len(rows[0])]
    widths = [_widest(body, 0, 15), _widest(body, 1, 15), _widest(body, 2, 17),
              _widest(body, 3, 15), _widest(body, 4, 15), 15, 15, _widest(body, 7, 20), 15,
              _widest(body, 9, 20), 0]  # fmt: skip
    wanted = [0, 1, *([2] if static else ()), 3, 4, 5]
    wanted += [6, 7, 8, 9, *([10] if migrates else ())] if verbose else []
    say()
    for row in rows:
        cells = [shown(row[column]).ljust(widths[column]) for column in wanted]
        say(" ".join(cells) + ("" if verbose else " "))


def _state(cluster: Cluster, group: GroupDescription, verbose: bool) -> None:
    if not _tell_state(group, 1):
        return
    node = cluster.nodes[group.coordinator]
    where = f"{node.address.host}:{node.address.port}  ({group.coordinator})"
    told = [group.group_id, where, group.assignor or _NONE, group.state,
            _shown(group.group_epoch), _shown(group.assignment_epoch),
            str(len(group.members))]  # fmt: skip
    heading = ["GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE", "GROUP-EPOCH",
               "TARGET-ASSIGNMENT-EPOCH", "#MEMBERS"]  # fmt: skip
    widths = [max(15, len(told[0])), max(25, len(where)), 20, 20, 15, 25, 0]
    table = [heading, told]
    if not verbose:
        table, widths = [row[:4] + row[6:] for row in table], widths[:4] + widths[6:]
    _print(table, widths)
