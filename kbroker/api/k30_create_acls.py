"""CreateAcls: allow and deny.

Behavior: each ACL succeeds or fails by itself; good ones are written in one append and hold when
the answer leaves. One that is there already, or twice in the request, is no error. What only a
filter can say (any, match) fails the whole request, and "unknown" closes the connection, as with
Apache Kafka.

Version notes:
  v2: flexible. v3: resources of users.
"""

from __future__ import annotations

from typing import Any, Final

from kbroker.api.authorizing import record_of, tell_data_plane
from kbroker.api.context import Context
from kbroker.api.k29_describe_acls import authorizer_of
from kbroker.api.registry import Response, register
from kbroker.api.rights import require_cluster
from kbroker.errors import ClientError, ErrorCode
from kbroker.operations import Steps
from kbroker.protocol import ApiKey, MalformedRequestError
from kbroker.security.acls import ALTER, ANY, MATCH, UNKNOWN, Acl, fault
from kbroker.uuids import random_uuid

_CREATED_MAX_COUNT: Final = 10_000  # as Apache Kafka


def _failed(request: Any, code: int, message: str) -> Response:
    return {"results": [{"error_code": code, "error_message": message} for _ in request.creations]}


@register(ApiKey.CREATE_ACLS, 1, 3, failed=_failed, changes=True)
def create_acls(request: Any, context: Context) -> Steps[Response]:
    """Answer a CreateAcls request."""
    acls = []
    for creation in request.creations:
        acl = _acl(creation)
        _check_said(acl, UNKNOWN)
        acls.append(acl)
        yield
    require_cluster(context, ALTER)
    authorizer = authorizer_of(context)
    for acl in acls:
        _check_said(acl, ANY)
        yield
    faults: dict[Acl, str | None] = {}
    fresh = []
    for acl in acls:
        yield
        if acl not in faults:
            faults[acl] = fault(acl)
            if faults[acl] is None and acl not in authorizer:
                fresh.append(acl)
    if len(fresh) > _CREATED_MAX_COUNT:
        text = f"A request may create at most {_CREATED_MAX_COUNT} ACLs."
        raise ClientError(ErrorCode.INVALID_REQUEST, text)

    def take_effect() -> None:
        for acl in fresh:
            authorizer.add(acl)
            context.changed("ACL created", acl=acl)
        tell_data_plane(context.services)

    if fresh:
        records = [record_of(acl, random_uuid()) for acl in fresh]
        yield context.services.store.append(records, take_effect)
    results = []
    for acl in acls:
        results.append(_result(faults[acl]))
        yield
    return {"results": results}


def _acl(asked: Any) -> Acl:
    return Acl(
        asked.resource_type,
        asked.resource_name,
        asked.resource_pattern_type,
        asked.principal,
        asked.host,
        asked.operation,
        asked.permission_type,
    )


def _check_said(acl: Acl, number: int) -> None:
    """Raises MalformedRequestError for "unknown", ClientError for "any" and "match"."""
    said = acl.resource_type, acl.pattern, acl.operation, acl.permission
    if number == UNKNOWN and UNKNOWN in said:
        raise MalformedRequestError("an ACL that says unknown")
    if number == ANY and (ANY in said or acl.pattern == MATCH):
        raise ClientError(ErrorCode.UNKNOWN_SERVER_ERROR, "An ACL cannot say any, or match.")


def _result(wrong: str | None) -> dict[str, Any]:
    if wrong is None:
        return {"error_message": ""}
    return {"error_code": ErrorCode.INVALID_REQUEST, "error_message": wrong}
