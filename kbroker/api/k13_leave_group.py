"""LeaveGroup: members leave their group, or an administrator removes them.

Behavior: each member is answered by itself; the others of the group rebalance.

Version notes:
  v0-v2: one member, whose error is that of the whole. v1: throttle time. v3: several members,
  static ones by their instance id (KIP-345). v4: flexible. v5: the client's reason (KIP-800).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from kbroker.api.context import Context
from kbroker.api.registry import Response, register
from kbroker.api.rights import require_group
from kbroker.errors import ErrorCode
from kbroker.group.classic.requests import LeaveRequest, LeavingMember
from kbroker.group.outcome import Now, Outcome, Reply
from kbroker.operations import Steps, collect
from kbroker.protocol import ApiKey
from kbroker.security.acls import READ

if TYPE_CHECKING:
    from kbroker.group.rooms import Rooms

_FIRST_WITH_MEMBERS: Final = 3


def _leaving(request: Any) -> Iterator[LeavingMember]:
    members = getattr(request, "members", None)
    if members is None:
        yield LeavingMember(request.member_id)
        return
    for member in members:
        reason = getattr(member, "reason", None)
        yield LeavingMember(member.member_id, member.group_instance_id, reason)


def _failed(request: Any, code: int, message: str) -> Response:
    """What a whole group is not known by, its members are not known by."""
    if code != ErrorCode.UNKNOWN_MEMBER_ID or not hasattr(request, "members"):
        return {"error_code": code}
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    return {"members": [member.answer(unknown) for member in _leaving(request)]}


@register(ApiKey.LEAVE_GROUP, 0, 5, failed=_failed)
def leave_group(request: Any, context: Context) -> Steps[Response]:
    """Answer a LeaveGroup request."""
    require_group(context, READ, request.group_id)
    asked = LeaveRequest(request.group_id, tuple((yield from collect(_leaving(request)))))

    def operation(rooms: Rooms, reply: Reply, now: Now) -> Outcome:
        outcome = rooms.classic.leave(asked, reply, now)
        removed = _removed(outcome.response)
        if removed:
            outcome = outcome.telling(lambda: _tell(context, asked.group_id, removed))
        if context.version >= _FIRST_WITH_MEMBERS or outcome.response is None:
            return outcome
        return outcome._replace(response=_of_one(outcome.response))

    return context.groups.handle(
        asked.group_id, context.answer, operation, refusal=asked.refusal
    )


def _removed(response: Response | None) -> list[str]:
    """Static members that were named without their member id: they did not leave by themselves."""
    members = (response or {}).get("members", ())
    return [
        one["group_instance_id"]
        for one in members
        if not one["member_id"] and not one.get("error_code")
    ]


def _tell(context: Context, group: str, instances: Iterable[str]) -> None:
    for instance in instances:
        context.changed("member removed", group=group, instance=instance)


def _of_one(response: Response) -> Response:
    """The answer before members had answers of their own."""
    members = response.get("members")
    return {"error_code": members[0].get("error_code", ErrorCode.NONE)} if members else response
