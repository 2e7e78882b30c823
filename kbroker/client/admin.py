"""Admin requests: topics, partitions, configs, trimming, log directories, the cluster itself.

Each function answers for everything it was asked, in order, or raises the first error it meets.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kbroker.client.cluster import Cluster, TopicInfo
from kbroker.client.errors import check
from kbroker.client.offsets import leader_of
from kbroker.protocol import ApiKey

__all__ = [
    "BROKER",
    "TOPIC",
    "ClusterInfo",
    "ConfigEntry",
    "CreatedTopic",
    "LogDirPartition",
    "alter_configs",
    "create_partitions",
    "create_topic",
    "delete_records",
    "delete_topics",
    "describe_cluster",
    "describe_configs",
    "describe_log_dirs",
]

# Kinds of config resources.
TOPIC = 2
BROKER = 4

# Operations of IncrementalAlterConfigs (KIP-339).
_SET = 0
_DELETE = 1

# Sources of a config value as DescribeConfigs numbers them.
_SOURCES = {
    1: "topic",
    2: "broker (dynamic)",
    3: "cluster default (dynamic)",
    4: "broker (static)",
    5: "default",
    6: "broker logger",
    7: "client metrics",
    8: "group",
}
_TYPES = {
    1: "boolean",
    2: "string",
    3: "int",
    4: "short",
    5: "long",
    6: "double",
    7: "list",
    8: "class",
    9: "password",
}


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    """A topic as the broker made it; partitions -1 where the broker does not tell."""

    name: str
    topic_id: uuid.UUID
    partitions: int
    replication_factor: int


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One setting with where its value comes from. value None: secret or unset."""

    name: str
    value: str | None
    source: str
    is_default: bool
    read_only: bool
    sensitive: bool
    kind: str
    documentation: str


@dataclass(frozen=True, slots=True)
class LogDirPartition:
    """A partition's log on a broker's disk."""

    node_id: int
    log_dir: str
    topic: str
    partition: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class ClusterInfo:
    """The cluster's identity; brokers as (node id, host, port, rack)."""

    cluster_id: str
    controller_id: int
    brokers: tuple[tuple[int, str, int, str | None], ...]


def create_topic(
    cluster: Cluster,
    name: str,
    *,
    partitions: int = -1,
    replication_factor: int = -1,
    configs: Mapping[str, str] | None = None,
    validate_only: bool = False,
) -> CreatedTopic:
    """Creates a topic; -1 leaves the number to the broker's defaults."""
    wanted = {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": replication_factor,
        "configs": [{"name": key, "value": value} for key, value in (configs or {}).items()],
    }
    body = cluster.controller().call(
        ApiKey.CREATE_TOPICS,
        {"topics": [wanted], "timeout": _limit_ms(cluster), "validate_only": validate_only},
    )
    (made,) = body.topics
    check(made.error_code, f"topic {name!r}", made.error_message)
    cluster.forget(name)
    return CreatedTopic(
        name,
        getattr(made, "topic_id", None) or uuid.UUID(int=0),
        int(made.num_partitions),
        int(made.replication_factor),
    )


def delete_topics(cluster: Cluster, names: Sequence[str]) -> None:
    """Deletes topics; raises for the first that could not be, after all were tried."""
    connection = cluster.controller()
    request: dict[str, Any] = {"timeout": _limit_ms(cluster)}
    if connection.version_of(ApiKey.DELETE_TOPICS) >= 6:
        request["topics"] = [{"name": name, "topic_id": None} for name in names]
    else:
        request["topic_names"] = list(names)
    body = connection.call(ApiKey.DELETE_TOPICS, request)
    for name in names:
        cluster.forget(name)
    for answer in body.responses:
        check(answer.error_code, f"topic {answer.name!r}", getattr(answer, "error_message", None))


def create_partitions(
    cluster: Cluster, topic: str, total: int, *, validate_only: bool = False
) -> None:
    """Raises the number of partitions of a topic to this total."""
    body = cluster.controller().call(
        ApiKey.CREATE_PARTITIONS,
        {
            "topics": [{"name": topic, "count": total, "assignments": None}],
            "timeout": _limit_ms(cluster),
            "validate_only": validate_only,
        },
    )
    (answer,) = body.results
    check(answer.error_code, f"topic {topic!r}", answer.error_message)
    cluster.forget(topic)


def delete_records(
    cluster: Cluster, before: Mapping[tuple[str, int], int]
) -> dict[tuple[str, int], int]:
    """Trims partitions up to an offset (-1: the high watermark); gives the new first offsets."""
    by_leader: dict[int, dict[str, list[dict[str, int]]]] = defaultdict(lambda: defaultdict(list))
    for (topic, partition), offset in before.items():
        leader = leader_of(cluster, topic, partition)
        by_leader[leader][topic].append({"partition_index": partition, "offset": offset})
    done: dict[tuple[str, int], int] = {}
    for leader, topics in by_leader.items():
        body = cluster.connection(leader).call(
            ApiKey.DELETE_RECORDS,
            {
                "topics": [{"name": name, "partitions": parts} for name, parts in topics.items()],
                "timeout": _limit_ms(cluster),
            },
        )
        for topic_answer in body.topics:
            for part in topic_answer.partitions:
                index = int(part.partition_index)
                check(part.error_code, f"{topic_answer.name}-{index}")
                done[topic_answer.name, index] = int(part.low_watermark)
    return done


def describe_configs(
    cluster: Cluster, kind: int, name: str, *, keys: Iterable[str] | None = None
) -> list[ConfigEntry]:
    """The settings of a topic or broker (by its id), by name."""
    wanted = {
        "resource_type": kind,
        "resource_name": name,
        "configuration_keys": None if keys is None else list(keys),
    }
    connection = cluster.connection(int(name)) if kind == BROKER else cluster.any_connection()
    body = connection.call(
        ApiKey.DESCRIBE_CONFIGS,
        {"resources": [wanted], "include_synonyms": False, "include_documentation": True},
    )
    (answer,) = body.results
    check(answer.error_code, _resource(kind, name), answer.error_message)
    entries = (
        ConfigEntry(
            name=entry.name,
            value=entry.value,
            source=_SOURCES.get(int(entry.config_source), str(entry.config_source)),
            is_default=int(entry.config_source) == 5,
            read_only=entry.read_only,
            sensitive=entry.is_sensitive,
            kind=_TYPES.get(int(entry.config_type), ""),
            documentation=entry.documentation or "",
        )
        for entry in answer.configs
    )
    return sorted(entries, key=lambda entry: entry.name)


def alter_configs(
    cluster: Cluster,
    kind: int,
    name: str,
    *,
    set_values: Mapping[str, str] | None = None,
    delete: Iterable[str] = (),
    validate_only: bool = False,
) -> None:
    """Sets some settings of a topic or broker and returns others to their defaults."""
    changes: list[dict[str, Any]] = [
        {"name": key, "config_operation": _SET, "value": value}
        for key, value in (set_values or {}).items()
    ]
    changes += [{"name": key, "config_operation": _DELETE, "value": None} for key in delete]
    wanted = {"resource_type": kind, "resource_name": name, "configs": changes}
    connection = cluster.connection(int(name)) if kind == BROKER else cluster.controller()
    body = connection.call(
        ApiKey.INCREMENTAL_ALTER_CONFIGS, {"resources": [wanted], "validate_only": validate_only}
    )
    (answer,) = body.responses
    check(answer.error_code, _resource(kind, name), answer.error_message)


def describe_log_dirs(
    cluster: Cluster, topics: Sequence[TopicInfo] | None = None
) -> list[LogDirPartition]:
    """The logs of these topics, or of all, on every broker's disks, with their sizes."""
    cluster.refresh([])
    wanted = None
    if topics is not None:
        wanted = [
            {"topic": topic.name, "partitions": [part.index for part in topic.partitions]}
            for topic in topics
        ]
    found = []
    for node_id in sorted(cluster.nodes):
        body = cluster.connection(node_id).call(ApiKey.DESCRIBE_LOG_DIRS, {"topics": wanted})
        for answer in body.results:
            check(answer.error_code, f"log directory {answer.log_dir}")
            found += [
                LogDirPartition(
                    node_id,
                    answer.log_dir,
                    topic.name,
                    int(part.partition_index),
                    int(part.partition_size),
                )
                for topic in answer.topics
                for part in topic.partitions
            ]
    return found


def describe_cluster(cluster: Cluster) -> ClusterInfo:
    """Cluster id, controller and brokers."""
    body = cluster.any_connection().call(
        ApiKey.DESCRIBE_CLUSTER, {"include_cluster_authorized_operations": False}
    )
    check(body.error_code, "cluster", body.error_message)
    brokers = ((int(b.broker_id), str(b.host), int(b.port), b.rack) for b in body.brokers)
    return ClusterInfo(body.cluster_id, int(body.controller_id), tuple(sorted(brokers)))


def _limit_ms(cluster: Cluster) -> int:
    return int(cluster.timeout_s * 1000)


def _resource(kind: int, name: str) -> str:
    return f"topic {name!r}" if kind == TOPIC else f"broker {name}"
