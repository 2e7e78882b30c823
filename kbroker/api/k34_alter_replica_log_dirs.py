"""AlterReplicaLogDirs: move replicas between log directories (KIP-113).

Behavior: there is one log directory, in which every replica is already. A directory or replica that
is not there is an error of that partition; of several directories for one the last counts.

Version notes:
  v2: flexible.
"""

from __future__ import annotations

from typing import Any, Final

from kbroker.api.context import Context
from kbroker.api.registry import Response, register
from kbroker.api.rights import require_cluster
from kbroker.errors import ErrorCode
from kbroker.protocol import ApiKey
from kbroker.security.acls import ALTER

_NAME_MAX: Final = 255
_FUTURE_CHARS: Final = len("-.") + 32 + len("-future")  # behind topic and partition, with a uuid


def _failed(request: Any, code: int, message: str) -> Response:
    return _answer(dict.fromkeys(_asked(request), code))


@register(ApiKey.ALTER_REPLICA_LOG_DIRS, 1, 2, failed=_failed)
def alter_replica_log_dirs(request: Any, context: Context) -> Response:
    """Answer an AlterReplicaLogDirs request."""
    require_cluster(context, ALTER)
    return _answer({key: _alter(context, *key, path) for key, path in _asked(request).items()})


def _asked(request: Any) -> dict[tuple[str, int], str]:
    return {
        (topic.name, index): directory.path
        for directory in request.dirs
        for topic in directory.topics
        for index in topic.partitions
    }


def _alter(context: Context, topic: str, index: int, path: str) -> int:
    logs = context.services.logs
    if len(topic) + len(str(index)) + _FUTURE_CHARS > _NAME_MAX:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    if path != str(logs.directory.absolute()):
        return ErrorCode.LOG_DIR_NOT_FOUND
    if (topic, index) in logs.offline:
        return ErrorCode.KAFKA_STORAGE_ERROR
    if logs.get(topic, index) is not None:
        return ErrorCode.NONE
    if context.image.partition(topic, index) is not None:
        return ErrorCode.REPLICA_NOT_AVAILABLE
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _answer(codes: dict[tuple[str, int], int]) -> Response:
    topics: dict[str, list[dict[str, int]]] = {}
    for (topic, index), code in codes.items():
        topics.setdefault(topic, []).append({"partition_index": index, "error_code": code})
    return {
        "results": [{"topic_name": name, "partitions": parts} for name, parts in topics.items()]
    }
