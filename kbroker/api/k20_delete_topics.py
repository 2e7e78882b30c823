"""DeleteTopics: topics go, with their settings and their data.

Behavior: what is wrong with a name or id is answered first, each once, then the topics that were
deleted; with an authorizer in any order. The data is out of reach at once; its files are removed
after file.delete.delay.ms.

Version notes:
  v1-v5: topics by name. v4: flexible. v5: error messages; THROTTLING_QUOTA_EXCEEDED may be
  answered. v6: by name or by id.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from kbroker.api import publish
from kbroker.api.context import ZERO_UUID, Context, uuid_bytes
from kbroker.api.durations import client_timeout_ms
from kbroker.api.quotas import mutation_quota
from kbroker.api.registry import Response, register
from kbroker.api.rights import denied_steps, may_cluster
from kbroker.config.topic import effective
from kbroker.errors import ClientError, ErrorCode
from kbroker.metadata import builders
from kbroker.metadata.image import Topic
from kbroker.metadata.records.schema import Record
from kbroker.operations import Steps
from kbroker.protocol import ApiKey
from kbroker.security.acls import DELETE, DESCRIBE, TOPIC

_FIRST_WITH_DISABLED_ERROR = 3
_FIRST_STRICT = 5


def _failed(request: Any, code: int, message: str) -> Response:
    names = [(name, ZERO_UUID) for name in getattr(request, "topic_names", ())]
    names += [(topic.name, uuid_bytes(topic.topic_id)) for topic in getattr(request, "topics", ())]
    return {"responses": [_result(name, found, code, message) for name, found in names]}


@register(ApiKey.DELETE_TOPICS, 1, 6, failed=_failed, timeout=client_timeout_ms, changes=True)
def delete_topics(request: Any, context: Context) -> Steps[Response]:
    """Answer a DeleteTopics request."""
    if not context.config.flag("delete.topic.enable"):
        if context.version < _FIRST_WITH_DISABLED_ERROR:
            raise ClientError(ErrorCode.INVALID_REQUEST, "Deletion of topics is disabled.")
        raise ClientError(ErrorCode.TOPIC_DELETION_DISABLED)
    results: list[dict[str, Any]] = []
    quota = mutation_quota(context, _FIRST_STRICT)
    doomed = []
    for topic in (yield from _resolve(request, context, results)):
        yield
        try:
            quota.record(len(topic))
            doomed.append(topic)
        except ClientError as error:
            results.append(_result(topic.name, topic.id, error.code, str(error)))
    if doomed:
        yield from _delete(context, doomed)
    context.answer.throttle(quota.throttle_ms)
    results += [_result(topic.name, topic.id, ErrorCode.NONE, None) for topic in doomed]
    if context.services.authorizer is not None:
        from random import shuffle  # noqa: PLC0415  not at the start

        shuffle(results)  # no place tells what is not there from what may not be seen
    return {"responses": results}


def _delete(context: Context, doomed: list[Topic]) -> Steps[None]:
    services = context.services
    gone = []
    records: list[Record] = []
    for topic in doomed:
        gone.append((topic, _delay_ms(context, topic)))  # settings go with the topic
        records += builders.delete_topic(topic)
        yield
    yield services.store.append(records)
    yield from publish.delete_topics(services, gone)
    for topic in doomed:
        context.changed("topic deleted", topic=topic.name)
        yield


def _resolve(
    request: Any, context: Context, results: list[dict[str, Any]]
) -> Steps[list[Topic]]:
    """Find the topics to delete, each once; what is wrong with the others goes to `results`."""
    names = Counter(getattr(request, "topic_names", ()))
    ids: Counter[bytes] = Counter()
    wrong = ErrorCode.INVALID_REQUEST
    for asked in getattr(request, "topics", ()):
        yield
        topic_id = uuid_bytes(asked.topic_id)
        if asked.name is not None and any(topic_id):
            message = "You may not specify both topic name and topic id."
            results.append(_result(asked.name, topic_id, wrong, message))
        elif asked.name is not None:
            names[asked.name] += 1
        elif any(topic_id):
            ids[topic_id] += 1
        else:
            message = "Neither topic name nor id were specified."
            results.append(_result(None, ZERO_UUID, wrong, message))
    for name in [name for name, count in names.items() if count > 1]:
        results.append(_result(name, ZERO_UUID, wrong, "Duplicate topic name."))
        del names[name]
    for topic_id in [topic_id for topic_id, count in ids.items() if count > 1]:
        results.append(_result(None, topic_id, wrong, "Duplicate topic id."))
    return (yield from _look_up(context, names, ids, results))


def _look_up(
    context: Context, names: Counter[str], ids: Counter[bytes], results: list[dict[str, Any]]
) -> Steps[list[Topic]]:
    found: dict[bytes, Topic] = {}
    by_id = {topic_id: context.image.topic_by_id(topic_id) for topic_id in ids}
    named = [*names, *(topic.name for topic in by_id.values() if topic)]
    hidden, kept = yield from _rights(context, named)
    no = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    for topic_id, topic in by_id.items():
        yield
        if ids[topic_id] > 1:
            continue
        if topic is None:
            code = ErrorCode.UNKNOWN_TOPIC_ID
            results.append(_result(None, topic_id, code, code.message))
        elif topic.name in kept:
            shown = None if topic.name in hidden else topic.name
            results.append(_result(shown, topic_id, no, no.message))
        else:
            found[topic.id] = topic
    for name in names:
        yield
        topic = context.image.topics.get(name)
        if name in hidden or (topic is not None and name in kept):
            results.append(_result(name, ZERO_UUID, no, no.message))
        elif topic is None:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            results.append(_result(name, ZERO_UUID, code, code.message))
        elif topic.id in ids:
            found.pop(topic.id, None)
            message = "The topic of this name was also given by its id."
            results.append(_result(name, topic.id, ErrorCode.INVALID_REQUEST, message))
        else:
            found[topic.id] = topic
    return list(found.values())


def _rights(
    context: Context, names: list[str]
) -> Steps[tuple[frozenset[str], frozenset[str]]]:
    """Find the names that may not be described, and those that may not be deleted."""
    if may_cluster(context, DELETE, tell=False):
        return frozenset(), frozenset()
    hidden = yield from denied_steps(context, DESCRIBE, TOPIC, names)
    return hidden, (yield from denied_steps(context, DELETE, TOPIC, names))


def _delay_ms(context: Context, topic: Topic) -> int:
    """file.delete.delay.ms of a topic."""
    overrides = context.image.configs(("topic", topic.name))
    delay = effective(context.config, overrides)["file.delete.delay.ms"]
    return delay if isinstance(delay, int) else 0


def _result(name: str | None, topic_id: bytes, code: int, message: str | None) -> dict[str, Any]:
    return {"name": name, "topic_id": topic_id, "error_code": code, "error_message": message}
