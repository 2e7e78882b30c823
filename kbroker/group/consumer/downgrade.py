"""From the consumer protocol back to the classic one, when only classic members are left."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from kbroker.errors import ClientError, ErrorCode
from kbroker.group.consumer import records
from kbroker.group.consumer.group import PROTOCOL_TYPE, ConsumerGroup
from kbroker.group.consumer.member import Member
from kbroker.group.embedded import EmbeddedError, version_of, write_assignment
from kbroker.group.migration import ClassicMember, ClassicState
from kbroker.group.order import most_voted, string_order
from kbroker.group.outcome import CoordinatorRecord, Outcome
from kbroker.metadata.records.classic_group import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
)

if TYPE_CHECKING:
    from kbroker.group.consumer.change import Change
    from kbroker.group.consumer.protocol import ConsumerProtocol

_log = logging.getLogger(__name__)

_POLICIES: Final = ("bidirectional", "downgrade")
_GROUP_METADATA_VERSION: Final = 3


def may_downgrade(
    room: ConsumerProtocol, group: ConsumerGroup, leaving: Sequence[Member], joining: int = 0
) -> bool:
    """Whether the group is a classic one once these have left; `joining` classic members come in
    their place."""
    settings = room.shard.settings
    left = len(group.members) - len(leaving) + joining
    return (
        group.only_classic_without(leaving)
        and 0 < left <= settings.group_max_size
        and settings.group_consumer_migration_policy in _POLICIES
    )


def downgrade(
    change: Change, leaving: Sequence[Member], joining: Member | None, rebalance: str | None
) -> None:
    """Delete the consumer group, and write a classic one of the members that stay.

    `joining` is a classic member that takes the place of a static one of the consumer protocol;
    the records of that are in the change already. `rebalance` says why the classic group is to
    rebalance at once, None where its members have what they are to have.
    """
    group, room = change.group, change.room
    gone = {member.member_id for member in leaving}
    replaced = None if joining is None else group.static_member(joining.instance_id)
    members: dict[str, tuple[Member, str]] = {}
    for member_id, member in group.members.items():
        if joining is not None and replaced is not None and member_id == replaced.member_id:
            members[joining.member_id] = (joining, member_id)
        elif member_id not in gone:
            members[member_id] = (member, member_id)
    ids = [*members, *gone]
    change.records += records.group_tombstones(group.group_id, ids, group.regexes)
    try:
        state = _classic_state(change, [members[one] for one in string_order(sorted(members))])
    except EmbeddedError as error:
        raise ClientError(
            ErrorCode.GROUP_ID_NOT_FOUND, f"The group cannot be downgraded: {error}."
        ) from error
    change.records.append(_classic_record(group.group_id, state, change.now.wall_ms))
    before = list(group.members)

    def hand_over() -> Outcome | None:
        for member_id in [*before, *ids]:
            room.timeouts.cancel_all(group.group_id, member_id)
        classic = room.shard.classic
        if classic is None:
            return None
        return classic.downgraded(group.group_id, state, rebalance, change.now)

    change.after(hand_over)
    _log.info("Group %s: downgraded to the classic protocol", group.group_id)


def _classic_state(change: Change, members: Sequence[tuple[Member, str]]) -> ClassicState:
    """(member, id under which its target assignment is) of all that stay."""
    classic = [_classic_member(change, member, target_id) for member, target_id in members]
    return ClassicState(change.group.epoch, PROTOCOL_TYPE, select_protocol(classic), classic)


def _classic_member(change: Change, member: Member, target_id: str) -> ClassicMember:
    if member.classic is None:
        raise EmbeddedError(f"member {member.member_id} does not speak the classic protocol")
    protocols = tuple((one.name, one.metadata) for one in member.classic.supported_protocols)
    topics = change.room.shard.topics
    assignment = {
        info.name: partitions
        for topic_id, partitions in change.group.target.get(target_id, {}).items()
        if (info := topics.by_id(topic_id)) is not None
    }
    version = version_of(protocols[0][1] if protocols else b"")
    return ClassicMember(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        member.rebalance_timeout_ms,
        member.classic.session_timeout_ms,
        protocols,
        write_assignment(assignment, version),
    )


def select_protocol(members: Sequence[ClassicMember]) -> str:
    """Each member votes for the first of its protocols that all have; most votes win."""
    having = Counter(name for member in members for name, _ in member.protocols)
    votes = Counter(
        next((name for name, _ in member.protocols if having[name] == len(members)), "")
        for member in members
    )
    return most_voted(votes) or ""


def _classic_record(group_id: str, state: ClassicState, wall_ms: int) -> CoordinatorRecord:
    protocol = state.protocol_name or ""
    members = [
        MemberMetadata(
            member_id=one.member_id,
            group_instance_id=one.instance_id,
            client_id=one.client_id,
            client_host=one.client_host,
            rebalance_timeout=one.rebalance_timeout_ms,
            session_timeout=one.session_timeout_ms,
            subscription=dict(one.protocols).get(protocol, b""),
            assignment=one.assignment,
        )
        for one in state.members
    ]
    value = GroupMetadataValue(
        protocol_type=PROTOCOL_TYPE,
        generation=state.generation,
        protocol=protocol,
        leader=state.members[0].member_id if state.members else None,
        current_state_timestamp=wall_ms,
        members=members,
    )
    return CoordinatorRecord(GroupMetadataKey(group_id), value, _GROUP_METADATA_VERSION)
