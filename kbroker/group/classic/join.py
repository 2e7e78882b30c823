"""JoinGroup."""

from __future__ import annotations

import functools
import logging
import uuid
from collections.abc import Callable, Sequence
from typing import Final

from kbroker.errors import BugError, ErrorCode
from kbroker.group.classic.answers import join_error, joined, joined_as
from kbroker.group.classic.group import ClassicGroup, State
from kbroker.group.classic.member import Identity, Member
from kbroker.group.classic.rebalance import Rebalance
from kbroker.group.classic.replay import GroupRecords
from kbroker.group.classic.requests import JoinRequest
from kbroker.group.outcome import CoordinatorRecord, Now, Outcome, Reply
from kbroker.group.shard import Shard
from kbroker.group.unwritten import bytes_of, metadata_bytes

_LOG: Final = logging.getLogger("kbroker.group")

_FIRST_WITH_MEMBER_ID_REQUIRED: Final = 4
_FIRST_WITH_SKIP_ASSIGNMENT: Final = 9


def random_uuid_text() -> str:
    """A random uuid as Java prints one."""
    return str(uuid.uuid4())


class Joins:
    """JoinGroup of a shard's classic groups; `uuids` makes the random part of member ids."""

    def __init__(
        self, shard: Shard, records: GroupRecords, rebalance: Rebalance, uuids: Callable[[], str]
    ) -> None:
        self._shard = shard
        self._records = records
        self._rebalance = rebalance
        self._uuids = uuids

    def join(self, request: JoinRequest, reply: Reply, now: Now) -> Outcome:
        """Join a classic group. One that does not exist, or is an empty group of another kind (of
        the new protocol, or of offsets alone), is founded by a member that has no id yet."""
        found = self._shard.groups.get(request.group_id)
        no_room = self._no_room(found if isinstance(found, ClassicGroup) else None, request)
        if no_room:
            return _refused(no_room, request.member_id)
        if isinstance(found, ClassicGroup):
            return self._join_group(found, request, reply, now)
        if request.member_id:
            return _refused(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id)
        shard = self._shard
        group = ClassicGroup(request.group_id, shard.timers, shard.unwritten, now.wall_ms)
        outcome = self._join_group(group, request, reply, now)
        other = found is not None and found.kind != group.kind
        return self._founded(group, found.tombstones() if found and other else [], outcome)

    def _no_room(self, group: ClassicGroup | None, request: JoinRequest) -> ErrorCode:
        """Metadata that fits no record whichever protocol is selected fails as its SyncGroup would,
        once for all; where members hold all the memory they may, the client asks again. A member
        that joins again with no more than it has is let in."""
        unwritten = self._shard.unwritten
        smallest = min((len(metadata) for _, metadata in request.protocols), default=0)
        if not unwritten.has_record_for(smallest):
            _LOG.warning("group %r: no record holds a member's %d bytes of metadata",
                         request.group_id, smallest)  # fmt: skip
            return ErrorCode.UNKNOWN_SERVER_ERROR
        known = None if group is None else group.find(request.member_id, request.instance_id)
        if known is None:
            ids = _identity(request, request.member_id or _stem(request))
            held = 0 if group is None else group.pending.get(request.member_id, 0)
            more = bytes_of(request.protocols, ids) - held
        else:
            more = metadata_bytes(request.protocols) - metadata_bytes(known.protocols)
        if not unwritten.has_room_for(more):
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return ErrorCode.NONE

    def _founded(
        self, group: ClassicGroup, tombstones: Sequence[CoordinatorRecord], outcome: Outcome
    ) -> Outcome:
        """The group is registered by the replay of its record; without it, it never was."""

        def then(error: ErrorCode) -> None:
            if error:
                self._rebalance.cancel_timers(group)
                for member in group.members.values():
                    join = group.take_join(member)
                    if join is not None:
                        join(join_error(error))

        return Outcome([*tombstones, self._records.of_new(group)], outcome.response, then)

    def _join_group(
        self, group: ClassicGroup, request: JoinRequest, reply: Reply, now: Now
    ) -> Outcome:
        member_id = request.member_id
        if not self._accepts(group, member_id):
            self._rebalance.forget_pending(group, member_id)
            member = group.members.get(member_id)
            if member is not None:
                self._rebalance.drop(group, member)
            return _refused(ErrorCode.GROUP_MAX_SIZE_REACHED)
        if group.state is State.DEAD:
            return _refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, member_id)
        if not group.supports(request.protocol_type, request.protocols):
            return _refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id)
        if not member_id:
            return self._join_new(group, request, reply, now)
        if member_id in group.pending:
            if request.instance_id is not None:
                # static members are never asked to come back with an id
                return _refused(ErrorCode.UNKNOWN_SERVER_ERROR)
            return self._add(group, request, member_id, reply, now)
        fault = group.fault(member_id, request.instance_id)
        if fault:
            return _refused(fault, member_id)
        return self._join_again(group, group.members[member_id], request, reply, now)

    def _accepts(self, group: ClassicGroup, member_id: str) -> bool:
        """Is there room? While joins are collected, whoever is late finds the places taken: so
        a group over its size is brought down to it."""
        size = self._shard.settings.group_max_size
        member = group.members.get(member_id)
        if group.state is State.PREPARING:
            return (member is not None and member.join is not None) or group.joined < size
        if group.state is State.COMPLETING or group.state is State.STABLE:
            return member is not None or len(group.members) < size
        return True

    def _join_new(
        self, group: ClassicGroup, request: JoinRequest, reply: Reply, now: Now
    ) -> Outcome:
        """A member without an id: it gets one, from version 4 on to come back with (KIP-394)."""
        instance_id = request.instance_id
        member_id = f"{_stem(request)}-{self._uuids()}"
        if instance_id is not None and instance_id in group.static:
            return self._take_over(group, request, member_id, reply, now)
        if instance_id is None and request.version >= _FIRST_WITH_MEMBER_ID_REQUIRED:
            self._rebalance.expect(group, member_id, request.session_timeout_ms, now)
            return _refused(ErrorCode.MEMBER_ID_REQUIRED, member_id)
        return self._add(group, request, member_id, reply, now)

    def _add(
        self, group: ClassicGroup, request: JoinRequest, member_id: str, reply: Reply, now: Now
    ) -> Outcome:
        member = Member(
            _identity(request, member_id),
            request.protocols,
            request.session_timeout_ms,
            request.rebalance_timeout_ms,
        )
        group.park_join(member, reply)
        self._rebalance.admit(group, member, request.protocol_type, now)
        return self._rebalance.start_or_go_on(group, _reason("new member", request), now)

    def _join_again(
        self, group: ClassicGroup, member: Member, request: JoinRequest, reply: Reply, now: Now
    ) -> Outcome:
        """A member joins again. Where nothing of it has changed and it does not lead, it has only
        missed the answer and gets it once more; a leader asks for a rebalance that way."""
        unchanged = member.protocols == request.protocols
        leads = group.leader == member.member_id
        if group.state is State.EMPTY:
            return _refused(ErrorCode.UNKNOWN_MEMBER_ID, member.member_id)
        if unchanged and (
            group.state is State.COMPLETING or (group.state is State.STABLE and not leads)
        ):
            return Outcome(response=joined_as(group, member))
        self._update(group, member, request, reply)
        return self._rebalance.start_or_go_on(group, _reason("joins again", request), now)

    @staticmethod
    def _update(group: ClassicGroup, member: Member, request: JoinRequest, reply: Reply) -> None:
        """Take over what the member says now, and park its answer in place of an earlier one."""
        group.set_protocols(member, request.protocols)
        member.session_timeout_ms = request.session_timeout_ms
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        earlier = group.park_join(member, reply)
        if earlier is not None:
            earlier(join_error(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))

    def _take_over(
        self, group: ClassicGroup, request: JoinRequest, member_id: str, reply: Reply, now: Now
    ) -> Outcome:
        """A static member has started again: its instance id moves to the new member id, and the
        old one is fenced (KIP-345)."""
        assert request.instance_id is not None
        leader = group.leader
        old = group.members[group.static[request.instance_id]]
        join = group.take_join(old)
        if join is not None:
            join(join_error(ErrorCode.FENCED_INSTANCE_ID, old.member_id))
        self._rebalance.answer_sync(old, ErrorCode.FENCED_INSTANCE_ID)
        new = self._replace(group, old, member_id, now)
        self._update(group, new, request, reply)
        if group.state is State.COMPLETING:
            # the leader may have assigned to the old id already
            return self._rebalance.prepare(group, _reason("static member", request), now)
        if group.state is not State.STABLE:
            return self._rebalance.go_on(group, now)
        if group.protocol_name != group.select_protocol():
            return self._rebalance.prepare(group, _reason("another protocol", request), now)
        assignments = {m.member_id: m.assignment for m in group.members.values()}
        then = functools.partial(self._taken_over, group, new, old, leader, request.version, now)
        return Outcome([self._records.of(group, assignments)], then=then)

    def _replace(self, group: ClassicGroup, old: Member, member_id: str, now: Now) -> Member:
        new = old.renamed(member_id)
        self._shard.timers.cancel(old.timer)
        group.replace(old, new)
        self._rebalance.watch(group, new, now)
        return new

    def _taken_over(  # noqa: PLR0917
        self,
        group: ClassicGroup,
        new: Member,
        old: Member,
        leader: str | None,
        version: int,
        now: Now,
        error: ErrorCode,
    ) -> None:
        """Assignment and generation stay as they are. Before version 9 a client that is told it
        leads would assign anew, so it is told the old id's name; since, it is told to skip that
        (KIP-814)."""
        join = group.take_join(new)
        if join is None:
            raise BugError(f"group {group.group_id}: {new} waits for no answer")
        if error:
            group.set_protocols(new, old.protocols)
            new.session_timeout_ms = old.session_timeout_ms
            new.rebalance_timeout_ms = old.rebalance_timeout_ms
            self._replace(group, new, old.member_id, now)
        group.written()
        if error:
            join(joined(group, "", leader) | {"error_code": error})
        elif version >= _FIRST_WITH_SKIP_ASSIGNMENT:
            leads = group.leader == new.member_id
            join({**joined_as(group, new), "skip_assignment": leads})
        else:
            join(joined(group, new.member_id, leader))


def _stem(request: JoinRequest) -> str:
    """How the member ids begin that are made for a client."""
    return request.client_id if request.instance_id is None else request.instance_id


def _identity(request: JoinRequest, member_id: str) -> Identity:
    return Identity(member_id, request.instance_id, request.client_id, request.client_host)


def _refused(error: ErrorCode, member_id: str = "") -> Outcome:
    return Outcome(response=join_error(error, member_id))


def _reason(what: str, request: JoinRequest) -> str:
    return f"{what}; client's reason: {request.reason or 'not provided'}"
