"""ConsumerGroupDescribe: a group as its administrator sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kbroker.errors import ErrorCode
from kbroker.group.consumer.member import Member

if TYPE_CHECKING:
    from kbroker.group.consumer.group import ConsumerGroup
    from kbroker.group.consumer.protocol import ConsumerProtocol

_CLASSIC, _CONSUMER = 0, 1
NOT_ASKED: Final = -(1 << 31)


def describe_group(room: ConsumerProtocol, group_id: str, operations: int) -> dict[str, Any]:
    """One group of the answer; GROUP_ID_NOT_FOUND where there is none, or a classic one."""
    group = room.find(group_id)
    if group is None:
        is_other = group_id in room.shard.groups
        message = f"Group {group_id} {'is not a consumer group' if is_other else 'not found'}."
        return {
            "group_id": group_id,
            "error_code": ErrorCode.GROUP_ID_NOT_FOUND,
            "error_message": message,
        }
    return {
        "group_id": group_id,
        "error_message": None,
        "group_state": group.state_name,
        "group_epoch": group.epoch,
        "assignment_epoch": group.assignment_epoch,
        "assignor_name": group.preferred_assignor(None, None) or room.assignor_names()[0],
        "members": [_member(room, group, member) for member in group.members.values()],
        "authorized_operations": operations,
    }


def _member(room: ConsumerProtocol, group: ConsumerGroup, member: Member) -> dict[str, Any]:
    """What it has yet to give up is told as its own, too: it is still responsible for it."""
    assigned = {topic_id: set(mine) for topic_id, mine in member.assigned.items()}
    for topic_id, mine in member.revoking.items():
        assigned.setdefault(topic_id, set()).update(mine)
    return {
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "rack_id": member.rack_id,
        "member_epoch": member.epoch,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "subscribed_topic_names": sorted(member.topic_names),
        "subscribed_topic_regex": member.topic_regex,
        "assignment": _assignment(room, assigned),
        "target_assignment": _assignment(room, group.target.get(member.member_id, {})),
        "member_type": _CLASSIC if member.is_classic else _CONSUMER,
    }


def _assignment(room: ConsumerProtocol, partitions: Any) -> dict[str, Any]:
    """Topics that are gone are left out."""
    return {
        "topic_partitions": [
            {"topic_id": topic_id, "topic_name": info.name, "partitions": sorted(mine)}
            for topic_id, mine in partitions.items()
            if (info := room.shard.topics.by_id(topic_id)) is not None
        ]
    }
