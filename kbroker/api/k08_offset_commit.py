"""OffsetCommit: a group, or a consumer without one, stores how far it has read.

Behavior: topics and partitions that are not there are answered by themselves; the group's
coordinator decides on the others together, and answers when their records are durable.

Version notes:
  v2: retention time. v3: throttle time. v5: no retention time. v6: leader epoch. v7: static
  members. v8: flexible. v9: member epochs (KIP-848). v10: topic ids in the place of names.
"""

from __future__ import annotations

from typing import Any

from kbroker.api.commits import refused, split
from kbroker.api.context import ZERO_UUID, Context, uuid_bytes
from kbroker.api.durations import milliseconds
from kbroker.api.partition_results import PartitionResults
from kbroker.api.registry import Response, register
from kbroker.api.rights import denied_steps, require_group
from kbroker.errors import ErrorCode
from kbroker.group.commits import NO_RETENTION, Commit, TopicCommit
from kbroker.metadata.image import Topic
from kbroker.operations import Steps, collect
from kbroker.protocol import ApiKey
from kbroker.security.acls import READ, TOPIC

_FIRST_WITH_IDS = 10


def _failed(request: Any, code: int, message: str) -> Response:
    return {
        "topics": [
            {
                "name": getattr(topic, "name", ""),
                "topic_id": uuid_bytes(getattr(topic, "topic_id", None)),
                "partitions": [
                    {"partition_index": one.partition_index, "error_code": code}
                    for one in topic.partitions
                ],
            }
            for topic in request.topics
        ]
    }


@register(ApiKey.OFFSET_COMMIT, 2, 10, failed=_failed)
def offset_commit(request: Any, context: Context) -> Steps[Response]:
    """Answer an OffsetCommit request."""
    require_group(context, READ, request.group_id)
    by_id = context.version >= _FIRST_WITH_IDS
    wrong = PartitionResults("topic_id" if by_id else "name")
    found = yield from collect((asked, *_find(context, asked)) for asked in request.topics)
    known = (name for _, topic, name, _ in found if topic is not None or not by_id)
    hidden = yield from denied_steps(context, READ, TOPIC, known)
    topics = []
    for asked, topic, name, topic_id in found:
        yield
        if name in hidden:
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            indexes = (one.partition_index for one in asked.partitions)
            yield from wrong.add(name, topic_id, indexes, code)
            continue
        if topic is None:
            code = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            indexes = (one.partition_index for one in asked.partitions)
            yield from wrong.add(name, topic_id, indexes, code)
            continue
        here, gone = yield from split(asked.partitions, topic.partitions)
        if gone:
            yield from wrong.add(name, topic_id, gone, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if here:
            topics.append(TopicCommit(name, topic_id, here))
    if not topics:
        return wrong.merged(())
    commit = Commit(
        request.group_id,
        topics,
        context.version,
        request.member_id,
        getattr(request, "group_instance_id", None),
        request.generation_id_or_member_epoch,
        milliseconds(getattr(request, "retention_time", NO_RETENTION)),
    )
    commit = commit._replace(batch=(yield from context.groups.commit_batch(commit)))
    context.answer.failing(lambda code, message: wrong.merged(refused(topics, code)))
    return context.groups.handle(
        request.group_id,
        context.answer,
        lambda rooms, reply, now: wrong.merge_into(rooms.offsets.commit(commit, reply, now)),
    )


def _find(context: Context, asked: Any) -> tuple[Topic | None, str, bytes]:
    """The topic that a request names, and how it is to be answered."""
    if context.version >= _FIRST_WITH_IDS:
        topic_id = uuid_bytes(asked.topic_id)
        topic = context.image.topic_by_id(topic_id)
        return topic, "" if topic is None else topic.name, topic_id
    topic = context.image.topics.get(asked.name)
    return topic, asked.name, ZERO_UUID if topic is None else topic.id
