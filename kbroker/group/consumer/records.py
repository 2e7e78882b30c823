"""Records of consumer groups as Apache Kafka 4.3 writes them: all values in version 0."""

from __future__ import annotations

from collections.abc import Iterable

from kbroker.group.consumer.assignors import Assignment
from kbroker.group.consumer.member import Member, Partitions
from kbroker.group.outcome import CoordinatorRecord
from kbroker.metadata.records.consumer_group import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    TopicPartition,
    TopicPartitions,
)

_VERSION = 0


def member_metadata(group_id: str, member: Member) -> CoordinatorRecord:
    """What a member is and subscribes to."""
    value = ConsumerGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topic_names),
        subscribed_topic_regex=member.topic_regex,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.server_assignor,
        classic_member_metadata=member.classic,
    )
    key = ConsumerGroupMemberMetadataKey(group_id, member.member_id)
    return CoordinatorRecord(key, value, _VERSION)


def group_epoch(group_id: str, epoch: int, metadata_hash: int) -> CoordinatorRecord:
    """The group's epoch, with the hash of the topics that it was made for."""
    value = ConsumerGroupMetadataValue(epoch, metadata_hash)
    return CoordinatorRecord(ConsumerGroupMetadataKey(group_id), value, _VERSION)


def target_member(group_id: str, member_id: str, assignment: Assignment) -> CoordinatorRecord:
    """A member's target assignment."""
    topics = [TopicPartition(topic_id, sorted(mine)) for topic_id, mine in assignment.items()]
    key = ConsumerGroupTargetAssignmentMemberKey(group_id, member_id)
    value = ConsumerGroupTargetAssignmentMemberValue(topics)
    return CoordinatorRecord(key, value, _VERSION)


def target_epoch(group_id: str, epoch: int, wall_ms: int) -> CoordinatorRecord:
    """The epoch of the target assignment, and when it was computed."""
    value = ConsumerGroupTargetAssignmentMetadataValue(epoch, wall_ms)
    return CoordinatorRecord(ConsumerGroupTargetAssignmentMetadataKey(group_id), value, _VERSION)


def current_assignment(group_id: str, member: Member) -> CoordinatorRecord:
    """A member's epoch, and what it has and has to give up."""
    value = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=int(member.state),
        assigned_partitions=_with_epochs(member.assigned),
        partitions_pending_revocation=_with_epochs(member.revoking),
    )
    key = ConsumerGroupCurrentMemberAssignmentKey(group_id, member.member_id)
    return CoordinatorRecord(key, value, _VERSION)


def _with_epochs(partitions: Partitions) -> list[TopicPartitions]:
    return [
        TopicPartitions(topic_id, list(mine), list(mine.values()))
        for topic_id, mine in partitions.items()
    ]


def regex(
    group_id: str, pattern: str, topics: Iterable[str], version: int, wall_ms: int
) -> CoordinatorRecord:
    """The topics that a regular expression names, at a version of the topics."""
    value = ConsumerGroupRegularExpressionValue(sorted(topics), version, wall_ms)
    return CoordinatorRecord(ConsumerGroupRegularExpressionKey(group_id, pattern), value, _VERSION)


def regex_tombstone(group_id: str, pattern: str) -> CoordinatorRecord:
    """Nobody uses a regular expression any more."""
    return CoordinatorRecord(ConsumerGroupRegularExpressionKey(group_id, pattern))


def partition_metadata_tombstone(group_id: str) -> CoordinatorRecord:
    """Takes away what Kafka before 4.1 kept in the place of the hash."""
    return CoordinatorRecord(ConsumerGroupPartitionMetadataKey(group_id))


def member_tombstones(group_id: str, member_id: str) -> list[CoordinatorRecord]:
    """A member is gone; in the order in which replay wants them."""
    return [
        CoordinatorRecord(ConsumerGroupCurrentMemberAssignmentKey(group_id, member_id)),
        CoordinatorRecord(ConsumerGroupTargetAssignmentMemberKey(group_id, member_id)),
        CoordinatorRecord(ConsumerGroupMemberMetadataKey(group_id, member_id)),
    ]


def group_tombstones(
    group_id: str, member_ids: Iterable[str], patterns: Iterable[str]
) -> list[CoordinatorRecord]:
    """The group is gone."""
    ids = list(member_ids)
    return [
        *(CoordinatorRecord(ConsumerGroupCurrentMemberAssignmentKey(group_id, i)) for i in ids),
        *(CoordinatorRecord(ConsumerGroupTargetAssignmentMemberKey(group_id, i)) for i in ids),
        CoordinatorRecord(ConsumerGroupTargetAssignmentMetadataKey(group_id)),
        *(CoordinatorRecord(ConsumerGroupMemberMetadataKey(group_id, i)) for i in ids),
        *(regex_tombstone(group_id, pattern) for pattern in patterns),
        partition_metadata_tombstone(group_id),
        CoordinatorRecord(ConsumerGroupMetadataKey(group_id)),
    ]
