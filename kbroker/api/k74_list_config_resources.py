"""ListConfigResources: what settings can belong to (KIP-1142).

Behavior: groups and client metrics subscriptions are those for which something was set; topics and
the broker are all there are. One unknown type refuses the whole request.

Version notes:
  v0: subscriptions to client metrics alone. v1: types; none means all.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from kbroker.api.config_resources import BROKER_LOGGERS, BROKERS, CLIENT_METRICS, GROUPS, TOPICS
from kbroker.api.context import Context
from kbroker.api.registry import Response, register
from kbroker.api.rights import require_cluster
from kbroker.errors import ErrorCode
from kbroker.operations import Steps, collect
from kbroker.protocol import ApiKey
from kbroker.security.acls import DESCRIBE_CONFIGS

_KINDS: Final = (GROUPS, CLIENT_METRICS, BROKER_LOGGERS, BROKERS, TOPICS)


def _failed(request: Any, code: int, message: str) -> Response:
    return {"error_code": code, "config_resources": []}


@register(ApiKey.LIST_CONFIG_RESOURCES, 0, 1, failed=_failed)
def list_config_resources(request: Any, context: Context) -> Steps[Response]:
    """Answer a ListConfigResources request."""
    require_cluster(context, DESCRIBE_CONFIGS)
    known = (CLIENT_METRICS,) if context.version == 0 else _KINDS
    wanted = set(getattr(request, "resource_types", ())) or set(known)
    if not wanted.issubset(known):
        return _failed(request, ErrorCode.UNSUPPORTED_VERSION, "")
    resources = yield from collect(
        {"resource_type": kind, "resource_name": name}
        for kind in known
        if kind in wanted
        for name in list(_names(context, kind))
    )
    return {"config_resources": resources}


def _names(context: Context, kind: int) -> Iterable[str]:
    image = context.image
    if kind == TOPICS:
        return image.topics
    if kind in (BROKERS, BROKER_LOGGERS):
        return (str(context.node_id),)
    wanted = "group" if kind == GROUPS else "client_metrics"
    return (name for found, name in image.config_resources() if found == wanted)
