"""A client of the classic protocol, eager or cooperative; the leader assigns round robin."""

from __future__ import annotations

from typing import Any

from kbroker.errors import ErrorCode
from kbroker.group.classic.requests import (
    HeartbeatRequest,
    JoinRequest,
    LeaveRequest,
    LeavingMember,
    SyncRequest,
)
from tests.model.client import Asking, Client, Life, Sleep
from tests.model.formats import (
    Partition,
    pack_assignment,
    pack_subscription,
    unpack_assignment,
    unpack_subscription,
)
from tests.model.oracle import BrokenPromiseError

SESSION_MS, HEARTBEAT_MS = 10_000, 3_000
_LOST_PLACE = {
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.GROUP_MAX_SIZE_REACHED,
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
}
_FOREVER = 1 << 60


class ClassicClient(Client):
    """See the module."""

    def __init__(self, *who: Any, cooperative: bool, alone: bool = True) -> None:
        """`alone`: members of the other protocol never join, so that its group has generations
        which all its members share."""
        super().__init__(*who)
        self.cooperative = cooperative
        self.alone = alone
        self.rebalance_ms = self.rng.choice((8_000, 20_000, 30_000))
        self.member_id = ""
        self.generation = -1
        self.alive_until = _FOREVER
        """When the coordinator must have given it up, if it does not hear of it."""
        self.leads = False
        self.topics_version = -1

    def made_again(self) -> ClassicClient:
        who = (self.sim, self.group, self.number, self.instance_id)
        return ClassicClient(*who, cooperative=self.cooperative, alone=self.alone)

    def life(self) -> Life:
        self.choose_topics_once()
        while True:
            leader_of = yield from self.join()
            if leader_of is None:
                yield Sleep(self.rng.randint(10, 500))
                continue
            if not (yield from self.sync(leader_of)):
                continue
            yield from self.work()

    @property
    def known(self) -> int:
        """The highest generation that anybody in the group was told of."""
        return self.sim.oracle.generation[self.group] if self.alone else -1

    def lose_place(self) -> None:
        """The group does not know it any more: start over."""
        self.drop_all()
        self.member_id, self.generation = "", -1

    def join(self) -> Asking:
        """Join until told of a generation: the members where it leads, else an empty list."""
        self.works = False
        if not self.cooperative:
            self.drop_all()
        metadata = pack_subscription(self.topics, self.owned)
        name = "cooperative" if self.cooperative else "eager"
        request = JoinRequest(
            9, self.group, self.member_id, self.instance_id, self.name, "/127.0.0.1",
            SESSION_MS, self.rebalance_ms, "consumer", ((name, metadata), ("base", metadata)),
        )  # fmt: skip
        self.alive_until = _FOREVER
        patience_ms = 3_000 if self.chance(0.02) else self.rebalance_ms + 40_000
        answer = yield from self.ask(self.sim.rooms.classic.join, request, patience_ms=patience_ms)
        if answer is None:
            return None
        if answer.error == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer["member_id"]
            return None
        if answer.error:
            if answer.error in _LOST_PLACE:
                self.lose_place()
            return None
        self.member_id, self.generation = answer["member_id"], answer["generation_id"]
        if self.alone:
            self.sim.oracle.joined(self.group, self.generation)
        self.heard()
        self.leads = answer["leader"] == self.member_id
        self.topics_version = self.sim.topics.version
        return answer["members"] if self.leads and not answer["skip_assignment"] else []

    def heard(self) -> None:
        """The coordinator has heard of it: at the latest now."""
        self.alive_until = self.sim.world.now_ms + SESSION_MS

    def assign(self, members: list[dict[str, Any]]) -> dict[str, set[Partition]]:
        """Round robin over everybody who subscribes; what another still has is left out for now."""
        told = {m["member_id"]: unpack_subscription(m["metadata"]) for m in members}
        owner = {p: name for name, (_, owned) in told.items() for p in owned}
        given: dict[str, set[Partition]] = {name: set() for name in told}
        turn = 0
        for topic in sorted({topic for topics, _ in told.values() for topic in topics}):
            who = sorted(name for name, (topics, _) in told.items() if topic in topics)
            for index in range(self.sim.partitions(topic)):
                name = who[turn % len(who)]
                turn += 1
                if owner.get((topic, index), name) == name:
                    given[name].add((topic, index))
        return given

    def sync(self, members: list[dict[str, Any]]) -> Asking:
        """Get the assignment, and bring everybody's where it leads. False: join again."""
        given = self.assign(members) if members else {}
        if members and self.chance(0.01):
            yield Sleep(self.rebalance_ms + 1_000)  # a leader that is too slow
        if members and self.alone:
            self.sim.oracle.meant(self.group, self.generation, given)
        assignments = tuple((name, pack_assignment(what)) for name, what in given.items())
        request = SyncRequest(
            self.group, self.generation, self.member_id, self.instance_id, assignments=assignments
        )
        generation, known = self.generation, self.known
        self.alive_until = _FOREVER
        answer = yield from self.ask(self.sim.rooms.classic.sync, request)
        if answer is None:
            return False
        if answer.error:
            if answer.error in _LOST_PLACE or answer.error == ErrorCode.ILLEGAL_GENERATION:
                self.lose_place()
            return False
        self.heard()
        self.sim.oracle.accepted(self.group, generation, known, "a sync")
        now_owned = unpack_assignment(answer["assignment"])
        who = self.instance_id or self.member_id
        if self.alone:
            self.sim.oracle.assigned(self.group, generation, self.member_id, who, now_owned)
        gave_up = self.owned - now_owned
        new = now_owned - self.owned
        self.owned = now_owned
        fetched = yield from self.fetch(new)
        if not fetched:
            self.owned -= new
        return fetched and not (self.cooperative and gave_up)

    def work(self) -> Asking:
        """Heartbeats and commits until something changes."""
        self.works = True
        while self.works:
            yield Sleep(self.rng.randint(HEARTBEAT_MS // 2, HEARTBEAT_MS))
            if self.chance(0.01):
                yield Sleep(self.rng.randint(SESSION_MS // 2, 3 * SESSION_MS))
            if self.chance(0.004):
                yield from self.leave()
                return
            if self.instance_id is None and self.chance(0.01):
                self.choose_topics()
                return
            if self.leads and self.topics_version != self.sim.topics.version:
                return  # a leader that sees other topics asks for a rebalance
            if self.rng.random() < 0.5:
                error = yield from self.commit(self.member_id, self.generation, self.known)
                if error is None:
                    continue
                self.judge(error)
            if self.works:
                yield from self.heartbeat()

    def heartbeat(self) -> Asking:
        """One heartbeat."""
        request = HeartbeatRequest(self.group, self.generation, self.member_id, self.instance_id)
        generation, known = self.generation, self.known
        until = self.alive_until
        answer = yield from self.ask(self.sim.heartbeat, request, gated=False)
        if answer is None:
            return
        if not answer.error:
            self.sim.oracle.accepted(self.group, generation, known, "a heartbeat")
            if self.sim.world.now_ms > max(until, self.sim.started_ms + SESSION_MS):
                raise BrokenPromiseError(f"{self.name} was silent and is still a member")
        if answer.error in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS):
            self.heard()
        self.judge(answer.error)

    def judge(self, error: ErrorCode) -> None:
        """What an error of a heartbeat or a commit means for the member."""
        if error == ErrorCode.REBALANCE_IN_PROGRESS:
            self.works = False
        elif error in _LOST_PLACE or error == ErrorCode.ILLEGAL_GENERATION:
            keeps_id = error == ErrorCode.ILLEGAL_GENERATION
            member_id = self.member_id
            self.lose_place()
            if keeps_id:
                self.member_id = member_id

    def leave(self) -> Asking:
        """Leave; a static member is removed by its instance id, as an administrator does it."""
        leaving = LeavingMember("" if self.instance_id else self.member_id, self.instance_id)
        request = LeaveRequest(self.group, (leaving,))
        yield from self.ask(self.sim.rooms.classic.leave, request)
        self.lose_place()
        yield Sleep(self.rng.randint(100, 20_000))
        self.choose_topics()
