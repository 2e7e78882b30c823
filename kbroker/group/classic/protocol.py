"""The classic protocol's room in a shard: its operations, and what the other rooms ask of it."""

from __future__ import annotations

from collections.abc import Callable

from kbroker.errors import BugError, ErrorCode
from kbroker.group.classic.answers import join_error, sync_error
from kbroker.group.classic.group import ClassicGroup, State
from kbroker.group.classic.heartbeat import ANSWERS, heartbeat
from kbroker.group.classic.join import Joins, random_uuid_text
from kbroker.group.classic.leave import leave
from kbroker.group.classic.rebalance import Rebalance
from kbroker.group.classic.replay import GroupRecords
from kbroker.group.classic.requests import (
    HeartbeatRequest,
    JoinRequest,
    LeaveRequest,
    SyncRequest,
)
from kbroker.group.classic.sync import Syncs
from kbroker.group.group import Group
from kbroker.group.migration import ClassicMember, ClassicState, Client, ConsumerSide
from kbroker.group.outcome import NOTHING, Now, Outcome, Reply
from kbroker.group.shard import Shard


class ClassicProtocol:
    """Operations (request, reply, now) -> Outcome. Not thread-safe: the control thread's.

    Requests to a group of the new protocol that has members go to its room (KIP-848's migration).
    `uuids` makes the random part of member ids.
    """

    def __init__(self, shard: Shard, uuids: Callable[[], str] = random_uuid_text) -> None:
        self._shard = shard
        self._records = GroupRecords(shard)
        self._rebalance = Rebalance(shard, self._records)
        self._joins = Joins(shard, self._records, self._rebalance, uuids)
        self._syncs = Syncs(self._records, self._rebalance)
        shard.classic = self
        shard.when_loaded(self._loaded)

    def join(self, request: JoinRequest, reply: Reply, now: Now) -> Outcome:
        """JoinGroup: answered at once, or when the join phase ends."""
        refused = request.refusal(self._shard.settings)
        if refused is not None:
            return Outcome(response=refused)
        group = self._shard.groups.get(request.group_id)
        if group is None or isinstance(group, ClassicGroup) or group.is_empty():
            return self._joins.join(request, reply, now)
        client = Client(
            request.version, request.client_id, request.client_host, request.sees
        )
        return self._other_room().classic_join(group, request, client, now)

    def sync(self, request: SyncRequest, reply: Reply, now: Now) -> Outcome:
        """SyncGroup: answered at once, or when the leader has sent the assignments."""
        refused = request.refusal(self._shard.settings)
        if refused is not None:
            return Outcome(response=refused)
        group = self._shard.groups.get(request.group_id)
        if group is None or group.is_empty():
            return Outcome(response=sync_error(ErrorCode.UNKNOWN_MEMBER_ID))
        if isinstance(group, ClassicGroup):
            return self._syncs.sync(group, request, reply, now)
        return self._other_room().classic_sync(group, request, now)

    def heartbeat(self, request: HeartbeatRequest, reply: Reply, now: Now) -> Outcome:
        """Heartbeat: answered at once."""
        group = self._shard.groups.get(request.group_id)
        if isinstance(group, ClassicGroup):
            return heartbeat(group, request, self._shard.pulses, now)
        refused = request.refusal(self._shard.settings)
        if refused is not None:
            return Outcome(response=refused)
        if group is None or group.is_empty():
            return ANSWERS[ErrorCode.UNKNOWN_MEMBER_ID]
        return self._other_room().classic_heartbeat(group, request, now)

    def leave(self, request: LeaveRequest, reply: Reply, now: Now) -> Outcome:
        """LeaveGroup: answered at once."""
        refused = request.refusal(self._shard.settings)
        if refused is not None:
            return Outcome(response=refused)
        group = self._shard.groups.get(request.group_id)
        if isinstance(group, ClassicGroup):
            return leave(self._rebalance, group, request, now)
        if group is None or group.is_empty():
            unknown = [member.answer(ErrorCode.UNKNOWN_MEMBER_ID) for member in request.members]
            return Outcome(response={"members": unknown})
        members = [(member.member_id, member.instance_id) for member in request.members]
        return self._other_room().classic_leave(group, members, now)

    def unload(self) -> None:
        """The shard is given up: everybody who waits is to look for another coordinator."""
        for group in self._classic_groups():
            self._rebalance.cancel_timers(group)
            group.state = State.DEAD
            self._answer_all(group, ErrorCode.NOT_COORDINATOR)

    def state_of(self, group: Group) -> ClassicState:
        """The group's generation, protocol and members, for the room that takes it over."""
        assert isinstance(group, ClassicGroup)
        members = [
            ClassicMember(
                *member.identity,
                member.rebalance_timeout_ms,
                member.session_timeout_ms,
                member.protocols,
                member.assignment,
            )
            for member in group.members.values()
        ]
        return ClassicState(group.generation, group.protocol_type, group.protocol_name, members)

    def upgraded(self, group: Group) -> None:
        """A consumer group has taken this one's place; its members are to join again there."""
        assert isinstance(group, ClassicGroup)
        self._rebalance.cancel_timers(group)
        self._answer_all(group, ErrorCode.REBALANCE_IN_PROGRESS)

    def downgraded(
        self, group_id: str, state: ClassicState, rebalance: str | None, now: Now
    ) -> Outcome | None:
        """A group replayed from its record has taken a consumer group's place. The record holds
        one protocol of each member; here are all of them, and why it should rebalance."""
        group = self._shard.groups[group_id]
        assert isinstance(group, ClassicGroup)
        for told in state.members:
            member = group.members[told.member_id]
            group.set_protocols(member, told.protocols)
            self._rebalance.watch(group, member, now)
        group.written()
        return None if rebalance is None else self._rebalance.prepare(group, rebalance, now)

    def _loaded(self, now: Now) -> Outcome:
        """Every member gets its session anew. A group that has more members than it may have by
        now rebalances, so that they can commit before they are turned away."""
        size = self._shard.settings.group_max_size
        for group in self._classic_groups():
            for member in group.members.values():
                self._rebalance.watch(group, member, now)
            if len(group.members) > size:
                self._rebalance.prepare(group, f"loaded with over {size} members", now)
        return NOTHING

    def _classic_groups(self) -> list[ClassicGroup]:
        return [group for group in self._shard.groups.values() if isinstance(group, ClassicGroup)]

    @staticmethod
    def _answer_all(group: ClassicGroup, error: ErrorCode) -> None:
        for member in group.members.values():
            join = group.take_join(member)
            if join is not None:
                join(join_error(error, member.member_id))
            Rebalance.answer_sync(member, error)

    def _other_room(self) -> ConsumerSide:
        if self._shard.consumer is None:
            raise BugError("a group of the new protocol, and no room for it")
        return self._shard.consumer
