"""ListOffsets: offsets of a partition by what they mean, or by time.

Behavior: timestamps below zero have a meaning: -1 the end that the reader may see (high watermark,
or last stable offset with read_committed), -2 the log start offset, -3 the record with the
greatest timestamp, -4 the start of what is on local disk, which is the log start, -5 the end of
what is in tiered storage and -6 the start of what is not yet there, both of which nothing is here.
A time gets the first record at or after it; none gets offset -1. A partition that is asked for
more than once is refused, once.

Version notes:
  v2: isolation level. v4: leader epochs. v6: flexible. v7: -3. v8: -4. v9: -5. v11: -6.
  A timestamp that a version does not have gets UNSUPPORTED_VERSION.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from kbroker.api.context import Context
from kbroker.api.registry import Response, register
from kbroker.api.rights import denied
from kbroker.errors import ErrorCode, KbrokerError
from kbroker.protocol import ApiKey
from kbroker.security.acls import DESCRIBE, TOPIC
from kbroker.storage.manager import LogPort

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -4, -5, -6
_READ_COMMITTED = 1
_NONE = -1
_CONSUMER = -1
_FIRST_VERSION: Final = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}

Found = tuple[int, int, int]
_NOTHING: Final[Found] = (_NONE, _NONE, _NONE)


def _failed(request: Any, code: int, message: str) -> Response:
    return {
        "topics": [
            {
                "name": topic.name,
                "partitions": [_result(one.partition_index, code) for one in topic.partitions],
            }
            for topic in request.topics
        ]
    }


@register(ApiKey.LIST_OFFSETS, 1, 11, failed=_failed)
def list_offsets(request: Any, context: Context) -> Response:
    """Answer a ListOffsets request."""
    counts: dict[str, Counter[int]] = {}
    for topic in request.topics:
        asked = (one.partition_index for one in topic.partitions)
        counts.setdefault(topic.name, Counter()).update(asked)
    repeated = {
        name: {index for index, count in found.items() if count > 1}
        for name, found in counts.items()
    }
    hidden = denied(context, DESCRIBE, TOPIC, repeated)
    topics = []
    for topic in request.topics:
        if topic.name in hidden:
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            refused = [_result(one.partition_index, code) for one in topic.partitions]
            topics.append({"name": topic.name, "partitions": refused})
            continue
        twice = repeated[topic.name]
        partitions = [_result(index, ErrorCode.INVALID_REQUEST) for index in sorted(twice)]
        partitions += [
            _partition(request, context, topic.name, one)
            for one in topic.partitions
            if one.partition_index not in twice
        ]
        topics.append({"name": topic.name, "partitions": partitions})
    return {"topics": topics}


def _partition(request: Any, context: Context, topic: str, asked: Any) -> dict[str, Any]:
    index = asked.partition_index
    if asked.timestamp < 0 and context.version < _FIRST_VERSION.get(asked.timestamp, 1 << 15):
        return _result(index, ErrorCode.UNSUPPORTED_VERSION)
    state = context.image.partition(topic, index)
    if state is None:
        return _result(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    log = context.services.logs.get(topic, index)
    if log is None:
        return _result(index, ErrorCode.KAFKA_STORAGE_ERROR)
    code = check_epoch(getattr(asked, "current_leader_epoch", _NONE), state.leader_epoch)
    if code is not ErrorCode.NONE:
        return _result(index, code)
    try:
        found = _look_up(log, asked.timestamp, _limit(request, log))
    except KbrokerError as error:
        return _result(index, error.code)
    return _result(index, ErrorCode.NONE, found)


def check_epoch(told: int, known: int) -> ErrorCode:
    """What a reader that tells its leader epoch is answered; -1 tells none."""
    if told in (_NONE, known):
        return ErrorCode.NONE
    return ErrorCode.FENCED_LEADER_EPOCH if told < known else ErrorCode.UNKNOWN_LEADER_EPOCH


def _limit(request: Any, log: LogPort) -> int:
    """The end of what the asker may see."""
    if request.replica_id != _CONSUMER:
        return log.log_end_offset
    if getattr(request, "isolation_level", 0) == _READ_COMMITTED:
        return log.last_stable_offset
    return log.high_watermark


def _look_up(log: LogPort, timestamp: int, limit: int) -> Found:
    """(offset, timestamp, leader epoch), -1 for what there is not."""
    if timestamp == LATEST:
        return limit, _NONE, log.leader_epoch
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return log.log_start_offset, _NONE, log.leader_epoch
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return _NOTHING
    if timestamp == MAX_TIMESTAMP:
        found = log.offset_of_max_timestamp()
    else:
        found = log.offset_for_timestamp(timestamp)
    hidden = timestamp != MAX_TIMESTAMP or limit < log.high_watermark
    if found is None or (found[0] >= limit and hidden):
        return _NOTHING
    return found


def _result(index: int, code: int, found: Found = _NOTHING) -> dict[str, Any]:
    offset, timestamp, epoch = found
    return {
        "partition_index": index,
        "error_code": code,
        "offset": offset,
        "timestamp": timestamp,
        "leader_epoch": epoch,
    }
