"""SyncGroup: the leader brings everybody's assignment, each member gets its own.

Behavior: parked until the leader has synced. From version 5 on a client that does not name protocol
type and protocol is refused with INCONSISTENT_GROUP_PROTOCOL.

Version notes:
  v1: throttle time. v3: static members (KIP-345). v4: flexible. v5: protocol type and name both
  ways (KIP-559).
"""

from __future__ import annotations

from typing import Any, Final

from kbroker.api.context import Context
from kbroker.api.registry import Response, register
from kbroker.api.rights import require_group
from kbroker.errors import ClientError, ErrorCode
from kbroker.group.classic.requests import SyncRequest
from kbroker.protocol import ApiKey
from kbroker.security.acls import READ

_FIRST_WITH_PROTOCOL: Final = 5


def _failed(request: Any, code: int, message: str) -> Response:
    return {"error_code": code}


@register(ApiKey.SYNC_GROUP, 0, 5, failed=_failed, parks=True)
def sync_group(request: Any, context: Context) -> Response:
    """Answer a SyncGroup request."""
    asked = SyncRequest(
        group_id=request.group_id,
        generation=request.generation_id,
        member_id=request.member_id,
        instance_id=getattr(request, "group_instance_id", None),
        protocol_type=getattr(request, "protocol_type", None),
        protocol_name=getattr(request, "protocol_name", None),
        assignments=tuple((one.member_id, one.assignment) for one in request.assignments),
    )
    if context.version >= _FIRST_WITH_PROTOCOL and (
        asked.protocol_type is None or asked.protocol_name is None
    ):
        raise ClientError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    require_group(context, READ, asked.group_id)
    return context.groups.handle(
        asked.group_id,
        context.answer,
        lambda rooms, reply, now: rooms.classic.sync(asked, reply, now),
        refusal=asked.refusal,
    )
