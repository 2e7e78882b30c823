"""ConsumerGroupHeartbeat: joining, reporting, and by epochs below zero leaving."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kbroker.errors import ClientError, ErrorCode
from kbroker.group.consumer.change import RegexChange, partitions_answer
from kbroker.group.consumer.leave import fence_members, leave_for_a_while
from kbroker.group.consumer.member import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    Member,
    Partitions,
)
from kbroker.group.consumer.membership import (
    check_room_for,
    dynamic_member,
    fenced_instance,
    static_member,
    unknown_instance,
)
from kbroker.group.consumer.reconcile import Owned
from kbroker.group.consumer.requests import Heartbeat
from kbroker.group.consumer.upgrade import group_to_join
from kbroker.group.consumer.validity import check_heartbeat
from kbroker.group.migration import Client
from kbroker.group.outcome import Now, Outcome

if TYPE_CHECKING:
    from kbroker.group.consumer.group import ConsumerGroup
    from kbroker.group.consumer.protocol import ConsumerProtocol


def heartbeat(room: ConsumerProtocol, request: Heartbeat, client: Client, now: Now) -> Outcome:
    """Join, report or leave."""
    check_heartbeat(request, room.shard.settings, client.version)
    if request.member_epoch in (LEAVE_EPOCH, LEAVE_STATIC_EPOCH):
        return _leave(room, request, now)
    joins = request.member_epoch == JOIN_EPOCH
    group, change = group_to_join(room, request.group_id, joins, now)
    check_room_for(room, group, request.member_id)
    if not request.member_id:
        request = request._replace(member_id=room.new_id())
    if request.instance_id is None:
        old = dynamic_member(group, request.member_id, joins)
        _check_epoch(old, request)
    else:
        old = static_member(change, request.member_id, request.instance_id, joins, False)
        if not joins:
            _check_epoch(old, request)
    _check_size(room, request)
    new = _updated(old, request, client)
    names_changed = change.note_member(old, new)
    regex_change = change.note_regex(old, new, client.sees)
    changed = names_changed or regex_change is not RegexChange.NONE
    change.maybe_refresh(names_changed or regex_change is RegexChange.RESOLVED, old, new)
    target = change.target_for(old, new)
    new = change.reconcile(new, target, changed=changed, owned=request.owned)
    timeout_ms = room.limits.session_timeout_ms(group.group_id)
    room.timeouts.session(group.group_id, new.member_id, timeout_ms, now)
    if old.is_classic:
        change.after(lambda: room.timeouts.end_classic(group.group_id, new.member_id))
    return change.outcome(_answer(room, request, old, new))


def _check_size(room: ConsumerProtocol, request: Heartbeat) -> None:
    """Refuse names that no record can hold before they are looked up. Raises ClientError."""
    names_bytes = sum(map(len, request.topic_names or ()))
    if not room.shard.unwritten.has_record_for(names_bytes):
        raise ClientError(ErrorCode.MESSAGE_TOO_LARGE)


def _check_epoch(member: Member, request: Heartbeat) -> None:
    """A member that is behind or ahead has to begin anew.

    The one before its last epoch is let through where it owns nothing but what it was assigned:
    the answer that told it of the last may have been lost.
    """
    epoch = request.member_epoch
    if epoch in (JOIN_EPOCH, member.epoch):
        return
    if (
        epoch < member.epoch
        and epoch == member.previous_epoch
        and _is_subset(request.owned, member.assigned)
    ):
        return
    comparison = "greater" if epoch > member.epoch else "smaller"
    raise ClientError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {comparison} member epoch ({epoch}) than the one known "
        f"by the group coordinator ({member.epoch}). The member must abandon all its partitions "
        "and rejoin.",
    )


def _is_subset(owned: Owned | None, assigned: Partitions) -> bool:
    return owned is not None and all(
        topic_id in assigned and all(one in assigned[topic_id] for one in partitions)
        for topic_id, partitions in owned
    )


def _updated(old: Member, request: Heartbeat, client: Client) -> Member:
    """The member with what the request says of it; it speaks the consumer protocol now.

    Most heartbeats say nothing new: then it is the same object.
    """
    timeout_ms = request.rebalance_timeout_ms
    names = request.topic_names
    told = {
        "instance_id": request.instance_id,
        "rack_id": request.rack_id,
        "rebalance_timeout_ms": None if timeout_ms == -1 else timeout_ms,
        "server_assignor": request.server_assignor,
        "topic_names": None if names is None else frozenset(names),
        "topic_regex": request.topic_regex,
        "client_id": client.client_id,
        "client_host": client.client_host,
    }
    new: dict[str, Any] = {
        name: value
        for name, value in told.items()
        if value is not None and value != getattr(old, name)
    }
    if old.is_classic:
        new["classic"] = None
    return old.changed(**new) if new else old


def _answer(room: ConsumerProtocol, request: Heartbeat, old: Member, new: Member) -> dict[str, Any]:
    """The assignment is told where it is new, and to one who joins or says everything (which it
    does after errors)."""
    answer: dict[str, Any] = {
        "member_id": new.member_id,
        "member_epoch": new.epoch,
        "heartbeat_interval": room.limits.heartbeat_interval_ms(request.group_id),
    }
    says_all = (
        request.rebalance_timeout_ms != -1
        and (request.topic_names is not None or request.topic_regex is not None)
        and request.owned is not None
    )
    if request.member_epoch == JOIN_EPOCH or says_all or old.assigned != new.assigned:
        answer["assignment"] = {"topic_partitions": partitions_answer(new.assigned)}
    return answer


def _leave(room: ConsumerProtocol, request: Heartbeat, now: Now) -> Outcome:
    group = room.find(request.group_id)
    if group is None:
        raise ClientError(
            ErrorCode.GROUP_ID_NOT_FOUND, f"There is no consumer group {request.group_id}."
        )
    member = _leaving(group, request)
    answer = {"member_id": request.member_id, "member_epoch": request.member_epoch}
    if request.instance_id is not None and request.member_epoch == LEAVE_STATIC_EPOCH:
        return leave_for_a_while(group, member)
    return fence_members(room, group, [member], answer, now)


def _leaving(group: ConsumerGroup, request: Heartbeat) -> Member:
    if request.instance_id is None:
        return group.member(request.member_id)
    member = group.static_member(request.instance_id)
    if member is None:
        raise unknown_instance(request.instance_id)
    if member.member_id != request.member_id:
        raise fenced_instance(request.member_id, request.instance_id)
    return member
