"""Offsets of partitions: earliest, latest, by time (ListOffsets)."""

from __future__ import annotations

import operator
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kbroker.client.cluster import Cluster, TopicInfo
from kbroker.client.errors import BrokerError, KafkaError, check
from kbroker.client.partitions import checked_partition
from kbroker.client.results import Results, ask_each
from kbroker.errors import ErrorCode
from kbroker.protocol import ApiKey

__all__ = [
    "EARLIEST", "LATEST", "MAX_TIMESTAMP", "FoundOffset", "checked_time", "duration_ms",
    "list_offsets", "offsets_of_each",
]  # fmt: skip

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
    """The offset of each partition for a timestamp in ms, or EARLIEST, LATEST, MAX_TIMESTAMP.

    Raises the first partition's error.
    """
    return dict(offsets_of_each(cluster, wanted, read_committed=read_committed).checked())


def offsets_of_each(
    cluster: Cluster, wanted: Mapping[Partition, int], *, read_committed: bool = False
) -> Results[Partition, FoundOffset]:
    """The same, with the errors of single partitions among the results."""
    wanted = {
        (where := checked_partition(key)): _whole(told, f" of {where}")
        for key, told in wanted.items()
    }

    def ask(keys: list[Partition]) -> Iterator[tuple[Partition, FoundOffset | KafkaError]]:
        by_leader: dict[int, list[Partition]] = defaultdict(list)
        for key, leader in leaders_of(cluster, keys).items():
            if isinstance(leader, KafkaError):
                yield key, leader
            else:
                by_leader[leader].append(key)
        for leader, led in by_leader.items():
            asked = {key: wanted[key] for key in led}
            try:
                yield from _ask(cluster, leader, asked, read_committed)
            except KafkaError as error:
                if error.stale_metadata:
                    for topic, _ in led:
                        cluster.forget(topic)
                yield from ((key, error) for key in led)

    return ask_each(cluster, wanted, ask)


def _ask(
    cluster: Cluster, leader: int, wanted: Mapping[Partition, int], read_committed: bool
) -> list[tuple[Partition, FoundOffset | KafkaError]]:
    topics: dict[str, list[dict[str, int]]] = defaultdict(list)
    for (topic, partition), timestamp in wanted.items():
        asked = {"partition_index": partition, "timestamp": timestamp, "current_leader_epoch": -1}
        topics[topic].append(asked)
    request = {
        "replica_id": -1,
        "isolation_level": 1 if read_committed else 0,
        "timeout": int(cluster.timeout_s * 1000),
        "topics": [{"name": name, "partitions": parts} for name, parts in topics.items()],
    }
    body = cluster.connection(leader).call(ApiKey.LIST_OFFSETS, request)
    found: list[tuple[Partition, FoundOffset | KafkaError]] = []
    for topic_answer in body.topics:
        for part in topic_answer.partitions:
            key = (str(topic_answer.name), int(part.partition_index))
            if part.error_code != 0:
                cluster.forget(key[0])
                found.append((key, BrokerError(int(part.error_code), f"{key[0]}-{key[1]}")))
            else:
                found.append((key, FoundOffset(int(part.offset), int(part.timestamp))))
    return found


def leader_of(cluster: Cluster, topic: str, partition: int, *, create: bool = False) -> int:
    """The node that leads a partition; asks the cluster where it is not known."""
    return _leader_in(cluster, cluster.topic(topic, create=create), partition)


def leaders_of(
    cluster: Cluster, partitions: Iterable[Partition]
) -> dict[Partition, int | KafkaError]:
    """Return the node that leads each partition, or the error; one request asks for all topics that
    are not known."""
    every = list(partitions)
    infos = cluster.topics_of(dict.fromkeys(topic for topic, _ in every))
    found: dict[Partition, int | KafkaError] = {}
    for topic, index in every:
        info = infos[topic]
        try:
            found[topic, index] = (
                info if isinstance(info, KafkaError) else _leader_in(cluster, info, index)
            )
        except KafkaError as error:
            found[topic, index] = error
    return found


def _leader_in(cluster: Cluster, info: TopicInfo, index: int) -> int:
    part = info.partition(index)
    if part is None:
        raise KafkaError(
            f"topic {info.name!r} has no partition {index}; it has {len(info.partitions)}"
            f" (0 to {len(info.partitions) - 1})"
        )
    if part.leader < 0:
        cluster.forget(info.name)
        check(part.error_code or ErrorCode.LEADER_NOT_AVAILABLE, f"{info.name}-{index}")
    return part.leader


def checked_time(given: Any, of: str = "") -> int:
    """A time in ms since 1970. Raises TypeError for what is no whole number: seconds, as
    time.time() gives them, would be a time in 1970. ValueError for one before that."""
    found = _whole(given, of)
    if found < 0:
        raise ValueError(f"time {given}{of}; times are ms since 1970")
    return found


def _whole(given: Any, of: str) -> int:
    try:
        return operator.index(given)  # numpy's as well
    except TypeError:
        raise TypeError(f"time {given!r}{of}; times are whole numbers of ms since 1970") from None


def duration_ms(text: str) -> int:
    """Of `by_duration:PnDTnHnMn.nS`, which the configuration has checked."""
    found = re.fullmatch(
        r"by_duration:P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:([\d.]+)S)?)?", text
    )
    assert found is not None
    days, hours, minutes, seconds = (float(part or 0) for part in found.groups())
    return int((((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000)
