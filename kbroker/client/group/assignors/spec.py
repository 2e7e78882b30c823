"""What an assignor is told and what it answers; the interface of assignors of one's own.

An assignor runs on the member that the coordinator made the leader of a classic group. Its `name`
has to be known to all members: the coordinator picks one that all of them offer. Derive from
`Assignor`, override `assign`, and pass the class or an object as `partition_assignment_strategy`:

    class Mirror(Assignor):
        name = "mirror"

        def assign(self, topics, members):
            every = [TopicPartition(t, p) for t, racks in topics.items() for p in range(len(racks))]
            return {member_id: Assignment(every) for member_id in members}
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar, Final, NamedTuple

from kbroker.client.partitions import TopicPartition

__all__ = [
    "COOPERATIVE",
    "EAGER",
    "NO_GENERATION",
    "Assignment",
    "Assignor",
    "Subscription",
    "Topics",
    "java_order",
    "member_order",
]

NO_GENERATION: Final = -1
EAGER: Final = "eager"
COOPERATIVE: Final = "cooperative"

Topics = Mapping[str, Sequence[frozenset[str]]]
"""Of each topic, by partition: the racks of its replicas (empty where brokers have none)."""


class Subscription(NamedTuple):
    """What a member says when it joins.

    owned: partitions it has now (none in an eager rebalance). generation: in which it got them, -1
    where it has none or does not tell. rack: client.rack. user_data: of the assignor.
    """

    topics: Sequence[str]
    user_data: bytes | None = None
    owned: Sequence[TopicPartition] = ()
    generation: int = NO_GENERATION
    rack: str | None = None
    instance_id: str | None = None


class Assignment(NamedTuple):
    """What a member gets; user_data: of the assignor, handed to the member's `on_assignment`."""

    partitions: Sequence[TopicPartition] = ()
    user_data: bytes | None = None


class Assignor(ABC):
    """Who of a group gets which partitions. An object belongs to one consumer."""

    name: ClassVar[str]
    protocols: ClassVar[Sequence[str]] = (EAGER,)
    """Rebalance protocols it can serve; a consumer takes the most advanced that all its assignors
    share. COOPERATIVE: it never gives a partition to one while another still owns it."""

    @abstractmethod
    def assign(
        self, topics: Topics, members: Mapping[str, Subscription]
    ) -> Mapping[str, Assignment]:
        """Partitions of every member, by member id. topics: those that exist."""

    def user_data(self, topics: Sequence[str]) -> bytes | None:
        """What goes to the leader with this member's subscription."""
        del topics
        return None

    def on_assignment(self, assignment: Assignment, generation: int) -> None:
        """This member was assigned something."""
        del assignment, generation


def java_order(text: str) -> bytes:
    """Java compares strings by their UTF-16 units."""
    return text.encode("utf-16-be", "surrogatepass")


def member_order(members: Mapping[str, Subscription]) -> list[str]:
    """Ids of members: static ones by instance id, then the others by member id."""

    def key(member_id: str) -> tuple[int, bytes]:
        instance_id = members[member_id].instance_id
        return (1, java_order(member_id)) if instance_id is None else (0, java_order(instance_id))

    return sorted(members, key=key)
