"""The `range` assignor: of each topic every subscriber gets one range, so that partitions of the
same number of equally partitioned topics go to the same member (co-partitioning).

Members are in the order of their instance ids, then those without one in the order of their
member ids; the first ones get one partition more where it does not come out even.
"""

from __future__ import annotations

from kbroker.group.consumer.assignors.spec import Assignment, GroupSpec


def assign_range(spec: GroupSpec) -> dict[str, Assignment]:
    """Partitions of every member."""
    members = sorted(
        spec.members.items(),
        key=lambda item: (
            (0, _utf16(item[1].instance_id))
            if item[1].instance_id is not None
            else (1, _utf16(item[0]))
        ),
    )
    subscribers: dict[bytes, list[str]] = {}
    for member_id, member in members:
        for topic_id in member.topic_ids:
            subscribers.setdefault(topic_id, []).append(member_id)
    target: dict[str, dict[bytes, frozenset[int]]] = {member_id: {} for member_id, _ in members}
    for topic_id, ids in subscribers.items():
        quota, extra = divmod(spec.partitions[topic_id], len(ids))
        start = 0
        for at, member_id in enumerate(ids):
            end = start + quota + (at < extra)
            if start == end:
                break
            target[member_id][topic_id] = frozenset(range(start, end))
            start = end
    return dict(target)


def _utf16(text: str) -> bytes:
    """Java compares strings by their UTF-16 units."""
    return text.encode("utf-16-be", "surrogatepass")
