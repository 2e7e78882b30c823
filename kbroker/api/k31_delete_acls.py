"""DeleteAcls: take ACLs away.

Behavior: each filter is answered with the ACLs that it means, all of which go in one append; what
they allowed is not allowed any more when the answer leaves. One that several filters mean is told
by each. A filter with a number that is not known fails by itself; one that says "unknown" closes
the connection, as with Apache Kafka.

Version notes:
  v2: flexible. v3: resources of users.
"""

from __future__ import annotations

from typing import Any, Final

from kbroker.api.authorizing import acl_of, tell_data_plane
from kbroker.api.context import Context
from kbroker.api.k29_describe_acls import authorizer_of, filter_of, told
from kbroker.api.registry import Response, register
from kbroker.api.rights import require_cluster
from kbroker.errors import ClientError, ErrorCode
from kbroker.metadata.records.access import RemoveAccessControlEntryRecord
from kbroker.operations import Completion, Steps
from kbroker.protocol import ApiKey
from kbroker.security.acls import ALTER, Acl

_DELETED_MAX_COUNT: Final = 10_000  # as Apache Kafka
_ANSWERED_MAX_COUNT: Final = 100_000  # each by each filter that means it


def _failed(request: Any, code: int, message: str) -> Response:
    results = [{"error_code": code, "error_message": message} for _ in request.filters]
    return {"filter_results": results}


@register(ApiKey.DELETE_ACLS, 1, 3, failed=_failed, changes=True)
def delete_acls(request: Any, context: Context) -> Steps[Response]:
    """Answer a DeleteAcls request."""
    filters = []
    for each in request.filters:
        filters.append(filter_of(each))
        yield
    require_cluster(context, ALTER)
    authorizer = authorizer_of(context)
    results = []
    doomed: dict[Acl, None] = {}
    answered = 0
    for wanted in filters:
        yield
        if wanted.unknown:
            text = "The filter says something that this broker does not know."
            results.append({"error_code": ErrorCode.INVALID_REQUEST, "error_message": text})
            continue
        found = authorizer.acls(wanted.takes)
        doomed.update(dict.fromkeys(found))
        matching = [{"error_message": None, **told(acl)} for acl in found]
        results.append({"error_message": None, "matching_acls": matching})
        answered += len(found)
        if len(doomed) > _DELETED_MAX_COUNT or answered > _ANSWERED_MAX_COUNT:
            raise ClientError(
                ErrorCode.INVALID_REQUEST,
                f"A request may delete at most {_DELETED_MAX_COUNT} ACLs.",
            )
    if doomed:
        yield _delete(context, doomed)
    return {"filter_results": results}


def _delete(context: Context, doomed: dict[Acl, None]) -> Completion[None]:
    services = context.services
    gone = [one.id for one in services.image.acls.values() if acl_of(one) in doomed]

    def take_effect() -> None:
        assert services.authorizer is not None
        for acl in doomed:
            services.authorizer.remove(acl)
            context.changed("ACL deleted", acl=acl)
        tell_data_plane(services)

    records = [RemoveAccessControlEntryRecord(each) for each in gone]
    return services.store.append(records, take_effect)
