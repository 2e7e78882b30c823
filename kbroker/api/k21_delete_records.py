"""DeleteRecords: move a partition's log start offset up.

Behavior: offset -1 means the end of the log; an offset below the log start changes nothing, one
above the end is OFFSET_OUT_OF_RANGE. Records that are not durable yet, which acks=1 acknowledges,
are waited for. Internal topics, and topics that are compacted and not deleted from, are refused.
The low watermark of the answer is the log start offset.

Version notes:
  v2: flexible.
"""

from __future__ import annotations

from typing import Any, NamedTuple

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
from kbroker.storage.manager import LogPort

_LOG_END = -1
_NO_WATERMARK = -1


class _Cut(NamedTuple):
    """A partition whose records below `before` are to go; without a log it is refused."""

    topic: str
    partition: int
    code: ErrorCode
    log: LogPort | None = None
    before: int = 0


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
    cuts = yield from _plan(request, context, hidden)
    late = yield from durable_up_to(
        context, [(cut.log, cut.before) for cut in cuts if cut.log is not None]
    )
    planned = iter(cuts)
    topics = []
    for topic in request.topics:
        partitions = []
        for _ in topic.partitions:
            yield
            partitions.append(_carry_out(context, next(planned), late))
        topics.append({"name": topic.name, "partitions": partitions})
    return {"topics": topics}


def _plan(request: Any, context: Context, hidden: frozenset[str]) -> Steps[list[_Cut]]:
    """What is to be done with each partition, in the order of the request."""
    cuts = []
    for topic in request.topics:
        for one in topic.partitions:
            yield
            if topic.name in hidden:
                code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                cuts.append(_Cut(topic.name, one.partition_index, code))
            else:
                cuts.append(_cut(context, topic.name, one.partition_index, one.offset))
    return cuts


def _cut(context: Context, topic: str, partition: int, offset: int) -> _Cut:
    def refused(code: ErrorCode) -> _Cut:
        return _Cut(topic, partition, code)

    if context.image.partition(topic, partition) is None:
        return refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if topic in INTERNAL_TOPICS:
        return refused(ErrorCode.INVALID_TOPIC_EXCEPTION)
    log = context.services.logs.get(topic, partition)
    if log is None:
        return refused(ErrorCode.KAFKA_STORAGE_ERROR)
    if _only_compacts(context, topic):
        return refused(ErrorCode.POLICY_VIOLATION)
    end = log.log_end_offset
    before = end if offset == _LOG_END else offset
    if not 0 <= before <= end:
        return refused(ErrorCode.OFFSET_OUT_OF_RANGE)
    return _Cut(topic, partition, ErrorCode.NONE, log, before)


def _carry_out(context: Context, cut: _Cut, late: ErrorCode) -> dict[str, Any]:
    """Delete the records; `late` is the error of those that are not durable."""
    log = cut.log
    if log is None:
        return _result(cut.partition, cut.code, _NO_WATERMARK)
    if cut.before > log.high_watermark:
        return _result(cut.partition, late, _NO_WATERMARK)
    if cut.before > log.log_start_offset:
        try:
            log.set_log_start_offset(cut.before)
            context.services.data_plane.wake(log)
            context.changed("records deleted", topic=cut.topic, partition=cut.partition,
                            before=cut.before)  # fmt: skip
        except KbrokerError as error:
            return _result(cut.partition, error.code, _NO_WATERMARK)
    return _result(cut.partition, ErrorCode.NONE, log.log_start_offset)


def _only_compacts(context: Context, topic: str) -> bool:
    overrides = context.image.configs(("topic", topic))
    policies = effective_value(context.config, overrides, "cleanup.policy")
    return isinstance(policies, list) and "compact" in policies and "delete" not in policies


def _result(partition: int, code: int, low_watermark: int) -> dict[str, Any]:
    return {"partition_index": partition, "error_code": code, "low_watermark": low_watermark}
