"""The `uniform` assignor for members whose subscriptions differ.

1. Each member keeps what it has of topics that it still subscribes to.
2. What nobody has goes, topic by topic, to the subscriber with the least.
3. Topic by topic, partitions move from the subscriber with the most to the one with the least,
   until no topic moves any, or after 16 rounds: subscriptions that overlap can take long.
Topics are taken with the most partitions per subscriber first; then those with fewer subscribers;
then by id.
"""

from __future__ import annotations

from typing import Final

from kbroker.group.consumer.assignors.levels import Levels
from kbroker.group.consumer.assignors.spec import Assignment, GroupSpec

_ROUNDS_MAX: Final = 16
_NOBODY: Final = -1
_HIGH_BITS: Final = 1 << 63


def assign_uniform_mixed(spec: GroupSpec) -> dict[str, Assignment]:
    """Partitions of every member."""
    return _Mixed(spec).assign()


def _signed(topic_id: bytes) -> tuple[int, int]:
    """Kafka compares ids as two signed halves."""
    high, low = int.from_bytes(topic_id[:8], "big"), int.from_bytes(topic_id[8:], "big")
    return high ^ _HIGH_BITS, low ^ _HIGH_BITS


class _Mixed:
    """An assignment under way; members are numbers, by their place in the group."""

    def __init__(self, spec: GroupSpec) -> None:
        self.spec = spec
        self.member_ids = list(spec.members)
        self.subscribers: dict[bytes, list[int]] = {}
        for at, member in enumerate(spec.members.values()):
            for topic_id in member.topic_ids:
                self.subscribers.setdefault(topic_id, []).append(at)
        self.sizes = [0] * len(self.member_ids)
        self.owners = {t: [_NOBODY] * spec.partitions[t] for t in self.subscribers}

    def assign(self) -> dict[str, Assignment]:
        if not self.subscribers:
            return {}
        self._keep()
        self._give_free()
        self._balance()
        return self._result()

    def _keep(self) -> None:
        for at, member in enumerate(self.spec.members.values()):
            subscribed = frozenset(member.topic_ids)
            for topic_id, partitions in member.assignment.items():
                if topic_id in subscribed:
                    owners = self.owners[topic_id]
                    self.sizes[at] += len(partitions)
                    for partition in partitions:
                        owners[partition] = at

    def _give_free(self) -> None:
        free = {
            topic_id: [p for p, owner in enumerate(owners) if owner == _NOBODY]
            for topic_id, owners in self.owners.items()
            if _NOBODY in owners
        }
        for topic_id in self._sorted(list(free)):
            levels = Levels(self.sizes, self.subscribers[topic_id])
            for partition in free[topic_id]:
                self._move(topic_id, partition, levels.next_least())

    def _balance(self) -> None:
        topic_ids = self._sorted([t for t, who in self.subscribers.items() if len(who) > 1])
        last_moved = -1
        for _ in range(_ROUNDS_MAX):
            for at, topic_id in enumerate(topic_ids):
                if at == last_moved:
                    return
                if self._balance_topic(topic_id) or last_moved == -1:
                    last_moved = at

    def _balance_topic(self, topic_id: bytes) -> int:
        """Even out the subscribers of a topic by its partitions; how many were moved."""
        levels = Levels(self.sizes, self.subscribers[topic_id])
        if levels.imbalance <= 1:
            return 0
        owned: dict[int, list[int]] = {}
        for partition, owner in enumerate(self.owners[topic_id]):
            owned.setdefault(owner, []).append(partition)
        moved = 0
        while not levels.balanced:
            most = levels.next_most()
            while most is not None and not owned.get(most):
                levels.exclude_most()
                most = levels.next_most()
            if most is None:
                break
            partition = owned[most].pop()
            least = levels.next_least()
            if levels.balanced:
                break
            self._move(topic_id, partition, least)
            moved += 1
        return moved

    def _move(self, topic_id: bytes, partition: int, to: int) -> None:
        owners = self.owners[topic_id]
        if owners[partition] != _NOBODY:
            self.sizes[owners[partition]] -= 1
        owners[partition] = to
        self.sizes[to] += 1

    def _sorted(self, topic_ids: list[bytes]) -> list[bytes]:
        def key(topic_id: bytes) -> tuple[float, int, tuple[int, int]]:
            subscribers = len(self.subscribers[topic_id])
            share = self.spec.partitions[topic_id] / subscribers
            return -share, subscribers, _signed(topic_id)

        return sorted(topic_ids, key=key)

    def _result(self) -> dict[str, Assignment]:
        target: list[dict[bytes, set[int]]] = [{} for _ in self.member_ids]
        for topic_id, owners in self.owners.items():
            for partition, owner in enumerate(owners):
                if owner != _NOBODY:
                    target[owner].setdefault(topic_id, set()).add(partition)
        return {
            member_id: {topic_id: frozenset(mine) for topic_id, mine in topics.items()}
            for member_id, topics in zip(self.member_ids, target, strict=True)
        }
