"""SaslAuthenticate: the messages of the mechanism that SaslHandshake named (KIP-152).

Behavior: whoever is refused is told the same, whatever was wrong, after
`connection.failed.authentication.delay.ms`, and its connection is closed; the log says more. A
message that no exchange waits for closes the connection, or, where the client has said who it is
already, is answered with ILLEGAL_SASL_STATE.

Version notes:
  v1: the session's lifetime (KIP-368): the client must say again who it is within it.
  v2: flexible.
  -1: a bare token after SaslHandshake 0, answered by a bare token; a refusal is no answer at all.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import Any, Final

from kbroker.api.answer import RequestAnswer, RequestPort
from kbroker.api.context import Context, Services
from kbroker.api.registry import Response, register, register_inner
from kbroker.errors import ErrorCode
from kbroker.group.outcome import DEFERRED
from kbroker.operations import Completion, Steps
from kbroker.protocol import ApiKey
from kbroker.security.mechanism import AuthenticationError, OutOfTurnError, Settled

_LOG: Final = logging.getLogger("kbroker.api")
_BARE_TOKEN: Final = -1
_REFUSED: Final = "Authentication failed: the credentials are not valid."
_TOO_LATE: Final = "SaslAuthenticate after the client has said who it is."


@register(ApiKey.SASL_AUTHENTICATE, 0, 2)
def sasl_authenticate(request: Any, context: Context) -> Any:
    """Answer a SaslAuthenticate request."""
    answer, authentication = context.answer, context.services.authentication
    if answer.open:
        return _response(ErrorCode.ILLEGAL_SASL_STATE, message=_TOO_LATE)
    step = authentication.step(
        context.listener, answer.state, bytes(request.auth_bytes), context.peer[0]
    )
    return _told(step, context) if step.done else _later(step, context)


def _later(step: Completion[Settled], context: Context) -> Steps[Response]:
    with suppress(AuthenticationError):  # told below
        yield step
    return _told(step, context)


def _told(step: Completion[Settled], context: Context) -> Response:
    answer, authentication = context.answer, context.services.authentication
    try:
        settled = step.result()
    except OutOfTurnError:
        answer.close()
        return DEFERRED
    except AuthenticationError as error:
        authentication.refusals.tell(context.listener, context.peer, error)
        refusal = _response(ErrorCode.SASL_AUTHENTICATION_FAILED, message=_REFUSED)
        answer.refuse(refusal, authentication.delay_ms)
        return DEFERRED
    _take_over(answer, settled)
    return _response(ErrorCode.NONE, settled)


@register_inner(ApiKey.SASL_AUTHENTICATE, _BARE_TOKEN)
def bare_token(request: RequestPort, services: Services) -> None:
    """Answer a token without a header."""
    step = services.authentication.step(
        request.listener, request.state, request.body, request.peer[0]
    )
    step.on_done(lambda step: _tell_bare(step, request, services))


def _tell_bare(step: Completion[Settled], request: RequestPort, services: Services) -> None:
    authentication = services.authentication
    try:
        settled = step.result()
    except AuthenticationError as error:
        authentication.refusals.tell(request.listener, request.peer, error)
        request.refuse(None, authentication.delay_ms)
    except Exception:
        _LOG.exception("a token of SaslHandshake 0 failed")
        request.close()
    else:
        _take_over(request, settled)
        request.respond(settled.answer)


def _take_over(request: RequestPort | RequestAnswer, settled: Settled) -> None:
    request.remember(settled.state)
    if settled.principal is not None:
        request.identify(settled.principal, settled.session_ms)


def _response(
    code: ErrorCode, settled: Settled | None = None, message: str = ""
) -> Response:
    return {
        "error_code": code,
        "error_message": message,
        "auth_bytes": b"" if settled is None else settled.answer,
        "session_lifetime": 0 if settled is None else settled.session_ms,
    }
