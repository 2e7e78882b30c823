"""Answers of the classic protocol, in kio's names; what is left out is the schema's default."""

from __future__ import annotations

from kbroker.errors import ErrorCode
from kbroker.group.classic.group import ClassicGroup
from kbroker.group.classic.member import Member
from kbroker.group.outcome import Response


def join_error(error: ErrorCode, member_id: str = "") -> Response:
    """JoinGroup refused; which member id goes with it differs from case to case."""
    return {"error_code": error, "member_id": member_id}


def sync_error(error: ErrorCode) -> Response:
    """SyncGroup refused."""
    return {"error_code": error}


def joined(group: ClassicGroup, member_id: str, leader: str | None) -> dict[str, object]:
    """JoinGroup done: the generation and who leads it, but not yet the members."""
    return {
        "generation_id": group.generation,
        "protocol_type": group.protocol_type,
        "protocol_name": group.protocol_name,
        "leader": leader or "",
        "member_id": member_id,
    }


def joined_as(group: ClassicGroup, member: Member) -> Response:
    """JoinGroup done; the leader is told of the members."""
    answer = joined(group, member.member_id, group.leader)
    if group.leader == member.member_id:
        answer["members"] = group.roster()
    return answer


def synced(group: ClassicGroup, member: Member) -> Response:
    """SyncGroup done: the member's assignment."""
    return {
        "protocol_type": group.protocol_type,
        "protocol_name": group.protocol_name,
        "assignment": member.assignment,
    }
