"""A classic group: its state, its members and who leads them. It decides nothing by itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from enum import Enum
from typing import Any, Final

from kbroker.errors import BugError, ClientError, ErrorCode
from kbroker.group.classic.member import Member
from kbroker.group.classic.requests import Protocols
from kbroker.group.classic.subscription import topics_of
from kbroker.group.group import SINCE_COMMIT, OffsetExpiry
from kbroker.group.order import most_voted
from kbroker.group.outcome import CoordinatorRecord, Now, Reply
from kbroker.group.timers import Timers
from kbroker.group.unwritten import Unwritten, id_bytes
from kbroker.metadata.records.classic_group import GroupMetadataKey

CONSUMER: Final = "consumer"
"""The protocol type of consumers; others are Kafka Connect's and what users invent."""


class State(Enum):
    """States as ListGroups spells them."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


_BEFORE: Final = {
    State.EMPTY: {State.PREPARING},
    State.PREPARING: {State.STABLE, State.COMPLETING, State.EMPTY},
    State.COMPLETING: {State.PREPARING},
    State.STABLE: {State.COMPLETING},
    State.DEAD: set(State),
}


class ClassicGroup:
    """A group; `changed_ms` is when it came into its state (wall), None where nobody knows."""

    kind: Final = "classic"

    def __init__(
        self,
        group_id: str,
        timers: Timers,
        unwritten: Unwritten,
        changed_ms: int | None = None,
    ) -> None:
        self.group_id = group_id
        self.state = State.EMPTY
        self.previous = State.DEAD
        self.changed_ms = changed_ms
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader: str | None = None
        self.members: dict[str, Member] = {}
        self.static: dict[str, str] = {}
        """Member id of each instance id."""
        self.pending: dict[str, int] = {}
        """Member ids that were given out and have not joined yet, oldest first (KIP-394), and what
        each of them holds; `group.max.size` does not count them, as in Apache Kafka."""
        self.unsynced: set[str] = set()
        """Members that have not sent their SyncGroup of this generation."""
        self.joined = 0
        """How many members wait for the answer to their JoinGroup."""
        self.grew_ms = 0
        """When the last member came in the initial rebalance, which waits for more from then on."""
        self.topics: frozenset[str] | None = None
        """What the members subscribe to; None: not known."""
        self._supporters: dict[str, int] = {}
        self._timers = timers
        self._unwritten = unwritten

    def __repr__(self) -> str:
        return f"ClassicGroup({self.group_id!r}, {self.state.value}, {self.generation})"

    @property
    def state_name(self) -> str:
        """As ListGroups spells it."""
        return self.state.value

    def is_empty(self) -> bool:
        """In state Empty: no members, and none about to be."""
        return self.state is State.EMPTY

    def is_dead(self) -> bool:
        """Unloaded: the coordinator of this group is gone."""
        return self.state is State.DEAD

    @property
    def all_joined(self) -> bool:
        """Nobody is waited for in the join phase."""
        return self.joined == len(self.members) and not self.pending

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest that any member asks for; who asks for less than nothing gets nothing."""
        return max((0, *(member.rebalance_timeout_ms for member in self.members.values())))

    def move(self, state: State, now: Now) -> None:
        """Into another state."""
        if self.state not in _BEFORE[state]:
            raise BugError(f"group {self.group_id}: {self.state.value} to {state.value}")
        if self.state is State.STABLE:
            self.close_pulses()
        self.previous = self.state
        self.state = state
        self.changed_ms = now.wall_ms

    def close_pulses(self) -> None:
        """The coordinator answers heartbeats itself from now on."""
        for member in self.members.values():
            if member.pulse is not None:
                member.pulse.close()

    def fault(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """What is wrong with who a request says it is: NONE, UNKNOWN_MEMBER_ID, or
        FENCED_INSTANCE_ID where another member holds the instance id (KIP-345)."""
        if instance_id is not None:
            holder = self.static.get(instance_id)
            if holder is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if holder != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def find(self, member_id: str, instance_id: str | None) -> Member | None:
        """Who asks: by its id or, where it has none yet, as a static member."""
        holder = member_id or self.static.get(instance_id or "", "")
        return self.members.get(holder)

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Could a member with these protocols be in the group?"""
        if self.state is State.EMPTY:
            return bool(protocol_type) and bool(protocols)
        everybody = len(self.members)
        return protocol_type == self.protocol_type and any(
            self._supporters.get(name, 0) == everybody for name, _ in protocols
        )

    def add(self, member: Member, protocol_type: str) -> None:
        """A member joins; the first says what kind of group it is, and leads."""
        if not self.members:
            self.protocol_type = protocol_type
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static[member.instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id
        self._count(member, 1)
        self.hold(member, member.all_bytes())
        self.forget_pending(member.member_id)

    def remove(self, member: Member) -> None:
        """A member is gone; what it waits for must have been answered."""
        member.end()
        self.hold(member, 0)
        del self.members[member.member_id]
        if member.instance_id is not None:
            self.static.pop(member.instance_id, None)
        if self.leader == member.member_id:
            self.leader = next(iter(self.members), None)
        self._count(member, -1)
        self.unsynced.discard(member.member_id)

    def replace(self, old: Member, new: Member) -> None:
        """A static member comes back under a new id; what the old one waits for was answered."""
        assert new.instance_id is not None
        old.end()
        self.hold(new, old.held)
        self.hold(old, 0)
        del self.members[old.member_id]
        self.members[new.member_id] = new
        self.static[new.instance_id] = new.member_id
        if self.leader == old.member_id:
            self.leader = new.member_id
        if old.member_id in self.unsynced:
            self.unsynced.remove(old.member_id)
            self.unsynced.add(new.member_id)

    def expect(self, member_id: str) -> None:
        """The id was given out."""
        self.pending[member_id] = id_bytes(member_id)
        self._unwritten.bytes += self.pending[member_id]

    def forget_pending(self, member_id: str) -> None:
        """It is no longer pending, if it ever was."""
        self._unwritten.bytes -= self.pending.pop(member_id, 0)

    def set_protocols(self, member: Member, protocols: Protocols) -> None:
        """A member supports other protocols than before."""
        self._count(member, -1)
        member.protocols = protocols
        self._count(member, 1)
        self.hold(member, member.all_bytes())

    def hold(self, member: Member, size: int) -> None:
        """So many bytes of the member are in no record."""
        self._unwritten.bytes += size - member.held
        member.held = size

    def written(self) -> None:
        """The log has the generation: each member with what it sent for the selected protocol."""
        for member in self.members.values():
            self.hold(member, member.unwritten_bytes(self.protocol_name))

    def _count(self, member: Member, by: int) -> None:
        for name in member.protocol_names():
            left = self._supporters.get(name, 0) + by
            if left:
                self._supporters[name] = left
            else:
                self._supporters.pop(name, None)

    def park_join(self, member: Member, reply: Reply) -> Reply | None:
        """Keep a join's answer for later; an earlier one that was still kept is given back."""
        earlier, member.join = member.join, reply
        if earlier is None:
            self.joined += 1
        return earlier

    def take_join(self, member: Member) -> Reply | None:
        """The parked answer to a join, None where there is none."""
        reply, member.join = member.join, None
        if reply is not None:
            self.joined -= 1
        return reply

    def elect(self) -> bool:
        """A leader that has joined; False where nobody has."""
        if self.leader is None:
            return False
        if self.members[self.leader].join is None:
            joined = (name for name, member in self.members.items() if member.join is not None)
            found = next(joined, None)
            if found is None:
                return False
            self.leader = found
        return True

    def select_protocol(self) -> str:
        """The protocol that all members support and most prefer."""
        everybody = len(self.members)
        candidates = {name for name, count in self._supporters.items() if count == everybody}
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return most_voted(votes) or ""

    def next_generation(self, now: Now) -> None:
        """Everybody who wanted to has joined."""
        self.generation += 1
        self.unsynced.clear()
        self.protocol_name = self.select_protocol() if self.members else None
        self.learn_topics()
        self.move(State.COMPLETING if self.members else State.EMPTY, now)

    def learn_topics(self) -> None:
        """Read off the members' metadata what they subscribe to."""
        self.topics = None
        if self.protocol_type == CONSUMER and (self.protocol_name is not None or not self.members):
            name = self.protocol_name
            self.topics = topics_of(member.metadata(name) for member in self.members.values())

    def roster(self) -> list[dict[str, Any]]:
        """The members as the leader is told of them in JoinGroup."""
        name = self.protocol_name
        return [
            {
                "member_id": member.member_id,
                "group_instance_id": member.instance_id,
                "metadata": member.metadata(name),
            }
            for member in self.members.values()
        ]

    def described(self) -> dict[str, Any]:
        """The group as DescribeGroups tells of it; metadata only of a stable group."""
        stable = self.state is State.STABLE
        name = self.protocol_name
        members = [
            {
                "member_id": member.member_id,
                "group_instance_id": member.instance_id,
                "client_id": member.identity.client_id,
                "client_host": member.identity.client_host,
                "member_metadata": member.metadata(name) if stable else b"",
                "member_assignment": member.assignment,
            }
            for member in self.members.values()
        ]
        return {
            "group_id": self.group_id,
            "group_state": self.state.value,
            "protocol_type": self.protocol_type or "",
            "protocol_data": (name or "") if stable else "",
            "members": members,
        }

    def subscribed_to(self, topic: str) -> bool:
        """Whether a member consumes the topic; consumers that cannot be read may consume any."""
        if self.topics is None:
            return self.protocol_type == CONSUMER
        return topic in self.topics

    def validate_offset_commit(
        self,
        member_id: str,
        instance_id: str | None,
        generation: int,
        *,
        transactional: bool,
        version: int,
    ) -> None:
        """May this member commit? Without generation and ids: only while the group is empty."""
        if self.state is State.DEAD:
            raise ClientError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if generation < 0 and self.state is State.EMPTY:
            return
        if generation >= 0 or member_id or instance_id is not None:
            fault = self.fault(member_id, instance_id)
            if fault:
                raise ClientError(fault)
            if generation != self.generation:
                raise ClientError(ErrorCode.ILLEGAL_GENERATION)
        elif not transactional and self.state is not State.EMPTY:
            raise ClientError(ErrorCode.UNKNOWN_MEMBER_ID)
        if not transactional and self.state is State.COMPLETING:
            raise ClientError(ErrorCode.REBALANCE_IN_PROGRESS)

    def validate_offset_fetch(
        self,
        member_id: str | None,
        member_epoch: int,
    ) -> None:
        """Anybody may fetch offsets."""
        self._alive()

    def validate_offset_delete(self) -> None:
        """Of a group with members only where they are consumers, whose topics are known."""
        self._alive()
        if self.state is not State.EMPTY and self.protocol_type != CONSUMER:
            raise ClientError(ErrorCode.NON_EMPTY_GROUP)

    def validate_delete(self) -> None:
        """Only an empty group may be deleted."""
        self._alive()
        if self.state is not State.EMPTY:
            raise ClientError(ErrorCode.NON_EMPTY_GROUP)

    def _alive(self) -> None:
        if self.state is State.DEAD:
            message = f"Group {self.group_id} is in dead state."
            raise ClientError(ErrorCode.GROUP_ID_NOT_FOUND, message)

    def touch(self, member: Member, now: Now) -> None:
        """The member is alive: its session begins anew."""
        assert member.expire is not None
        at_ms = now.monotonic_ms + member.session_timeout_ms
        self._timers.schedule(member.timer, at_ms, member.expire)

    def on_offset_commit(self, member_id: str, now: Now) -> None:
        """A commit is a sign of life while the group is stable or joins are collected."""
        if self.state is State.STABLE or self.state is State.PREPARING:
            member = self.members.get(member_id)
            if member is not None:
                self.touch(member, now)

    def offset_expiry(self) -> OffsetExpiry | None:
        """Kafka's rule (KIP-211): of an empty group once it has been empty for the retention; of
        a stable one, and of a group that never had members, the retention after the commit."""
        if self.protocol_type is None:
            return SINCE_COMMIT
        if self.state is State.EMPTY:
            return OffsetExpiry(self.changed_ms)
        if self.state is State.STABLE and self.topics is not None:
            return SINCE_COMMIT
        return None

    def tombstones(self) -> Sequence[CoordinatorRecord]:
        """The record that deletes the group."""
        return [CoordinatorRecord(GroupMetadataKey(self.group_id))]
