"""CreatePartitions: more partitions for a topic.

Behavior: names that are given twice are refused first; each other topic succeeds or fails by
itself. `count` is the number of partitions that the topic shall have in all.

Version notes:
  v2: flexible. v3: THROTTLING_QUOTA_EXCEEDED may be answered.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from kbroker.api import publish
from kbroker.api.context import Context
from kbroker.api.durations import client_timeout_ms
from kbroker.api.quotas import mutation_quota
from kbroker.api.registry import Response, register
from kbroker.api.rights import denied_steps
from kbroker.api.topic_creation import Placed, check_replicas, homes_for
from kbroker.errors import ClientError, ErrorCode
from kbroker.limits import PARTITIONS_PER_REQUEST_MAX_COUNT
from kbroker.metadata import builders
from kbroker.metadata.image import Topic
from kbroker.metadata.records.schema import Record
from kbroker.operations import Completion, Steps, collect
from kbroker.protocol import ApiKey
from kbroker.security.acls import ALTER, TOPIC


def _failed(request: Any, code: int, message: str) -> Response:
    names = dict.fromkeys(topic.name for topic in request.topics)
    return {"results": [_result(name, code, message) for name in names]}


_FIRST_STRICT: Final = 3


@register(ApiKey.CREATE_PARTITIONS, 0, 3, failed=_failed, timeout=client_timeout_ms, changes=True)
def create_partitions(request: Any, context: Context) -> Steps[Response | Completion[Response]]:
    """Answer a CreatePartitions request, when the logs of the partitions are made."""
    counts: Counter[str] = Counter()
    for topic in request.topics:
        counts[topic.name] += 1
        yield
    results = yield from collect(
        _result(name, ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
        for name, count in counts.items()
        if count > 1
    )
    quota = mutation_quota(context, _FIRST_STRICT)
    once = [name for name, count in counts.items() if count == 1]
    refused = yield from denied_steps(context, ALTER, TOPIC, once)
    no = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    results += [_result(name, no, None) for name in once if name in refused]
    services = context.services
    records: list[Record] = []
    grown: list[tuple[str, int]] = []
    planned: Placed = {}
    for asked in request.topics:
        yield
        if counts[asked.name] > 1 or asked.name in refused:
            continue
        try:
            found = yield from _check(asked, context)
            homes = homes_for(services, asked.count - len(found), planned)
            quota.record(asked.count - len(found))
        except ClientError as error:
            message = None if error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION else str(error)
            results.append(_result(asked.name, error.code, message))
            continue
        grown.append((found.name, len(found)))
        records += builders.create_partitions(found, asked.count, services.replica, homes)
        results.append(_result(asked.name, ErrorCode.NONE, None))

    context.answer.throttle(quota.throttle_ms)
    response = {"results": results}
    if not records or request.validate_only:
        return response
    offered: Completion[Response] = Completion()

    def take_effect() -> None:
        publish.add_partitions(services, grown).on_done(lambda _: offered.resolve(response))
        for name, first in grown:
            context.changed("partitions added", topic=name, before=first)

    yield services.store.append(records, take_effect)
    return offered


def _check(asked: Any, context: Context) -> Steps[Topic]:
    topic = context.image.topics.get(asked.name)
    if topic is None:
        raise ClientError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    additional = asked.count - len(topic)
    if additional <= 0:
        text = f"Topic already has {asked.count} partition(s)."
        if additional:
            text = (
                f"The topic {topic.name} currently has {len(topic)} partition(s); {asked.count} "
                "would not be an increase."
            )
        raise ClientError(ErrorCode.INVALID_PARTITIONS, text)
    if additional > PARTITIONS_PER_REQUEST_MAX_COUNT:
        raise ClientError(
            ErrorCode.POLICY_VIOLATION,
            f"A request may create at most {PARTITIONS_PER_REQUEST_MAX_COUNT} partitions.",
        )
    if asked.assignments is not None:
        if len(asked.assignments) != additional:
            raise ClientError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Attempted to add {additional} additional partition(s), but only "
                f"{len(asked.assignments)} assignment(s) were specified.",
            )
        for assignment in asked.assignments:
            yield from check_replicas(context.services, assignment.broker_ids)
    return topic


def _result(name: str, code: int, message: str | None) -> dict[str, Any]:
    return {"name": name, "error_code": code, "error_message": message}
