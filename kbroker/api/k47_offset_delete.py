"""OffsetDelete: committed offsets of a group go.

Behavior: topics and partitions that are not there are answered by themselves. A topic that a
member consumes is refused with GROUP_SUBSCRIBED_TO_TOPIC; an offset that is not there is no error.

Version notes:
  v0: KIP-496.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from kbroker.api.context import ZERO_UUID, Context
from kbroker.api.partition_results import PartitionResults
from kbroker.api.registry import Response, register
from kbroker.api.rights import denied_steps, require_group
from kbroker.errors import ClientError, ErrorCode
from kbroker.group.outcome import Now, Outcome, Reply
from kbroker.operations import Steps, unique
from kbroker.protocol import ApiKey
from kbroker.security.acls import DELETE, READ, TOPIC

if TYPE_CHECKING:
    from kbroker.group.rooms import Rooms


@register(ApiKey.OFFSET_DELETE, 0, 0)
def offset_delete(request: Any, context: Context) -> Steps[Response]:
    """Answer an OffsetDelete request."""
    require_group(context, DELETE, request.group_id)
    if not request.group_id:
        raise ClientError(ErrorCode.INVALID_GROUP_ID)
    wrong = PartitionResults("name")
    topics: dict[str, dict[int, None]] = {}
    names = (asked.name for asked in request.topics)
    hidden = yield from denied_steps(context, READ, TOPIC, names)
    for asked in request.topics:
        yield
        indexes = yield from unique(each.partition_index for each in asked.partitions)
        if asked.name in hidden:
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            yield from wrong.add(asked.name, ZERO_UUID, indexes, code)
            continue
        topic = context.image.topics.get(asked.name)
        known = {} if topic is None else topic.partitions
        here: dict[int, None] = {}
        gone = []
        for index in indexes:
            yield
            if index in known:
                here[index] = None
            else:
                gone.append(index)
        if gone or topic is None:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            yield from wrong.add(asked.name, ZERO_UUID, gone, code)
        if here:
            topics.setdefault(asked.name, {}).update(here)

    def operation(rooms: Rooms, reply: Reply, now: Now) -> Outcome:
        outcome = rooms.offsets.delete(request.group_id, topics.items())
        gone = [record.key for record in outcome.records]
        return wrong.merge_into(outcome).telling(lambda: _tell(context, request.group_id, gone))

    return context.groups.handle(request.group_id, context.answer, operation)


def _tell(context: Context, group: str, gone: Iterable[Any]) -> None:
    """A line for each topic with what was there and went."""
    topics: dict[str, list[str]] = {}
    for key in gone:
        topics.setdefault(key.topic, []).append(str(key.partition))
    for topic, indexes in topics.items():
        context.changed("offsets deleted", group=group, topic=topic, partitions=",".join(indexes))
