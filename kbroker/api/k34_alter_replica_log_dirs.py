"""AlterReplicaLogDirs: move replicas between log directories (KIP-113).

Behavior: the answer comes when the move has begun. A directory or replica that is not there is an
error of that partition; of several directories for one the last counts. Another one than before
ends the move there; the one where the replica is ends any. None begins while a directory is
offline.

Version notes:
  v2: flexible.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, Final

from kbroker.api import moving
from kbroker.api.context import Context
from kbroker.api.registry import Response, register
from kbroker.api.rights import require_cluster
from kbroker.errors import ErrorCode
from kbroker.operations import Steps
from kbroker.protocol import ApiKey
from kbroker.security.acls import ALTER
from kbroker.storage.log_directory import LogDirectory
from kbroker.storage.log_port import Key

_NAME_MAX: Final = 255
_FUTURE_CHARS: Final = len("-.") + 32 + len("-future")  # behind topic and partition, with a uuid


def _failed(request: Any, code: int, message: str) -> Response:
    return _answer({key: code for key, _ in _moves(request)})


@register(ApiKey.ALTER_REPLICA_LOG_DIRS, 1, 2, failed=_failed)
def alter_replica_log_dirs(request: Any, context: Context) -> Steps[Response]:
    """Answer an AlterReplicaLogDirs request."""
    require_cluster(context, ALTER)
    wanted: dict[Key, str] = {}
    for key, path in _moves(request):
        wanted[key] = path
        yield
    codes: dict[Key, int] = {}
    for key, path in wanted.items():
        codes[key] = _alter(context, *key, path)
        yield
    return _answer(codes)


def _moves(request: Any) -> Iterator[tuple[Key, str]]:
    """Partitions and the directories that they are to move to."""
    for directory in request.dirs:
        for topic in directory.topics:
            for index in topic.partitions:
                yield (topic.name, index), directory.path


def _alter(context: Context, topic: str, index: int, path: str) -> int:
    logs, key = context.services.logs, (topic, index)
    if len(topic) + len(str(index)) + _FUTURE_CHARS > _NAME_MAX:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    target = next((each for each in logs.directories if os.path.abspath(each.path) == path), None)
    if target is None:
        return ErrorCode.LOG_DIR_NOT_FOUND
    if not target.online:
        return ErrorCode.KAFKA_STORAGE_ERROR
    if target.cordoned:
        return ErrorCode.INVALID_REPLICA_ASSIGNMENT
    if key in logs.offline:
        return ErrorCode.KAFKA_STORAGE_ERROR
    if logs.get(topic, index) is None:
        if context.image.partition(topic, index) is not None:
            return ErrorCode.REPLICA_NOT_AVAILABLE
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return _move(context, key, target)


def _move(context: Context, key: Key, target: LogDirectory) -> int:
    logs, moves = context.services.logs, context.services.moves
    before = None if moves is None else moves.get(key)
    if moves is not None and before is not None and before.target is not target:
        moves.cancel(key)
        if logs.homes.get(key) is target:
            _tell(context, "partition stays", key, target)
    elif before is not None:
        return ErrorCode.NONE
    if logs.homes.get(key) is target or moves is None:
        return ErrorCode.NONE
    if len(logs.online) < len(logs.directories):
        return ErrorCode.KAFKA_STORAGE_ERROR  # it may be in one that is away, as Kafka has it
    moving.begin(context.services, key, target)
    _tell(context, "partition moves", key, target)
    return ErrorCode.NONE


def _tell(context: Context, what: str, key: Key, directory: LogDirectory) -> None:
    context.changed(what, topic=key[0], partition=key[1], directory=str(directory))


def _answer(codes: dict[tuple[str, int], int]) -> Response:
    topics: dict[str, list[dict[str, int]]] = {}
    for (topic, index), code in codes.items():
        topics.setdefault(topic, []).append({"partition_index": index, "error_code": code})
    return {
        "results": [{"topic_name": name, "partitions": parts} for name, parts in topics.items()]
    }
