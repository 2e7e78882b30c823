"""CreateDelegationToken: a token by which others may log in as its owner for a while (KIP-48).

Behavior: refused over a listener that asks nobody who it is, and to who logged in with a token.

Version notes:
  v2: flexible.
  v3: for another owner (KIP-373).
"""

from __future__ import annotations

from typing import Any

from kbroker.api import delegation
from kbroker.api.context import Context
from kbroker.api.durations import milliseconds
from kbroker.api.registry import Response, register
from kbroker.errors import ClientError, ErrorCode
from kbroker.metadata.records.access import DelegationTokenRecord
from kbroker.operations import Steps
from kbroker.protocol import ApiKey
from kbroker.security.acls import CREATE_TOKENS, USER
from kbroker.security.principals import NOBODY, Principal


def _failed(request: Any, code: int, message: str) -> Response:
    del request, message
    return _response(code, NOBODY, NOBODY)


@register(ApiKey.CREATE_DELEGATION_TOKEN, 1, 3, failed=_failed, changes=True)
def create_delegation_token(request: Any, context: Context) -> Steps[Response]:
    """Answer a CreateDelegationToken request."""
    requester = context.principal
    owner = requester
    if getattr(request, "owner_principal_name", None):
        owner = Principal(request.owner_principal_type or "", request.owner_principal_name)
    renewers = [delegation.principal(one) for one in request.renewers]
    try:
        tokens = delegation.tokens_of(context)
        if owner != requester and not context.may(CREATE_TOKENS, USER, str(owner)):
            raise ClientError(ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED)
        lifetime_ms = milliseconds(request.max_lifetime)
        token = tokens.make(owner, requester, renewers, lifetime_ms)
        yield context.services.store.append(
            [token], lambda: context.changed("token made", owner=owner, token=token.token_id)
        )
    except ClientError as error:
        return _response(error.code, owner, requester)
    return _response(ErrorCode.NONE, owner, requester, token, tokens.hmac(token))


def _response(
    code: int,
    owner: Principal,
    requester: Principal,
    token: DelegationTokenRecord | None = None,
    proof: bytes = b"",
) -> Response:
    return {
        "error_code": code,
        "principal_type": owner.type,
        "principal_name": owner.name,
        "token_requester_principal_type": requester.type,
        "token_requester_principal_name": requester.name,
        "issue_timestamp": delegation.NO_TIME if token is None else token.issue_timestamp,
        "expiry_timestamp": delegation.NO_TIME if token is None else token.expiration_timestamp,
        "max_timestamp": delegation.NO_TIME if token is None else token.max_timestamp,
        "token_id": "" if token is None else token.token_id,
        "hmac": proof,
    }
