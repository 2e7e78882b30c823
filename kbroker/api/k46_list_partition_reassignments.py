"""ListPartitionReassignments: replicas that are on the move.

Behavior: with one broker there are none.
"""

from __future__ import annotations

from typing import Any

from kbroker.api.context import Context
from kbroker.api.registry import Response, register
from kbroker.protocol import ApiKey


@register(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, 0)
def list_partition_reassignments(request: Any, context: Context) -> Response:
    """Answer a ListPartitionReassignments request."""
    return {"error_message": None, "topics": []}
