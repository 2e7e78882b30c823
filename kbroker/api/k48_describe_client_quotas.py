"""DescribeClientQuotas: the quotas that were set, by entity (KIP-546).

Behavior: entities that have every component of the filter, named, the default, or any; strict: and
no other component. A filter without components, not strict, is all of them.

Version notes:
  v1: flexible.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kbroker.api.context import Context
from kbroker.api.registry import Response, register
from kbroker.api.rights import require_cluster
from kbroker.errors import ClientError, ErrorCode
from kbroker.metadata.image import QuotaEntity
from kbroker.operations import Steps
from kbroker.protocol import ApiKey
from kbroker.security.acls import DESCRIBE_CONFIGS
from kbroker.security.quotas import CLIENT_ID, IP, USER

_EXACT, _DEFAULT, _ANY = range(3)
_ANYTHING: Final = object()


def _failed(request: Any, code: int, message: str) -> Response:
    return {"error_code": code, "error_message": message, "entries": None}


@register(ApiKey.DESCRIBE_CLIENT_QUOTAS, 0, 1, failed=_failed)
def describe_client_quotas(request: Any, context: Context) -> Steps[Response]:
    """Answer a DescribeClientQuotas request."""
    require_cluster(context, DESCRIBE_CONFIGS)
    wanted = _filter(request.components)
    entries = []
    for entity, quotas in list(context.image.quotas.items()):
        yield
        if _fits(entity, wanted, strict=request.strict):
            entries.append({
                "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity],
                "values": [{"key": key, "value": record.value} for key, record in quotas.items()],
            })  # fmt: skip
    return {"error_message": "", "entries": entries}


def _filter(components: Any) -> dict[str, Any]:
    """By kind the name that is wanted. Raises ClientError."""
    wanted: dict[str, Any] = {}
    for one in components:
        kind = one.entity_type
        if not kind or kind in wanted:
            raise ClientError(
                ErrorCode.INVALID_REQUEST, "An entity type of the filter is empty or there twice."
            )
        if kind not in (USER, CLIENT_ID, IP):
            raise ClientError(ErrorCode.UNSUPPORTED_VERSION, f"Unknown entity type {kind}.")
        if one.match_type not in (_EXACT, _DEFAULT, _ANY):
            raise ClientError(ErrorCode.INVALID_REQUEST, f"Unknown match type {one.match_type}.")
        if (one.match_type == _EXACT) != (one.match is not None):
            raise ClientError(
                ErrorCode.INVALID_REQUEST, "A name belongs to an exact match, and only to that."
            )
        wanted[kind] = _ANYTHING if one.match_type == _ANY else one.match
    if IP in wanted and len(wanted) > 1:
        raise ClientError(ErrorCode.INVALID_REQUEST, "An address has neither user nor client id.")
    return wanted


def _fits(entity: QuotaEntity, wanted: Mapping[str, Any], *, strict: bool) -> bool:
    names = dict(entity)
    if strict and len(names) != len(wanted):
        return False
    return all(
        kind in names and (name is _ANYTHING or names[kind] == name)
        for kind, name in wanted.items()
    )
