"""OffsetFetch: how far groups have read.

Behavior: each group succeeds or fails by itself. No topics (null) mean all that a group has
committed. An offset that is not there is -1 and no error; one of a transaction that has not ended
is UNSTABLE_OFFSET_COMMIT where the request asks for stable ones. A partition that is named again,
and everything of a group that is asked for again, is answered once (Apache Kafka: as often, which
turns a small request into any amount of metadata).

Version notes:
  v1: from `__consumer_offsets`. v2: null topics, errors of the whole. v3: throttle time.
  v5: leader epochs. v6: flexible. v7: require_stable. v8: several groups. v9: member epochs.
  v10: topic ids in the place of names.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kbroker.api.context import ZERO_UUID, Context, uuid_bytes
from kbroker.api.registry import Response, register
from kbroker.api.rights import denied, denied_steps
from kbroker.errors import ErrorCode
from kbroker.group.offsets import Fetch
from kbroker.group.outcome import Now, Outcome, Reply
from kbroker.group.part import Call
from kbroker.operations import Steps, collect
from kbroker.protocol import ApiKey
from kbroker.security.acls import DESCRIBE, GROUP, TOPIC

if TYPE_CHECKING:
    from kbroker.group.rooms import Rooms

_Asked = list[tuple[Any, Sequence[int]]]
_Topics = list[tuple[str, bytes, Sequence[int]]]

_FIRST_WITH_TOP_ERROR: Final = 2
_FIRST_WITH_GROUPS: Final = 8
_FIRST_WITH_IDS: Final = 10
_NOTHING: Final = {"committed_offset": -1, "committed_leader_epoch": -1, "metadata": ""}


def _failed(request: Any, code: int, message: str) -> Response:
    groups = getattr(request, "groups", None)
    if groups is None:
        return {"error_code": code, "topics": _all_failed(request.topics or (), code)}
    return {"groups": [{"group_id": one.group_id, "error_code": code} for one in groups]}


@register(ApiKey.OFFSET_FETCH, 1, 10, failed=_failed)
def offset_fetch(request: Any, context: Context) -> Steps[Response]:
    """Answer an OffsetFetch request."""
    stable = getattr(request, "require_stable", False)
    groups = request.groups if context.version >= _FIRST_WITH_GROUPS else [request]
    names = (group.group_id for group in groups)
    hidden = yield from denied_steps(context, DESCRIBE, GROUP, names)
    refused: list[Response | None] = []  # in the order of the request; None: the group is asked
    calls = []
    seen = _Seen({}, set())
    for group in groups:
        yield
        if group.topics is None and group.group_id in seen.whole:
            continue
        asked = yield from _once(seen, group)
        if group.group_id in hidden:
            refused.append(_refused(context, group, ErrorCode.GROUP_AUTHORIZATION_FAILED))
        else:
            refused.append(None)
            calls.append((yield from _call(context, group, asked, stable)))

    def answer(parts: list[Response]) -> Steps[Response]:
        found = iter(parts)
        answers = yield from collect(one or next(found) for one in refused)
        return _answer(context.version, answers)

    return (yield from context.groups.each(calls, context.answer, answer))


class _Seen(NamedTuple):
    """Partitions of (group, topic), and groups of which all were asked for."""

    partitions: dict[Any, set[int]]
    whole: set[str]


def _once(seen: _Seen, group: Any) -> Steps[_Asked | None]:
    """The topics of a group and their partitions, None for all; nothing that was seen before."""
    if group.topics is None:
        seen.whole.add(group.group_id)
        return None
    return (
        yield from collect((topic, _new(seen.partitions, group, topic)) for topic in group.topics)
    )


def _new(told: dict[Any, set[int]], group: Any, topic: Any) -> Sequence[int]:
    named = topic.topic_id if hasattr(topic, "topic_id") else topic.name
    before = told.setdefault((group.group_id, named), set())
    found = [index for index in dict.fromkeys(topic.partition_indexes) if index not in before]
    before.update(found)
    return found


def _answer(version: int, parts: list[Response]) -> Response:
    return {"groups": parts} if version >= _FIRST_WITH_GROUPS else parts[0]


def _call(context: Context, group: Any, asked: _Asked | None, stable: bool) -> Steps[Call]:
    """What is to be asked about a group, and how its answer is completed."""
    unknown: list[dict[str, Any]] = []
    topics = None if asked is None else (yield from _visible(context, asked, unknown))
    fetch = Fetch(
        group.group_id,
        topics,
        stable,
        getattr(group, "member_id", None),
        getattr(group, "member_epoch", -1),
    )

    def run(rooms: Rooms, reply: Reply, now: Now) -> Outcome:
        outcome = rooms.offsets.fetch(fetch, reply, now)
        assert outcome.response is not None
        found = outcome.response["topics"]
        if topics is None:
            hidden = denied(context, DESCRIBE, TOPIC, (topic["name"] for topic in found))
            found = [topic for topic in found if topic["name"] not in hidden]
        if topics is None and context.version >= _FIRST_WITH_IDS:
            found = _with_ids(context, found)
        return outcome._replace(response={**outcome.response, "topics": [*found, *unknown]})

    return Call(group.group_id, run, lambda code, _: _refused(context, group, _told(code)))


def _told(code: ErrorCode) -> ErrorCode:
    """Consumers of Apache Kafka before 3.9 do not know COORDINATOR_NOT_AVAILABLE here, and end."""
    unavailable = code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    return ErrorCode.NOT_COORDINATOR if unavailable else code


def _refused(context: Context, group: Any, code: ErrorCode) -> Response:
    if context.version >= _FIRST_WITH_TOP_ERROR:
        return {"group_id": group.group_id, "error_code": code}
    return {"topics": _all_failed(group.topics, code)}


def _visible(context: Context, asked: _Asked, wrong: list[dict[str, Any]]) -> Steps[_Topics]:
    """What may be told; the topics that may not, and those of unknown ids, go to `wrong`."""
    topics = yield from _topics(context, asked, wrong)
    hidden = yield from denied_steps(context, DESCRIBE, TOPIC, (name for name, _, _ in topics))
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    wrong += yield from collect(
        {"name": name, "topic_id": topic_id, "partitions": _nothing(indexes, code)}
        for name, topic_id, indexes in topics
        if name in hidden
    )
    return [topic for topic in topics if topic[0] not in hidden]


def _topics(context: Context, asked: _Asked, unknown: list[dict[str, Any]]) -> Steps[_Topics]:
    """(name, id, partitions); topics of an id that is not known go to `unknown`."""
    if context.version < _FIRST_WITH_IDS:
        return (yield from collect((topic.name, ZERO_UUID, indexes) for topic, indexes in asked))
    topics = []
    for topic, indexes in asked:
        yield
        topic_id = uuid_bytes(topic.topic_id)
        found = context.image.topic_by_id(topic_id)
        if found is None:
            results = _nothing(indexes, ErrorCode.UNKNOWN_TOPIC_ID)
            unknown.append({"topic_id": topic_id, "partitions": results})
        else:
            topics.append((found.name, topic_id, indexes))
    return topics


def _with_ids(context: Context, topics: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Topics by the ids that hold now; one that is gone cannot be told."""
    known = context.image.topics
    return [
        {**topic, "topic_id": known[topic["name"]].id} for topic in topics if topic["name"] in known
    ]


def _all_failed(topics: Sequence[Any], code: int) -> list[dict[str, Any]]:
    return [
        {
            "name": getattr(topic, "name", ""),
            "partitions": _nothing(topic.partition_indexes, code),
        }
        for topic in topics
    ]


def _nothing(indexes: Sequence[int], code: int) -> list[dict[str, Any]]:
    return [{**_NOTHING, "partition_index": index, "error_code": code} for index in indexes]
