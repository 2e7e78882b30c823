"""Heartbeat: the most frequent request of all, which makes nothing new but a timer's moment.

Here come the first of a member in each generation and those that are refused. While the group is
stable the data plane answers the others (kbroker.ext.pulses), and a session that seems to be over
asks when the last was heard.
"""

from __future__ import annotations

from typing import Final

from kbroker.errors import ErrorCode
from kbroker.ext.pulses import Pulses
from kbroker.group.classic.group import ClassicGroup, State
from kbroker.group.classic.member import Member
from kbroker.group.classic.requests import HeartbeatRequest
from kbroker.group.outcome import Now, Outcome

ANSWERS: Final = {
    code: Outcome(response={"error_code": code})
    for code in (
        ErrorCode.NONE,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.UNKNOWN_MEMBER_ID,
    )
}
_ALIVE: Final = ANSWERS[ErrorCode.NONE]


def heartbeat(
    group: ClassicGroup, request: HeartbeatRequest, pulses: Pulses, now: Now
) -> Outcome:
    """The member lives; it learns whether it has to join again."""
    if group.state is State.DEAD:
        return ANSWERS[ErrorCode.COORDINATOR_NOT_AVAILABLE]
    fault = group.fault(request.member_id, request.instance_id)
    if fault:
        return ANSWERS[fault]
    if request.generation != group.generation:
        return ANSWERS[ErrorCode.ILLEGAL_GENERATION]
    member = group.members[request.member_id]
    group.touch(member, now)
    if group.state is State.PREPARING:
        return ANSWERS[ErrorCode.REBALANCE_IN_PROGRESS]
    if group.state is State.STABLE:
        _open_pulse(group, member, pulses, now)
    return _ALIVE


def _open_pulse(group: ClassicGroup, member: Member, pulses: Pulses, now: Now) -> None:
    """Until the group is not stable any more, or the member gone, others need not come here."""
    if member.pulse is None:
        member.pulse = pulses.begin(group.group_id, member.member_id, member.instance_id)
    if member.pulse is not None:
        member.pulse.open(group.generation, now.monotonic_ms)
