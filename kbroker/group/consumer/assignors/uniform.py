"""The `uniform` assignor: as even as can be, then as few moves as can be.

Where all members subscribe to the same topics, each keeps what it has up to its quota, and what is
left over goes to those below theirs, in order. Where they do not, see `uniform_mixed`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from kbroker.group.consumer.assignors.spec import Assignment, GroupSpec
from kbroker.group.consumer.assignors.uniform_mixed import assign_uniform_mixed
from kbroker.group.order import (
    copied_buckets,
    grown_buckets,
    id_order,
    number_order,
)


def assign_uniform(spec: GroupSpec) -> dict[str, Assignment]:
    """Partitions of every member."""
    if not spec.members:
        return {}
    return _Even(spec).assign() if spec.homogeneous else assign_uniform_mixed(spec)


class _Even:
    """An assignment for members with the same subscriptions."""

    def __init__(self, spec: GroupSpec) -> None:
        self.spec = spec
        first = next(iter(spec.members.values()))
        buckets = copied_buckets(len(first.topic_ids))
        self.topic_ids = id_order(first.topic_ids, buckets)
        self.subscribed = frozenset(self.topic_ids)
        self.free = [
            (topic_id, partition)
            for topic_id in self.topic_ids
            for partition in self._unowned(topic_id)
        ]
        total = sum(spec.partitions[topic_id] for topic_id in self.topic_ids)
        self.quota, self.extras = divmod(total, len(spec.members))
        self.target: dict[str, dict[bytes, frozenset[int]]] = {}
        self.room: list[tuple[str, int]] = []

    def _unowned(self, topic_id: bytes) -> Iterable[int]:
        owners = self.spec.owners.get(topic_id)
        partitions = range(self.spec.partitions[topic_id])
        return (p for p in partitions if p not in owners) if owners else partitions

    def assign(self) -> dict[str, Assignment]:
        if not self.subscribed:
            return {}
        left = len(self.spec.members)
        for member_id, member in self.spec.members.items():
            self._keep(member_id, member.assignment, left)
            left -= 1
        free = iter(self.free)
        for member_id, room in self.room:
            self._fill(self.target[member_id], itertools.islice(free, room))
        return dict(self.target)

    def _keep(self, member_id: str, old: Assignment, left: int) -> None:
        """What a member keeps; `left` members, this one included, are still to be looked at."""
        with_extra = self.extras > 0
        quota = self.quota + with_extra
        kept: dict[bytes, frozenset[int]] = {}
        for topic_id in id_order(old, grown_buckets(len(old))):
            if topic_id not in self.subscribed:
                continue
            partitions = old[topic_id]
            if len(partitions) <= quota:
                kept[topic_id] = partitions
                quota -= len(partitions)
            else:
                ordered = number_order(partitions)
                if quota:
                    kept[topic_id] = frozenset(ordered[:quota])
                self.free += [(topic_id, partition) for partition in ordered[quota:]]
                quota = 0
        if quota > 0 and with_extra and left > self.extras:
            quota -= 1  # another member, who has that many already, may keep one more
            with_extra = False
        if quota > 0:
            self.room.append((member_id, quota))
        self.extras -= with_extra
        self.target[member_id] = kept

    @staticmethod
    def _fill(target: dict[bytes, frozenset[int]], more: Iterable[tuple[bytes, int]]) -> None:
        by_topic: dict[bytes, list[int]] = {}
        for topic_id, partition in more:
            by_topic.setdefault(topic_id, []).append(partition)
        for topic_id, partitions in by_topic.items():
            target[topic_id] = target.get(topic_id, frozenset()).union(partitions)
