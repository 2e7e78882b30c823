"""The group that a member joins by heartbeat: there already, new, or made of a classic one."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from kbroker.errors import BugError, ClientError, ErrorCode
from kbroker.group.classic.group import ClassicGroup
from kbroker.group.consumer import records
from kbroker.group.consumer.change import Change
from kbroker.group.consumer.downgrade import select_protocol
from kbroker.group.consumer.group import PROTOCOL_TYPE, ConsumerGroup
from kbroker.group.consumer.member import Member, Partitions
from kbroker.group.embedded import EmbeddedError, read_assignment, read_subscription
from kbroker.group.group import Group
from kbroker.group.migration import ClassicMember, ClassicSide, ClassicState
from kbroker.group.outcome import CoordinatorRecord, Now
from kbroker.metadata.records.consumer_group import ClassicMemberMetadata, ClassicProtocol
from kbroker.uuids import uuid_text

if TYPE_CHECKING:
    from kbroker.group.consumer.protocol import ConsumerProtocol

_log = logging.getLogger(__name__)

_POLICIES: Final = ("bidirectional", "upgrade")


def group_to_join(
    room: ConsumerProtocol, group_id: str, joins: bool, now: Now
) -> tuple[ConsumerGroup, Change]:
    """The group, and a change begun on it; GROUP_ID_NOT_FOUND where there is none to report to."""
    existing = room.shard.groups.get(group_id)
    if isinstance(existing, ConsumerGroup):
        return existing, Change(room, existing, now)
    if not joins or (existing is not None and existing.kind != "classic"):
        raise _not_found(f"There is no consumer group {group_id}.")
    if existing is None:
        group = ConsumerGroup(group_id)
        return group, Change(room, group, now)
    if existing.is_empty():
        group = ConsumerGroup(group_id)
        change = Change(room, group, now)
        change.records += existing.tombstones()
    else:
        group, change = _upgrade(room, existing, now)
    if isinstance(existing, ClassicGroup):
        classic = _classic(room)
        change.after(lambda: classic.upgraded(existing))
    return group, change


def _upgrade(room: ConsumerProtocol, classic: Group, now: Now) -> tuple[ConsumerGroup, Change]:
    """A consumer group with the members, generation and assignments of a classic one."""
    state = _classic(room).state_of(classic)
    settings = room.shard.settings
    if settings.group_consumer_migration_policy not in _POLICIES:
        raise _not_found("Online upgrade of classic groups is disabled.")
    if state.protocol_type != PROTOCOL_TYPE:
        raise _not_found("The members of the classic group are no consumers.")
    if len(state.members) > settings.group_consumer_max_size:
        raise _not_found("The classic group has more members than a consumer group may have.")
    group = ConsumerGroup(classic.group_id)
    group.epoch = group.assignment_epoch = state.generation
    try:
        for member in state.members:
            _add(room, group, state, member)
    except EmbeddedError as error:
        raise _not_found(f"The classic group cannot be upgraded: {error}.") from error
    group.metadata_hash = room.hashes.of_group(group.subscriptions.topics())
    change = Change(room, group, now)
    change.records += classic.tombstones()
    change.records += _group_records(group)

    def start_sessions() -> None:
        for one in state.members:
            room.timeouts.session(group.group_id, one.member_id, one.session_timeout_ms, now)

    change.after(start_sessions)
    _log.info("Group %s: upgraded to the consumer protocol", group.group_id)
    return group, change


def _add(
    room: ConsumerProtocol, group: ConsumerGroup, state: ClassicState, classic: ClassicMember
) -> None:
    """Add a classic member as it is; what it was assigned is its target, too.

    The leader assigned by name: of a topic that was made again with fewer partitions, or by a
    leader that makes them up, some may not be there.
    """
    assigned: Partitions = {}
    if classic.assignment:
        embedded = read_assignment(classic.assignment)
        if embedded.user_data:
            raise EmbeddedError("data of a custom assignor would be lost")
        topics = room.shard.topics
        assigned = {
            info.topic_id: {p: state.generation for p in partitions if 0 <= p < info.partitions}
            for name, partitions in embedded.partitions.items()
            if (info := topics.by_name(name)) is not None
        }
    for topic_id, mine in assigned.items():
        for partition in mine:
            if (epoch := group.partition_epoch(topic_id, partition)) != -1:
                raise ClientError(
                    ErrorCode.UNKNOWN_SERVER_ERROR,
                    f"Cannot set the epoch of {uuid_text(topic_id)}-{partition} to "
                    f"{state.generation} because the partition is still owned at epoch {epoch}.",
                )
    # A group that has never completed a join has not selected a protocol yet.
    protocol = state.protocol_name or select_protocol(state.members)
    subscription = read_subscription(dict(classic.protocols).get(protocol, b""))
    protocols = [ClassicProtocol(name, metadata) for name, metadata in classic.protocols]
    member = Member(
        classic.member_id,
        epoch=state.generation,
        previous_epoch=state.generation,
        instance_id=classic.instance_id,
        rack_id=subscription.rack_id,
        rebalance_timeout_ms=classic.rebalance_timeout_ms,
        client_id=classic.client_id,
        client_host=classic.client_host,
        topic_names=frozenset(subscription.topics),
        assigned=assigned,
        classic=ClassicMemberMetadata(classic.session_timeout_ms, protocols),
    )
    group.set_target(member.member_id, {t: frozenset(mine) for t, mine in assigned.items()})
    group.update_member(member)


def _group_records(group: ConsumerGroup) -> list[CoordinatorRecord]:
    group_id, members = group.group_id, group.members.values()
    return [
        *(records.member_metadata(group_id, member) for member in members),
        records.group_epoch(group_id, group.epoch, group.metadata_hash),
        *(records.target_member(group_id, *one) for one in group.target.items()),
        records.target_epoch(group_id, group.assignment_epoch, group.assignment_ms),
        *(records.current_assignment(group_id, member) for member in members),
    ]


def _classic(room: ConsumerProtocol) -> ClassicSide:
    if room.shard.classic is None:
        raise BugError("a classic group without the room of the classic protocol")
    return room.shard.classic


def _not_found(message: str) -> ClientError:
    return ClientError(ErrorCode.GROUP_ID_NOT_FOUND, message)
