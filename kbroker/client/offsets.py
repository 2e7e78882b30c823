"""Offsets of partitions: earliest, latest, by time (ListOffsets)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from kbroker.client.cluster import Cluster
from kbroker.client.errors import KafkaError, check
from kbroker.protocol import ApiKey

__all__ = ["EARLIEST", "LATEST", "MAX_TIMESTAMP", "FoundOffset", "list_offsets"]

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3  # KIP-734, ListOffsets v7

Partition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class FoundOffset:
    """offset -1: no record at or after that time. timestamp_ms -1: not told."""

    offset: int
    timestamp_ms: int


def list_offsets(
    cluster: Cluster, wanted: Mapping[Partition, int], *, read_committed: bool = False
) -> dict[Partition, FoundOffset]:
    """The offset of each partition for a timestamp in ms, or EARLIEST, LATEST, MAX_TIMESTAMP."""
    return cluster.retry(lambda: _list_offsets(cluster, wanted, read_committed))


def _list_offsets(
    cluster: Cluster, wanted: Mapping[Partition, int], read_committed: bool
) -> dict[Partition, FoundOffset]:
    by_leader: dict[int, dict[str, list[dict[str, int]]]] = defaultdict(lambda: defaultdict(list))
    for (topic, partition), timestamp in wanted.items():
        leader = leader_of(cluster, topic, partition)
        asked = {"partition_index": partition, "timestamp": timestamp, "current_leader_epoch": -1}
        by_leader[leader][topic].append(asked)
    found: dict[Partition, FoundOffset] = {}
    for leader, topics in by_leader.items():
        request = {
            "replica_id": -1,
            "isolation_level": 1 if read_committed else 0,
            "timeout": int(cluster.timeout_s * 1000),
            "topics": [{"name": name, "partitions": parts} for name, parts in topics.items()],
        }
        body = cluster.connection(leader).call(ApiKey.LIST_OFFSETS, request)
        for topic_answer in body.topics:
            for part in topic_answer.partitions:
                name, index = topic_answer.name, int(part.partition_index)
                if part.error_code != 0:
                    cluster.forget(name)
                check(part.error_code, f"{name}-{index}")
                found[name, index] = FoundOffset(int(part.offset), int(part.timestamp))
    return found


def leader_of(cluster: Cluster, topic: str, partition: int, *, create: bool = False) -> int:
    """The node that leads a partition; asks the cluster where it is not known."""
    info = cluster.topic(topic, create=create)
    for part in info.partitions:
        if part.index == partition:
            if part.leader < 0:
                cluster.forget(topic)
                check(part.error_code or 5, f"{topic}-{partition}")
            return part.leader
    raise KafkaError(
        f"topic {topic!r} has no partition {partition}; it has {len(info.partitions)}"
        f" (0 to {len(info.partitions) - 1})"
    )
