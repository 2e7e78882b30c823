"""AlterPartitionReassignments: move replicas between brokers.

Behavior: there is one broker, so a reassignment to it alone is done already, any other names a
broker that is not registered, and none is ever under way that could be cancelled.

Version notes:
  v1: the request says whether the number of replicas may change.
"""

from __future__ import annotations

from typing import Any

from kbroker.api.context import NO_ERROR, ApiError, Context
from kbroker.api.durations import client_timeout_ms
from kbroker.api.registry import Response, register
from kbroker.api.rights import require_cluster
from kbroker.api.topic_creation import check_replicas
from kbroker.errors import ClientError, ErrorCode
from kbroker.operations import Steps
from kbroker.protocol import ApiKey
from kbroker.security.acls import ALTER


def _failed(request: Any, code: int, message: str) -> Response:
    error = {"error_code": code, "error_message": message}
    responses = [
        {
            "name": topic.name,
            "partitions": [
                {"partition_index": one.partition_index, **error} for one in topic.partitions
            ],
        }
        for topic in request.topics
    ]
    return {**error, "responses": responses}


@register(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, 1, failed=_failed, timeout=client_timeout_ms)
def alter_partition_reassignments(request: Any, context: Context) -> Steps[Response]:
    """Answer an AlterPartitionReassignments request."""
    require_cluster(context, ALTER)
    responses = []
    for topic in request.topics:
        partitions = []
        for one in topic.partitions:
            yield
            error = yield from _alter(context, topic.name, one)
            partitions.append(
                {
                    "partition_index": one.partition_index,
                    "error_code": error.code,
                    "error_message": error.message,
                }
            )
        responses.append({"name": topic.name, "partitions": partitions})
    return {
        "allow_replication_factor_change": getattr(
            request, "allow_replication_factor_change", True
        ),
        "error_message": None if responses else "",
        "responses": responses,
    }


def _alter(context: Context, topic: str, asked: Any) -> Steps[ApiError]:
    if context.image.partition(topic, asked.partition_index) is None:
        text = f"Unable to find a topic named {topic}."
        if topic in context.image.topics:
            text = f"Unable to find partition {topic}:{asked.partition_index}."
        return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
    if asked.replicas is None:
        return ApiError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    try:
        yield from check_replicas(context.services, asked.replicas)
    except ClientError as error:
        return ApiError.of(error)
    return NO_ERROR
