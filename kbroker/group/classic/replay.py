"""GroupMetadata records: what is written of a group, and the group that is read back.

A group's own record does not make a second group when it is replayed after its append: what it
says is in the group already, which only becomes, or stays, the one that is registered.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from weakref import ref

from kbroker.group.classic.group import ClassicGroup, State
from kbroker.group.classic.member import Identity, Member
from kbroker.group.outcome import CoordinatorRecord
from kbroker.group.shard import Shard
from kbroker.metadata.records.classic_group import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
)

_VALUE_VERSION: Final = 3
_NOT_TOLD: Final = -1


class GroupRecords:
    """Writes and replays the records of classic groups of a shard."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self._written: tuple[ref[GroupMetadataValue], ClassicGroup] | None = None
        """Weakly, so that a record that is refused goes with its megabytes."""
        shard.replays({GroupMetadataKey: self._replay})

    def of(self, group: ClassicGroup, assignments: Mapping[str, bytes]) -> CoordinatorRecord:
        """The record of the generation with everybody's assignment, to be appended at once."""
        value = GroupMetadataValue(
            protocol_type=group.protocol_type or "",
            generation=group.generation,
            protocol=group.protocol_name,
            leader=group.leader,
            current_state_timestamp=_NOT_TOLD if group.changed_ms is None else group.changed_ms,
            members=[
                _member_record(member, group.protocol_name, assignments[member.member_id])
                for member in group.members.values()
            ],
        )
        return self._record(group, value)

    def of_new(self, group: ClassicGroup) -> CoordinatorRecord:
        """The record of a group that has just been created, whoever is about to join it."""
        assert group.changed_ms is not None
        value = GroupMetadataValue(
            protocol=None, leader=None, current_state_timestamp=group.changed_ms
        )
        return self._record(group, value)

    def _record(self, group: ClassicGroup, value: GroupMetadataValue) -> CoordinatorRecord:
        self._written = (ref(value), group)
        return CoordinatorRecord(GroupMetadataKey(group.group_id), value, _VALUE_VERSION)

    def _replay(self, record: CoordinatorRecord) -> None:
        key, value = record.key, record.value
        assert isinstance(key, GroupMetadataKey)
        groups = self._shard.groups
        if value is None:
            found = groups.get(key.group)
            if found is not None and found.kind == ClassicGroup.kind:
                del groups[key.group]
            if isinstance(found, ClassicGroup):
                found.close_pulses()
            return
        assert isinstance(value, GroupMetadataValue)
        if self._written is not None and self._written[0]() is value:
            groups[key.group] = self._written[1]
        else:
            groups[key.group] = self._read(key.group, value)
        self._written = None

    def _read(self, group_id: str, value: GroupMetadataValue) -> ClassicGroup:
        told_ms = value.current_state_timestamp
        changed_ms = None if told_ms < 0 else told_ms
        group = ClassicGroup(group_id, self._shard.timers, self._shard.unwritten, changed_ms)
        group.generation = value.generation
        group.protocol_type = value.protocol_type or None
        group.protocol_name = value.protocol
        group.leader = value.leader
        for told in value.members:
            group.add(_member(told, value.protocol), value.protocol_type)
        if group.members:
            group.state = State.STABLE
            if group.leader not in group.members:
                group.leader = next(iter(group.members))
        group.learn_topics()
        group.written()
        return group


def _member_record(member: Member, protocol: str | None, assignment: bytes) -> MemberMetadata:
    identity = member.identity
    return MemberMetadata(
        member_id=member.member_id,
        group_instance_id=identity.instance_id,
        client_id=identity.client_id,
        client_host=identity.client_host,
        rebalance_timeout=member.rebalance_timeout_ms,
        session_timeout=member.session_timeout_ms,
        subscription=member.metadata(protocol),
        assignment=assignment,
    )


def _member(told: MemberMetadata, protocol: str | None) -> Member:
    """A member as its record tells of it: of its protocols, only the one that was selected."""
    session_ms, rebalance_ms = told.session_timeout, told.rebalance_timeout
    return Member(
        Identity(told.member_id, told.group_instance_id, told.client_id, told.client_host),
        ((protocol or "", told.subscription),),
        session_ms,
        session_ms if rebalance_ms == _NOT_TOLD else rebalance_ms,
        told.assignment,
    )
