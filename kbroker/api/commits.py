"""What OffsetCommit and TxnOffsetCommit have in common."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any

from kbroker.errors import ErrorCode
from kbroker.group.commits import PartitionCommit, TopicCommit
from kbroker.operations import Steps


def split(
    asked: Iterable[Any], there: Container[int]
) -> Steps[tuple[list[PartitionCommit], list[int]]]:
    """The partitions of a topic that are there, with what is committed, and those that are not."""
    here, gone = [], []
    for each in asked:
        yield
        if each.partition_index in there:
            here.append(_partition_commit(each))
        else:
            gone.append(each.partition_index)
    return here, gone


def _partition_commit(asked: Any) -> PartitionCommit:
    """What a request commits for one partition."""
    return PartitionCommit(
        asked.partition_index,
        asked.committed_offset,
        getattr(asked, "committed_leader_epoch", -1),
        asked.committed_metadata,
    )


def refused(topics: Iterable[TopicCommit], code: ErrorCode) -> list[dict[str, Any]]:
    """Topics of an answer in which every partition was refused."""
    return [
        {
            "name": topic.name,
            "topic_id": topic.topic_id,
            "partitions": [
                {"partition_index": one.partition, "error_code": code} for one in topic.partitions
            ],
        }
        for topic in topics
    ]
