"""Replicas: elections of leaders, and partitions that move to other brokers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kbroker.client.admin import error_of, limit_ms
from kbroker.client.cluster import Cluster
from kbroker.client.errors import KafkaError, check
from kbroker.client.partitions import TopicPartition, checked_partition, checked_partitions
from kbroker.client.results import Results, ask_each
from kbroker.errors import ErrorCode
from kbroker.protocol import ApiKey

__all__ = ["Reassignment", "alter_reassignments", "elect_leaders", "list_reassignments"]

Partition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Reassignment:
    """A partition on its way: all its replicas now, those to come, those to go."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


def _by_topic(partitions: Iterable[Partition]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = defaultdict(list)
    for topic, index in checked_partitions(partitions):
        found[topic].append(index)
    return found


def elect_leaders(
    cluster: Cluster, partitions: Iterable[Partition] | None, *, unclean: bool = False
) -> Results[TopicPartition, bool]:
    """Elects the preferred leaders, or with `unclean` a replica out of sync where there is no
    other, which loses records. None: of all partitions. False: the leader was the right one."""
    keys = None if partitions is None else checked_partitions(partitions)

    def elect(
        wanted: list[TopicPartition] | None,
    ) -> Iterator[tuple[TopicPartition, bool | KafkaError]]:
        topics = None
        if wanted is not None:
            topics = [
                {"topic": name, "partitions": indexes}
                for name, indexes in _by_topic(wanted).items()
            ]
        values = {
            "election_type": int(unclean),
            "topic_partitions": topics,
            "timeout": limit_ms(cluster),
        }
        body = cluster.controller().call(ApiKey.ELECT_LEADERS, values)
        check(body.error_code, "election of leaders")
        for topic in body.replica_election_results:
            cluster.forget(topic.topic)
            for part in topic.partition_result:
                key = TopicPartition(topic.topic, int(part.partition_id))
                if part.error_code == ErrorCode.ELECTION_NOT_NEEDED:
                    yield key, False
                else:
                    yield key, error_of(part.error_code, str(key), part.error_message) or True

    if keys is None:
        return Results(dict(cluster.retry(lambda: list(elect(None)))))
    return ask_each(cluster, keys, elect)


def alter_reassignments(
    cluster: Cluster, targets: Mapping[Partition, Sequence[int] | None]
) -> Results[TopicPartition, None]:
    """Moves partitions to these replicas, first the preferred leader; None ends a move."""
    wanted = {checked_partition(key): nodes for key, nodes in targets.items()}

    def ask(
        keys: list[TopicPartition],
    ) -> Iterator[tuple[TopicPartition, KafkaError | None]]:
        topics = []
        for name, indexes in _by_topic(keys).items():
            parts = []
            for index in indexes:
                nodes = wanted[TopicPartition(name, index)]
                replicas = None if nodes is None else list(nodes)
                parts.append({"partition_index": index, "replicas": replicas})
            topics.append({"name": name, "partitions": parts})
        values = {"timeout": limit_ms(cluster), "topics": topics}
        body = cluster.controller().call(ApiKey.ALTER_PARTITION_REASSIGNMENTS, values)
        check(body.error_code, "reassignment", body.error_message)
        for topic in body.responses:
            cluster.forget(topic.name)
            for part in topic.partitions:
                key = TopicPartition(topic.name, int(part.partition_index))
                yield key, error_of(part.error_code, str(key), part.error_message)

    return ask_each(cluster, wanted, ask)


def list_reassignments(
    cluster: Cluster, partitions: Iterable[Partition] | None = None
) -> dict[TopicPartition, Reassignment]:
    """The moves under way, of these partitions or of all."""
    topics: list[dict[str, Any]] | None = None
    if partitions is not None:
        topics = [
            {"name": name, "partition_indexes": indexes}
            for name, indexes in _by_topic(partitions).items()
        ]

    def ask() -> dict[TopicPartition, Reassignment]:
        values = {"timeout": limit_ms(cluster), "topics": topics}
        body = cluster.controller().call(ApiKey.LIST_PARTITION_REASSIGNMENTS, values)
        check(body.error_code, "reassignments", body.error_message)
        return {
            TopicPartition(topic.name, int(part.partition_index)): Reassignment(
                tuple(map(int, part.replicas)),
                tuple(map(int, part.adding_replicas)),
                tuple(map(int, part.removing_replicas)),
            )
            for topic in body.topics
            for part in topic.partitions
        }

    return cluster.retry(ask)
