"""DescribeProducers: what a partition knows of its producers, their open transactions among it."""

from __future__ import annotations

from typing import Any

from kbroker.api.context import Context
from kbroker.api.registry import Response, register
from kbroker.api.rights import denied_steps
from kbroker.api.topic_names import name_fault
from kbroker.errors import ErrorCode
from kbroker.operations import Steps, collect
from kbroker.protocol import ApiKey
from kbroker.security.acls import READ, TOPIC


def _failed(request: Any, code: int, message: str) -> Response:
    return {
        "topics": [
            {
                "name": topic.name,
                "partitions": [_error(index, code) for index in topic.partition_indexes],
            }
            for topic in request.topics
        ]
    }


@register(ApiKey.DESCRIBE_PRODUCERS, 0, 0, failed=_failed)
def describe_producers(request: Any, context: Context) -> Steps[Response]:
    """Answer a DescribeProducers request."""
    wanted: dict[str, dict[int, None]] = {}
    for topic in request.topics:
        wanted.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    names = (name for name in wanted if name_fault(name) is None)
    hidden = yield from denied_steps(context, READ, TOPIC, names)
    no = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    topics = []
    for name, indexes in wanted.items():
        partitions = yield from collect(
            _error(index, no, no.message) if name in hidden else _partition(context, name, index)
            for index in indexes
        )
        topics.append({"name": name, "partitions": partitions})
    return {"topics": topics}


def _partition(context: Context, topic: str, index: int) -> dict[str, Any]:
    fault = name_fault(topic)
    if fault is not None:
        return _error(index, ErrorCode.INVALID_TOPIC_EXCEPTION, fault)
    if topic not in context.image.topics:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return _error(index, code, code.message)
    if context.image.partition(topic, index) is None:
        return _error(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    log = context.services.logs.get(topic, index)
    if log is None:
        return _error(index, ErrorCode.KAFKA_STORAGE_ERROR)
    return {
        "partition_index": index,
        "active_producers": [
            {
                "producer_id": producer_id,
                "producer_epoch": epoch,
                "last_sequence": last_sequence,
                "last_timestamp": last_timestamp,
                "coordinator_epoch": coordinator_epoch,
                "current_txn_start_offset": first_offset,
            }
            for (
                producer_id,
                epoch,
                last_sequence,
                last_timestamp,
                coordinator_epoch,
                first_offset,
            ) in log.producers()
        ],
    }


def _error(index: int, code: int, message: str | None = None) -> dict[str, Any]:
    return {
        "partition_index": index,
        "error_code": code,
        "error_message": message,
        "active_producers": [],
    }
