"""The target assignment of a group, as it would be after the change at hand."""

from __future__ import annotations

from kbroker.group.consumer.assignors import Assignment, Assignor, GroupSpec, MemberSpec
from kbroker.group.consumer.group import ConsumerGroup
from kbroker.group.consumer.member import Member
from kbroker.group.consumer.subscription import TopicIdsOf
from kbroker.group.order import string_order, table_order
from kbroker.group.topics import Topics


def assignment_is_due(last_ms: int, interval_ms: int, wall_ms: int) -> bool:
    """Assignments are an interval apart. One whose time is not known does not hold up the next, nor
    does one of the future: the clock was set back."""
    return not last_ms or not interval_ms or not 0 <= wall_ms - last_ms < interval_ms


def compute_target(
    group: ConsumerGroup, member: Member, assignor: Assignor, homogeneous: bool, topics: Topics
) -> dict[str, Assignment]:
    """The assignment of every member once `member` is as given; of a static member that it takes
    the place of, it inherits the last one."""
    members = {one: group.members[one] for one in table_order(group.members)}
    replaced = group.static_members.get(member.instance_id or "") if member.instance_id else None
    inherited = group.target.get(replaced or member.member_id, {})
    if replaced is not None:
        members.pop(replaced, None)
    members[member.member_id] = member
    ids_of = TopicIdsOf(topics, group.regex_topics())
    specs = {}
    for member_id in string_order(list(members)):
        one = members[member_id]
        last = inherited if one is member else group.target.get(member_id, {})
        specs[member_id] = MemberSpec(ids_of(one), last, one.instance_id)
    partitions = {}
    for topic_id in {topic_id for spec in specs.values() for topic_id in spec.topic_ids}:
        info = topics.by_id(topic_id)
        partitions[topic_id] = info.partitions if info else 0
    spec = GroupSpec(specs, homogeneous, group.owners, partitions)
    assigned = assignor(spec)
    return {member_id: assigned.get(member_id, {}) for member_id in specs}
