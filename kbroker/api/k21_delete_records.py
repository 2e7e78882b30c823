"""DeleteRecords: move a partition's log start offset up.

Behavior: offset -1 means the end of the log; an offset below the log start changes nothing, one
above the end is OFFSET_OUT_OF_RANGE. Records that are not durable yet, which acks=1 acknowledges,
are waited for. Internal topics, and topics that are compacted and not deleted from, are refused.
The low watermark of the answer is the log start offset.

Version notes:
  v2: flexible.
"""

from __future__ import annotations

from typing import Any

from kbroker.api.context import Context
from kbroker.api.durability import WAIT_MS, durable_up_to
from kbroker.api.durations import client_timeout_ms
from kbroker.api.registry import Response, register
from kbroker.api.rights import denied_steps
from kbroker.api.topic_names import INTERNAL_TOPICS
from kbroker.config.topic import effective_value
from kbroker.errors import ErrorCode, KbrokerError
from kbroker.operations import Steps
from kbroker.protocol import ApiKey
from kbroker.security.acls import DELETE, TOPIC

_LOG_END = -1
_NO_WATERMARK = -1


def _failed(request: Any, code: int, message: str) -> Response:
    return {
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    _result(one.partition_index, code, _NO_WATERMARK) for one in topic.partitions
                ],
            }
            for topic in request.topics
        ]
    }


def _timeout(request: Any, context: Context) -> int:
    return max(client_timeout_ms(request, context), WAIT_MS)


@register(ApiKey.DELETE_RECORDS, 0, 2, failed=_failed, timeout=_timeout)
def delete_records(request: Any, context: Context) -> Steps[Response]:
    """Answer a DeleteRecords request."""
    names = (topic.name for topic in request.topics)
    hidden = yield from denied_steps(context, DELETE, TOPIC, names)
    topics = []
    for topic in request.topics:
        partitions = []
        if topic.name in hidden:
            code, none = ErrorCode.TOPIC_AUTHORIZATION_FAILED, _NO_WATERMARK
            partitions = [_result(one.partition_index, code, none) for one in topic.partitions]
            topics.append({"name": topic.name, "partitions": partitions})
            continue
        for one in topic.partitions:
            yield
            code, low_watermark = yield from _delete(
                context, topic.name, one.partition_index, one.offset
            )
            partitions.append(_result(one.partition_index, code, low_watermark))
        topics.append({"name": topic.name, "partitions": partitions})
    return {"topics": topics}


def _delete(
    context: Context, topic: str, partition: int, offset: int
) -> Steps[tuple[ErrorCode, int]]:
    """The error code and the log start offset after it."""
    if context.image.partition(topic, partition) is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, _NO_WATERMARK
    if topic in INTERNAL_TOPICS:
        return ErrorCode.INVALID_TOPIC_EXCEPTION, _NO_WATERMARK
    log = context.services.logs.get(topic, partition)
    if log is None:
        return ErrorCode.KAFKA_STORAGE_ERROR, _NO_WATERMARK
    if _only_compacts(context, topic):
        return ErrorCode.POLICY_VIOLATION, _NO_WATERMARK
    end = log.log_end_offset
    wanted = end if offset == _LOG_END else offset
    if not 0 <= wanted <= end:
        return ErrorCode.OFFSET_OUT_OF_RANGE, _NO_WATERMARK
    if wanted > log.high_watermark and not (yield durable_up_to(context, log, wanted)):
        return ErrorCode.KAFKA_STORAGE_ERROR, _NO_WATERMARK
    if wanted > log.log_start_offset:
        try:
            log.set_log_start_offset(wanted)
            context.services.data_plane.wake(log)
            context.changed("records deleted", topic=topic, partition=partition, before=wanted)
        except KbrokerError as error:
            return error.code, _NO_WATERMARK
    return ErrorCode.NONE, log.log_start_offset


def _only_compacts(context: Context, topic: str) -> bool:
    overrides = context.image.configs(("topic", topic))
    policies = effective_value(context.config, overrides, "cleanup.policy")
    return isinstance(policies, list) and "compact" in policies and "delete" not in policies


def _result(partition: int, code: int, low_watermark: int) -> dict[str, Any]:
    return {"partition_index": partition, "error_code": code, "low_watermark": low_watermark}
