"""DescribeLogDirs: how much of the disk each partition takes.

Behavior: null topics mean all partitions; partitions that are not here are left out. There is
one log directory, never cordoned, without replicas that are moving in. Once the disk has failed it
is told with KAFKA_STORAGE_ERROR and nothing else.

Version notes:
  v2: flexible. v3: top-level error. v4: size and room of the disk. v5: cordoned (KIP-1066).
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from kbroker.api.context import Context
from kbroker.api.registry import Response, register
from kbroker.api.rights import require_cluster
from kbroker.errors import ErrorCode
from kbroker.protocol import ApiKey
from kbroker.security.acls import DESCRIBE
from kbroker.storage.manager import LogManager

_UNKNOWN_BYTES = -1


def _failed(request: Any, code: int, message: str) -> Response:
    return {"error_code": code, "results": []}


@register(ApiKey.DESCRIBE_LOG_DIRS, 1, 5, failed=_failed)
def describe_log_dirs(request: Any, context: Context) -> Response:
    """Answer a DescribeLogDirs request."""
    require_cluster(context, DESCRIBE)
    logs = context.services.logs
    if logs.failure is not None:
        return {"results": [_offline(logs)]}
    topics: dict[str, list[dict[str, Any]]] = {}
    for topic, partition in _wanted(request, context):
        log = logs.get(topic, partition)
        if log is not None:
            topics.setdefault(topic, []).append(
                {"partition_index": partition, "partition_size": log.size_bytes, "offset_lag": 0}
            )
    total, usable = _disk(logs.directory)
    directory = {
        "log_dir": str(logs.directory.absolute()),
        "topics": [{"name": name, "partitions": parts} for name, parts in topics.items()],
        "total_bytes": total,
        "usable_bytes": usable,
        "error_code": ErrorCode.NONE,
    }
    return {"results": [directory]}


def _offline(logs: LogManager) -> dict[str, Any]:
    return {
        "log_dir": str(logs.directory.absolute()),
        "topics": [],
        "total_bytes": _UNKNOWN_BYTES,
        "usable_bytes": _UNKNOWN_BYTES,
        "error_code": ErrorCode.KAFKA_STORAGE_ERROR,
    }


def _wanted(request: Any, context: Context) -> Iterable[tuple[str, int]]:
    if request.topics is None:
        return ((name, index) for name, topic in context.image.topics.items() for index in
                topic.partitions)  # fmt: skip
    return ((topic.topic, index) for topic in request.topics for index in topic.partitions)


def _disk(directory: os.PathLike[str]) -> tuple[int, int]:
    """Bytes of the file system and bytes that a process without privileges may still write."""
    try:
        room = os.statvfs(directory)
    except OSError:
        return _UNKNOWN_BYTES, _UNKNOWN_BYTES
    return room.f_blocks * room.f_frsize, room.f_bavail * room.f_frsize
