"""A member of a consumer group, as its records tell it: a value, a change makes another."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any, Final, NamedTuple

from kbroker.metadata.records.consumer_group import ClassicMemberMetadata

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
LEAVE_STATIC_EPOCH: Final = -2
"""A static member that left and may come back; its partitions wait for it."""

Partitions = Mapping[bytes, Mapping[int, int]]
"""Topic id -> partition -> member epoch at which it was assigned (KIP-1251)."""

NO_PARTITIONS: Final[Partitions] = {}


class MemberState(IntEnum):
    """Where a member stands on its way to the target assignment; numbers are the record's."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    """It must first give up partitions."""
    UNRELEASED_PARTITIONS = 2
    """It waits for partitions that others have not given up yet."""
    UNKNOWN = 127

    @classmethod
    def _missing_(cls, value: object) -> MemberState:
        return cls.UNKNOWN


class Member(NamedTuple):
    """`classic` is set for a member that speaks the classic protocol (its timeout, protocols)."""

    member_id: str
    epoch: int = 0
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    client_id: str = ""
    client_host: str = ""
    topic_names: frozenset[str] = frozenset()
    topic_regex: str | None = ""
    server_assignor: str | None = None
    assigned: Partitions = NO_PARTITIONS
    revoking: Partitions = NO_PARTITIONS
    classic: ClassicMemberMetadata | None = None

    def changed(self, **changes: Any) -> Member:
        """A member that differs in some fields."""
        return self._replace(**changes)

    def at_epoch(self, epoch: int, **changes: Any) -> Member:
        """The member moved to an epoch; the one it was in becomes the previous one."""
        return self._replace(epoch=epoch, previous_epoch=self.epoch, **changes)

    @property
    def is_classic(self) -> bool:
        """It joined by JoinGroup."""
        return self.classic is not None

    def is_reconciled(self, target_epoch: int) -> bool:
        """It has all of its target assignment, and nothing else."""
        return self.state is MemberState.STABLE and self.epoch == target_epoch

    def protocol_names(self) -> list[str]:
        """Classic protocols that it supports, in its order."""
        return [] if self.classic is None else [p.name for p in self.classic.supported_protocols]
