"""A member's next step towards its target assignment.

A member first gives up what it is not to have any more, and stays in its epoch until it reports
that it did. Then it moves to the epoch of the target, and gets those of its new partitions that
nobody has; for the others it waits (KIP-848).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from kbroker.errors import ClientError, ErrorCode
from kbroker.group.consumer.assignors import Assignment
from kbroker.group.consumer.member import NO_PARTITIONS, Member, MemberState, Partitions

Owned = Sequence[tuple[bytes, Collection[int]]]
"""What a member says that it owns: topic id and partitions."""


class Target(NamedTuple):
    """A member's target assignment, and the epoch of the group's."""

    epoch: int
    assignment: Assignment


class Step(NamedTuple):
    """What the step is taken by.

    subscribed:      ids of the topics that the member subscribes to.
    changed:         its subscription has just changed.
    partition_epoch: of the one who has a partition; -1 where nobody has.
    owned:           None where the member did not say.
    """

    target: Target
    subscribed: Collection[bytes]
    changed: bool
    partition_epoch: Callable[[bytes, int], int]
    owned: Owned | None


def next_assignment(member: Member, step: Step) -> Member:
    """The member after the step; the same object where nothing is to be done."""
    if member.state is MemberState.STABLE:
        if member.epoch != step.target.epoch:
            return _advance(member, step, member.epoch)
        return _drop_unsubscribed(member, step) if step.changed else member
    if member.state is MemberState.UNREVOKED_PARTITIONS:
        if _owns_any(step.owned, member.revoking):
            return _drop_unsubscribed(member, step) if step.changed else member
        return _advance(member, step, member.epoch)
    if member.state is MemberState.UNRELEASED_PARTITIONS:
        return _advance(member, step, member.epoch)
    if step.owned is None or step.owned:
        # A state that another version of the broker wrote: begin from scratch.
        raise ClientError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            "The member is in an unknown state; it must give up its partitions and rejoin.",
        )
    return _advance(member, step, step.target.epoch)


def _owns_any(owned: Owned | None, partitions: Partitions) -> bool:
    """Who does not say what it owns may own it still."""
    if owned is None:
        return True
    return any(
        partition in mine
        for topic_id, reported in owned
        if (mine := partitions.get(topic_id))
        for partition in reported
    )


def _drop_unsubscribed(member: Member, step: Step) -> Member:
    """Take away partitions of topics that the member does not subscribe to any more."""
    dropped = {t: mine for t, mine in member.assigned.items() if t not in step.subscribed}
    if not dropped:
        return member
    assigned = {t: mine for t, mine in member.assigned.items() if t not in dropped}
    revoking = dict(member.revoking)
    for topic_id, mine in dropped.items():
        revoking[topic_id] = {**revoking.get(topic_id, {}), **mine}
    if _owns_any(step.owned, revoking):
        return member.at_epoch(
            member.epoch,
            state=MemberState.UNREVOKED_PARTITIONS,
            assigned=assigned,
            revoking=revoking,
        )
    return member.at_epoch(member.epoch, assigned=assigned)


def _advance(member: Member, step: Step, epoch: int) -> Member:
    """Revoke what is not in the target; when that is done, assign what is free of it."""
    kept: dict[bytes, dict[int, int]] = {}
    revoking: dict[bytes, dict[int, int]] = {}
    gained: dict[bytes, list[int]] = {}
    unreleased = False
    for topic_id in {**step.target.assignment, **member.assigned}:
        wanted: Collection[int] = ()
        if topic_id in step.subscribed:
            wanted = step.target.assignment.get(topic_id, ())
        have = member.assigned.get(topic_id, {})
        for partition, since in have.items():
            (kept if partition in wanted else revoking).setdefault(topic_id, {})[partition] = since
        own = member.revoking.get(topic_id, {})
        for partition in wanted:
            if partition in have:
                continue
            # What the member itself has still to give up is not held by another.
            if partition not in own and step.partition_epoch(topic_id, partition) != -1:
                unreleased = True
            else:
                gained.setdefault(topic_id, []).append(partition)
    if revoking and _owns_any(step.owned, revoking):
        return member.at_epoch(
            epoch, state=MemberState.UNREVOKED_PARTITIONS, assigned=kept, revoking=revoking
        )
    target_epoch = step.target.epoch
    for topic_id, partitions in gained.items():
        kept.setdefault(topic_id, {}).update(dict.fromkeys(sorted(partitions), target_epoch))
    state = MemberState.UNRELEASED_PARTITIONS if unreleased else MemberState.STABLE
    return member.at_epoch(target_epoch, state=state, assigned=kept, revoking=NO_PARTITIONS)
