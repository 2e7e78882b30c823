"""Requests of the classic protocol as the coordinator takes them, whatever version they came in.

Times are milliseconds. A member id is empty where the client has none yet; `instance_id` is
`group.instance.id` (KIP-345), None for a dynamic member.

`refusal` is the answer to a request that is wrong whatever its group, None for one that is not: it
holds while the group is still being loaded, too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from kbroker.errors import ErrorCode
from kbroker.group.outcome import Response

if TYPE_CHECKING:
    from kbroker.group.settings import GroupSettings

Protocols = tuple[tuple[str, bytes], ...]
"""Name and metadata of each protocol that a member supports, the preferred one first."""

_NO_GROUP_ID: Final[Response] = {"error_code": ErrorCode.INVALID_GROUP_ID}


class JoinRequest(NamedTuple):
    """JoinGroup. `client_host` is written as Java writes an address: "/127.0.0.1"."""

    version: int
    group_id: str
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    reason: str | None = None
    sees: Callable[[str], bool] | None = None
    """Whether the client may describe a topic; None: all of them."""

    def refusal(self, settings: GroupSettings) -> Response | None:
        """See the module."""
        low_ms = settings.group_min_session_timeout_ms
        if not self.group_id:
            code = ErrorCode.INVALID_GROUP_ID
        elif not low_ms <= self.session_timeout_ms <= settings.group_max_session_timeout_ms:
            code = ErrorCode.INVALID_SESSION_TIMEOUT
        else:
            return None
        return {"error_code": code, "member_id": self.member_id}


class SyncRequest(NamedTuple):
    """SyncGroup; protocol type and name are None where the client does not tell them."""

    group_id: str
    generation: int
    member_id: str
    instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: tuple[tuple[str, bytes], ...] = ()
    """Member id and assignment; from the leader only."""

    def refusal(self, settings: GroupSettings) -> Response | None:
        """See the module."""
        return None if self.group_id else _NO_GROUP_ID


class HeartbeatRequest(NamedTuple):
    """Heartbeat."""

    group_id: str
    generation: int
    member_id: str
    instance_id: str | None = None

    def refusal(self, settings: GroupSettings) -> Response | None:
        """See the module."""
        return None if self.group_id else _NO_GROUP_ID


class LeavingMember(NamedTuple):
    """Who leaves: a member, or, where `member_id` is empty, whoever holds the instance id."""

    member_id: str
    instance_id: str | None = None
    reason: str | None = None

    def answer(self, error: ErrorCode) -> Response:
        """Its part of the answer."""
        return {
            "member_id": self.member_id,
            "group_instance_id": self.instance_id,
            "error_code": error,
        }


class LeaveRequest(NamedTuple):
    """LeaveGroup."""

    group_id: str
    members: tuple[LeavingMember, ...]

    def refusal(self, settings: GroupSettings) -> Response | None:
        """See the module."""
        return None if self.group_id else _NO_GROUP_ID
