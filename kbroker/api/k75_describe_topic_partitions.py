"""DescribeTopicPartitions: topics with their partitions, a page at a time (KIP-966).

Behavior: topics in the order of their names; no topics asked for means all. A page holds at most
as many partitions as the request and max.request.partition.size.limit allow, and at least one;
the cursor of the answer says where the next page begins. Topics that may not be described are left
out of all, and refused where they were asked for.
"""

from __future__ import annotations

from typing import Any

from kbroker.api.context import Context
from kbroker.api.k03_metadata import describe_partition
from kbroker.api.registry import Response, register
from kbroker.api.rights import denied_steps, operations
from kbroker.api.topic_names import INTERNAL_TOPICS, name_fault
from kbroker.errors import ClientError, ErrorCode
from kbroker.metadata.image import Topic
from kbroker.operations import Steps
from kbroker.protocol import ApiKey
from kbroker.security.acls import DESCRIBE, TOPIC


def _failed(request: Any, code: int, message: str) -> Response:
    return {"topics": [{"name": topic.name, "error_code": code} for topic in request.topics]}


@register(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, 0, failed=_failed)
def describe_topic_partitions(request: Any, context: Context) -> Steps[Response]:
    """Answer a DescribeTopicPartitions request."""
    wants_all = not request.topics
    names = _names(request, context, wants_all)
    hidden = yield from denied_steps(context, DESCRIBE, TOPIC, names, tell=not wants_all)
    limit = context.config.integer("max.request.partition.size.limit")
    left = max(min(limit, request.response_partition_limit), 1)
    topics: list[dict[str, Any]] = []
    unseen = [] if wants_all else [_unseen(name) for name in names if name in hidden]
    for name in names:
        yield
        if name in hidden:
            continue
        if left == 0:
            return {"topics": [*topics, *unseen], "next_cursor": _cursor(name, 0)}
        topic = context.image.topics.get(name)
        if topic is None:
            if not wants_all:
                topics.append(_unknown(context, name))
            continue
        first = request.cursor.partition_index if _begins_at(request, name) else 0
        page, following = _page(context, topic, first, left)
        topics.append(page)
        if following is not None:
            return {"topics": [*topics, *unseen], "next_cursor": _cursor(name, following)}
        left -= len(page["partitions"])
    return {"topics": [*topics, *unseen], "next_cursor": None}


def _unseen(name: str) -> dict[str, Any]:
    return {"name": name, "error_code": ErrorCode.TOPIC_AUTHORIZATION_FAILED}


def _names(request: Any, context: Context, wants_all: bool) -> list[str]:
    """The topics from the cursor on."""
    start = "" if request.cursor is None else request.cursor.topic_name
    asked = context.image.topics if wants_all else {topic.name for topic in request.topics}
    names = sorted(name for name in asked if name >= start)
    if request.cursor is not None and not wants_all and start not in names:
        raise ClientError(
            ErrorCode.INVALID_REQUEST, f"The cursor's topic {start} is not among those asked for."
        )
    if request.cursor is not None and request.cursor.partition_index < 0:
        raise ClientError(ErrorCode.INVALID_REQUEST, "The cursor's partition is negative.")
    return names


def _begins_at(request: Any, name: str) -> bool:
    return request.cursor is not None and request.cursor.topic_name == name


def _page(
    context: Context, topic: Topic, first: int, left: int
) -> tuple[dict[str, Any], int | None]:
    """A topic with up to `left` partitions from `first` on, and the next one after those."""
    indexes = [index for index in topic.partitions if index >= first]
    offline = context.services.logs.offline
    partitions = [
        describe_partition(topic.partitions[index], (topic.name, index) in offline)
        for index in indexes[:left]
    ]
    for partition in partitions:
        partition["eligible_leader_replicas"] = []
        partition["last_known_elr"] = []
    page = {
        "name": topic.name,
        "topic_id": topic.id,
        "is_internal": topic.name in INTERNAL_TOPICS,
        "partitions": partitions,
        "topic_authorized_operations": operations(context, TOPIC, topic.name),
    }
    return page, indexes[left] if len(indexes) > left else None


def _unknown(context: Context, name: str) -> dict[str, Any]:
    known = name_fault(name) is None
    return {
        "name": name,
        "error_code": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if known
        else ErrorCode.INVALID_TOPIC_EXCEPTION,
        "is_internal": name in INTERNAL_TOPICS,
        "topic_authorized_operations": operations(context, TOPIC, name),
    }


def _cursor(name: str, partition: int) -> dict[str, Any]:
    return {"topic_name": name, "partition_index": partition}
