"""ListPartitionReassignments: replicas that are on the move.

Behavior: with one broker there are none.
"""

from __future__ import annotations

from typing import Any

from kbroker.api.context import Context
from kbroker.api.registry import Response, register
from kbroker.api.rights import require_cluster
from kbroker.protocol import ApiKey
from kbroker.security.acls import DESCRIBE


def _failed(request: Any, code: int, message: str) -> Response:
    topics = [
        {
            "name": topic.name,
            "partitions": [{"partition_index": index} for index in topic.partition_indexes],
        }
        for topic in request.topics or ()
    ]
    return {"error_code": code, "error_message": message, "topics": topics}


@register(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, 0, failed=_failed)
def list_partition_reassignments(request: Any, context: Context) -> Response:
    """Answer a ListPartitionReassignments request."""
    require_cluster(context, DESCRIBE)
    return {"error_message": None, "topics": []}
