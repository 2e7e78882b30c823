"""OffsetDelete: committed offsets of a group go.

Behavior: topics and partitions that are not there are answered by themselves. A topic that a
member consumes is refused with GROUP_SUBSCRIBED_TO_TOPIC; an offset that is not there is no error.

Version notes:
  v0: KIP-496.
"""

from __future__ import annotations

from typing import Any

from kbroker.api.context import ZERO_UUID, Context
from kbroker.api.partition_results import PartitionResults
from kbroker.api.registry import Response, register
from kbroker.api.rights import denied, require_group
from kbroker.errors import ClientError, ErrorCode
from kbroker.protocol import ApiKey
from kbroker.security.acls import DELETE, READ, TOPIC


@register(ApiKey.OFFSET_DELETE, 0, 0)
def offset_delete(request: Any, context: Context) -> Response:
    """Answer an OffsetDelete request."""
    require_group(context, DELETE, request.group_id)
    if not request.group_id:
        raise ClientError(ErrorCode.INVALID_GROUP_ID)
    wrong = PartitionResults("name")
    topics: dict[str, dict[int, None]] = {}
    hidden = denied(context, READ, TOPIC, (asked.name for asked in request.topics))
    for asked in request.topics:
        if asked.name in hidden:
            indexes = dict.fromkeys(one.partition_index for one in asked.partitions)
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            wrong.add(asked.name, ZERO_UUID, indexes, code)
            continue
        topic = context.image.topics.get(asked.name)
        known = {} if topic is None else topic.partitions
        indexes = dict.fromkeys(one.partition_index for one in asked.partitions)
        gone = [index for index in indexes if index not in known]
        if gone or topic is None:
            wrong.add(asked.name, ZERO_UUID, gone, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        here = dict.fromkeys(index for index in indexes if index in known)
        if here:
            topics.setdefault(asked.name, {}).update(here)
    return context.groups.handle(
        request.group_id,
        context.answer,
        lambda rooms, reply, now: wrong.merge_into(
            rooms.offsets.delete(request.group_id, topics.items())
        ),
    )
