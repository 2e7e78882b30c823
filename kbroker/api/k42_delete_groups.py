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
from kbroker.group.runtime import Call
from kbroker.protocol import ApiKey


def _failed(request: Any, code: int, message: str) -> Response:
    return {"results": [_error(group_id, code) for group_id in dict.fromkeys(request.groups_names)]}


def _error(group_id: str, code: int) -> dict[str, Any]:
    return {"group_id": group_id, "error_code": code}


@register(ApiKey.DELETE_GROUPS, 0, 2, failed=_failed)
def delete_groups(request: Any, context: Context) -> Response:
    """Answer a DeleteGroups request."""
    calls = [_call(group_id) for group_id in dict.fromkeys(request.groups_names)]
    return context.groups.each(calls, context.answer, lambda parts: {"results": parts})


def _call(group_id: str) -> Call:
    return Call(
        group_id,
        lambda rooms, reply, now: rooms.offsets.delete_group(group_id),
        lambda code, message: _error(group_id, code),
    )
