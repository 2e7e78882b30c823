"""OffsetForLeaderEpoch: where a leader epoch ended, so that a reader can tell truncation.

Behavior: answers the greatest epoch known that is not above the one asked for, and the offset
where the next began; -1 and -1 where none is known. The current epoch ends at the log end, which is
told when it is durable.

Version notes:
  v2: throttle time. v3: replica id. v4: flexible.
"""

from __future__ import annotations

from typing import Any

from kbroker.api.context import Context
from kbroker.api.durability import WAIT_MS, durable_up_to
from kbroker.api.registry import Response, register
from kbroker.api.rights import denied_steps, may_cluster
from kbroker.errors import ErrorCode, KbrokerError
from kbroker.operations import Steps
from kbroker.protocol import ApiKey
from kbroker.security.acls import CLUSTER_ACTION, DESCRIBE, TOPIC

_UNDEFINED = -1


def _failed(request: Any, code: int, message: str) -> Response:
    return {
        "topics": [
            {
                "topic": topic.topic,
                "partitions": [_result(one.partition, code) for one in topic.partitions],
            }
            for topic in request.topics
        ]
    }


@register(
    ApiKey.OFFSET_FOR_LEADER_EPOCH, 2, 4, failed=_failed, timeout=lambda request, context: WAIT_MS
)
def offset_for_leader_epoch(request: Any, context: Context) -> Steps[Response]:
    """Answer an OffsetForLeaderEpoch request."""
    hidden: frozenset[str] = frozenset()
    if not may_cluster(context, CLUSTER_ACTION, tell=False):
        names = (topic.topic for topic in request.topics)
        hidden = yield from denied_steps(context, DESCRIBE, TOPIC, names)
    no = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    topics = []
    for topic in request.topics:
        partitions = []
        for each in topic.partitions:
            yield
            if topic.topic in hidden:
                partitions.append(_result(each.partition, no))
            else:
                partitions.append((yield from _partition(context, topic.topic, each)))
        topics.append({"topic": topic.topic, "partitions": partitions})
    return {"topics": topics}


def _partition(context: Context, topic: str, asked: Any) -> Steps[dict[str, Any]]:
    state = context.image.partition(topic, asked.partition)
    if state is None:
        return _result(asked.partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    log = context.services.logs.get(topic, asked.partition)
    if log is None:
        return _result(asked.partition, ErrorCode.KAFKA_STORAGE_ERROR)
    code = _check_epoch(asked.current_leader_epoch, state.leader_epoch)
    if code is not ErrorCode.NONE:
        return _result(asked.partition, code)
    try:
        epoch, end_offset = log.end_offset_for_epoch(asked.leader_epoch)
    except KbrokerError as error:
        return _result(asked.partition, error.code)
    if end_offset > log.high_watermark and not (yield durable_up_to(context, log, end_offset)):
        return _result(asked.partition, ErrorCode.KAFKA_STORAGE_ERROR)
    return _result(asked.partition, ErrorCode.NONE, epoch, end_offset)


def _check_epoch(told: int, known: int) -> ErrorCode:
    """What a reader that tells its leader epoch is answered; -1 tells none."""
    if told in (_UNDEFINED, known):
        return ErrorCode.NONE
    return ErrorCode.FENCED_LEADER_EPOCH if told < known else ErrorCode.UNKNOWN_LEADER_EPOCH


def _result(
    partition: int, code: int, epoch: int = _UNDEFINED, end_offset: int = _UNDEFINED
) -> dict[str, Any]:
    return {
        "partition": partition,
        "error_code": code,
        "leader_epoch": epoch,
        "end_offset": end_offset,
    }
