"""SyncGroup: the leader brings the assignments, everybody gets the own one."""

from __future__ import annotations

import functools

from kbroker.errors import ErrorCode
from kbroker.group.classic.answers import sync_error, synced
from kbroker.group.classic.group import ClassicGroup, State
from kbroker.group.classic.rebalance import Rebalance
from kbroker.group.classic.replay import GroupRecords
from kbroker.group.classic.requests import SyncRequest
from kbroker.group.outcome import NOTHING, Now, Outcome, Reply


class Syncs:
    """SyncGroup of a shard's classic groups."""

    def __init__(self, records: GroupRecords, rebalance: Rebalance) -> None:
        self._records = records
        self._rebalance = rebalance

    def sync(self, group: ClassicGroup, request: SyncRequest, reply: Reply, now: Now) -> Outcome:
        """Wait for the assignment, or get it where the group is stable already."""
        refusal = _refusal(group, request)
        if refusal:
            return Outcome(response=sync_error(refusal))
        member = group.members[request.member_id]
        if group.state is State.STABLE:
            self._rebalance.has_synced(group, member)
            return Outcome(response=synced(group, member))
        earlier, member.sync = member.sync, reply
        if earlier is not None:
            earlier(sync_error(ErrorCode.REBALANCE_IN_PROGRESS))
        self._rebalance.has_synced(group, member)
        if group.leader != member.member_id:
            return NOTHING
        return self._assign(group, dict(request.assignments), now)

    def _assign(self, group: ClassicGroup, given: dict[str, bytes], now: Now) -> Outcome:
        """The generation is written with everybody's assignment, and then told."""
        assignments = {name: given.get(name, b"") for name in group.members}
        record = self._records.of(group, assignments)
        then = functools.partial(self._assigned, group, group.generation, assignments, now)
        return Outcome([record], then=then)

    def _assigned(
        self,
        group: ClassicGroup,
        generation: int,
        assignments: dict[str, bytes],
        now: Now,
        error: ErrorCode,
    ) -> Outcome | None:
        if group.state is not State.COMPLETING or group.generation != generation:
            return None
        if error:
            self._rebalance.fail_syncs(group, error, now)
            reason = f"the assignments could not be written: {error.name}"
            return self._rebalance.prepare(group, reason, now)
        for name, assignment in assignments.items():
            group.members[name].assignment = assignment
        group.written()
        self._rebalance.tell_assignments(group, now)
        group.move(State.STABLE, now)
        return None


def _refusal(group: ClassicGroup, request: SyncRequest) -> ErrorCode:
    if group.state is State.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    fault = group.fault(request.member_id, request.instance_id)
    if fault:
        return fault
    if request.generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    if _differ(request.protocol_type, group.protocol_type) or _differ(
        request.protocol_name, group.protocol_name
    ):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if group.state is State.PREPARING:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def _differ(told: str | None, known: str | None) -> bool:
    return told is not None and known is not None and told != known
