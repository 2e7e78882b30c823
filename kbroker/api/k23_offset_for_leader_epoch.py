"""OffsetForLeaderEpoch: where a leader epoch ended, so that a reader can tell truncation.

Behavior: answers the greatest epoch known that is not above the one asked for, and the offset
where the next began; -1 and -1 where none is known. The current epoch ends at the log end, which is
told when it is durable.

Version notes:
  v2: throttle time. v3: replica id. v4: flexible.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from kbroker.api.context import Context
from kbroker.api.durability import WAIT_MS, durable_up_to
from kbroker.api.registry import Response, register
from kbroker.api.rights import denied_steps, may_cluster
from kbroker.errors import ErrorCode, KbrokerError
from kbroker.operations import Steps
from kbroker.protocol import ApiKey
from kbroker.security.acls import CLUSTER_ACTION, DESCRIBE, TOPIC
from kbroker.storage.manager import LogPort

_UNDEFINED = -1


class _End(NamedTuple):
    """Where an epoch of a partition ends; without a log the partition is refused."""

    partition: int
    code: ErrorCode
    log: LogPort | None = None
    epoch: int = _UNDEFINED
    offset: int = _UNDEFINED


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
    ends = yield from _find(request, context, hidden)
    late = yield from durable_up_to(
        context, [(end.log, end.offset) for end in ends if end.log is not None]
    )
    found = iter(ends)
    topics = []
    for topic in request.topics:
        partitions = []
        for _ in topic.partitions:
            yield
            partitions.append(_answer(next(found), late))
        topics.append({"topic": topic.topic, "partitions": partitions})
    return {"topics": topics}


def _find(request: Any, context: Context, hidden: frozenset[str]) -> Steps[list[_End]]:
    """The ends of all partitions, in the order of the request."""
    ends = []
    for topic in request.topics:
        for each in topic.partitions:
            yield
            if topic.topic in hidden:
                ends.append(_End(each.partition, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
            else:
                ends.append(_end(context, topic.topic, each))
    return ends


def _end(context: Context, topic: str, asked: Any) -> _End:
    state = context.image.partition(topic, asked.partition)
    if state is None:
        return _End(asked.partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    log = context.services.logs.get(topic, asked.partition)
    if log is None:
        return _End(asked.partition, ErrorCode.KAFKA_STORAGE_ERROR)
    code = _check_epoch(asked.current_leader_epoch, state.leader_epoch)
    if code is not ErrorCode.NONE:
        return _End(asked.partition, code)
    try:
        epoch, offset = log.end_offset_for_epoch(asked.leader_epoch)
    except KbrokerError as error:
        return _End(asked.partition, error.code)
    return _End(asked.partition, ErrorCode.NONE, log, epoch, offset)


def _answer(end: _End, late: ErrorCode) -> dict[str, Any]:
    """`late` is the error of what is not durable."""
    if end.log is None:
        return _result(end.partition, end.code)
    if end.offset > end.log.high_watermark:
        return _result(end.partition, late)
    return _result(end.partition, ErrorCode.NONE, end.epoch, end.offset)


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
