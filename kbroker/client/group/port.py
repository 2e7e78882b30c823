"""What a group asks of the consumer that is its member.

All calls come on the thread that polls the consumer, except `wake`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Collection, Mapping
from typing import Protocol

from kbroker.client.partitions import OffsetAndMetadata, TopicPartition

__all__ = ["Host", "RebalanceListener"]

Told = Awaitable[None] | None


class Host(Protocol):
    """The consumer, as its group sees it."""

    def assigned(self) -> frozenset[TopicPartition]:
        """What the consumer owns now."""

    def assign_from_group(self, partitions: Collection[TopicPartition]) -> None:
        """The whole new assignment. Partitions that stay keep position and buffered records, new
        ones have no position yet, of those that go everything is forgotten."""

    def stop_fetching(self, partitions: Collection[TopicPartition]) -> None:
        """They are about to be revoked: nothing of them is delivered any more. Their delivered
        position stays readable until `assign_from_group`, which also ends this for those kept."""

    def delivered(self) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """Behind the last record handed to the application, of each partition with a position."""

    def wake(self) -> None:
        """Any thread: ends a wait in poll, so that the group is asked again."""


class RebalanceListener:
    """Told of changes of the assignment, on the thread that polls. Derive and override; for an
    AsyncConsumer by coroutine functions, where that is wanted.

    An exception of a callback is raised from poll after the rebalance has been carried through.
    """

    def on_assigned(self, partitions: Collection[TopicPartition]) -> Told:
        """Partitions that were not owned before; called with none as well (classic protocol)."""

    def on_revoked(self, partitions: Collection[TopicPartition]) -> Told:
        """Partitions that go to others; offsets can still be committed here."""

    def on_lost(self, partitions: Collection[TopicPartition]) -> Told:
        """Partitions that others may own already: commits would fail. Calls on_revoked unless
        overridden, as Java's listener does."""
        return self.on_revoked(partitions)
