"""Topics: made, deleted, described, given more partitions, trimmed.

Each function tells of each thing asked for (`Results`); what fails in a way that passes is asked
for again within the cluster's limit.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from kbroker.client.cluster import Cluster, TopicInfo
from kbroker.client.connection import Connection
from kbroker.client.errors import BrokerError, KafkaError, UnsupportedApiError
from kbroker.client.metadata import NO_ID
from kbroker.client.offsets import leaders_of
from kbroker.client.operations import AclOperation, told_operations
from kbroker.client.partitions import checked_partition
from kbroker.client.results import Results, ask_each, listed
from kbroker.errors import ErrorCode
from kbroker.protocol import ApiKey

__all__ = [
    "CreatedTopic",
    "NewTopic",
    "ask_leaders",
    "config_text",
    "create_partitions",
    "create_topic",
    "create_topics",
    "delete_records",
    "delete_topics",
    "describe_topics",
    "error_of",
    "limit_ms",
]

Partition = tuple[str, int]
ConfigValue = str | float | None

# Who names a topic that is not there is told so; it is not waited for.
_UNKNOWN = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)

V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to be made; -1 leaves a number to the broker's defaults.

    assignments: the replicas of each partition, first the preferred leader; instead of numbers.
    """

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, ConfigValue] = field(default_factory=dict)
    assignments: Mapping[int, Sequence[int]] | None = None


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    """A topic as the broker made it; partitions -1 where the broker does not tell."""

    name: str
    topic_id: uuid.UUID
    partitions: int
    replication_factor: int


def error_of(code: int, subject: str, message: str | None = None) -> BrokerError | None:
    """The error of a code in an answer; None for NONE."""
    return BrokerError(int(code), subject, message) if code != 0 else None


def limit_ms(cluster: Cluster) -> int:
    """What a broker is told as the limit of a request."""
    return int(cluster.timeout_s * 1000)


def create_topics(
    cluster: Cluster, topics: Iterable[NewTopic], *, validate_only: bool = False
) -> Results[str, CreatedTopic]:
    """Creates topics."""
    wanted = {topic.name: _new_topic(topic) for topic in listed(topics)}

    def ask(names: list[str]) -> Iterator[tuple[str, CreatedTopic | KafkaError]]:
        values = {
            "topics": [wanted[name] for name in names],
            "timeout": limit_ms(cluster),
            "validate_only": validate_only,
        }
        for made in cluster.controller().call(ApiKey.CREATE_TOPICS, values).topics:
            cluster.forget(made.name)
            topic_id = getattr(made, "topic_id", None) or NO_ID
            yield made.name, error_of(
                made.error_code, f"topic {made.name!r}", made.error_message
            ) or CreatedTopic(
                made.name, topic_id, int(made.num_partitions), int(made.replication_factor)
            )

    return ask_each(cluster, wanted, ask)


def _new_topic(topic: NewTopic) -> dict[str, Any]:
    if not isinstance(topic.name, str):
        raise TypeError(f"topic: {type(topic.name).__name__} is not str")
    assigned = topic.assignments or {}
    return {
        "name": topic.name,
        "num_partitions": -1 if assigned else topic.partitions,
        "replication_factor": -1 if assigned else topic.replication_factor,
        "assignments": [
            {"partition_index": index, "broker_ids": list(nodes)}
            for index, nodes in sorted(assigned.items())
        ],
        "configs": [{"name": name, "value": config_text(name, value)}
                    for name, value in topic.configs.items()],
    }  # fmt: skip


def config_text(name: object, value: object) -> str | None:
    """A setting's value as the protocol has it: text. Numbers and truth are written so; TypeError
    names what cannot be."""
    if not isinstance(name, str):
        raise TypeError(f"the name of a setting: {type(name).__name__} is not str")
    if isinstance(value, bool):
        return str(value).lower()
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, int | float):
        return str(value)
    raise TypeError(f"{name}: {type(value).__name__} is neither str nor a number")


def create_topic(
    cluster: Cluster,
    name: str,
    *,
    partitions: int = -1,
    replication_factor: int = -1,
    configs: Mapping[str, ConfigValue] | None = None,
    validate_only: bool = False,
) -> CreatedTopic:
    """Creates a topic; -1 leaves the number to the broker's defaults."""
    topic = NewTopic(name, partitions, replication_factor, configs or {})
    return create_topics(cluster, [topic], validate_only=validate_only)[name]


def delete_topics(
    cluster: Cluster, topics: Iterable[str | uuid.UUID]
) -> Results[str | uuid.UUID, None]:
    """Deletes topics by their names or ids."""

    def ask(keys: list[str | uuid.UUID]) -> Iterator[tuple[str | uuid.UUID, KafkaError | None]]:
        connection = cluster.controller()
        values: dict[str, Any] = {"timeout": limit_ms(cluster)}
        ids = {key for key in keys if isinstance(key, uuid.UUID)}
        if connection.version_of(ApiKey.DELETE_TOPICS) >= 6:
            values["topics"] = [
                {"name": None, "topic_id": key} if key in ids else {"name": key, "topic_id": None}
                for key in keys
            ]
        elif ids:
            raise UnsupportedApiError(f"broker {connection.address} does not know topics by id")
        else:
            values["topic_names"] = keys
        for answer in connection.call(ApiKey.DELETE_TOPICS, values).responses:
            by_id = getattr(answer, "topic_id", None)
            key = by_id if by_id in ids else answer.name
            if answer.name:
                cluster.forget(answer.name)
            message = getattr(answer, "error_message", None)
            yield key, error_of(answer.error_code, f"topic {str(key)!r}", message)

    return ask_each(cluster, topics, ask, final=_UNKNOWN)


def describe_topics(
    cluster: Cluster, topics: Iterable[str | uuid.UUID], *, operations: bool = False
) -> Results[str | uuid.UUID, TopicInfo]:
    """Topics by their names or ids, asked for anew; with `operations`, what may be done with them.
    """

    def ask(
        keys: list[str | uuid.UUID],
    ) -> Iterator[tuple[str | uuid.UUID, TopicInfo | KafkaError]]:
        if not operations:
            yield from describe(keys)
            return
        found = dict(describe(keys))
        infos = {key: info for key, info in found.items() if isinstance(info, TopicInfo)}
        rights = _operations(cluster, {info.name for info in infos.values()})
        told = {key: replace(info, operations=rights.get(info.name)) for key, info in infos.items()}
        yield from (found | told).items()

    def describe(
        keys: list[str | uuid.UUID],
    ) -> Iterator[tuple[str | uuid.UUID, TopicInfo | KafkaError]]:
        names = [key for key in keys if isinstance(key, str)]
        found = cluster.describe(names) if names else {}
        for name in names:
            unknown = BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name!r}")
            yield name, found.get(name, unknown)
        for key in keys:
            if isinstance(key, uuid.UUID):
                info = cluster.topic_of_id(key)
                yield key, info or BrokerError(ErrorCode.UNKNOWN_TOPIC_ID, f"topic {str(key)!r}")

    return ask_each(cluster, topics, ask, final=_UNKNOWN)


def _operations(
    cluster: Cluster, names: Iterable[str]
) -> dict[str, frozenset[AclOperation] | None]:
    """What this user may do with topics (KIP-430)."""
    values = {
        "topics": [{"name": name} for name in names],
        "allow_auto_topic_creation": False,
        "include_topic_authorized_operations": True,
    }
    told = cluster.any_connection().call(ApiKey.METADATA, values).topics
    return {topic.name: told_operations(topic.topic_authorized_operations) for topic in told}


def create_partitions(
    cluster: Cluster,
    totals: Mapping[str, int],
    *,
    assignments: Mapping[str, Sequence[Sequence[int]]] | None = None,
    validate_only: bool = False,
) -> Results[str, None]:
    """Raises the number of partitions of topics to these totals. assignments: the replicas of
    each new partition of a topic, first the preferred leader; brokers choose where none is given.
    """

    def replicas(name: str) -> list[dict[str, list[int]]] | None:
        told = (assignments or {}).get(name)
        return None if told is None else [{"broker_ids": list(nodes)} for nodes in told]

    def ask(names: list[str]) -> Iterator[tuple[str, KafkaError | None]]:
        wanted = [
            {"name": name, "count": totals[name], "assignments": replicas(name)} for name in names
        ]
        values = {"topics": wanted, "timeout": limit_ms(cluster), "validate_only": validate_only}
        for answer in cluster.controller().call(ApiKey.CREATE_PARTITIONS, values).results:
            cluster.forget(answer.name)
            subject = f"topic {answer.name!r}"
            yield answer.name, error_of(answer.error_code, subject, answer.error_message)

    return ask_each(cluster, totals, ask, final=_UNKNOWN)


def ask_leaders(
    cluster: Cluster,
    partitions: Iterable[Partition],
    ask: Callable[[Connection, dict[str, list[int]]], Iterator[tuple[Partition, V | KafkaError]]],
) -> Results[Partition, V]:
    """What `ask` tells at each leader of its partitions, given as indexes by topic."""

    def attempt(keys: list[Partition]) -> Iterator[tuple[Partition, V | KafkaError]]:
        by_leader: dict[int, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
        for (topic, index), led_by in leaders_of(cluster, keys).items():
            if isinstance(led_by, KafkaError):
                yield (topic, index), led_by
            else:
                by_leader[led_by][topic].append(index)
        for leader, topics in by_leader.items():
            try:
                for (topic, index), told in ask(cluster.connection(leader), topics):
                    if isinstance(told, KafkaError) and told.stale_metadata:
                        cluster.forget(topic)
                    yield (topic, index), told
            except KafkaError as error:
                if not error.retriable:
                    raise
                for topic, indexes in topics.items():
                    cluster.forget(topic)
                    for index in indexes:
                        yield (topic, index), error

    return ask_each(cluster, partitions, attempt)


def delete_records(
    cluster: Cluster, before: Mapping[Partition, int]
) -> Results[Partition, int]:
    """Trims partitions up to an offset (-1: the high watermark); gives the new first offsets."""
    ends: dict[Partition, int] = {checked_partition(key): offset for key, offset in before.items()}

    def ask(
        connection: Connection, topics: dict[str, list[int]]
    ) -> Iterator[tuple[Partition, int | KafkaError]]:
        wanted = [
            {
                "name": name,
                "partitions": [
                    {"partition_index": index, "offset": ends[name, index]} for index in indexes
                ],
            }
            for name, indexes in topics.items()
        ]
        values = {"topics": wanted, "timeout": limit_ms(cluster)}
        for topic in connection.call(ApiKey.DELETE_RECORDS, values).topics:
            for part in topic.partitions:
                key = topic.name, int(part.partition_index)
                failed = error_of(part.error_code, f"{key[0]}-{key[1]}")
                yield key, int(part.low_watermark) if failed is None else failed

    return ask_leaders(cluster, ends, ask)
