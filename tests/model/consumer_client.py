"""A client of the consumer protocol (KIP-848): it takes and gives up what it is told to."""

from __future__ import annotations

import uuid
from typing import Any

from kbroker.errors import ErrorCode
from kbroker.group.consumer.member import JOIN_EPOCH, LEAVE_EPOCH, LEAVE_STATIC_EPOCH
from kbroker.group.consumer.requests import Heartbeat
from kbroker.group.migration import Client as Sender
from kbroker.group.outcome import Now, Outcome, Reply
from tests.model.client import Asking, Client, Life, Sleep

SESSION_MS, HEARTBEAT_MS = 10_000, 3_000
_FENCED = {
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.STALE_MEMBER_EPOCH,
}
_NEVER = 1 << 60
_SOURCE = Sender(1, "model", "/127.0.0.1")


class ConsumerClient(Client):
    """See the module. What it holds is by topic id: a topic that is made again is another."""

    leaves = 0.004

    def __init__(self, *who: Any) -> None:
        super().__init__(*who)
        self.member_id = str(uuid.UUID(int=self.rng.getrandbits(128)))
        self.rebalance_ms = self.rng.choice((8_000, 20_000, 40_000))
        self.epoch = JOIN_EPOCH
        self.held: set[tuple[bytes, int]] = set()
        self.target: set[tuple[bytes, int]] = set()
        self.says_all = True
        """The next heartbeat tells everything, as after errors."""
        self.dead = False
        self._lease_ms = 0
        self._revoke_by_ms = _NEVER
        self._unheard_ms = _NEVER

    def may_be_gone(self) -> bool:
        """The coordinator may have fenced it without its knowing: it was silent for a session,
        or has not given up in time what it was, or may have been, told to give up."""
        unheard_ms = self._unheard_ms + self.rebalance_ms
        return self.dead or self.sim.world.now_ms >= min(
            self._lease_ms, self._revoke_by_ms, unheard_ms
        )

    def end(self) -> None:
        super().end()
        self.dead = True

    def life(self) -> Life:
        self.choose_topics_once()
        while True:
            yield from self.heartbeat()
            if self.held != self.target:
                yield from self.reconcile()
                continue
            missing = {p for p in self.owned if p not in self.positions}
            if missing and not (yield from self.learn(missing)):
                continue
            self.works = self.epoch > 0
            yield Sleep(self.rng.randint(HEARTBEAT_MS // 2, HEARTBEAT_MS))
            if self.chance(0.01):
                yield Sleep(self.rng.randint(SESSION_MS // 2, 3 * SESSION_MS))
            if self.epoch > 0:
                yield from self.misbehave()
            if self.rng.random() < 0.5 and self.epoch > 0:
                yield from self.commit(self.member_id, self.epoch, -1)

    def misbehave(self) -> Asking:
        """Perhaps leave, or subscribe to something else."""
        if self.chance(self.leaves):
            forever = self.instance_id is None or self.rng.random() < 0.5
            self.epoch = LEAVE_EPOCH if forever else LEAVE_STATIC_EPOCH
            self.start_over(self.epoch)
            yield from self.ask(self._send, self._request())
            self.start_over(JOIN_EPOCH)
            yield Sleep(self.rng.randint(100, 20_000))
            self.choose_topics()
        elif self.chance(0.01):
            self.choose_topics()
            self.says_all = True

    def start_over(self, epoch: int) -> None:
        """It holds nothing any more."""
        self.drop_all()
        self.held, self.target = set(), set()
        self.epoch, self.says_all = epoch, True
        self._revoke_by_ms = self._unheard_ms = _NEVER

    def _send(self, request: Heartbeat, reply: Reply, now: Now) -> Outcome:
        return self.sim.rooms.consumer.heartbeat(request, _SOURCE, now)

    def _request(self) -> Heartbeat:
        owned: dict[bytes, list[int]] = {}
        for topic_id, index in sorted(self.held):
            owned.setdefault(topic_id, []).append(index)
        told = Heartbeat(self.group, self.member_id, self.epoch, self.instance_id)
        if not self.says_all or self.epoch < 0:
            return told._replace(owned=list(owned.items()) if self.epoch > 0 else None)
        return told._replace(
            rebalance_timeout_ms=self.rebalance_ms, topic_names=sorted(self.topics),
            owned=list(owned.items()),
        )  # fmt: skip

    def heartbeat(self) -> Asking:
        """Report, and learn what to do."""
        asked_ms = self.sim.world.now_ms
        answer = yield from self.ask(self._send, self._request(), patience_ms=5_000)
        if answer is None or answer.error:
            self.says_all = True
            self.works = False
            if answer is None:
                self._unheard_ms = min(self._unheard_ms, asked_ms)
            elif answer.error in _FENCED:
                self.start_over(JOIN_EPOCH)
            yield Sleep(self.rng.randint(50, 1_500))
            return
        self.epoch = answer["member_epoch"]
        self.says_all = False
        self._unheard_ms = _NEVER
        self._lease_ms = asked_ms + SESSION_MS
        if answer["assignment"] is not None:
            told = answer["assignment"]["topic_partitions"]
            self.target = {(one["topic_id"], p) for one in told for p in one["partitions"]}
            if self.held - self.target:
                self._revoke_by_ms = asked_ms + self.rebalance_ms

    def reconcile(self) -> Asking:
        """Give up what it should not have, then take what it should; the next heartbeat says so."""
        self.works = False
        if self.held - self.target:
            if self.chance(0.05):
                yield Sleep(self.rng.randint(0, 2 * self.rebalance_ms))
            elif self.rng.random() < 0.5:
                yield from self.commit(self.member_id, self.epoch, -1)
        self.held &= self.target
        self._revoke_by_ms = _NEVER
        if self.may_be_gone():
            self.says_all = True
            self.target = set(self.held)
        self.sim.oracle.taken(self.group, self, self.target - self.held)
        self.held = set(self.target)
        self.name_owned()

    def name_owned(self) -> None:
        """What it holds, by the names of topics that are there."""
        named = ((self.sim.topics.by_id(topic_id), index) for topic_id, index in self.held)
        self.owned = {(topic.name, index) for topic, index in named if topic is not None}
        self.positions = {p: at for p, at in self.positions.items() if p in self.owned}

    def learn(self, missing: set[tuple[str, int]]) -> Asking:
        """Where to go on; it may have to hear of its epoch first."""
        who = {"member_id": self.member_id, "member_epoch": self.epoch}
        return (yield from self.fetch(missing, **who))


class RestlessConsumer(ConsumerClient):
    """One that leaves often: without it, its group may fall back to the classic protocol."""

    leaves = 0.05
