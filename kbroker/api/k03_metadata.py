"""Metadata: brokers, topics, partitions and their leaders.

Behavior: topics are answered in the order in which they were asked for, once each. One that may
not be described is left out of all, and else refused without a word on whether it is there. A
missing topic is created where both the broker (auto.create.topics.enable) and the request allow it;
as with Apache Kafka, this answer still says UNKNOWN_TOPIC_OR_PARTITION and the next one has the
topic. A topic id without a topic gets UNKNOWN_TOPIC_ID.

Version notes:
  v0: no topics means all of them; from v1 null does, and none means none.
  v1: controller, racks, internal topics. v2: cluster id. v3: throttle time.
  v4: the request may forbid creation; before, it is allowed. v5: offline replicas.
  v7: leader epoch. v8-v10: authorized operations of the cluster. v9: flexible.
  v10: topic ids in answers. v12: topics may be asked for by id.
  v13: top-level error code (KIP-1102), which only a client's bootstrap uses.
"""

from __future__ import annotations

from typing import Any, Final

from kbroker.api.context import Context, uuid_bytes
from kbroker.api.quotas import mutation_quota
from kbroker.api.registry import Response, register
from kbroker.api.rights import NOT_ASKED, cluster_operations, denied_steps, may_cluster, operations
from kbroker.api.topic_creation import create_automatically
from kbroker.api.topic_names import INTERNAL_TOPICS, name_fault
from kbroker.errors import ClientError, ErrorCode
from kbroker.metadata.image import NO_LEADER, Topic
from kbroker.operations import Steps, collect
from kbroker.protocol import ApiKey
from kbroker.security.acls import CREATE, DESCRIBE, TOPIC

_FIRST_WITH_IDS = 12
_UNSEEN: Final = {"error_code": ErrorCode.TOPIC_AUTHORIZATION_FAILED}
_WITHOUT_OPERATIONS: Final = (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.UNKNOWN_TOPIC_ID)


def _failed(request: Any, code: int, message: str) -> Response:
    topics = [
        {
            "name": topic.name or "",
            "topic_id": getattr(topic, "topic_id", None),
            "error_code": code,
        }
        for topic in request.topics or ()
    ]
    return {"topics": topics, "error_code": code}


@register(ApiKey.METADATA, 0, 13, failed=_failed)
def metadata(request: Any, context: Context) -> Steps[Response]:
    """Answer a Metadata request."""
    asked = request.topics
    if asked is None or (context.version == 0 and not asked):
        there = list(context.image.topics.values())
        names = (topic.name for topic in there)
        hidden = yield from denied_steps(context, DESCRIBE, TOPIC, names, tell=False)
        topics = yield from collect(
            describe(context, topic) for topic in there if topic.name not in hidden
        )
    else:
        topics = yield from _asked_for(request, context)
    if getattr(request, "include_topic_authorized_operations", False):
        for topic in topics:
            yield
            if topic.get("error_code", ErrorCode.NONE) not in _WITHOUT_OPERATIONS:
                topic["topic_authorized_operations"] = operations(context, TOPIC, topic["name"])
    cluster_asked = getattr(request, "include_cluster_authorized_operations", False)
    return {
        "brokers": [{"node_id": context.node_id, **address(context)}],
        "cluster_id": context.services.store.meta.cluster_id,
        "controller_id": context.node_id,
        "topics": topics,
        "cluster_authorized_operations": (
            cluster_operations(context) if cluster_asked else NOT_ASKED
        ),
    }


def address(context: Context) -> dict[str, Any]:
    """Where clients of the request's listener find this broker."""
    endpoint = context.endpoint
    return {
        "host": endpoint.host,
        "port": endpoint.port,
        "rack": context.config.string("broker.rack") or None,
    }


def _asked_for(request: Any, context: Context) -> Steps[list[dict[str, Any]]]:
    """The topics that a request names, by id where it gives one."""
    names: dict[str, None] = {}
    ids: dict[bytes, None] = {}
    for topic in request.topics:
        yield
        topic_id = uuid_bytes(getattr(topic, "topic_id", None))
        if context.version < _FIRST_WITH_IDS:
            _refuse_ids(topic.name, topic_id, context.version)
        if any(topic_id):
            ids[topic_id] = None
        elif topic.name is not None:
            names[topic.name] = None
    if ids:
        known = (context.image.topic_by_id(topic_id) for topic_id in ids)
        described = (topic.name for topic in known if topic is not None)
        hidden = yield from denied_steps(context, DESCRIBE, TOPIC, described)
        return (yield from collect(_by_id(context, topic_id, hidden) for topic_id in ids))
    hidden = yield from denied_steps(context, DESCRIBE, TOPIC, names)
    missing: list[str] = []
    for name in names:
        yield
        if name not in hidden and name not in context.image.topics:
            missing.append(name)
    uncreated: frozenset[str] = frozenset()
    if not missing or not _may_create(request, context):
        missing = []
    elif not may_cluster(context, CREATE, tell=False):
        uncreated = yield from denied_steps(context, CREATE, TOPIC, missing)
    answers = yield from collect(
        {**_UNSEEN, "name": name, "is_internal": name in uncreated and name in INTERNAL_TOPICS}
        if name in hidden or name in uncreated
        else _by_name(context, name)
        for name in names
    )
    created = (name for name in missing if name not in uncreated)
    create_automatically(context.services, created, mutation_quota(context, 0))
    return answers


def _refuse_ids(name: str | None, topic_id: bytes, version: int) -> None:
    if name is None or any(topic_id):
        raise ClientError(
            ErrorCode.INVALID_REQUEST,
            f"Metadata v{version} asks for topics by name; topic ids come with v{_FIRST_WITH_IDS}.",
        )


def _by_id(context: Context, topic_id: bytes, hidden: frozenset[str]) -> dict[str, Any]:
    topic = context.image.topic_by_id(topic_id)
    if topic is None:
        return {"error_code": ErrorCode.UNKNOWN_TOPIC_ID, "name": None, "topic_id": topic_id}
    if topic.name in hidden:
        return {**_UNSEEN, "name": None, "topic_id": topic_id}
    return describe(context, topic)


def _by_name(context: Context, name: str) -> dict[str, Any]:
    topic = context.image.topics.get(name)
    if topic is not None:
        return describe(context, topic)
    missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return {
        "error_code": missing if name_fault(name) is None else ErrorCode.INVALID_TOPIC_EXCEPTION,
        "name": name,
        "is_internal": name in INTERNAL_TOPICS,
    }


def _may_create(request: Any, context: Context) -> bool:
    """Whether broker and request would have missing topics created."""
    return context.config.flag("auto.create.topics.enable") and bool(
        getattr(request, "allow_auto_topic_creation", True)
    )


def describe(context: Context, topic: Topic) -> dict[str, Any]:
    """A topic with its partitions, as Metadata and DescribeTopicPartitions answer it."""
    offline = context.services.logs.offline
    return {
        "name": topic.name,
        "topic_id": topic.id,
        "is_internal": topic.name in INTERNAL_TOPICS,
        "partitions": [
            describe_partition(partition, (topic.name, index) in offline)
            for index, partition in topic.partitions.items()
        ],
    }


def describe_partition(partition: Any, is_offline: bool) -> dict[str, Any]:
    """A partition's leader, replicas and in-sync replicas."""
    if is_offline or partition.leader == NO_LEADER:
        return {
            "error_code": ErrorCode.LEADER_NOT_AVAILABLE,
            "partition_index": partition.partition_id,
            "leader_id": NO_LEADER,
            "leader_epoch": partition.leader_epoch,
            "replica_nodes": partition.replicas,
            "isr_nodes": partition.isr,
            "offline_replicas": partition.replicas,
        }
    return {
        "partition_index": partition.partition_id,
        "leader_id": partition.leader,
        "leader_epoch": partition.leader_epoch,
        "replica_nodes": partition.replicas,
        "isr_nodes": partition.isr,
    }
