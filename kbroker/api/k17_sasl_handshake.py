"""SaslHandshake: the client names the mechanism by which it will say who it is (KIP-43).

Behavior: on a listener without SASL, and where the client has said who it is already and its
session does not end, the answer is ILLEGAL_SASL_STATE and the connection stays. A mechanism that
the listener does not have is answered with those it has, and the connection is closed; so is a
handshake in the middle of an exchange.

Version notes:
  v0: the mechanism's messages follow as frames of their own, without a header.
  v1: they follow as SaslAuthenticate (KIP-152).
"""

from __future__ import annotations

from typing import Any

from kbroker.api.context import Context
from kbroker.api.registry import Response, register
from kbroker.errors import ErrorCode
from kbroker.group.outcome import DEFERRED
from kbroker.protocol import ApiKey
from kbroker.security.mechanism import OutOfTurnError


def _failed(request: Any, code: int, message: str) -> Response:
    del request, message
    return {"error_code": code, "mechanisms": []}


@register(ApiKey.SASL_HANDSHAKE, 0, 1, failed=_failed)
def sasl_handshake(request: Any, context: Context) -> Any:
    """Answer a SaslHandshake request."""
    answer, authentication = context.answer, context.services.authentication
    if answer.open:
        return _failed(request, ErrorCode.ILLEGAL_SASL_STATE, "")
    mechanisms = authentication.mechanisms(context.listener)
    code = ErrorCode.NONE
    if request.mechanism not in mechanisms:
        code = ErrorCode.UNSUPPORTED_SASL_MECHANISM
    else:
        try:
            state = authentication.begin(answer.state, request.mechanism)
            answer.remember(state, tokens=context.version == 0)
        except OutOfTurnError:
            code, mechanisms = ErrorCode.ILLEGAL_SASL_STATE, []
    response = {"error_code": code, "mechanisms": mechanisms}
    if code is not ErrorCode.NONE:
        authentication.count(context.listener, answer.state, well=False)
        answer.refuse(response, authentication.delay_ms)
        return DEFERRED
    return response
