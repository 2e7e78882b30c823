"""Heartbeat: the most frequent request of all, which makes nothing new but a timer's moment."""

from __future__ import annotations

from typing import Final

from kbroker.errors import ErrorCode
from kbroker.group.classic.group import ClassicGroup, State
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


def heartbeat(group: ClassicGroup, request: HeartbeatRequest, now: Now) -> Outcome:
    """The member lives; it learns whether it has to join again."""
    if group.state is State.DEAD:
        return ANSWERS[ErrorCode.COORDINATOR_NOT_AVAILABLE]
    fault = group.fault(request.member_id, request.instance_id)
    if fault:
        return ANSWERS[fault]
    if request.generation != group.generation:
        return ANSWERS[ErrorCode.ILLEGAL_GENERATION]
    group.touch(group.members[request.member_id], now)
    if group.state is State.PREPARING:
        return ANSWERS[ErrorCode.REBALANCE_IN_PROGRESS]
    return _ALIVE
