"""Members that go: by leaving, by a timer, or removed by an administrator."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kbroker.group.consumer import records
from kbroker.group.consumer.change import Change
from kbroker.group.consumer.downgrade import downgrade, may_downgrade
from kbroker.group.consumer.member import LEAVE_STATIC_EPOCH, NO_PARTITIONS, Member
from kbroker.group.outcome import Now, Outcome, Response

if TYPE_CHECKING:
    from kbroker.group.consumer.group import ConsumerGroup
    from kbroker.group.consumer.protocol import ConsumerProtocol


def leave_for_a_while(group: ConsumerGroup, member: Member) -> Outcome:
    """A static member goes and will be back: nobody gets its partitions before its session ends.

    They count as assigned from epoch 0 on for the member that comes back.
    """
    assigned = {topic_id: dict.fromkeys(mine, 0) for topic_id, mine in member.assigned.items()}
    left = member.changed(epoch=LEAVE_STATIC_EPOCH, assigned=assigned, revoking=NO_PARTITIONS)
    answer = {"member_id": member.member_id, "member_epoch": LEAVE_STATIC_EPOCH}
    return Outcome([records.current_assignment(group.group_id, left)], answer)


def fence_members(
    room: ConsumerProtocol,
    group: ConsumerGroup,
    members: Sequence[Member],
    response: Response | None,
    now: Now,
) -> Outcome:
    """Take members out of the group: a new group epoch, or a classic group where only classic
    members are left."""
    if not members:
        return Outcome(response=response)
    change = Change(room, group, now)
    if may_downgrade(room, group, members):
        downgrade(change, members, None, "the last member of the consumer protocol left")
        return change.outcome(response)
    for member in members:
        change.records += records.member_tombstones(group.group_id, member.member_id)
    subscriptions = group.subscriptions.copy()
    for member in members:
        subscriptions.replace(member, None)
    leaving = Counter(member.topic_regex for member in members if member.topic_regex)
    for pattern, count in leaving.items():
        if group.subscriptions.regexes.get(pattern) == count:
            change.records.append(records.regex_tombstone(group.group_id, pattern))
            if pattern in group.regexes:
                subscriptions.resolve(group.regexes[pattern].topics, ())
    metadata_hash = room.hashes.of_group(subscriptions.topics())
    change.records.append(records.group_epoch(group.group_id, group.epoch + 1, metadata_hash))

    def stop_timers() -> None:
        for member in members:
            room.timeouts.cancel_all(group.group_id, member.member_id)

    change.after(stop_timers)
    return change.outcome(response)
