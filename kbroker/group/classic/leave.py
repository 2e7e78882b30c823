"""LeaveGroup: members that go by themselves or are removed by an administrator."""

from __future__ import annotations

from kbroker.errors import ErrorCode
from kbroker.group.classic.group import ClassicGroup, State
from kbroker.group.classic.rebalance import Rebalance
from kbroker.group.classic.requests import LeaveRequest, LeavingMember
from kbroker.group.outcome import NOTHING, Now, Outcome


def leave(rebalance: Rebalance, group: ClassicGroup, request: LeaveRequest, now: Now) -> Outcome:
    """Remove members one by one, each with its own answer, and rebalance once."""
    if group.state is State.DEAD:
        return Outcome(response={"error_code": ErrorCode.COORDINATOR_NOT_AVAILABLE})
    answers = []
    gone = []
    for leaving in request.members:
        error = _remove(rebalance, group, leaving)
        answers.append(leaving.answer(error))
        if not error:
            gone.append(leaving.member_id or leaving.instance_id or "")
    went = NOTHING
    if gone and group.state is not State.EMPTY:
        went = rebalance.start_or_go_on(group, f"left: {', '.join(gone)}", now)
    return Outcome(went.records, {"members": answers}, went.then)


def _remove(rebalance: Rebalance, group: ClassicGroup, leaving: LeavingMember) -> ErrorCode:
    """Remove one; NONE where that was done."""
    member_id = leaving.member_id
    if not member_id:
        if leaving.instance_id is None or leaving.instance_id not in group.static:
            return ErrorCode.UNKNOWN_MEMBER_ID
        member_id = group.static[leaving.instance_id]
    elif member_id in group.pending:
        rebalance.forget_pending(group, member_id)
        return ErrorCode.NONE
    else:
        fault = group.fault(member_id, leaving.instance_id)
        if fault:
            return fault
    rebalance.drop(group, group.members[member_id])
    return ErrorCode.NONE
