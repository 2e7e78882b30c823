"""The clients, the coordinator and what befalls them, one step at a time."""

from __future__ import annotations

import heapq
import itertools
import uuid
from collections import Counter, deque
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from kbroker.errors import ClientError, ErrorCode
from kbroker.group.classic.protocol import ClassicProtocol
from kbroker.group.classic.requests import HeartbeatRequest
from kbroker.group.consumer.group import ConsumerGroup
from kbroker.group.consumer.protocol import ConsumerProtocol
from kbroker.group.group import Group
from kbroker.group.offsets import Offsets
from kbroker.group.outcome import Now, Outcome, Reply
from kbroker.group.rooms import Rooms
from kbroker.group.settings import GroupSettings
from kbroker.group.shard import Shard
from tests.model import consumer_client
from tests.model.classic_client import ClassicClient
from tests.model.client import Ask, Client, Life, Sleep
from tests.model.consumer_client import ConsumerClient, RestlessConsumer
from tests.model.formats import Partition
from tests.model.oracle import Oracle
from tests.model.structure import check, check_group, check_replay, check_shadow
from tests.model.world import World
from tests.support.coordinator import Answer, FakeTopics

PARTITIONS_MAX = 6
CALM_MS = 120_000
RESTLESS_STEPS = 15_000
UNLIMITED = (1 << 31) - 1
_ERRORS = (
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.REQUEST_TIMED_OUT,
)


class Running:
    """A client's life under way: which of its turns is the next one that counts."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.life: Life = client.life()
        self.turn = 0
        self.answer: Answer | None = None


class Simulation:
    """`broken` may break the coordinator, to see that it is noticed."""

    def __init__(
        self,
        seed: int,
        clients: Sequence[tuple[str, int, Callable[..., Client]]],
        broken: Callable[[Rooms], None] = lambda _rooms: None,
    ) -> None:
        """`clients` are (group, how many, who); a third of them are static members."""
        self.rng = Random(seed)
        self.topics = FakeTopics({"a": 4, "b": 2, "c": 3})
        self._broken = broken
        self.settings = GroupSettings(
            offsets_retention_minutes=1 << 30,
            group_consumer_session_timeout_ms=consumer_client.SESSION_MS,
            group_consumer_min_session_timeout_ms=consumer_client.SESSION_MS,
        )
        self.world = World(self._rooms, self.settings, self.topics)
        self.oracle = Oracle()
        self.started_ms = self.world.now_ms
        self.calm = False
        self.steps = 0
        self.happened: Counter[str] = Counter()
        self._checked: dict[str, tuple[Group, int]] = {}
        self._kinds: dict[str, str] = {}
        self._events: list[tuple[int, int, Running, int]] = []
        self._order = itertools.count()
        self._ready: deque[tuple[Running, int, Any]] = deque()
        self._running = [
            Running(who(self, group, number, f"{group}-{number}" if number % 3 == 0 else None))
            for group, count, who in clients
            for number in range(count)
        ]
        self.world.flush()
        for running in self._running:
            self._wake(running, self.rng.randint(0, 20_000))

    def _rooms(self, shard: Shard) -> Rooms:
        rooms = Rooms.__new__(Rooms)
        rooms.shard = shard
        rooms.classic = ClassicProtocol(shard, self._uuid)
        rooms.consumer = ConsumerProtocol(shard, self._uuid)
        rooms.offsets = Offsets(shard)
        self._broken(rooms)
        return rooms

    def _uuid(self) -> str:
        return str(uuid.UUID(int=self.rng.getrandbits(128)))

    @property
    def rooms(self) -> Rooms:
        """The rooms of the coordinator that runs now."""
        return self.world.rooms[0]

    def heartbeat(self, request: HeartbeatRequest, reply: Reply, now: Now) -> Outcome:
        """Of a classic member."""
        return self.world.beat(self.rooms.classic, request, reply, now)

    @property
    def clients(self) -> list[Client]:
        """Those that run."""
        return [running.client for running in self._running]

    def has(self, partition: Partition) -> bool:
        """Whether there is such a partition."""
        return partition[1] < self.partitions(partition[0])

    def partitions(self, topic: str) -> int:
        """Of a topic; none where it is not there."""
        info = self.topics.by_name(topic)
        return info.partitions if info else 0

    def topic_id(self, topic: str) -> bytes:
        """Of a topic that is there."""
        info = self.topics.by_name(topic)
        return info.topic_id if info else bytes(16)

    # ---- time

    def run(self, steps: int) -> None:
        """So many steps, and then see that everything comes to rest."""
        end = self.steps + steps
        while self.steps < end:
            until = min(end, self.steps + RESTLESS_STEPS)
            while self.steps < until:
                self.step()
            self.come_to_rest()

    def step(self) -> None:
        """One client does one thing; before it perhaps something happens to all."""
        self.steps += 1
        if not self.calm:
            self._befall()
        at_ms, _, running, turn = heapq.heappop(self._events)
        if at_ms > self.world.now_ms:
            fired = self.world.fired
            self.world.pass_ms(at_ms - self.world.now_ms)
            if self.world.fired > fired:
                for group_id in list(self.world.shard.groups):
                    self._check(group_id)
        if running.turn == turn:
            self._resume(running, None)
        self._settle(running.client.group)
        check_shadow(self.world)

    def _settle(self, group_id: str) -> None:
        """Answers reach their clients before anything else happens; then everything is checked."""
        if self.calm or self.rng.random() < 0.7:
            self.world.flush()
        while self._ready:
            running, turn, answer = self._ready.popleft()
            if running.turn == turn:
                self._resume(running, answer)
                self._check(running.client.group)
                if self.calm:
                    self.world.flush()
        self._check(group_id)

    def _check(self, group_id: str) -> None:
        group = self.world.shard.groups.get(group_id)
        written = len(self.world.log)
        if isinstance(group, ConsumerGroup) and self._checked.get(group_id) == (group, written):
            return  # only records change it
        if group is not None:
            self._checked[group_id] = (group, written)
            check_group(self.world.shard, group)
            if self._kinds.setdefault(group_id, group.kind) != group.kind:
                self._kinds[group_id] = group.kind
                self.happened[f"became {group.kind}"] += 1

    def _wake(self, running: Running, after_ms: int) -> None:
        at_ms = self.world.now_ms + after_ms
        heapq.heappush(self._events, (at_ms, next(self._order), running, running.turn))

    def _resume(self, running: Running, answer: Any) -> None:
        """Let a client go on: from its sleep, with an answer, or without one after its patience."""
        running.turn += 1
        if running.answer is not None:
            running.answer.told = None
            running.answer = None
        step = running.life.send(answer)
        if isinstance(step, Sleep):
            self._wake(running, step.ms)
        else:
            self._ask(running, step)

    def _ask(self, running: Running, ask: Ask) -> None:
        turn = running.turn
        running.answer = answer = Answer()
        answer.told = lambda came: self._ready.append((running, turn, came))
        self._wake(running, ask.patience_ms)
        self.world.request(ask.operation, ask.request, answer, ask.gated)

    # ---- what befalls

    def _befall(self) -> None:
        """Rarely, something happens to the coordinator, the topics, or a client."""
        number = self.rng.random()
        if number < 0.0005:
            self.restart(crash=self.rng.random() < 0.7)
        elif number < 0.0025:
            self._change_topics()
        elif number < 0.0045:
            self._kill(self.rng.choice(self._running))
        elif number < 0.0065:
            self.world.append_error = self.rng.choice(_ERRORS)
            self.happened["append errors"] += 1
        elif number < 0.0075:
            self._delete_a_group()
        elif number < 0.0080:
            self.replays_the_same()
        elif number < 0.0085:
            self._resize_groups()
        elif self.world.append_error and number > 0.8:
            self.world.append_error = ErrorCode.NONE

    def restart(self, crash: bool) -> None:
        """The coordinator stops, or is killed, and starts again from its log."""
        self.happened["crashes" if crash else "restarts"] += 1
        self.world.restart(crash)
        self.started_ms = self.world.now_ms
        self.oracle.restarted()

    def replays_the_same(self) -> None:
        """See that the log gives the live state."""
        self.happened["replays"] += 1
        check_replay(self.world)

    def _kill(self, running: Running) -> None:
        """The process of a client dies and comes back later, knowing nothing."""
        self.happened["kills"] += 1
        if running.answer is not None:
            running.answer.told = None
            running.answer = None
        running.turn += 1
        running.life.close()
        running.client.end()
        running.client = running.client.reborn()
        running.life = running.client.life()
        self._wake(running, self.rng.randint(10, 30_000))

    def _change_topics(self) -> None:
        """A topic comes, grows, or goes with its offsets."""
        name = self.rng.choice("abcdef")
        partitions = self.partitions(name)
        if partitions < PARTITIONS_MAX:
            self.topics.set(name, partitions + self.rng.randint(1, 2))
        elif len(list(self.topics.names())) > 2 and not self.world.append_error:
            self.topics.set(name, 0)
            self.oracle.topic_deleted(name)
            outcome = self.rooms.offsets.forget_topics([name], self.world.now)
            self.world.apply(outcome, None)
            self.happened["topics deleted"] += 1

    def _resize_groups(self) -> None:
        """Groups may have fewer members now, or as many as they like."""
        size = self.rng.choice((2, 5, UNLIMITED, UNLIMITED))
        self.settings = self.settings._replace(group_max_size=size, group_consumer_max_size=size)
        self.world.settings = self.world.shard.settings = self.settings
        self.happened["sizes"] += 1

    def _delete_a_group(self) -> None:
        """An administrator deletes a group, if it is empty."""
        group = self.rng.choice(self._running).client.group
        if self.world.append_error:
            return
        try:
            outcome = self.rooms.offsets.delete_group(group)
        except ClientError:
            return
        self.world.apply(outcome, None)
        self.world.flush()
        self.oracle.group_deleted(group)
        self.happened["groups deleted"] += 1

    # ---- rest

    def come_to_rest(self) -> None:
        """Clients behave, nothing fails, time goes by: then every group is stable, every
        partition that is subscribed to is owned, and every request was answered."""
        self.calm = True
        self.world.append_error = ErrorCode.NONE
        self.settings = self.settings._replace(
            group_max_size=UNLIMITED, group_consumer_max_size=UNLIMITED
        )
        self.world.settings = self.world.shard.settings = self.settings
        self.topics.version += 1
        end_ms = self.world.now_ms + CALM_MS
        while self._events[0][0] < end_ms:
            self.step()
        self.world.flush()
        self._check_rest()
        self.replays_the_same()
        self.calm = False
        self.happened["rests"] += 1

    def _check_rest(self) -> None:
        groups: dict[str, list[Client]] = {}
        for client in self.clients:
            groups.setdefault(client.group, []).append(client)
        for name, clients in groups.items():
            idle = [client.name for client in clients if not client.works]
            group = self.world.shard.groups[name]
            check(not idle, name, group.state_name, "at rest, but not", idle)
            check(group.state_name == "Stable", name, "is", group.state_name, "at rest")
            check_group(self.world.shard, group)
            wanted = {
                (topic, index)
                for client in clients
                for topic in client.topics
                for index in range(self.partitions(topic))
            }
            owned = [p for client in clients for p in client.owned if self.has(p)]
            check(len(owned) == len(set(owned)), name, "partitions are owned twice", owned)
            check(set(owned) == wanted, name, "owns", sorted(owned), "of", sorted(wanted))
        answered = Counter(type(answer).__name__ for answer in self.world.open.values())
        check(not self.world.open, "never answered:", dict(answered))


def classic_groups(seed: int, groups: int, members: int) -> list[tuple[str, int, Any]]:
    """Groups of the classic protocol alone, some cooperative."""
    rng = Random(seed)
    found = []
    for number in range(groups):
        cooperative = number % 3 == 1

        def who(*args: Any, cooperative: bool = cooperative) -> Client:
            return ClassicClient(*args, cooperative=cooperative)

        found.append((f"classic{number}", rng.randint(1, 2 * members), who))
    return found


def consumer_groups(seed: int, groups: int, members: int) -> list[tuple[str, int, Any]]:
    """Groups of the consumer protocol alone."""
    rng = Random(seed)
    return [(f"consumer{n}", rng.randint(1, 2 * members), ConsumerClient) for n in range(groups)]


def mixed_groups(seed: int, groups: int, members: int) -> list[tuple[str, int, Any]]:
    """Groups in which clients of both protocols come and go: up- and downgrades."""
    rng = Random(seed)

    def who(sim: Simulation, group: str, number: int, instance_id: str | None) -> Client:
        if number % 2:
            return RestlessConsumer(sim, group, number, instance_id)
        return ClassicClient(
            sim, group, number, instance_id, cooperative=number % 4 == 0, alone=False
        )

    return [(f"mixed{n}", rng.randint(2, members), who) for n in range(groups)]


KINDS = {"classic": classic_groups, "consumer": consumer_groups, "mixed": mixed_groups}
