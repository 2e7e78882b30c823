"""The cluster itself: brokers, features, the quorum of its controllers, the logs on its disks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kbroker.client.admin import error_of, limit_ms
from kbroker.client.cluster import Cluster, TopicInfo
from kbroker.client.connection import SOFTWARE
from kbroker.client.errors import KafkaError, UnsupportedApiError, check
from kbroker.client.operations import AclOperation, told_operations
from kbroker.client.results import Results, ask_each
from kbroker.errors import ErrorCode
from kbroker.protocol import ApiKey

__all__ = [
    "ClusterInfo",
    "Feature",
    "Features",
    "LogDir",
    "LogDirPartition",
    "Quorum",
    "QuorumReplica",
    "alter_replica_log_dirs",
    "describe_cluster",
    "describe_features",
    "describe_log_dirs",
    "describe_quorum",
    "log_dirs",
    "update_features",
]

_METADATA_TOPIC = "__cluster_metadata"
_UPGRADES = {"upgrade": 1, "safe_downgrade": 2, "unsafe_downgrade": 3}


@dataclass(frozen=True, slots=True)
class ClusterInfo:
    """The cluster's identity; brokers as (node id, host, port, rack). fenced: the ids of brokers
    that are registered but do not serve. operations: what this user may do with the cluster, where
    that was asked for."""

    cluster_id: str
    controller_id: int
    brokers: tuple[tuple[int, str, int, str | None], ...]
    fenced: tuple[int, ...] = ()
    operations: frozenset[AclOperation] | None = None


@dataclass(frozen=True, slots=True)
class Feature:
    """A feature's levels: those a broker supports, and the one that is in force (0: none)."""

    min_supported: int
    max_supported: int
    level: int


@dataclass(frozen=True, slots=True)
class Features:
    """Features by name. epoch -1: not told."""

    epoch: int
    features: Mapping[str, Feature]


@dataclass(frozen=True, slots=True)
class QuorumReplica:
    """A controller or observer of the metadata log. Times in ms since 1970, -1: not told."""

    node_id: int
    log_end_offset: int
    last_fetch_ms: int
    last_caught_up_ms: int


@dataclass(frozen=True, slots=True)
class Quorum:
    """Who holds the metadata log."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[QuorumReplica, ...]
    observers: tuple[QuorumReplica, ...]


@dataclass(frozen=True, slots=True)
class LogDirPartition:
    """A partition's log on a broker's disk. is_future: it is being moved here."""

    node_id: int
    log_dir: str
    topic: str
    partition: int
    size_bytes: int
    offset_lag: int = 0
    is_future: bool = False


@dataclass(frozen=True, slots=True)
class LogDir:
    """A log directory of a broker. total and usable bytes -1: not told. error: why it is off."""

    node_id: int
    path: str
    error: KafkaError | None
    total_bytes: int
    usable_bytes: int
    partitions: tuple[LogDirPartition, ...]


def describe_cluster(
    cluster: Cluster, *, fenced: bool = False, operations: bool = False
) -> ClusterInfo:
    """Cluster id, controller and brokers; with `fenced` those as well that do not serve, with
    `operations` what may be done. Where controllers are spoken to, these in the place of brokers.
    """

    def ask() -> ClusterInfo:
        values: dict[str, Any] = {
            "include_cluster_authorized_operations": operations,
            "endpoint_type": 2 if cluster.settings.controllers else 1,
        }
        connection = cluster.any_connection()
        if fenced and connection.version_of(ApiKey.DESCRIBE_CLUSTER) >= 2:
            values["include_fenced_brokers"] = True
        body = connection.call(ApiKey.DESCRIBE_CLUSTER, values)
        check(body.error_code, "cluster", body.error_message)
        brokers = ((int(b.broker_id), str(b.host), int(b.port), b.rack) for b in body.brokers)
        out = sorted(int(b.broker_id) for b in body.brokers if getattr(b, "is_fenced", False))
        return ClusterInfo(
            body.cluster_id,
            int(body.controller_id),
            tuple(sorted(brokers)),
            tuple(out),
            told_operations(body.cluster_authorized_operations),
        )

    return cluster.retry(ask)


def describe_features(cluster: Cluster, limit_s: float | None = None) -> Features:
    """The features of the cluster (KIP-584)."""

    def ask() -> Features:
        connection = cluster.any_connection()
        if connection.version_of(ApiKey.API_VERSIONS) < 3:
            raise UnsupportedApiError(f"broker {connection.address} tells nothing of features")
        body = connection.call(ApiKey.API_VERSIONS, SOFTWARE, timeout_s=limit_s)
        check(body.error_code, "features")
        levels = {f.name: int(f.max_version_level) for f in body.finalized_features}
        supported = {
            f.name: (int(f.min_version), int(f.max_version)) for f in body.supported_features
        }
        return Features(
            int(body.finalized_features_epoch),
            {
                name: Feature(*supported.get(name, (0, 0)), levels.get(name, 0))
                for name in sorted({*levels, *supported})
            },
        )

    return cluster.retry(ask)


def update_features(
    cluster: Cluster,
    levels: Mapping[str, int],
    *,
    upgrade: str = "upgrade",
    validate_only: bool = False,
) -> None:
    """Sets levels of features, all or none; 0 takes a feature out of force.

    upgrade: upgrade, safe_downgrade, or unsafe_downgrade, which may lose metadata.
    """
    if upgrade not in _UPGRADES:
        raise ValueError(f"upgrade={upgrade!r}: write one of {', '.join(_UPGRADES)}")
    updates = [
        {"feature": name, "max_version_level": level, "upgrade_type": _UPGRADES[upgrade]}
        for name, level in levels.items()
    ]

    def ask() -> None:
        values = {
            "timeout": limit_ms(cluster),
            "feature_updates": updates,
            "validate_only": validate_only,
        }
        body = cluster.controller().call(ApiKey.UPDATE_FEATURES, values)
        check(body.error_code, f"features {', '.join(levels)}", body.error_message)
        for result in getattr(body, "results", ()):
            check(result.error_code, f"feature {result.feature}", result.error_message)

    cluster.retry(ask)


def describe_quorum(cluster: Cluster) -> Quorum:
    """The controllers and what each of them has of the metadata log (KIP-595, KIP-836)."""
    topics = [{"topic_name": _METADATA_TOPIC, "partitions": [{"partition_index": 0}]}]

    def ask() -> Quorum:
        of_brokers = not cluster.settings.controllers  # these hand it on to the leader
        connection = cluster.any_connection() if of_brokers else cluster.controller()
        body = connection.call(ApiKey.DESCRIBE_QUORUM, {"topics": topics})
        check(body.error_code, "quorum", getattr(body, "error_message", None))
        ((part,),) = (topic.partitions for topic in body.topics)
        if part.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
            cluster.refresh([])  # who leads the controllers has changed
        check(part.error_code, "quorum", getattr(part, "error_message", None))
        return Quorum(
            int(part.leader_id),
            int(part.leader_epoch),
            int(part.high_watermark),
            tuple(map(_replica, part.current_voters)),
            tuple(map(_replica, part.observers)),
        )

    return cluster.retry(ask)


def _replica(replica: Any) -> QuorumReplica:
    return QuorumReplica(
        int(replica.replica_id),
        int(replica.log_end_offset),
        int(getattr(replica, "last_fetch_timestamp", -1)),
        int(getattr(replica, "last_caught_up_timestamp", -1)),
    )


def log_dirs(
    cluster: Cluster, nodes: Iterable[int], topics: Sequence[TopicInfo] | None = None
) -> Results[int, tuple[LogDir, ...]]:
    """The log directories of brokers, with the logs of these topics or of all."""
    wanted = None
    if topics is not None:
        wanted = [
            {"topic": topic.name, "partitions": [part.index for part in topic.partitions]}
            for topic in topics
        ]

    def ask(left: list[int]) -> Iterator[tuple[int, tuple[LogDir, ...] | KafkaError]]:
        for node in left:
            body = cluster.connection(node).call(ApiKey.DESCRIBE_LOG_DIRS, {"topics": wanted})
            failed = error_of(getattr(body, "error_code", 0), f"broker {node}")
            yield node, failed or tuple(_log_dir(node, answer) for answer in body.results)

    return ask_each(cluster, nodes, ask)


def _log_dir(node: int, answer: Any) -> LogDir:
    return LogDir(
        node,
        answer.log_dir,
        error_of(answer.error_code, f"log directory {answer.log_dir}"),
        int(getattr(answer, "total_bytes", -1)),
        int(getattr(answer, "usable_bytes", -1)),
        tuple(
            LogDirPartition(
                node,
                answer.log_dir,
                topic.name,
                int(part.partition_index),
                int(part.partition_size),
                int(part.offset_lag),
                bool(part.is_future_key),
            )
            for topic in answer.topics
            for part in topic.partitions
        ),
    )


def describe_log_dirs(
    cluster: Cluster, topics: Sequence[TopicInfo] | None = None
) -> list[LogDirPartition]:
    """The logs of these topics, or of all, on every broker's disks, with their sizes."""
    cluster.refresh([])
    found: list[LogDirPartition] = []
    for folders in log_dirs(cluster, sorted(cluster.nodes), topics).values():
        for folder in folders:
            if folder.error is not None:
                raise folder.error
            found += folder.partitions
    return found


def alter_replica_log_dirs(
    cluster: Cluster, moves: Mapping[tuple[int, str, int], str]
) -> Results[tuple[int, str, int], None]:
    """Moves replicas, named by (broker, topic, partition), to log directories of their brokers."""

    def ask(
        left: list[tuple[int, str, int]],
    ) -> Iterator[tuple[tuple[int, str, int], KafkaError | None]]:
        by_node: dict[int, dict[str, dict[str, list[int]]]] = defaultdict(
            lambda: defaultdict(lambda: defaultdict(list))
        )
        for node, topic, index in left:
            by_node[node][moves[node, topic, index]][topic].append(index)
        for node, dirs in by_node.items():
            wanted = [
                {
                    "path": path,
                    "topics": [{"name": name, "partitions": p} for name, p in topics.items()],
                }
                for path, topics in dirs.items()
            ]
            body = cluster.connection(node).call(ApiKey.ALTER_REPLICA_LOG_DIRS, {"dirs": wanted})
            for topic in body.results:
                for part in topic.partitions:
                    key = node, topic.topic_name, int(part.partition_index)
                    yield key, error_of(part.error_code, f"{key[1]}-{key[2]} on broker {node}")

    return ask_each(cluster, moves, ask)
