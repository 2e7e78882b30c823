"""What a client knows of a cluster: brokers, topics, leaders. Values only, no I/O.

A Metadata is never changed; an answer of a broker makes a new one (`after_answer`), and so does a
leader told in the answer of a produce or fetch (`after_leaders`, KIP-951). A leader epoch never
goes back while the topic stays the same (KIP-320): brokers lag behind each other, and what an
older epoch says of leader and replicas is left out.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from kbroker.client.address import Address
from kbroker.client.operations import AclOperation

__all__ = ["NO_ID", "Leader", "Metadata", "Node", "PartitionInfo", "TopicInfo"]

NO_ID = uuid.UUID(int=0)


@dataclass(frozen=True, slots=True)
class Node:
    """A broker of the cluster at the address it advertises."""

    node_id: int
    address: Address
    rack: str | None


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """Where a partition lives; leader -1: none now. leader_epoch -1: not told."""

    index: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...]
    error_code: int


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic with its partitions in order of their index. topic_id: zero before metadata v10.
    operations: what this user may do with it, where that was asked for."""

    name: str
    topic_id: uuid.UUID
    internal: bool
    partitions: tuple[PartitionInfo, ...]
    operations: frozenset[AclOperation] | None = None

    def partition(self, index: int) -> PartitionInfo | None:
        """Return a partition, if there is one of this index."""
        parts = self.partitions
        if 0 <= index < len(parts) and parts[index].index == index:
            return parts[index]
        return next((part for part in parts if part.index == index), None)


@dataclass(frozen=True, slots=True)
class Leader:
    """A partition's leader as an answer to a produce or fetch tells it."""

    topic: str
    partition: int
    node_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Metadata:
    """A picture of the cluster. controller_id -1: not told; topics: those asked for."""

    cluster_id: str | None = None
    controller_id: int = -1
    nodes: Mapping[int, Node] = field(default_factory=dict)
    topics: Mapping[str, TopicInfo] = field(default_factory=dict)

    def topic_of_id(self, topic_id: uuid.UUID) -> TopicInfo | None:
        """The topic of this id, if it is among those known."""
        return next((t for t in self.topics.values() if t.topic_id == topic_id), None)

    def partition(self, topic: str, index: int) -> PartitionInfo | None:
        """A partition, if it is among those known."""
        found = self.topics.get(topic)
        return None if found is None else found.partition(index)

    def after_answer(self, body: Any) -> Metadata:
        """With what a Metadata answer tells; topics that it has an error for are dropped."""
        topics = dict(self.topics)
        for answer in body.topics:
            old = topics.pop(answer.name, None) if answer.name else None
            if answer.error_code == 0:
                topics[answer.name] = _newer(old, _topic_info(answer))
        nodes = {
            int(node.node_id): Node(
                int(node.node_id), Address(node.host, int(node.port)), node.rack
            )
            for node in body.brokers
        }
        return Metadata(body.cluster_id, int(body.controller_id), nodes, topics)

    def after_leaders(self, leaders: Iterable[Leader], nodes: Iterable[Node]) -> Metadata:
        """With leaders of later epochs than those known, and the brokers that lead."""
        topics = dict(self.topics)
        for leader in leaders:
            topic = topics.get(leader.topic)
            known = topic.partition(leader.partition) if topic is not None else None
            if topic is None or known is None or leader.node_id < 0:
                continue
            if leader.epoch <= known.leader_epoch:
                continue
            moved = replace(known, leader=leader.node_id, leader_epoch=leader.epoch, error_code=0)
            parts = tuple(moved if part is known else part for part in topic.partitions)
            topics[leader.topic] = replace(topic, partitions=parts)
        return replace(
            self, topics=topics, nodes={**self.nodes, **{node.node_id: node for node in nodes}}
        )

    def without(self, topic: str) -> Metadata:
        """As if nothing were known of a topic."""
        left = {name: info for name, info in self.topics.items() if name != topic}
        return replace(self, topics=left)


def _newer(old: TopicInfo | None, new: TopicInfo) -> TopicInfo:
    """The new picture of a topic, but for partitions of which the old one tells a later epoch."""
    if old is None or old.topic_id != new.topic_id:
        return new
    known = {part.index: part for part in old.partitions}
    kept = tuple(
        known[part.index]
        if part.index in known and 0 <= part.leader_epoch < known[part.index].leader_epoch
        else part
        for part in new.partitions
    )
    return replace(new, partitions=kept)


def _topic_info(topic: Any) -> TopicInfo:
    partitions = (
        PartitionInfo(
            index=int(part.partition_index),
            leader=int(part.leader_id),
            leader_epoch=int(part.leader_epoch),
            replicas=tuple(int(node) for node in part.replica_nodes),
            isr=tuple(int(node) for node in part.isr_nodes),
            offline=tuple(int(node) for node in part.offline_replicas),
            error_code=int(part.error_code),
        )
        for part in topic.partitions
    )
    return TopicInfo(
        name=topic.name,
        topic_id=getattr(topic, "topic_id", None) or NO_ID,
        internal=topic.is_internal,
        partitions=tuple(sorted(partitions, key=lambda part: part.index)),
    )
