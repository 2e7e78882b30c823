"""What the tests of the classic protocol share: a coordinator and requests with few words."""

from __future__ import annotations

import functools
import itertools
import struct
from typing import Any

from kbroker.group.classic.group import ClassicGroup
from kbroker.group.classic.protocol import ClassicProtocol
from kbroker.group.classic.requests import (
    HeartbeatRequest,
    JoinRequest,
    LeaveRequest,
    LeavingMember,
    SyncRequest,
)
from tests.support.coordinator import Answer, Coordinator

SESSION_MS, REBALANCE_MS, DELAY_MS = 10_000, 60_000, 3_000


def subscription(*topics: str) -> bytes:
    """Metadata of the "consumer" protocol type, version 0."""
    names = b"".join(struct.pack(">h", len(t)) + t.encode() for t in topics)
    return struct.pack(">hi", 0, len(topics)) + names + struct.pack(">i", -1)


RANGE = (("range", subscription("t")),)
BOTH = (("range", subscription("t")), ("roundrobin", subscription("t")))


class Classic(Coordinator):
    """A coordinator with the classic room alone, and its requests."""

    def __init__(self, **options: Any) -> None:
        numbers = itertools.count(1)
        super().__init__(
            lambda shard: ClassicProtocol(shard, lambda: f"uuid{next(numbers)}"), **options
        )
        self.room: ClassicProtocol = self.rooms[0]

    def join(self, member_id: str = "", **changes: Any) -> Answer:
        request = JoinRequest(
            version=9, group_id="g", member_id=member_id, instance_id=None, client_id="c",
            client_host="/127.0.0.1", session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS, protocol_type="consumer", protocols=RANGE,
        )._replace(**changes)  # fmt: skip
        return self.ask(self.room.join, request)

    def sync(
        self, member_id: str, generation: int, assignments: Any = (), **changes: Any
    ) -> Answer:
        request = SyncRequest("g", generation, member_id, assignments=tuple(assignments))
        return self.ask(self.room.sync, request._replace(**changes))

    def heartbeat(self, member_id: str, generation: int, **changes: Any) -> Answer:
        """Send a heartbeat."""
        request = HeartbeatRequest("g", generation, member_id)._replace(**changes)
        return self.ask(functools.partial(self.beat, self.room), request)

    def leave(self, *members: Any, group_id: str = "g") -> Answer:
        """Members by id, or as (member id, instance id)."""
        leaving = tuple(
            LeavingMember(*((member,) if isinstance(member, str) else member)) for member in members
        )
        return self.ask(self.room.leave, LeaveRequest(group_id, leaving))

    @property
    def group(self) -> ClassicGroup:
        found = self.shard.groups["g"]
        assert isinstance(found, ClassicGroup)
        return found

    @property
    def state(self) -> str:
        return self.group.state_name

    def id_of(self, **changes: Any) -> str:
        """A member id that is pending."""
        return str(self.join(**changes)["member_id"])

    def parked(self, count: int, **changes: Any) -> list[Answer]:
        """The first joins of members, which wait for the initial delay."""
        return [self.join(self.id_of(**changes), **changes) for _ in range(count)]

    def completing(self, count: int = 2, **changes: Any) -> list[str]:
        """A group whose members have joined and not synced; the first leads."""
        answers = self.parked(count, **changes)
        self.pass_ms(2 * DELAY_MS)
        return [str(answer["member_id"]) for answer in answers]

    def stable(self, count: int = 2, **changes: Any) -> list[str]:
        """A stable group; the assignment of each member is its id."""
        names = self.completing(count, **changes)
        self.sync_all(names)
        return names

    def sync_all(self, names: list[str]) -> list[Answer]:
        """Everybody syncs, the leader last."""
        generation, leader = self.group.generation, self.group.leader
        assert leader is not None
        answers = [self.sync(name, generation) for name in names if name != leader]
        given = [(name, name.encode()) for name in names]
        return [*answers, self.sync(leader, generation, given)]

    def rejoin_all(self, names: list[str]) -> list[Answer]:
        """Everybody joins again with what it supported before."""
        return [self.join(name, protocols=self.group.members[name].protocols) for name in names]
