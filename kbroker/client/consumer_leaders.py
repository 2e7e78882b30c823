"""Leaders of the partitions that a consumer reads."""

from __future__ import annotations

from kbroker.client.again import again
from kbroker.client.cluster import Cluster
from kbroker.client.errors import BrokerError, KafkaError
from kbroker.client.metadata import PartitionInfo, TopicInfo
from kbroker.client.partitions import TopicPartition
from kbroker.errors import ErrorCode

__all__ = ["partition_of"]


def partition_of(
    cluster: Cluster, info: TopicInfo | KafkaError, where: TopicPartition
) -> PartitionInfo:
    """Return a partition that has a leader. Raises BrokerError where it has none or does not exist;
    the next look-up asks the cluster then."""
    if isinstance(info, KafkaError):
        raise again(info)
    part = info.partition(where.partition)
    if part is not None and part.leader >= 0:
        return part
    cluster.forget(where.topic)
    if part is not None:
        raise BrokerError(part.error_code or ErrorCode.LEADER_NOT_AVAILABLE, str(where))
    raise BrokerError(
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        str(where),
        f"the topic has {len(info.partitions)} partitions",
    )
