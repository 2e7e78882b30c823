"""Sharing partitions out evenly while as many as possible stay where they are.

Balanced: no member could get rid of a partition in favour of one that has at least two fewer, not
even by way of others. Among what is balanced, members keep what they had, as far as single moves
find it. With racks (KIP-881) a member keeps only what has a replica in its rack; the rest is given
to members in the racks of its replicas where there is room with them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from kbroker.client.group.assignors.spec import Subscription, Topics, java_order
from kbroker.client.partitions import TopicPartition

__all__ = ["previous_owners", "share_out"]

Claim = tuple[int, Sequence[TopicPartition]]
Shares = dict[str, list[TopicPartition]]


def previous_owners(claims: Mapping[str, Claim]) -> dict[TopicPartition, str]:
    """Who had what, by member id: (generation, partitions). Of two claims the later generation's
    holds; in the same generation neither does: somebody is wrong, and nobody can tell who."""
    latest: dict[TopicPartition, tuple[int, str | None]] = {}
    for member_id, (generation, partitions) in claims.items():
        for partition in partitions:
            known = latest.get(partition)
            if known is None or generation > known[0]:
                latest[partition] = (generation, member_id)
            elif generation == known[0] and known[1] != member_id:
                latest[partition] = (generation, None)
    return {one: owner for one, (_, owner) in latest.items() if owner is not None}


def share_out(
    topics: Topics,
    members: Mapping[str, Subscription],
    previous: Mapping[TopicPartition, str],
) -> Shares:
    """Partitions of every member. previous: owners that would like to keep what they have."""
    wanted = {
        member_id: frozenset(one.topics) & topics.keys() for member_id, one in members.items()
    }
    racks = _Racks(topics, members, frozenset().union(*wanted.values()))
    order = sorted(members, key=java_order)
    kept: Shares = {member_id: [] for member_id in order}
    loose: list[TopicPartition] = []
    subscribed = frozenset().union(*wanted.values())
    for topic in sorted(subscribed, key=java_order):
        for index in range(len(topics[topic])):
            partition = TopicPartition(topic, index)
            owner = previous.get(partition)
            if owner in wanted and topic in wanted[owner] and racks.near(owner, partition):
                kept[owner].append(partition)
            else:
                loose.append(partition)
    if all(one == subscribed for one in wanted.values()):
        _share_alike(kept, loose, racks, previous)
        return kept
    return _Mixed(wanted, kept, previous, racks).share(loose)


class _Racks:
    """Which partitions are near which members. Racks count only where they tell these apart."""

    def __init__(
        self, topics: Topics, members: Mapping[str, Subscription], names: frozenset[str]
    ) -> None:
        self._topics = topics
        self._of = {member_id: one.rack for member_id, one in members.items() if one.rack}
        self._members = Counter(self._of.values())
        every = [racks for name in names for racks in topics[name]]
        theirs = frozenset().union(*every)
        self.count = not theirs.isdisjoint(self._of.values()) and any(
            racks != theirs for racks in every
        )

    def near(self, member_id: str, partition: TopicPartition) -> bool:
        """Or the member says nothing of a rack."""
        rack = self._of.get(member_id) if self.count else None
        return rack is None or rack in self._topics[partition.topic][partition.partition]

    def matches(self, member_id: str, partition: TopicPartition) -> bool:
        """A replica is in the member's rack."""
        return self._of.get(member_id) in self._topics[partition.topic][partition.partition]

    def takers(self, partition: TopicPartition) -> int:
        """How many members are in its racks."""
        return sum(self._members[one] for one in self._topics[partition.topic][partition.partition])


def _share_near(
    kept: Shares, loose: list[TopicPartition], racks: _Racks, quota: int, extra: int
) -> None:
    """Gives away, of `loose`, what has a replica in the rack of a member with room, first that
    which fewest can take. extra: how many may get one more than the quota."""
    given: set[TopicPartition] = set()
    for partition in sorted(loose, key=racks.takers):
        near = [one for one in kept if racks.matches(one, partition)]
        fits = [one for one in near if len(kept[one]) < quota + (extra > 0)]
        if fits:
            chosen = min(fits, key=lambda one: len(kept[one]))
            extra -= len(kept[chosen]) == quota
            kept[chosen].append(partition)
            given.add(partition)
    loose[:] = [one for one in loose if one not in given]


def _share_home(
    kept: Shares, loose: list[TopicPartition], previous: Mapping[TopicPartition, str], quota: int
) -> None:
    """Back to its owner with what nobody nearer can take."""
    left = []
    for partition in loose:
        owner = previous.get(partition)
        if owner in kept and len(kept[owner]) < quota:
            kept[owner].append(partition)
        else:
            left.append(partition)
    loose[:] = left


def _share_alike(
    kept: Shares,
    loose: list[TopicPartition],
    racks: _Racks,
    previous: Mapping[TopicPartition, str],
) -> None:
    """All subscribe to the same: everybody gets total / members, some one more."""
    total = len(loose) + sum(map(len, kept.values()))
    quota, extra = divmod(total, len(kept))
    for found in kept.values():
        more = len(found) > quota and extra > 0
        extra -= more
        loose += found[quota + more :]
        del found[quota + more :]
    loose.sort(key=lambda one: (java_order(one.topic), one.partition))
    if racks.count:
        _share_near(kept, loose, racks, quota, extra)
        _share_home(kept, loose, previous, quota)
    at = iter(loose)
    while short := [found for found in kept.values() if len(found) < quota]:
        for found in short:
            found.append(next(at))
    full = [found for found in kept.values() if len(found) == quota]
    for found, partition in zip(full, at, strict=False):
        found.append(partition)


class _Mixed:
    """Members that subscribe to different topics."""

    def __init__(
        self,
        wanted: Mapping[str, frozenset[str]],
        kept: Shares,
        previous: Mapping[TopicPartition, str],
        racks: _Racks,
    ) -> None:
        self._previous = previous
        self._racks = racks
        self._members: dict[str, list[str]] = defaultdict(list)
        for member_id in kept:
            for topic in wanted[member_id]:
                self._members[topic].append(member_id)
        self._count = {member_id: len(found) for member_id, found in kept.items()}
        self._owned: dict[str, dict[str, list[TopicPartition]]] = {one: {} for one in kept}
        for member_id, found in kept.items():
            for partition in found:
                self._owned[member_id].setdefault(partition.topic, []).append(partition)

    def share(self, loose: list[TopicPartition]) -> Shares:
        """Those that fewest can take are given first; then moves, until none makes it better."""
        for partition in sorted(loose, key=lambda one: len(self._members[one.topic])):
            self._give(self._least(partition), partition)
        while sum(self._relieve(member_id) for member_id in self._fullest_first()):
            pass
        return {
            member_id: [one for found in owned.values() for one in found]
            for member_id, owned in self._owned.items()
        }

    def _fullest_first(self) -> list[str]:
        return sorted(self._count, key=lambda member_id: -self._count[member_id])

    def _least(self, partition: TopicPartition) -> str:
        members = self._members[partition.topic]
        if self._racks.count:
            near = [one for one in members if self._racks.matches(one, partition)]
            members = near or members
        return min(members, key=self._count.__getitem__)

    def _give(self, member_id: str, partition: TopicPartition) -> None:
        self._owned[member_id].setdefault(partition.topic, []).append(partition)
        self._count[member_id] += 1

    def _relieve(self, member_id: str) -> bool:
        """One partition fewer for a member, one more for another with at least two fewer, along
        the shortest chain of members that can hand on; False: there is none."""
        came: dict[str, tuple[str, str]] = {member_id: (member_id, "")}
        reached = [member_id]
        while reached:
            fits = [one for one in reached if self._count[one] + 1 < self._count[member_id]]
            if fits:
                self._hand_on(min(fits, key=self._count.__getitem__), member_id, came)
                return True
            reached = [to for one in reached for to in self._takers(one, came)]
        return False

    def _takers(self, member_id: str, came: dict[str, tuple[str, str]]) -> list[str]:
        """Members not reached yet who could take something from this one."""
        found = []
        for topic, owned in self._owned[member_id].items():
            for to in self._members[topic] if owned else ():
                if to not in came:
                    came[to] = (member_id, topic)
                    found.append(to)
        return found

    def _hand_on(self, last: str, first: str, came: Mapping[str, tuple[str, str]]) -> None:
        """A partition for each link of the chain, from its end."""
        to = last
        while to != first:
            owner, topic = came[to]
            owned = self._owned[owner][topic]
            partition = min(owned, key=lambda one: (self._cost(one, owner, to), one))
            owned.remove(partition)
            self._count[owner] -= 1
            self._give(to, partition)
            to = owner

    def _cost(self, partition: TopicPartition, owner: str, to: str) -> tuple[bool, int]:
        """Best goes what is near there, then what comes home, then what is a stranger here too."""
        home = self._previous.get(partition)
        return not self._racks.near(to, partition), 0 if home == to else 2 if home == owner else 1
