"""DescribeLogDirs: how much of the disk each partition takes.

Behavior: null topics mean all partitions; partitions that are not here are left out. A directory
that is offline is told with KAFKA_STORAGE_ERROR and nothing else. A partition that is being moved
is told in both directories, where it goes to as a future one with what it has yet to copy.

Version notes:
  v2: flexible. v3: top-level error. v4: size and room of the disk. v5: cordoned (KIP-1066).
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import partial
from typing import Any

from kbroker.api.context import Context
from kbroker.api.registry import Response, register
from kbroker.api.rights import require_cluster
from kbroker.errors import ErrorCode
from kbroker.operations import Steps
from kbroker.protocol import ApiKey
from kbroker.security.acls import DESCRIBE
from kbroker.storage.log_directory import LogDirectory
from kbroker.storage.log_port import Key

_UNKNOWN_BYTES = -1


def _failed(request: Any, code: int, message: str) -> Response:
    return {"error_code": code, "results": []}


@register(ApiKey.DESCRIBE_LOG_DIRS, 1, 5, failed=_failed)
def describe_log_dirs(request: Any, context: Context) -> Steps[Response]:
    """Answer a DescribeLogDirs request."""
    require_cluster(context, DESCRIBE)
    wanted: dict[Key, None] = {}
    for key in _wanted(request, context):
        wanted[key] = None
        yield
    results = []
    for directory in context.services.logs.directories:
        if directory.online:
            results.append((yield from _directory(directory, wanted, context)))
        else:
            results.append(_offline(directory))
    return {"results": results}


def _directory(
    directory: LogDirectory, wanted: dict[Key, None], context: Context
) -> Steps[dict[str, Any]]:
    logs = context.services.logs
    topics: dict[str, list[dict[str, Any]]] = {}
    for topic, partition in wanted:
        yield
        log = logs.get(topic, partition)
        if log is not None and logs.homes.get((topic, partition)) is directory:
            topics.setdefault(topic, []).append(
                {"partition_index": partition, "partition_size": log.size_bytes, "offset_lag": 0}
            )
    moves = context.services.moves
    for move in () if moves is None else moves.all():
        if move.target is directory and move.key in wanted:
            topics.setdefault(move.key[0], []).append({
                "partition_index": move.key[1], "partition_size": move.size_bytes,
                "offset_lag": move.lag, "is_future_key": True,
            })  # fmt: skip
    total, usable = _UNKNOWN_BYTES, _UNKNOWN_BYTES
    if not context.services.logs.hangs(directory):
        total, usable = yield directory.worker.run(partial(_disk, directory.path))
    return {
        "log_dir": str(directory.path.absolute()),
        "topics": [{"name": name, "partitions": parts} for name, parts in topics.items()],
        "total_bytes": total,
        "usable_bytes": usable,
        "is_cordoned": directory.cordoned,
        "error_code": ErrorCode.NONE,
    }


def _offline(directory: LogDirectory) -> dict[str, Any]:
    return {
        "log_dir": str(directory.path.absolute()),
        "topics": [],
        "total_bytes": _UNKNOWN_BYTES,
        "usable_bytes": _UNKNOWN_BYTES,
        "is_cordoned": directory.cordoned,
        "error_code": ErrorCode.KAFKA_STORAGE_ERROR,
    }


def _wanted(request: Any, context: Context) -> Iterable[tuple[str, int]]:
    if request.topics is None:
        topics = list(context.image.topics.items())
        return ((name, index) for name, topic in topics for index in topic.partitions)
    return ((topic.topic, index) for topic in request.topics for index in topic.partitions)


def _disk(directory: os.PathLike[str]) -> tuple[int, int]:
    """Bytes of the file system and bytes that a process without privileges may still write."""
    try:
        room = os.statvfs(directory)
    except OSError:
        return _UNKNOWN_BYTES, _UNKNOWN_BYTES
    return room.f_blocks * room.f_frsize, room.f_bavail * room.f_frsize
