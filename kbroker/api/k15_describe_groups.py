"""DescribeGroups: classic groups with their members.

Behavior: each group by itself, once however often it is named (Apache Kafka: as often, which turns
a small request into any amount of metadata). A group that is not there, or that uses the new
protocol, is Dead; from v6 on that is also an error. The metadata of members is told of a stable
group only.

Version notes:
  v1: throttle time. v3: authorized operations. v4: group.instance.id. v5: flexible.
  v6: GROUP_ID_NOT_FOUND with a message (KIP-1043).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kbroker.api.context import Context
from kbroker.api.registry import Response, register
from kbroker.api.rights import denied_steps, operations
from kbroker.errors import ErrorCode
from kbroker.group.outcome import Now, Outcome, Reply
from kbroker.group.part import Call
from kbroker.operations import Steps, collect, split, unique
from kbroker.protocol import ApiKey
from kbroker.security.acls import DESCRIBE, GROUP

if TYPE_CHECKING:
    from kbroker.group.rooms import Rooms

_DEAD: Final = "Dead"
_FIRST_WITH_NOT_FOUND: Final = 6


def _failed(request: Any, code: int, message: str) -> Response:
    return {"groups": [_error(group_id, code) for group_id in request.groups]}


def _error(group_id: str, code: int) -> dict[str, Any]:
    return {"group_id": group_id, "error_code": code}


@register(ApiKey.DESCRIBE_GROUPS, 0, 6, failed=_failed)
def describe_groups(request: Any, context: Context) -> Steps[Response]:
    """Answer a DescribeGroups request."""
    asked = getattr(request, "include_authorized_operations", False)
    groups = yield from unique(request.groups)
    hidden = yield from denied_steps(context, DESCRIBE, GROUP, groups)
    no = ErrorCode.GROUP_AUTHORIZATION_FAILED
    denied, allowed = yield from split(groups, hidden)
    refused = yield from collect(_error(group_id, no) for group_id in denied)
    calls = (_call(context, group_id, asked) for group_id in allowed)

    def finish(parts: list[Response]) -> Steps[Response]:
        yield
        return {"groups": [*refused, *parts]}

    return (yield from context.groups.each(calls, context.answer, finish))


def _call(context: Context, group_id: str, with_operations: bool) -> Call:
    def run(rooms: Rooms, reply: Reply, now: Now) -> Outcome:
        described = rooms.described_classic(group_id)
        if isinstance(described, str):
            missing: dict[str, Any] = {"group_id": group_id, "group_state": _DEAD}
            if context.version >= _FIRST_WITH_NOT_FOUND:
                code = ErrorCode.GROUP_ID_NOT_FOUND
                return Outcome(
                    response={**missing, "error_code": code, "error_message": described}
                )
            described = missing
        if with_operations:
            described["authorized_operations"] = operations(context, GROUP, group_id)
        return Outcome(response=described)

    return Call(group_id, run, lambda code, message: _error(group_id, code))
