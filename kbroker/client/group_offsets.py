"""Committed offsets of groups: read, committed and deleted from outside of the group.

Commits are those of a committer without a member id, which coordinators take only while the group
has no members.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from kbroker.client.cluster import Cluster
from kbroker.client.connection import Connection
from kbroker.client.coordinators import ask_coordinators, check_coordinator, subject_of
from kbroker.client.errors import BrokerError, check
from kbroker.client.partitions import OffsetAndMetadata, checked_offsets, checked_partitions
from kbroker.errors import ErrorCode
from kbroker.protocol import ApiKey

__all__ = ["CommittedOffset", "commit_offsets", "committed_offsets", "delete_offsets"]

Partition = tuple[str, int]

_NO_OFFSET = -1


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """The next record to be read. leader_epoch -1: not told by the committer."""

    offset: int
    leader_epoch: int
    metadata: str


def committed_offsets(
    cluster: Cluster, groups: Collection[str], *, stable: bool = False
) -> dict[str, dict[Partition, CommittedOffset]]:
    """All committed offsets of each group, by topic and partition; none for unknown groups.

    stable: waits, within the cluster's time limit, while transactions with offsets are open.
    """
    return ask_coordinators(cluster, groups, partial(_committed_at, stable))


def _committed_at(
    stable: bool, connection: Connection, node_id: int, groups: list[str]
) -> Iterator[tuple[str, dict[Partition, CommittedOffset]]]:
    del node_id
    if connection.version_of(ApiKey.OFFSET_FETCH) >= 8:
        asked = [{"group_id": group, "member_epoch": -1, "topics": None} for group in groups]
        values = {"groups": asked, "require_stable": stable}
        answers = connection.call(ApiKey.OFFSET_FETCH, values).groups
        told = [(answer.group_id, answer) for answer in answers]
    else:
        every: dict[str, Any] = {"topics": None, "require_stable": stable}
        told = [
            (group, connection.call(ApiKey.OFFSET_FETCH, every | {"group_id": group}))
            for group in groups
        ]
    for group, answer in told:
        if answer.error_code != ErrorCode.GROUP_ID_NOT_FOUND:
            check(answer.error_code, subject_of(group))
        yield group, dict(sorted(_offsets_of(answer)))


def _offsets_of(answer: Any) -> Iterator[tuple[Partition, CommittedOffset]]:
    for topic in answer.topics:
        for part in topic.partitions:
            check(part.error_code, f"{topic.name}-{part.partition_index}")
            if part.committed_offset != _NO_OFFSET:
                yield (
                    (topic.name, int(part.partition_index)),
                    CommittedOffset(
                        int(part.committed_offset),
                        int(part.committed_leader_epoch),
                        part.metadata or "",
                    ),
                )


def commit_offsets(
    cluster: Cluster,
    group: str,
    offsets: Mapping[Partition, int | OffsetAndMetadata],
    *,
    metadata: str = "",
) -> None:
    """Commits without being a member; raises for the first partition that was refused. metadata:
    of the offsets that come with none.

    UNKNOWN_MEMBER_ID: the group has members, and only they may commit.
    """
    by_topic: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for (topic, index), one in sorted(checked_offsets(offsets).items()):
        by_topic[topic].append({
            "partition_index": index,
            "committed_offset": one.offset,
            "committed_leader_epoch": one.leader_epoch,
            "committed_metadata": one.metadata or metadata,
        })  # fmt: skip
    request = {
        "group_id": group,
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "group_instance_id": None,
        "topics": [{"name": name, "partitions": parts} for name, parts in by_topic.items()],
    }

    def commit(connection: Connection, _: int, __: list[str]) -> Iterator[tuple[str, Any]]:
        body = connection.call(ApiKey.OFFSET_COMMIT, request)
        codes = _codes_of(body)
        for code in codes.values():
            check_coordinator(group, code)
        yield group, codes

    for (topic, index), code in ask_coordinators(cluster, [group], commit)[group].items():
        if code == ErrorCode.UNKNOWN_MEMBER_ID:
            check(code, subject_of(group), "it has members, and only they may commit")
        check(code, f"{subject_of(group)}, {topic}-{index}")


def delete_offsets(
    cluster: Cluster, group: str, partitions: Iterable[Partition]
) -> dict[Partition, BrokerError | None]:
    """Deletes committed offsets; tells for each partition what was wrong with it, if anything."""
    by_topic: dict[str, list[dict[str, int]]] = defaultdict(list)
    for topic, index in sorted(checked_partitions(partitions)):
        by_topic[topic].append({"partition_index": index})
    request = {
        "group_id": group,
        "topics": [{"name": name, "partitions": parts} for name, parts in by_topic.items()],
    }

    def delete(connection: Connection, _: int, __: list[str]) -> Iterator[tuple[str, Any]]:
        body = connection.call(ApiKey.OFFSET_DELETE, request)
        check(body.error_code, subject_of(group))
        yield group, _codes_of(body)

    codes = ask_coordinators(cluster, [group], delete)[group]
    return {
        (topic, index): BrokerError(code, f"{subject_of(group)}, {topic}-{index}") if code else None
        for (topic, index), code in codes.items()
    }


def _codes_of(body: Any) -> dict[Partition, int]:
    return {
        (topic.name, int(part.partition_index)): int(part.error_code)
        for topic in body.topics
        for part in topic.partitions
    }
