"""DescribeCluster: cluster id, controller and brokers.

Version notes:
  v1: the request says whether brokers or controllers are wanted (KIP-919); a broker answers only
  for brokers. v2: fenced brokers may be asked for; this one is not fenced.
"""

from __future__ import annotations

from typing import Any

from kbroker.api.context import Context
from kbroker.api.k03_metadata import address
from kbroker.api.registry import Response, register
from kbroker.api.rights import NOT_ASKED, cluster_operations
from kbroker.errors import ClientError, ErrorCode
from kbroker.protocol import ApiKey

_BROKERS, _CONTROLLERS = 1, 2


@register(ApiKey.DESCRIBE_CLUSTER, 0, 2)
def describe_cluster(request: Any, context: Context) -> Response:
    """Answer a DescribeCluster request."""
    wanted = getattr(request, "endpoint_type", _BROKERS)
    if wanted == _CONTROLLERS:
        raise ClientError(
            ErrorCode.MISMATCHED_ENDPOINT_TYPE, "This is a broker's endpoint, not a controller's."
        )
    if wanted != _BROKERS:
        raise ClientError(
            ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"There is no endpoint type {wanted}."
        )
    asked = request.include_cluster_authorized_operations
    return {
        "error_message": None,
        "endpoint_type": _BROKERS,
        "cluster_id": context.services.store.meta.cluster_id,
        "controller_id": context.node_id,
        "brokers": [{"broker_id": context.node_id, **address(context)}],
        "cluster_authorized_operations": cluster_operations(context) if asked else NOT_ASKED,
    }
