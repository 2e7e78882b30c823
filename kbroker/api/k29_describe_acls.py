"""DescribeAcls: who may do what.

Behavior: there is no authorizer, so everybody may do everything and no rules are kept; Apache Kafka
answers the same where `authorizer.class.name` is not set.

Version notes:
  v2: flexible. v3: resources of users.
"""

from __future__ import annotations

from typing import Any

from kbroker.api.context import Context
from kbroker.api.registry import Response, register
from kbroker.errors import ClientError, ErrorCode
from kbroker.protocol import ApiKey


@register(ApiKey.DESCRIBE_ACLS, 1, 3)
def describe_acls(request: Any, context: Context) -> Response:
    """Answer a DescribeAcls request: always with an error."""
    refuse_acls()
    return {}


def refuse_acls() -> None:
    """Raises ClientError."""
    raise ClientError(ErrorCode.SECURITY_DISABLED, "There is no authorizer on this broker.")
