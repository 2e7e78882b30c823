"""What a fetcher tells its control thread of a partition that it cannot go on with."""

from __future__ import annotations

from typing import NamedTuple

from kbroker.client.partitions import TopicPartition
from kbroker.errors import ErrorCode

__all__ = ["MOVED", "Told"]

#: Codes after which the leader is looked for.
MOVED = frozenset({
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REPLICA_NOT_AVAILABLE,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.OFFSET_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.INCONSISTENT_TOPIC_ID,
})  # fmt: skip


class Told(NamedTuple):
    """As Fetcher.attention tells it."""

    topic: str
    partition: int
    why: int
    generation: int
    node: int
    epoch: int
    offset: int
    link: int

    @property
    def where(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)
