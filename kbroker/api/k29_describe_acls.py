"""DescribeAcls: who may do what.

Behavior: the ACLs that a filter means, by resource; one of a kind that is not known means none. A
filter that says "unknown" closes the connection, as with Apache Kafka. Without an authorizer:
SECURITY_DISABLED.

Version notes:
  v2: flexible. v3: resources of users.
"""

from __future__ import annotations

from typing import Any

from kbroker.api.context import Context
from kbroker.api.registry import Response, register
from kbroker.api.rights import require_cluster
from kbroker.errors import ClientError, ErrorCode
from kbroker.operations import Steps
from kbroker.protocol import ApiKey, MalformedRequestError
from kbroker.security.acls import DESCRIBE, UNKNOWN, Acl, Authorizer, Filter


@register(ApiKey.DESCRIBE_ACLS, 1, 3)
def describe_acls(request: Any, context: Context) -> Steps[Response]:
    """Answer a DescribeAcls request."""
    wanted = filter_of(request)
    require_cluster(context, DESCRIBE)
    resources: dict[tuple[int, str, int], list[dict[str, Any]]] = {}
    authorizer = authorizer_of(context, "No Authorizer is configured on the broker")
    for acl in authorizer.acls(wanted.takes):
        yield
        resource = acl.resource_type, acl.name, acl.pattern
        resources.setdefault(resource, []).append(
            {
                "principal": acl.principal,
                "host": acl.host,
                "operation": acl.operation,
                "permission_type": acl.permission,
            }
        )
    return {
        "error_message": "",
        "resources": [
            {"resource_type": kind, "resource_name": name, "pattern_type": pattern, "acls": found}
            for (kind, name, pattern), found in resources.items()
        ],
    }


def authorizer_of(context: Context, missing: str = "No Authorizer is configured.") -> Authorizer:
    """Raise ClientError with the text `missing` where there is none."""
    authorizer = context.services.authorizer
    if authorizer is None:
        raise ClientError(ErrorCode.SECURITY_DISABLED, missing)
    return authorizer


def filter_of(asked: Any) -> Filter:
    """A filter of a request. Raises MalformedRequestError for one that says "unknown"."""
    found = Filter(
        asked.resource_type_filter,
        asked.resource_name_filter,
        asked.pattern_type_filter,
        asked.principal_filter,
        asked.host_filter,
        asked.operation,
        asked.permission_type,
    )
    if UNKNOWN in (found.resource_type, found.pattern, found.operation, found.permission):
        raise MalformedRequestError("a filter of ACLs that says unknown")
    return found


def told(acl: Acl) -> dict[str, Any]:
    """An ACL with its resource, as DeleteAcls tells it."""
    return {
        "resource_type": acl.resource_type,
        "resource_name": acl.name,
        "pattern_type": acl.pattern,
        "principal": acl.principal,
        "host": acl.host,
        "operation": acl.operation,
        "permission_type": acl.permission,
    }
