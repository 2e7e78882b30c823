"""Partitions and positions as users of the client name them."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["OffsetAndMetadata", "TopicPartition"]


class TopicPartition(NamedTuple):
    """A partition of a topic; equal to the plain tuple (topic, partition)."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class OffsetAndMetadata(NamedTuple):
    """What is committed for a partition.

    offset: of the next record to be read. leader_epoch: of the last record read, -1 where it is
    not known. metadata: any text of the committer's.
    """

    offset: int
    metadata: str = ""
    leader_epoch: int = -1
