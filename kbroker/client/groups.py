"""Groups: listed, described and deleted.

Groups of both protocols are described alike: classic ones (DescribeGroups) have no epochs and no
targets, consumer ones (ConsumerGroupDescribe, KIP-848) have.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from kbroker.client.cluster import Cluster
from kbroker.client.connection import Connection
from kbroker.client.coordinators import (
    ask_brokers,
    ask_coordinators,
    check_coordinator,
    subject_of,
)
from kbroker.client.errors import BrokerError, KafkaError, check
from kbroker.client.operations import AclOperation, told_operations
from kbroker.client.results import listed
from kbroker.errors import ErrorCode
from kbroker.protocol import ApiKey

__all__ = [
    "CLASSIC",
    "CONSUMER",
    "GroupDescription",
    "GroupListing",
    "GroupMember",
    "delete_groups",
    "describe_groups",
    "list_groups",
    "remove_members",
]

Partition = tuple[str, int]

CLASSIC = "classic"
CONSUMER = "consumer"

_NO_CONSUMER_GROUP = frozenset({ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION})
_CONSUMER_PROTOCOL = "consumer"
_DEAD = "Dead"


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A group as ListGroups names it; state and type are empty where the broker is too old."""

    group_id: str
    protocol_type: str
    state: str
    group_type: str
    coordinator: int

    @property
    def consumes(self) -> bool:
        """True for groups of consumers, with members or with offsets alone; not for Connect's."""
        if self.group_type.lower() == CONSUMER:
            return True
        return self.group_type.lower() in ("", CLASSIC) and self.protocol_type in (
            "",
            _CONSUMER_PROTOCOL,
        )


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member. epoch and target are None in classic groups, where the leader alone knows.

    upgraded: in a consumer group, False for a member of the classic protocol, None if not told.
    """

    member_id: str
    instance_id: str | None
    rack_id: str | None
    client_id: str
    host: str
    subscribed: tuple[str, ...]
    subscribed_regex: str | None
    assigned: tuple[Partition, ...]
    target: tuple[Partition, ...] | None
    epoch: int | None
    upgraded: bool | None


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group with its members; group_type: CLASSIC or CONSUMER; the epochs are CONSUMER's.
    operations: what this user may do with it, where that was asked for."""

    group_id: str
    group_type: str
    protocol_type: str
    state: str
    assignor: str
    coordinator: int
    group_epoch: int | None
    assignment_epoch: int | None
    members: tuple[GroupMember, ...]
    operations: frozenset[AclOperation] | None = None


def list_groups(
    cluster: Cluster, *, states: Collection[str] = (), types: Collection[str] = ()
) -> list[GroupListing]:
    """All groups by name, or those in one of these states and of one of these types."""
    told = ask_brokers(cluster, lambda node_id: _list_at(cluster, node_id, states, types))
    found = {listing.group_id: listing for listings in told for listing in listings}
    return [found[group_id] for group_id in sorted(found)]


def _list_at(
    cluster: Cluster, node_id: int, states: Collection[str], types: Collection[str]
) -> list[GroupListing]:
    connection = cluster.connection(node_id)
    version = connection.version_of(ApiKey.LIST_GROUPS)
    if (states and version < 4) or (types and version < 5):
        what = "states" if version < 4 else "types"
        raise KafkaError(f"broker {connection.address} does not tell the {what} of groups")
    values = {"states_filter": list(listed(states)), "types_filter": list(listed(types))}
    body = connection.call(ApiKey.LIST_GROUPS, values)
    check(body.error_code, "groups")
    return [
        GroupListing(
            group.group_id,
            group.protocol_type,
            getattr(group, "group_state", ""),
            getattr(group, "group_type", ""),
            node_id,
        )
        for group in body.groups
    ]


def describe_groups(
    cluster: Cluster, groups: Collection[str], *, operations: bool = False
) -> dict[str, GroupDescription]:
    """The groups, without those that do not exist; with `operations`, what may be done with them.
    """
    ask = functools.partial(_describe_at, operations=operations)
    found: dict[str, GroupDescription | None] = ask_coordinators(cluster, groups, ask)
    return {group: told for group, told in found.items() if told is not None}


def _describe_at(
    connection: Connection, node_id: int, groups: list[str], *, operations: bool
) -> Iterator[tuple[str, GroupDescription | None]]:
    left = list(groups)
    rights = {"include_authorized_operations": operations}
    if ApiKey.CONSUMER_GROUP_DESCRIBE in connection.broker_versions:
        # The empty id, which simple consumers of old have, is none of the consumer protocol.
        values = {"group_ids": [name for name in groups if name], **rights}
        body = connection.call(ApiKey.CONSUMER_GROUP_DESCRIBE, values)
        for group in body.groups:
            if group.error_code not in _NO_CONSUMER_GROUP:
                check(group.error_code, subject_of(group.group_id), group.error_message)
                left = [name for name in left if name != group.group_id]
                yield group.group_id, _consumer_group(group, node_id)
    if not left:
        return
    for group in connection.call(ApiKey.DESCRIBE_GROUPS, {"groups": left, **rights}).groups:
        if group.error_code == ErrorCode.GROUP_ID_NOT_FOUND or group.group_state == _DEAD:
            yield group.group_id, None
            continue
        check(group.error_code, subject_of(group.group_id), getattr(group, "error_message", None))
        yield group.group_id, _classic_group(group, node_id)


def _consumer_group(group: Any, node_id: int) -> GroupDescription:
    def partitions(assignment: Any) -> tuple[Partition, ...]:
        return tuple(
            sorted(
                (topic.topic_name, int(index))
                for topic in assignment.topic_partitions
                for index in topic.partitions
            )
        )

    members = (
        GroupMember(
            member_id=member.member_id,
            instance_id=member.instance_id,
            rack_id=member.rack_id,
            client_id=member.client_id,
            host=member.client_host.removeprefix("/"),
            subscribed=tuple(sorted(member.subscribed_topic_names)),
            subscribed_regex=member.subscribed_topic_regex or None,
            assigned=partitions(member.assignment),
            target=partitions(member.target_assignment),
            epoch=int(member.member_epoch),
            upgraded={0: False, 1: True}.get(int(getattr(member, "member_type", -1))),
        )
        for member in group.members
    )
    return GroupDescription(
        group_id=group.group_id,
        group_type=CONSUMER,
        protocol_type=_CONSUMER_PROTOCOL,
        state=group.group_state,
        assignor=group.assignor_name,
        coordinator=node_id,
        group_epoch=int(group.group_epoch),
        assignment_epoch=int(group.assignment_epoch),
        members=_sorted(members),
        operations=told_operations(group.authorized_operations),
    )


def _classic_group(group: Any, node_id: int) -> GroupDescription:
    consumes = group.protocol_type == _CONSUMER_PROTOCOL
    members = (
        GroupMember(
            member_id=member.member_id,
            instance_id=member.group_instance_id,
            rack_id=None,
            client_id=member.client_id,
            host=member.client_host.removeprefix("/"),
            subscribed=read_subscription(member.member_metadata) if consumes else (),
            subscribed_regex=None,
            assigned=read_assignment(member.member_assignment) if consumes else (),
            target=None,
            epoch=None,
            upgraded=None,
        )
        for member in group.members
    )
    return GroupDescription(
        group_id=group.group_id,
        group_type=CLASSIC,
        protocol_type=group.protocol_type,
        state=group.group_state,
        assignor=group.protocol_data,
        coordinator=node_id,
        group_epoch=None,
        assignment_epoch=None,
        members=_sorted(members),
        operations=told_operations(group.authorized_operations),
    )


def _sorted(members: Iterable[GroupMember]) -> tuple[GroupMember, ...]:
    return tuple(sorted(members, key=lambda member: (member.client_id, member.member_id)))


def read_subscription(data: bytes) -> tuple[str, ...]:
    """Topics of a ConsumerProtocolSubscription: int16 version, array of strings, more.

    The bytes are the member's own and no broker reads them; what cannot be read is empty.
    """
    try:
        (count,) = struct.unpack_from(">i", data, 2)
        at, topics = 6, []
        for _ in range(min(count, len(data))):
            topic, at = _string(data, at)
            topics.append(topic)
    except (struct.error, UnicodeDecodeError):
        return ()
    return tuple(sorted(topics))


def read_assignment(data: bytes) -> tuple[Partition, ...]:
    """Partitions of a ConsumerProtocolAssignment: int16 version, array of (topic, indexes), more.

    What cannot be read is empty, as above; a member without an assignment has no bytes at all.
    """
    try:
        (count,) = struct.unpack_from(">i", data, 2)
        at, found = 6, []
        for _ in range(min(count, len(data))):
            topic, at = _string(data, at)
            (indexes,) = struct.unpack_from(">i", data, at)
            found += [(topic, index) for index in struct.unpack_from(f">{indexes}i", data, at + 4)]
            at += 4 + 4 * indexes
    except (struct.error, UnicodeDecodeError):
        return ()
    return tuple(sorted(found))


def _string(data: bytes, at: int) -> tuple[str, int]:
    (length,) = struct.unpack_from(">h", data, at)
    (raw,) = struct.unpack_from(f">{length}s", data, at + 2)
    return raw.decode(), at + 2 + length


def delete_groups(cluster: Cluster, groups: Collection[str]) -> dict[str, BrokerError | None]:
    """Deletes groups with their offsets; tells for each what was wrong with it, if anything."""

    def delete(connection: Connection, _: int, names: list[str]) -> Iterator[tuple[str, Any]]:
        body = connection.call(ApiKey.DELETE_GROUPS, {"groups_names": names})
        for result in body.results:
            check_coordinator(result.group_id, result.error_code)
            code = int(result.error_code)
            yield result.group_id, BrokerError(code, subject_of(result.group_id)) if code else None

    return ask_coordinators(cluster, groups, delete)


def remove_members(
    cluster: Cluster, group: str, instances: Iterable[str] | None = None, *, reason: str = ""
) -> dict[str, BrokerError | None]:
    """Puts static members, by group.instance.id, out of a classic group; None: all its members,
    dynamic ones by their ids. Tells for each what was wrong with it, if anything."""
    if instances is None:
        described = describe_groups(cluster, [group])
        members = described[group].members if group in described else ()
        wanted = [(member.member_id, member.instance_id) for member in members]
        wanted = [("", instance) if instance else (member, None) for member, instance in wanted]
    else:
        wanted = [("", instance) for instance in dict.fromkeys(listed(instances))]
    if not wanted:
        return {}
    told_reason = reason or "member was removed by an admin"
    request = {
        "group_id": group,
        "members": [
            {"member_id": member, "group_instance_id": instance, "reason": told_reason}
            for member, instance in wanted
        ],
    }

    def leave(connection: Connection, _: int, __: list[str]) -> Iterator[tuple[str, Any]]:
        body = connection.call(ApiKey.LEAVE_GROUP, request)
        check(body.error_code, subject_of(group))
        yield group, body.members

    found: dict[str, BrokerError | None] = {}
    for member in ask_coordinators(cluster, [group], leave)[group]:
        name = member.group_instance_id or member.member_id
        code = int(member.error_code)
        subject = f"{subject_of(group)}, member {name!r}"
        found[name] = BrokerError(code, subject) if code else None
    return found
