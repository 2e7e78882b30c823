"""Finding the member that a request is of, or making it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.errors import ClientError, ErrorCode
from kbroker.group.consumer.member import JOIN_EPOCH, LEAVE_STATIC_EPOCH, Member

if TYPE_CHECKING:
    from kbroker.group.consumer.change import Change
    from kbroker.group.consumer.group import ConsumerGroup
    from kbroker.group.consumer.protocol import ConsumerProtocol


def check_room_for(room: ConsumerProtocol, group: ConsumerGroup, member_id: str) -> None:
    """GROUP_MAX_SIZE_REACHED for one more member than may be."""
    most = room.shard.settings.group_consumer_max_size
    if len(group.members) >= most and member_id not in group.members:
        raise ClientError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The group may have no more than {most} members.",
        )


def dynamic_member(group: ConsumerGroup, member_id: str, joins: bool) -> Member:
    """The member; a new one where it joins."""
    if joins and member_id not in group.members:
        return Member(member_id)
    return group.member(member_id)


def static_member(
    change: Change, member_id: str, instance_id: str, joins: bool, is_classic: bool
) -> Member:
    """The member of an instance id. One who joins takes the place of the one before it, who has
    to have left where both speak the consumer protocol."""
    group = change.group
    existing = group.static_member(instance_id)
    if not joins:
        if existing is None:
            raise unknown_instance(instance_id)
        if existing.member_id != member_id:
            raise fenced_instance(member_id, instance_id)
        return existing
    if existing is None:
        return group.members.get(member_id) or Member(member_id)
    both_new = not is_classic and not existing.is_classic
    if both_new and existing.epoch != LEAVE_STATIC_EPOCH:
        raise ClientError(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"Instance id {instance_id} is in use by member {existing.member_id}.",
        )
    member = existing.changed(member_id=member_id, epoch=JOIN_EPOCH, previous_epoch=JOIN_EPOCH)
    change.replace_member(existing, member)
    return member


def unknown_instance(instance_id: str) -> ClientError:
    """No member has that instance id."""
    return ClientError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")


def fenced_instance(member_id: str, instance_id: str) -> ClientError:
    """Another member has that instance id now."""
    return ClientError(
        ErrorCode.FENCED_INSTANCE_ID,
        f"Member {member_id} was fenced: another has instance id {instance_id}.",
    )
