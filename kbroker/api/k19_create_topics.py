"""CreateTopics: new topics, with their partitions and settings.

Behavior: each topic succeeds or fails by itself; good ones are written to the metadata log in one
append and are there when the answer leaves. Answers come in the order of the request, then one
INVALID_REQUEST for each name that was given more than once, then the forbidden metadata topic.
With validate_only nothing is created and the answer is the same.

Version notes:
  v2: throttle time. v4: -1 for the broker's defaults (taken in every version).
  v5: flexible; the answer holds partitions, replication factor and settings.
  v6: THROTTLING_QUOTA_EXCEEDED may be answered. v7: topic id.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from kbroker.api import publish
from kbroker.api.config_entries import created_configs
from kbroker.api.context import Context
from kbroker.api.durations import client_timeout_ms
from kbroker.api.quotas import mutation_quota
from kbroker.api.registry import Response, register
from kbroker.api.rights import denied_steps, may_cluster
from kbroker.api.topic_creation import NewTopic, Placed, Planned, plan_topic
from kbroker.api.topic_names import CLUSTER_METADATA
from kbroker.errors import ClientError, ErrorCode
from kbroker.limits import PARTITIONS_PER_REQUEST_MAX_COUNT
from kbroker.metadata.records.schema import Record
from kbroker.operations import Completion, Steps, collect, mapping
from kbroker.protocol import ApiKey
from kbroker.security.acls import CREATE, DESCRIBE_CONFIGS, TOPIC


def _failed(request: Any, code: int, message: str) -> Response:
    names = dict.fromkeys(topic.name for topic in request.topics)
    return {"topics": [_refused(name, code, message) for name in names]}


_FIRST_STRICT: Final = 6


@register(ApiKey.CREATE_TOPICS, 2, 7, failed=_failed, timeout=client_timeout_ms, changes=True)
def create_topics(request: Any, context: Context) -> Steps[Response | Completion[Response]]:
    """Answer a CreateTopics request, when the logs of the topics are made."""
    counts: Counter[str] = Counter()
    for topic in request.topics:
        counts[topic.name] += 1
        yield
    yield from _check_total(request, context, counts)
    quota = mutation_quota(context, _FIRST_STRICT)
    once = []
    for name, count in counts.items():
        if count == 1 and name != CLUSTER_METADATA:
            once.append(name)
        yield
    refused: frozenset[str] = frozenset()
    if not may_cluster(context, CREATE, tell=False):
        refused = yield from denied_steps(context, CREATE, TOPIC, once)
    untold = yield from denied_steps(context, DESCRIBE_CONFIGS, TOPIC, once, tell=False)
    services = context.services
    results = []
    records: list[Record] = []
    created: dict[str, Planned] = {}
    placed: Placed = {}
    for asked in request.topics:
        yield
        if counts[asked.name] > 1 or asked.name == CLUSTER_METADATA or asked.name in refused:
            continue
        try:
            wanted = yield from _new_topic(asked)
            planned = yield from plan_topic(services, wanted, placed)
            quota.record(planned.partitions)
        except ClientError as error:
            results.append(_refused(asked.name, error.code, str(error)))
            continue
        created[planned.name] = planned
        records += planned.records
        results.append(_made(context, planned, told=planned.name not in untold))
    for name, count in counts.items():
        yield
        if count > 1:
            results.append(_refused(name, ErrorCode.INVALID_REQUEST, "Duplicate topic name."))
        elif name == CLUSTER_METADATA:
            message = f"Creation of internal topic {CLUSTER_METADATA} is prohibited."
            results.append(_refused(name, ErrorCode.INVALID_REQUEST, message))
        elif name in refused:
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            results.append(_refused(name, code, "Authorization failed."))

    context.answer.throttle(quota.throttle_ms)
    response = {"topics": results}
    if not created or request.validate_only:
        return response
    offered: Completion[Response] = Completion()

    def take_effect() -> None:
        made = publish.create_topics(services, created)
        made.on_done(lambda _: offered.resolve(response))
        for planned in created.values():
            context.changed("topic created", topic=planned.name, partitions=planned.partitions)

    yield services.store.append(records, take_effect)
    return offered


def _new_topic(asked: Any) -> Steps[NewTopic]:
    configs = yield from mapping((config.name, config.value) for config in asked.configs)
    return NewTopic(
        asked.name,
        asked.num_partitions,
        asked.replication_factor,
        configs,
        (yield from collect((one.partition_index, one.broker_ids) for one in asked.assignments)),
    )


def _check_total(request: Any, context: Context, counts: Counter[str]) -> Steps[None]:
    """Refuse a request for more than 10,000 partitions as a whole, with Apache Kafka's error.

    As in Kafka, names that are given more than once do not count. There are two differences. A
    topic with an invalid number of partitions counts as one here and as none in Kafka, since the
    changes of other clients wait while such topics are refused one by one: 10 s for 300,000. Topics
    that the client may not create count here; Kafka looks at rights first, which would take as
    long.
    """
    default = context.config.integer("num.partitions")
    total = 0
    for topic in request.topics:
        yield
        if counts[topic.name] > 1:
            continue
        if topic.assignments:
            total += len(topic.assignments)
        else:
            total += default if topic.num_partitions == -1 else max(topic.num_partitions, 1)
    if total > PARTITIONS_PER_REQUEST_MAX_COUNT:
        text = "Excessively large number of partitions per request."
        raise ClientError(ErrorCode.POLICY_VIOLATION, text)


def _refused(name: str, code: int, message: str) -> dict[str, Any]:
    return {"name": name, "error_code": code, "error_message": message}


def _made(context: Context, topic: Planned, *, told: bool) -> dict[str, Any]:
    """What was made of a topic; its settings are told to who may know them."""
    made = {"name": topic.name, "topic_id": topic.topic_id, "error_message": None}
    if not told:
        return {**made, "topic_config_error_code": ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    return {
        **made,
        "num_partitions": topic.partitions,
        "replication_factor": 1,
        "configs": created_configs(context.config, topic.configs),
    }
