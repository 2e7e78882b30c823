"""Where a leader epoch ends in the leader's log (OffsetForLeaderEpoch, KIP-320)."""

from __future__ import annotations

from typing import NamedTuple

from kbroker.client.cluster import Cluster
from kbroker.client.errors import UnsupportedApiError, check
from kbroker.client.metadata import PartitionInfo
from kbroker.client.partitions import TopicPartition
from kbroker.protocol import ApiKey

__all__ = ["EpochEnd", "end_of_epoch"]


class EpochEnd(NamedTuple):
    """offset -1: the leader knows of no epoch as early."""

    offset: int
    epoch: int


def end_of_epoch(
    cluster: Cluster, where: TopicPartition, part: PartitionInfo, epoch: int
) -> EpochEnd | None:
    """The offset behind the last record of `epoch` or, if the leader never had that epoch, of the
    last one before it; None: the broker cannot tell."""
    asked = {"partition": part.index, "current_leader_epoch": part.leader_epoch}
    topic = {"topic": where.topic, "partitions": [{**asked, "leader_epoch": epoch}]}
    connection = cluster.connection(part.leader)
    try:
        body = connection.call(
            ApiKey.OFFSET_FOR_LEADER_EPOCH, {"replica_id": -1, "topics": [topic]}
        )
    except UnsupportedApiError:
        return None
    for answer in body.topics:
        for told in answer.partitions:
            if answer.topic == where.topic and int(told.partition) == part.index:
                check(told.error_code, str(where))
                return EpochEnd(int(told.end_offset), int(told.leader_epoch))
    return None
