"""Classic members of a consumer group: while a group is being upgraded or downgraded, members of
both protocols share it.

A classic member gets its epoch as the generation. It joins to report its subscription and what it
owns, syncs to fetch what it was assigned, and is told by its heartbeats to join again when there
is a step to take. Nobody is leader: the coordinator assigns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from kbroker.errors import ClientError, ErrorCode
from kbroker.group.classic.requests import HeartbeatRequest, JoinRequest, SyncRequest
from kbroker.group.consumer.change import Change, RegexChange
from kbroker.group.consumer.downgrade import downgrade, may_downgrade
from kbroker.group.consumer.group import PROTOCOL_TYPE, ConsumerGroup
from kbroker.group.consumer.leave import fence_members
from kbroker.group.consumer.member import Member, MemberState
from kbroker.group.consumer.membership import (
    check_room_for,
    dynamic_member,
    fenced_instance,
    static_member,
    unknown_instance,
)
from kbroker.group.consumer.reconcile import Owned, Target
from kbroker.group.embedded import (
    EmbeddedError,
    Subscription,
    read_subscription,
    version_of,
    write_assignment,
)
from kbroker.group.migration import Client
from kbroker.group.outcome import Now, Outcome
from kbroker.metadata.records.consumer_group import ClassicMemberMetadata, ClassicProtocol

if TYPE_CHECKING:
    from kbroker.group.consumer.protocol import ConsumerProtocol

_KNOWN_MEMBER_ID_VERSION: Final = 4


def join(
    room: ConsumerProtocol, group: ConsumerGroup, request: JoinRequest, client: Client, now: Now
) -> Outcome:
    """JoinGroup. Answered at once: there is nobody to wait for."""
    instance_id = request.instance_id
    anonymous = not request.member_id
    member_id = request.member_id or room.new_id()
    check_room_for(room, group, member_id)
    if not group.supports_classic(request.protocol_type, [name for name, _ in request.protocols]):
        raise ClientError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"Member {member_id} shares no protocol with the group.",
        )
    if anonymous and instance_id is None and client.version >= _KNOWN_MEMBER_ID_VERSION:
        code = ErrorCode.MEMBER_ID_REQUIRED
        return Outcome(response={"error_code": code, "member_id": member_id})
    change = Change(room, group, now)
    if instance_id is None:
        old = dynamic_member(group, member_id, True)
    else:
        old = static_member(change, member_id, instance_id, anonymous, True)
    replaced = group.static_member(instance_id)
    downgrades = (
        replaced is not None
        and not replaced.is_classic
        and may_downgrade(room, group, [replaced], joining=1)
    )
    subscription = _subscription(request)
    new = _updated(old, request, subscription, client)
    names_changed = change.note_member(old, new)
    regex_change = change.note_regex(old, new, client.sees)
    changed = regex_change is not RegexChange.NONE or names_changed
    change.maybe_refresh(changed, old, new)
    owned = _owned(room, subscription)
    if downgrades:
        new = _downgrade(change, new, changed, owned)
    else:
        new = change.reconcile(new, change.target_for(old, new), changed=changed, owned=owned)
    change.after(lambda: _joined(room, group, request, member_id, downgrades, now))
    answer = {
        "member_id": member_id,
        "generation_id": new.epoch,
        "protocol_type": PROTOCOL_TYPE,
        "protocol_name": request.protocols[0][0],
    }
    return change.outcome(answer)


def _downgrade(change: Change, new: Member, changed: bool, owned: Owned) -> Member:
    """The joining member takes the place of the last one of the consumer protocol."""
    group = change.group
    rebalances = group.assignment_epoch < change.epoch
    if not rebalances:
        assignment = group.target_of(new.member_id, new.instance_id)
        target = Target(group.assignment_epoch, assignment)
        new = change.reconcile(new, target, changed=changed, owned=owned)
    why = "downgraded while assignments were out of date" if rebalances else None
    downgrade(change, [], new, why)
    return new


def _joined(  # noqa: PLR0917
    room: ConsumerProtocol,
    group: ConsumerGroup,
    request: JoinRequest,
    member_id: str,
    downgrades: bool,
    now: Now,
) -> None:
    room.timeouts.cancel_join(group.group_id, member_id)
    if not downgrades:
        room.timeouts.session(group.group_id, member_id, request.session_timeout_ms, now)
        room.timeouts.sync(group.group_id, member_id, request.rebalance_timeout_ms, now)


def _subscription(request: JoinRequest) -> Subscription:
    try:
        return read_subscription(request.protocols[0][1])
    except EmbeddedError as error:
        raise ClientError(
            ErrorCode.UNKNOWN_SERVER_ERROR, f"The subscription is malformed: {error}."
        ) from error


def _updated(
    old: Member, request: JoinRequest, subscription: Subscription, client: Client
) -> Member:
    timeout_ms = request.rebalance_timeout_ms
    protocols = [ClassicProtocol(name, metadata) for name, metadata in request.protocols]
    instance_id = request.instance_id
    return old.changed(
        instance_id=old.instance_id if instance_id is None else instance_id,
        rack_id=subscription.rack_id or old.rack_id,
        rebalance_timeout_ms=old.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        topic_names=frozenset(subscription.topics),
        topic_regex="",
        client_id=client.client_id,
        client_host=client.client_host,
        classic=ClassicMemberMetadata(request.session_timeout_ms, protocols),
    )


def _owned(room: ConsumerProtocol, subscription: Subscription) -> Owned:
    topics = room.shard.topics
    return [
        (info.topic_id, partitions)
        for name, partitions in subscription.owned
        if (info := topics.by_name(name)) is not None
    ]


def sync(room: ConsumerProtocol, group: ConsumerGroup, request: SyncRequest, now: Now) -> Outcome:
    """SyncGroup: what the member has been assigned."""
    member, classic = _classic_member(group, request.member_id, request.instance_id)
    _check_generation(member, request.generation)
    protocol_type, protocol_name = request.protocol_type, request.protocol_name
    joined_with = classic.supported_protocols[0]
    if (protocol_type is not None and protocol_type != PROTOCOL_TYPE) or (
        protocol_name is not None and protocol_name != joined_with.name
    ):
        raise ClientError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"The group's protocol is {PROTOCOL_TYPE}, {joined_with.name}.",
        )
    if (
        group.assignment_epoch > member.epoch
        and member.state is not MemberState.UNREVOKED_PARTITIONS
    ):
        room.timeouts.join(group.group_id, member, now)
        raise ClientError(ErrorCode.REBALANCE_IN_PROGRESS, "There is a new assignment: rejoin.")
    room.timeouts.cancel_sync(group.group_id, member.member_id)
    timeout_ms = classic.session_timeout_ms
    room.timeouts.session(group.group_id, member.member_id, timeout_ms, now)
    topics = room.shard.topics
    assignment = {
        info.name: list(partitions)
        for topic_id, partitions in member.assigned.items()
        if (info := topics.by_id(topic_id)) is not None
    }
    answer = {
        "protocol_type": protocol_type,
        "protocol_name": protocol_name,
        "assignment": write_assignment(assignment, version_of(joined_with.metadata)),
    }
    return Outcome(response=answer)


def heartbeat(
    room: ConsumerProtocol, group: ConsumerGroup, request: HeartbeatRequest, now: Now
) -> Outcome:
    """Heartbeat: the member is told to rejoin where there is a step to take."""
    member, classic = _classic_member(group, request.member_id, request.instance_id)
    _check_generation(member, request.generation)
    timeout_ms = classic.session_timeout_ms
    room.timeouts.session(group.group_id, member.member_id, timeout_ms, now)
    released = member.state is MemberState.UNRELEASED_PARTITIONS and not group.waits_for_others(
        member
    )
    if (
        member.epoch < group.assignment_epoch
        or member.state is MemberState.UNREVOKED_PARTITIONS
        or released
    ):
        room.timeouts.join(group.group_id, member, now)
        return Outcome(response={"error_code": ErrorCode.REBALANCE_IN_PROGRESS})
    return Outcome(response={"error_code": ErrorCode.NONE})


def leave(
    room: ConsumerProtocol,
    group: ConsumerGroup,
    members: Sequence[tuple[str, str | None]],
    now: Now,
) -> Outcome:
    """LeaveGroup; members of both protocols may be removed by it."""
    answers: list[dict[str, Any]] = []
    leaving: dict[str, Member] = {}
    for member_id, instance_id in members:
        answer: dict[str, Any] = {"member_id": member_id, "group_instance_id": instance_id}
        try:
            member = _leaving(group, member_id, instance_id)
        except ClientError as error:
            answer["error_code"] = error.code
        else:
            leaving[member.member_id] = member
        answers.append(answer)
    return fence_members(room, group, list(leaving.values()), {"members": answers}, now)


def _leaving(group: ConsumerGroup, member_id: str, instance_id: str | None) -> Member:
    """An administrator names a static member by its instance id alone."""
    return _member(group, member_id, instance_id, may_be_anonymous=True)


def _member(
    group: ConsumerGroup, member_id: str, instance_id: str | None, *, may_be_anonymous: bool
) -> Member:
    if instance_id is None:
        return group.member(member_id)
    member = group.static_member(instance_id)
    if member is None:
        raise unknown_instance(instance_id)
    if member.member_id != member_id and not (may_be_anonymous and not member_id):
        raise fenced_instance(member_id, instance_id)
    return member


def _classic_member(
    group: ConsumerGroup, member_id: str, instance_id: str | None
) -> tuple[Member, ClassicMemberMetadata]:
    member = _member(group, member_id, instance_id, may_be_anonymous=False)
    if member.classic is None:
        raise ClientError(
            ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} does not use the classic protocol."
        )
    return member, member.classic


def _check_generation(member: Member, generation: int) -> None:
    if generation != member.epoch:
        raise ClientError(
            ErrorCode.ILLEGAL_GENERATION,
            f"Generation {generation} is not the member's epoch, {member.epoch}.",
        )
