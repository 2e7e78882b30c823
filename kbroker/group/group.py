"""What committed offsets and the APIs for all groups ask of a group, of whichever protocol."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

from kbroker.group.outcome import CoordinatorRecord, Now

CommitCheck = Callable[[str, bytes, int], None]
"""(topic, topic id, partition): may the member, whose epoch is behind, commit for it? Raises
ClientError, which refuses the whole commit, where the partition was given to it later or is not
its own (KIP-1251)."""


class OffsetExpiry(NamedTuple):
    """When an offset of a group is old: the retention after its commit or, where given, after
    `since_ms`; an offset for which an old client gave a time of its own, at that."""

    since_ms: int | None = None

    def is_expired(self, commit_ms: int, expire_ms: int, now_ms: int, retention_ms: int) -> bool:
        """Whether an offset committed at `commit_ms` has expired (wall ms; expire_ms -1: none)."""
        if expire_ms != -1:
            return now_ms >= expire_ms
        return now_ms - (commit_ms if self.since_ms is None else self.since_ms) >= retention_ms


SINCE_COMMIT: Final = OffsetExpiry()


class Group(Protocol):
    """A group in a shard. What it refuses it raises as ClientError with Kafka's code."""

    group_id: str
    protocol_type: str | None

    @property
    def kind(self) -> str:
        """"classic" or "consumer", as ListGroups spells it."""

    @property
    def state_name(self) -> str:
        """As ListGroups spells it: "Stable", "PreparingRebalance", ..."""

    def is_empty(self) -> bool:
        """No member."""

    def is_dead(self) -> bool:
        """To be forgotten."""

    def subscribed_to(self, topic: str) -> bool:
        """Whether a member consumes the topic (its offsets may then not be deleted)."""

    def validate_offset_commit(
        self,
        member_id: str,
        instance_id: str | None,
        generation: int,
        *,
        transactional: bool,
        version: int,
    ) -> CommitCheck | None:
        """May this member commit? `generation` is the member epoch in the new protocol.

        A check that is returned is asked for every partition.
        """

    def validate_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """May this member fetch offsets?"""

    def validate_offset_delete(self) -> None:
        """May offsets be deleted by an administrator?"""

    def validate_delete(self) -> None:
        """May the group be deleted by an administrator?"""

    def on_offset_commit(self, member_id: str, now: Now) -> None:
        """A member that commits is alive: moves its session timer where Kafka does."""

    def offset_expiry(self) -> OffsetExpiry | None:
        """None where offsets of this group do not expire now."""

    def tombstones(self) -> Sequence[CoordinatorRecord]:
        """The records that delete the group."""
