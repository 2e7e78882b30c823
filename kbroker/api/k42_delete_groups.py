"""DeleteGroups: groups without members go, with all that they committed.

Behavior: each group by itself, once however often it is named. The answer waits until all of it is
on disk.

Version notes:
  v1: throttle time. v2: flexible.
"""

from __future__ import annotations

from typing import Any

from kbroker.api.context import Context
from kbroker.api.registry import Response, register
from kbroker.api.rights import denied_steps
from kbroker.errors import ErrorCode
from kbroker.group.part import Call
from kbroker.operations import Steps, collect, split, unique
from kbroker.protocol import ApiKey
from kbroker.security.acls import DELETE, GROUP


def _failed(request: Any, code: int, message: str) -> Response:
    return {"results": [_error(group_id, code) for group_id in dict.fromkeys(request.groups_names)]}


def _error(group_id: str, code: int) -> dict[str, Any]:
    return {"group_id": group_id, "error_code": code}


@register(ApiKey.DELETE_GROUPS, 0, 2, failed=_failed)
def delete_groups(request: Any, context: Context) -> Steps[Response]:
    """Answer a DeleteGroups request."""
    groups = yield from unique(request.groups_names)
    hidden = yield from denied_steps(context, DELETE, GROUP, groups)
    no = ErrorCode.GROUP_AUTHORIZATION_FAILED
    denied, allowed = yield from split(groups, hidden)
    refused = yield from collect(_error(group_id, no) for group_id in denied)
    calls = (_call(group_id) for group_id in allowed)

    def finish(parts: list[Response]) -> Steps[Response]:
        for part in parts:
            yield
            if not part.get("error_code"):
                context.changed("group deleted", group=part["group_id"])
        return {"results": [*parts, *refused]}

    return (yield from context.groups.each(calls, context.answer, finish))


def _call(group_id: str) -> Call:
    return Call(
        group_id,
        lambda rooms, reply, now: rooms.offsets.delete_group(group_id),
        lambda code, message: _error(group_id, code),
    )
