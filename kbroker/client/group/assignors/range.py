"""The `range` assignor: of each topic every subscriber gets one range, so that partitions of the
same number of equally partitioned topics go to the same member (co-partitioning).

With racks (KIP-881) a partition goes to a member in the rack of one of its replicas where that
costs neither balance nor co-partitioning; what is left over is dealt in ranges. Racks count only
where they tell partitions apart: where every partition has a replica in every rack they do not.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence

from kbroker.client.group.assignors.spec import (
    Assignment,
    Assignor,
    Subscription,
    Topics,
    member_order,
)
from kbroker.client.partitions import TopicPartition

__all__ = ["RangeAssignor"]


class RangeAssignor(Assignor):
    """The first members get one partition more where it does not come out even."""

    name = "range"

    def assign(
        self, topics: Topics, members: Mapping[str, Subscription]
    ) -> Mapping[str, Assignment]:
        subscribers: dict[str, list[str]] = defaultdict(list)
        for member_id in member_order(members):
            for topic in dict.fromkeys(members[member_id].topics):
                subscribers[topic].append(member_id)
        racks = {member_id: member.rack or None for member_id, member in members.items()}
        shares = [
            _Share(topic, topics[topic], subscribers[topic], racks)
            for topic in subscribers
            if topics.get(topic)
        ]
        by_racks = any(share.by_racks for share in shares)
        if by_racks:
            _match_racks(shares)
        given: dict[str, list[TopicPartition]] = {member_id: [] for member_id in members}
        for share in shares:
            share.deal(lambda *_: True)
            for index, member_id in share.owners.items():
                given[member_id].append(TopicPartition(share.topic, index))
        for found in given.values():
            found.sort()
        return {member_id: Assignment(tuple(found)) for member_id, found in given.items()}


class _Share:
    """One topic being dealt to its subscribers."""

    def __init__(
        self,
        topic: str,
        partition_racks: Sequence[frozenset[str]],
        members: Sequence[str],
        racks: Mapping[str, str | None],
    ) -> None:
        self.topic = topic
        self.members = tuple(members)
        self.member_racks = {member_id: racks[member_id] for member_id in members}
        self.partition_racks = partition_racks
        self.quota, self.extra = divmod(len(partition_racks), len(members))
        self.owners: dict[int, str] = {}
        self._count = dict.fromkeys(members, 0)
        own = {rack for rack in self.member_racks.values() if rack}
        theirs = frozenset().union(*partition_racks)
        self.by_racks = bool(own & theirs) and any(one != theirs for one in partition_racks)

    def room(self, member_id: str) -> int:
        """Partitions that the member may still get."""
        return max(0, self.quota + (self.extra > 0) - self._count[member_id])

    def near(self, member_id: str, index: int) -> bool:
        """The partition has a replica in the member's rack, or the member has none."""
        rack = self.member_racks[member_id]
        return rack is None or rack in self.partition_racks[index]

    def give(self, member_id: str, indexes: Collection[int]) -> None:
        self._count[member_id] += len(indexes)
        if self._count[member_id] > self.quota:
            self.extra -= 1
        self.owners.update(dict.fromkeys(indexes, member_id))

    def deal(self, may: Callable[[str, int], bool]) -> None:
        """Gives each member in turn the first of what is left that it may have."""
        for member_id in self.members:
            room = self.room(member_id)
            found = []
            for index in range(len(self.partition_racks) if room else 0):
                if index not in self.owners and may(member_id, index):
                    found.append(index)
                    if len(found) == room:
                        break
            if found:
                self.give(member_id, found)


def _match_racks(shares: Collection[_Share]) -> None:
    """Gives what can be given by racks; topics with the same subscribers and as many partitions
    are co-partitioned and go together."""
    alike: dict[tuple[object, int], list[_Share]] = defaultdict(list)
    for share in shares:
        subscribers = tuple(share.member_racks.items())
        # Without racks among the members Kafka keeps no racks of partitions: all such are alike.
        count = len(share.partition_racks) if any(share.member_racks.values()) else 0
        alike[subscribers, count].append(share)
    for together in alike.values():
        if len(together) > 1:
            _match_together(together)
        elif together[0].by_racks:
            together[0].deal(together[0].near)


def _match_together(shares: Sequence[_Share]) -> None:
    open_members = list(shares[0].members)
    count = len(shares[0].partition_racks) if any(shares[0].member_racks.values()) else 0
    for index in range(count):
        fits = (
            member_id
            for member_id in open_members
            if all(share.near(member_id, index) and share.room(member_id) for share in shares)
        )
        member_id = next(fits, None)
        if member_id is None:
            continue
        for share in shares:
            share.give(member_id, (index,))
        if not any(share.room(member_id) for share in shares):
            open_members.remove(member_id)
            if not open_members:
                return
