"""ConsumerGroupDescribe: consumer groups with their members and assignments (KIP-848).

Behavior: each group is answered by itself, once however often it is named; a classic group is
GROUP_ID_NOT_FOUND here.

Version notes:
  v1: which protocol each member speaks (KIP-1099).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kbroker.api.context import Context
from kbroker.api.k68_consumer_group_heartbeat import check_protocol_is_on
from kbroker.api.registry import Response, register
from kbroker.api.rights import NOT_ASKED, denied_steps, operations
from kbroker.errors import ErrorCode
from kbroker.group.part import Call
from kbroker.operations import Steps, collect, split, unique
from kbroker.protocol import ApiKey
from kbroker.security.acls import DESCRIBE, GROUP, TOPIC


def _failed(request: Any, code: int, message: str) -> Response:
    return {"groups": [_refused(group_id, code, message) for group_id in request.group_ids]}


def _refused(group_id: str, code: int, message: str | None) -> Response:
    return {"group_id": group_id, "error_code": code, "error_message": message}


@register(ApiKey.CONSUMER_GROUP_DESCRIBE, 0, 1, failed=_failed)
def consumer_group_describe(request: Any, context: Context) -> Steps[Response]:
    """Answer a ConsumerGroupDescribe request."""
    check_protocol_is_on(context)
    hidden = yield from denied_steps(context, DESCRIBE, GROUP, request.group_ids)
    no = ErrorCode.GROUP_AUTHORIZATION_FAILED
    groups = yield from unique(request.group_ids)
    denied, named = yield from split(groups, hidden)
    wrong = yield from collect(_refused(group_id, no, None) for group_id in denied)
    if "" in groups and "" not in hidden:
        nameless, _ = yield from split(request.group_ids, {""})
        unnamed = ErrorCode.INVALID_GROUP_ID
        wrong += yield from collect(_refused("", unnamed, None) for _ in nameless)
        named.remove("")
    calls = (_call(context, each, request.include_authorized_operations) for each in named)

    def finish(parts: list[Response]) -> Steps[Response]:
        return {"groups": (yield from _visible(context, [*wrong, *parts]))}

    return (yield from context.groups.each(calls, context.answer, finish))


def _visible(context: Context, groups: list[Response]) -> Steps[list[Response]]:
    """A group whose assignments name a topic that may not be described is not told."""
    if context.services.authorizer is None:
        return groups
    topics = yield from collect(frozenset(_topics(group)) for group in groups)
    names: set[str] = set()
    for some in topics:
        names |= some
        yield
    hidden = yield from denied_steps(context, DESCRIBE, TOPIC, sorted(names))
    text = "The group has topics that may not be described to you."
    return (
        yield from collect(
            _refused(group["group_id"], ErrorCode.TOPIC_AUTHORIZATION_FAILED, text)
            if named & hidden
            else group
            for group, named in zip(groups, topics, strict=True)
        )
    )


def _topics(group: Response) -> Iterator[str]:
    for member in group.get("members", ()):
        for assignment in (member["assignment"], member["target_assignment"]):
            yield from (one["topic_name"] for one in assignment["topic_partitions"])


def _call(context: Context, group_id: str, with_operations: bool) -> Call:
    told = operations(context, GROUP, group_id) if with_operations else NOT_ASKED
    return Call(
        group_id,
        lambda rooms, _, now: rooms.consumer.describe(group_id, told),
        lambda code, _: _refused(group_id, code, None),
    )
