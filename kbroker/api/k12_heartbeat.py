"""Heartbeat: a member of a classic group lives.

Behavior: moves the member's session timer; REBALANCE_IN_PROGRESS tells it to join again. While the
group's partition is loading the answer is that all is well, as nobody is being counted out.

Version notes:
  v1: throttle time. v3: static members (KIP-345). v4: flexible.
"""

from __future__ import annotations

from typing import Any

from kbroker.api.context import Context
from kbroker.api.registry import Response, register
from kbroker.api.rights import require_group
from kbroker.errors import ErrorCode
from kbroker.group.classic.requests import HeartbeatRequest
from kbroker.protocol import ApiKey
from kbroker.security.acls import READ


def _failed(request: Any, code: int, message: str) -> Response:
    loading = code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return {"error_code": ErrorCode.NONE if loading else code}


@register(ApiKey.HEARTBEAT, 0, 4, failed=_failed)
def heartbeat(request: Any, context: Context) -> Response:
    """Answer a Heartbeat request."""
    require_group(context, READ, request.group_id)
    asked = HeartbeatRequest(
        request.group_id,
        request.generation_id,
        request.member_id,
        getattr(request, "group_instance_id", None),
    )
    return context.groups.handle(
        asked.group_id,
        context.answer,
        lambda rooms, reply, now: rooms.classic.heartbeat(asked, reply, now),
        refusal=asked.refusal,
        gated=False,
    )
