"""RenewDelegationToken: a token ends later, but never after its longest life (KIP-48).

Behavior: its owner and its renewers may. Version notes: v2: flexible.
"""

from __future__ import annotations

from typing import Any

from kbroker.api import delegation
from kbroker.api.context import Context
from kbroker.api.durations import milliseconds
from kbroker.api.registry import Response, register
from kbroker.errors import ErrorCode
from kbroker.operations import Steps
from kbroker.protocol import ApiKey


def failed(request: Any, code: int, message: str) -> Response:
    """The answer to a request about a token that failed."""
    del request, message
    return {"error_code": code, "expiry_timestamp": delegation.NO_TIME}


@register(ApiKey.RENEW_DELEGATION_TOKEN, 1, 2, failed=failed, changes=True)
def renew_delegation_token(request: Any, context: Context) -> Steps[Response]:
    """Answer a RenewDelegationToken request."""
    tokens = delegation.tokens_of(context)
    period_ms = milliseconds(request.renew_period)
    token = tokens.renew(bytes(request.hmac), context.principal, period_ms)
    end_ms = token.expiration_timestamp
    yield context.services.store.append(
        [token], lambda: context.changed("token renewed", token=token.token_id, at_ms=end_ms)
    )
    return {"error_code": ErrorCode.NONE, "expiry_timestamp": end_ms}
