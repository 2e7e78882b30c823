"""ExpireDelegationToken: a token ends earlier or, with a period below 0, at once (KIP-48).

Behavior: its owner and its renewers may. Version notes: v2: flexible.
"""

from __future__ import annotations

from typing import Any

from kbroker.api import delegation
from kbroker.api.context import Context
from kbroker.api.durations import milliseconds
from kbroker.api.k39_renew_delegation_token import failed
from kbroker.api.registry import Response, register
from kbroker.errors import ErrorCode
from kbroker.operations import Steps
from kbroker.protocol import ApiKey


@register(ApiKey.EXPIRE_DELEGATION_TOKEN, 1, 2, failed=failed, changes=True)
def expire_delegation_token(request: Any, context: Context) -> Steps[Response]:
    """Answer an ExpireDelegationToken request."""
    tokens = delegation.tokens_of(context)
    period_ms = milliseconds(request.expiry_time_period)
    end_ms, record = tokens.expire(bytes(request.hmac), context.principal, period_ms)
    yield context.services.store.append(
        [record],
        lambda: context.changed("token made to end", token=record.token_id, at_ms=end_ms),
    )
    return {"error_code": ErrorCode.NONE, "expiry_timestamp": end_ms}
