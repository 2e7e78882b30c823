"""DescribeDelegationToken: tokens with their passwords, of some owners or of all (KIP-48).

Behavior: null owners mean all, an empty list none. A token is told where one who is named owns or
renews it, or has asked for it.

Version notes:
  v2: flexible.
  v3: who asked for a token (KIP-373).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kbroker.api import delegation
from kbroker.api.context import Context
from kbroker.api.registry import Response, register
from kbroker.errors import ErrorCode
from kbroker.metadata.records.access import DelegationTokenRecord
from kbroker.protocol import ApiKey
from kbroker.security.acls import DELEGATION_TOKEN, DESCRIBE, DESCRIBE_TOKENS, USER

if TYPE_CHECKING:
    from kbroker.security.tokens import Tokens


def _failed(request: Any, code: int, message: str) -> Response:
    del request, message
    return {"error_code": code, "tokens": []}


@register(ApiKey.DESCRIBE_DELEGATION_TOKEN, 1, 3, failed=_failed)
def describe_delegation_token(request: Any, context: Context) -> Response:
    """Answer a DescribeDelegationToken request."""
    tokens = delegation.tokens_of(context)
    found = list(context.image.tokens.values())
    if request.owners is not None:
        wanted = {str(delegation.principal(one)) for one in request.owners}
        found = [one for one in found if not wanted.isdisjoint(_concerned(one))]
    told = [_described(tokens, one) for one in found if _may_see(context, one)]
    return {"error_code": ErrorCode.NONE, "tokens": told}


def _concerned(token: DelegationTokenRecord) -> tuple[str, ...]:
    return token.owner, token.requester, *token.renewers


def _may_see(context: Context, token: DelegationTokenRecord) -> bool:
    """Whom it concerns sees a token; others need a right on the token or its owner."""
    return (
        str(context.principal) in _concerned(token)
        or context.may(DESCRIBE, DELEGATION_TOKEN, token.token_id, tell=False)
        or context.may(DESCRIBE_TOKENS, USER, token.owner, tell=False)
    )


def _described(tokens: Tokens, token: DelegationTokenRecord) -> Response:
    from kbroker.security.tokens import principal_of  # noqa: PLC0415  not every start

    owner, requester = principal_of(token.owner), principal_of(token.requester or token.owner)
    return {
        "principal_type": owner.type,
        "principal_name": owner.name,
        "token_requester_principal_type": requester.type,
        "token_requester_principal_name": requester.name,
        "issue_timestamp": token.issue_timestamp,
        "expiry_timestamp": token.expiration_timestamp,
        "max_timestamp": token.max_timestamp,
        "token_id": token.token_id,
        "hmac": tokens.hmac(token),
        "renewers": [
            {"principal_type": one.type, "principal_name": one.name}
            for one in map(principal_of, token.renewers)
        ],
    }
