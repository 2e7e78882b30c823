"""Folding the records of consumer groups into a shard.

A tombstone for what is not there changes nothing: compaction may have taken what it deletes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from kbroker.group.consumer.group import ConsumerGroup, ResolvedRegex
from kbroker.group.consumer.member import LEAVE_EPOCH, NO_PARTITIONS, Member, MemberState
from kbroker.group.consumer.member import Partitions as MemberPartitions
from kbroker.group.outcome import CoordinatorRecord
from kbroker.group.shard import Replayer, Shard
from kbroker.metadata.records import consumer_group as kinds
from kbroker.metadata.records.schema import Record

_log = logging.getLogger(__name__)

Apply = Callable[[ConsumerGroup, Any, Any], None]
"""(group, key, value or None)"""


class Replay:
    """The only way in which the consumer groups of a shard change."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard

    def replayers(self) -> dict[type[Record], Replayer]:
        """What is replayed, by the type of the key."""
        appliers: dict[type[Record], Apply] = {
            kinds.ConsumerGroupMetadataKey: self._group,
            kinds.ConsumerGroupPartitionMetadataKey: _partition_metadata,
            kinds.ConsumerGroupMemberMetadataKey: _member,
            kinds.ConsumerGroupTargetAssignmentMetadataKey: _target_epoch,
            kinds.ConsumerGroupTargetAssignmentMemberKey: _target_member,
            kinds.ConsumerGroupCurrentMemberAssignmentKey: _current_assignment,
            kinds.ConsumerGroupRegularExpressionKey: _regex,
        }
        return {key: self._replayer(apply) for key, apply in appliers.items()}

    def _replayer(self, apply: Apply) -> Replayer:
        def replay(record: CoordinatorRecord) -> None:
            key: Any = record.key
            group = self._find(key.group_id, create=record.value is not None)
            if group is not None:
                apply(group, key, record.value)

        return replay

    def _find(self, group_id: str, *, create: bool) -> ConsumerGroup | None:
        """A classic group that only holds offsets has no records, and gives way."""
        groups = self._shard.groups
        found = groups.get(group_id)
        if isinstance(found, ConsumerGroup):
            return found
        if not create:
            return None
        if found is not None and not (found.is_empty() and found.protocol_type is None):
            _log.error("Group %s is a %s group: record of a consumer group passed over",
                       group_id, found.kind)  # fmt: skip
            return None
        group = groups[group_id] = ConsumerGroup(group_id)
        return group

    def _group(self, group: ConsumerGroup, key: Any, value: Any) -> None:
        if value is None:
            del self._shard.groups[group.group_id]
            return
        group.epoch = value.epoch
        group.metadata_hash = value.metadata_hash


def _partition_metadata(group: ConsumerGroup, key: Any, value: Any) -> None:
    group.has_partition_metadata = value is not None


def _member(group: ConsumerGroup, key: Any, value: Any) -> None:
    if value is None:
        if key.member_id in group.members:
            group.remove_member(key.member_id)
        return
    old = group.members.get(key.member_id) or Member(key.member_id)
    group.update_member(
        old.changed(
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            topic_names=frozenset(value.subscribed_topic_names),
            topic_regex=value.subscribed_topic_regex,
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            server_assignor=value.server_assignor,
            classic=value.classic_member_metadata,
        )
    )


def _target_epoch(group: ConsumerGroup, key: Any, value: Any) -> None:
    group.assignment_epoch = -1 if value is None else value.assignment_epoch
    group.assignment_ms = 0 if value is None else value.assignment_timestamp


def _target_member(group: ConsumerGroup, key: Any, value: Any) -> None:
    if value is None:
        group.remove_target(key.member_id)
        return
    partitions = {one.topic_id: frozenset(one.partitions) for one in value.topic_partitions}
    group.set_target(key.member_id, partitions)


def _current_assignment(group: ConsumerGroup, key: Any, value: Any) -> None:
    old = group.members.get(key.member_id)
    if value is None:
        if old is not None:
            group.update_member(
                old.changed(
                    epoch=LEAVE_EPOCH,
                    previous_epoch=LEAVE_EPOCH,
                    assigned=NO_PARTITIONS,
                    revoking=NO_PARTITIONS,
                )
            )
        return
    group.update_member(
        (old or Member(key.member_id)).changed(
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            state=MemberState(value.state),
            assigned=_with_epochs(value.assigned_partitions, value.member_epoch),
            revoking=_with_epochs(value.partitions_pending_revocation, value.member_epoch),
        )
    )


def _with_epochs(topics: Sequence[kinds.TopicPartitions], member_epoch: int) -> MemberPartitions:
    """Before 4.3 no epochs were kept with partitions; then the member's stands in."""
    partitions = {}
    for one in topics:
        epochs = one.assignment_epochs
        if epochs is None or len(epochs) != len(one.partitions):
            epochs = [max(member_epoch, 0)] * len(one.partitions)
        partitions[one.topic_id] = dict(zip(one.partitions, epochs, strict=True))
    return partitions


def _regex(group: ConsumerGroup, key: Any, value: Any) -> None:
    old = group.regexes.pop(key.regular_expression, None)
    topics = frozenset[str]() if value is None else frozenset(value.topics)
    group.subscriptions.resolve(old.topics if old else (), topics)
    if value is not None:
        resolved = ResolvedRegex(topics, value.version, value.timestamp)
        group.regexes[key.regular_expression] = resolved
