"""CreateAcls: allow and deny.

Behavior: refused, one by one, as nothing here would obey them (see DescribeAcls).

Version notes:
  v2: flexible. v3: resources of users.
"""

from __future__ import annotations

from typing import Any

from kbroker.api.context import Context
from kbroker.api.k29_describe_acls import refuse_acls
from kbroker.api.registry import Response, register
from kbroker.protocol import ApiKey


def _failed(request: Any, code: int, message: str) -> Response:
    return {"results": [{"error_code": code, "error_message": message} for _ in request.creations]}


@register(ApiKey.CREATE_ACLS, 1, 3, failed=_failed)
def create_acls(request: Any, context: Context) -> Response:
    """Answer a CreateAcls request: always with errors."""
    refuse_acls()
    return {}
