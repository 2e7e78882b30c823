"""The `sticky` and `cooperative-sticky` assignors.

A sticky member tells what it had in its user data: array of (topic, array of int32), and from
version 1 on the generation as an int32 behind it. A cooperative one tells it in its subscription,
the generation there from version 2 on, before that as an int32 in the user data.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

from kbroker.client.errors import CorruptDataError
from kbroker.client.group.assignors.balance import Claim, previous_owners, share_out
from kbroker.client.group.assignors.spec import (
    COOPERATIVE,
    EAGER,
    NO_GENERATION,
    Assignment,
    Assignor,
    Subscription,
    Topics,
)
from kbroker.client.group.embedded import Reader, write_partitions
from kbroker.client.partitions import TopicPartition

__all__ = ["CooperativeStickyAssignor", "StickyAssignor"]


class StickyAssignor(Assignor):
    """Balanced, with as few moves as that takes; every partition is revoked at each rebalance."""

    name = "sticky"

    def __init__(self) -> None:
        self._had: Sequence[TopicPartition] | None = None
        self._generation = NO_GENERATION

    def on_assignment(self, assignment: Assignment, generation: int) -> None:
        self._had, self._generation = assignment.partitions, generation

    def user_data(self, topics: Sequence[str]) -> bytes | None:
        if self._had is None:
            return None
        return write_partitions(self._had) + struct.pack(">i", self._generation)

    def assign(
        self, topics: Topics, members: Mapping[str, Subscription]
    ) -> Mapping[str, Assignment]:
        claims = {member_id: _told(one.user_data) for member_id, one in members.items()}
        shares = share_out(topics, members, previous_owners(claims))
        return {member_id: Assignment(tuple(found)) for member_id, found in shares.items()}


def _told(data: bytes | None) -> Claim:
    """What a member had; nothing where that cannot be read."""
    if not data:
        return NO_GENERATION, ()
    try:
        reader = Reader(data, "user data")
        partitions = reader.partitions()
        return reader.int32() if reader.left else NO_GENERATION, partitions
    except CorruptDataError:
        return NO_GENERATION, ()


class CooperativeStickyAssignor(Assignor):
    """As sticky, but a partition that moves is given to nobody before its owner has let go of it;
    that brings the next rebalance, which gives it away."""

    name = "cooperative-sticky"
    protocols = (EAGER, COOPERATIVE)

    def __init__(self) -> None:
        self._generation = NO_GENERATION

    def on_assignment(self, assignment: Assignment, generation: int) -> None:
        self._generation = generation

    def user_data(self, topics: Sequence[str]) -> bytes | None:
        return struct.pack(">i", self._generation)

    def assign(
        self, topics: Topics, members: Mapping[str, Subscription]
    ) -> Mapping[str, Assignment]:
        claims = {member_id: _claim(one) for member_id, one in members.items()}
        shares = share_out(topics, members, previous_owners(claims))
        claimed: dict[TopicPartition, list[tuple[int, str]]] = {}
        for member_id, (generation, partitions) in claims.items():
            for partition in partitions:
                claimed.setdefault(partition, []).append((generation, member_id))
        return {
            member_id: Assignment(
                tuple(one for one in found if _free_for(member_id, claimed.get(one, ())))
            )
            for member_id, found in shares.items()
        }


def _claim(member: Subscription) -> Claim:
    generation = member.generation
    if generation == NO_GENERATION and member.user_data and len(member.user_data) >= 4:
        (generation,) = struct.unpack_from(">i", member.user_data)
    return generation, member.owned


def _free_for(member_id: str, claims: Sequence[tuple[int, str]]) -> bool:
    """Nobody else may still be at work on the partition: a claim of a later generation than that
    of others is known to be the true one."""
    own = next((generation for generation, one in claims if one == member_id), None)
    others = [generation for generation, one in claims if one != member_id]
    return not others or (own is not None and own > max(others))
