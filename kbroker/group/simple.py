"""A simple group: committed offsets under a group id, and no member ever.

In Apache Kafka it is a classic group that is Empty and has no protocol type, and it looks like one
from outside. The first member that joins makes a real one of it, in its place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kbroker.errors import ClientError, ErrorCode
from kbroker.group.group import SINCE_COMMIT, OffsetExpiry
from kbroker.group.outcome import CoordinatorRecord, Now
from kbroker.metadata.records.classic_group import GroupMetadataKey


class SimpleGroup:
    """See the module; the contract is kbroker.group.group.Group."""

    __slots__ = ("group_id",)
    kind = "classic"
    state_name = "Empty"
    protocol_type: str | None = None

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id

    def is_empty(self) -> bool:
        return True

    def is_dead(self) -> bool:
        return False

    def subscribed_to(self, topic: str) -> bool:
        return False

    def validate_offset_commit(
        self,
        member_id: str,
        instance_id: str | None,
        generation: int,
        *,
        transactional: bool,
        version: int,
    ) -> None:
        if generation >= 0:
            raise ClientError(ErrorCode.UNKNOWN_MEMBER_ID)

    def validate_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        pass

    def validate_offset_delete(self) -> None:
        pass

    def validate_delete(self) -> None:
        pass

    def on_offset_commit(self, member_id: str, now: Now) -> None:
        pass

    def offset_expiry(self) -> OffsetExpiry:
        return SINCE_COMMIT

    def described(self) -> dict[str, Any]:
        """As DescribeGroups tells it."""
        return {"group_id": self.group_id, "group_state": self.state_name}

    def tombstones(self) -> Sequence[CoordinatorRecord]:
        return [CoordinatorRecord(GroupMetadataKey(self.group_id))]
