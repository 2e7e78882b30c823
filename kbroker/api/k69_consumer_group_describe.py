"""ConsumerGroupDescribe: consumer groups with their members and assignments (KIP-848).

Behavior: each group is answered by itself, once however often it is named; a classic group is
GROUP_ID_NOT_FOUND here.

Version notes:
  v1: which protocol each member speaks (KIP-1099).
"""

from __future__ import annotations

from typing import Any

from kbroker.api.authorized import GROUP_OPERATIONS, NOT_ASKED
from kbroker.api.context import Context
from kbroker.api.k68_consumer_group_heartbeat import check_protocol_is_on
from kbroker.api.registry import Response, register
from kbroker.errors import ErrorCode
from kbroker.group.runtime import Call
from kbroker.protocol import ApiKey


def _failed(request: Any, code: int, message: str) -> Response:
    return {"groups": [_refused(group_id, code, message) for group_id in request.group_ids]}


def _refused(group_id: str, code: int, message: str | None) -> Response:
    return {"group_id": group_id, "error_code": code, "error_message": message}


@register(ApiKey.CONSUMER_GROUP_DESCRIBE, 0, 1, failed=_failed)
def consumer_group_describe(request: Any, context: Context) -> Response:
    """Answer a ConsumerGroupDescribe request."""
    check_protocol_is_on(context)
    operations = GROUP_OPERATIONS if request.include_authorized_operations else NOT_ASKED
    nameless = [one for one in request.group_ids if not one]
    wrong = [_refused("", ErrorCode.INVALID_GROUP_ID, None) for _ in nameless]
    named = dict.fromkeys(group_id for group_id in request.group_ids if group_id)
    calls = [_call(group_id, operations) for group_id in named]
    return context.groups.each(
        calls, context.answer, lambda groups: {"groups": [*wrong, *groups]}
    )


def _call(group_id: str, operations: int) -> Call:
    return Call(
        group_id,
        lambda rooms, _, now: rooms.consumer.describe(group_id, operations),
        lambda code, _: _refused(group_id, code, None),
    )
