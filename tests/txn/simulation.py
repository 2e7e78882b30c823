"""Producers, readers and what befalls the machine, step by step; all follows from the seed."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

from kbroker.ext import records, testing_log
from kbroker.group.commits import Commit, PartitionCommit, TopicCommit
from kbroker.group.offsets import Fetch
from kbroker.txn.transaction import AT_REST, Partition, State, Transaction
from tests.faults.scenes import batch_places
from tests.txn.clients import GROUPS, Call, Client, Told, offsets_partition
from tests.txn.machine import (
    OFFSET_PARTITIONS,
    PARTITIONS,
    TIMEOUT_MS,
    Answer,
    Break,
    Machine,
)
from tests.txn.model import Model, check

NAMES, OLD = 5, (1, 3)
CLIENTS = 9
RESTLESS_STEPS = 2_500
NEAR_EXHAUSTION = 32_745
CLEANUP_MS = 10_001
DAY_MS = 86_400_000
COMMITTED, UNCOMMITTED = 1, 0


class Reader:
    """A consumer that follows one partition."""

    def __init__(self, sim: Simulation, partition: Partition, isolation: int, start: int) -> None:
        self.sim, self.partition, self.isolation = sim, partition, isolation
        self.position = start

    def poll(self, most: int) -> bool:
        """One Fetch: what it brings is exactly what the model says. False: at the end."""
        machine, model = self.sim.machine, self.sim.model.partitions[self.partition]
        core = machine.logs[self.partition].core
        code, base, at, size, _, aborted = testing_log.read(
            core, self.position, most, self.isolation, True
        )
        end = model.lso if self.isolation == COMMITTED else model.hw
        where = f"{self.partition} at {self.position}"
        if base < 0 or not size:
            check(code == 0 and self.position == end, where, "ends there, code", code, "not", end)
            return False
        path = machine.folder / f"{self.partition[0]}-{self.partition[1]}" / f"{base:020}.log"
        with path.open("rb") as file:
            file.seek(at)
            data = file.read(size)
        at, size = batch_places(data)[-1] if batch_places(data) else (0, 0)
        data = data[: at + size]
        found, after = self._delivered(data, aborted if self.isolation == COMMITTED else [])
        check(self.position < after <= end, where, "goes to", after, "beyond", end)
        committed = self.isolation == COMMITTED
        expected = model.visible(self.position, after, committed=committed)
        check(found == expected, where, f"({committed=}) gives", found, "instead of", expected)
        self.position = after
        return True

    def _delivered(
        self, data: bytes, aborted: list[tuple[int, int]]
    ) -> tuple[list[tuple[int, bytes]], int]:
        """What a client gives its application of an answer, and where it goes on."""
        left = sorted(aborted, key=lambda one: one[1])
        dropping: set[int] = set()
        found, after = [], self.position
        for batch in records.batches(data):
            last = batch.base_offset + batch.last_offset_delta
            while left and left[0][1] <= last:
                dropping.add(left.pop(0)[0])
            whole = data[batch.position : batch.position + batch.length]
            if batch.control:
                dropping.discard(batch.producer_id)
            elif not (batch.transactional and batch.producer_id in dropping):
                found += [
                    (row.offset, row.value or b"")
                    for row in records.records(whole)
                    if row.offset >= self.position
                ]
            after = last + 1
        return found, after


class Running:
    """A client's life under way."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.life = client.life()
        self.turn = 0
        self.waits = False
        self.answer: Any = None

    def told(self, turn: int, answer: Any) -> None:
        if turn == self.turn:
            self.waits, self.answer = False, answer


class Simulation:
    """See the module."""

    def __init__(self, seed: int, folder: Path, broken: Break = lambda machine: None) -> None:
        self.rng = random.Random(seed)
        self.model = Model()
        self.machine = Machine(folder, self.model, broken)
        self.newest: dict[str, int] = {}
        self.asked: dict[str, int] = {}
        """Of each id the last InitProducerId, answered or not."""
        self.happened: Counter[str] = Counter()
        self.steps = self.offsets = 0
        self.late: list[Call] = []
        """Requests that the network keeps; nobody waits for their answers."""
        self.asleep: list[tuple[int, Told]] = []
        self._exhaust()
        self.running = [
            Running(Client(self, f"id{n % NAMES}", 0 if n % NAMES in OLD else 2))
            for n in range(CLIENTS)
        ]
        self.readers = [
            Reader(self, partition, isolation, 0)
            for partition in PARTITIONS
            for isolation in (COMMITTED, UNCOMMITTED)
        ]

    def _exhaust(self) -> None:
        """Some ids have used up nearly all their epochs."""
        now_ms = self.machine.clock.wall_ms()
        for n in range(0, NAMES, 2):
            value = Transaction(
                self.machine.new_producer_id(), TIMEOUT_MS, now_ms, NEAR_EXHAUSTION + n,
                State.EMPTY,
            )  # fmt: skip
            self.machine.know(f"id{n}", value)
        self.machine.settle()

    def counts(self) -> dict[str, int]:
        """How much of what has happened."""
        return {"steps": self.steps, "ends seen": self.model.ended} | self.happened

    def next_offset(self, label: bytes) -> int:
        """One that nobody else commits."""
        self.offsets += 1
        self.model.of_offset[self.offsets] = label
        return self.offsets

    # ---- time

    def run(self, steps: int) -> None:
        """So many steps, and then all comes to rest."""
        end = self.steps + steps
        while self.steps < end:
            until = min(end, self.steps + RESTLESS_STEPS)
            while self.steps < until:
                self.step()
            self.come_to_rest()

    def sleep(self, told: Told) -> None:
        """A client does nothing for a while."""
        self.asleep.append((self.steps + self.rng.randint(20, 400), told))

    def step(self) -> None:
        """One thing happens; then every reader sees what it should."""
        self.steps += 1
        for told in [told for until, told in self.asleep if until <= self.steps]:
            told(None)
        self.asleep = [one for one in self.asleep if one[0] > self.steps]
        number = self.rng.random()
        if number < 0.55:
            ready = [running for running in self.running if not running.waits]
            self._go_on(self.rng.choice(ready or self.running))
        elif number < 0.8:
            self.machine.sync(self.rng.choice((1, 1, 2, 5, 100)))
        elif number < 0.9:
            self.machine.advance(self.rng.choice((1, 10, 50, 150)))
        elif number < 0.93:
            self._commit_alone()
        elif number < 0.95:
            self._look_at_offsets()
        elif number < 0.96 and self.late:
            self._deliver(self.late.pop(self.rng.randrange(len(self.late))))
        elif number > 0.99:
            self._befall()
        self._look()

    def _go_on(self, running: Running) -> None:
        if running.waits:
            if self.rng.random() < 0.98:
                return
            self.happened["patience is over"] += 1
        answer, running.answer, running.waits = running.answer, None, False
        running.turn += 1
        call: Call = running.life.send(answer)
        turn = running.turn
        running.waits = True
        if call.late and self.rng.random() < 0.05:
            self.late.append(call)
            if self.rng.random() < 0.5:
                self._give_up(running)
                return  # ... and else it comes twice
        call.send(lambda answer: running.told(turn, answer))

    def _give_up(self, running: Running) -> None:
        """A client waits no longer, at times."""
        if self.rng.random() < 0.7:
            self.happened["patience is over"] += 1
            running.told(running.turn, None)

    def _deliver(self, call: Call) -> None:
        self.happened[f"late {call.late}"] += 1
        call.send(lambda answer: None)

    # ---- what befalls

    def _befall(self) -> None:
        number = self.rng.random()
        if number < 0.15:
            self.crash(self.rng.randint(self.machine.durable, len(self.machine.stream)))
        elif number < 0.2:
            self.crash(len(self.machine.stream))
        elif number < 0.23:
            self._forget_all()
            self.machine.restart()
            self.happened["restarts"] += 1
        elif number < 0.5:
            self._kill(self.rng.choice(self.running))
        elif number < 0.6:
            self.machine.advance(self.rng.choice((20_000, TIMEOUT_MS)))
            self.happened["long silences"] += 1
        elif number < 0.65:
            self._trim(self.rng.choice(PARTITIONS))

    def crash(self, kept: int) -> None:
        """The machine dies; a part of what is not durable is left."""
        self.happened["crashes"] += 1
        self.happened["appends lost"] += len(self.machine.stream) - kept
        self._forget_all()
        self.machine.crash(kept)

    def _forget_all(self) -> None:
        """All connections are lost, with what was on its way."""
        self.late.clear()
        for running in self.running:
            running.turn += 1
            running.waits, running.answer = False, None

    def _kill(self, running: Running) -> None:
        """A client's process dies; another begins under its name."""
        self.happened["kills"] += 1
        running.turn += 1
        running.life.close()
        client = running.client
        running.client = Client(self, client.name, client.version)
        running.life, running.waits, running.answer = running.client.life(), False, None

    def _trim(self, partition: Partition) -> None:
        start = self.machine.trim(partition)
        self.model.partitions[partition].forget_below(start)
        for reader in self.readers:
            if reader.partition == partition:
                reader.position = max(reader.position, start)
        self.happened["trims"] += 1

    # ---- offsets of groups

    def _commit_alone(self) -> None:
        """An OffsetCommit outside of transactions."""
        group, part = self.rng.choice(GROUPS), self.rng.choice(PARTITIONS)
        offset = self.next_offset(b"")
        topic_id = self.machine.topics.by_name(part[0]).topic_id  # type: ignore[union-attr]
        topics = [TopicCommit(part[0], topic_id, [PartitionCommit(part[1], offset)])]
        commit = Commit(group, topics, 9)
        self.machine.groups.handle(
            group,
            Answer(self.machine, lambda answer: None),
            lambda rooms, reply, now: rooms.offsets.commit(commit, reply, now),
        )

    def _look_at_offsets(self) -> None:
        """A group's offsets are those that the log says, and unstable while something is
        pending."""
        group, (topic, index) = self.rng.choice(GROUPS), self.rng.choice(PARTITIONS)
        stable = self.rng.random() < 0.5
        asked = Fetch(group, [(topic, bytes(16), [index])], require_stable=stable)
        key = (group, topic, index)
        offset, pending = self.model.offset_of(offsets_partition(group), key)

        def told(answer: Any) -> None:
            found = answer["topics"][0]["partitions"][0]
            code = found.get("error_code", 0)
            if stable and pending:
                check(code, key, "is pending, and was answered:", found)
            else:
                check(not code, key, "is not pending, and was refused:", found)
                check(found["committed_offset"] == offset, key, "is", offset, "not", found)

        self.machine.groups.handle(
            group,
            Answer(self.machine, told),
            lambda rooms, reply, now: rooms.offsets.fetch(asked, reply, now),
        )

    # ---- readers

    def _look(self) -> None:
        """Watermarks are right, and one reader goes on; now and then one begins in the middle."""
        for partition in (*PARTITIONS, *OFFSET_PARTITIONS):
            core, model = self.machine.logs[partition].core, self.model.partitions[partition]
            check(core.high_watermark == model.hw, partition, "hw", core.high_watermark, model.hw)
            check(
                core.last_stable_offset == model.lso,
                partition, "lso", core.last_stable_offset, "not", model.lso,
            )  # fmt: skip
        self.rng.choice(self.readers).poll(self.rng.choice((200, 1000, 1 << 20)))
        if self.rng.random() < 0.01:
            self._read_anew(self.rng.choice(PARTITIONS))

    def _read_anew(self, partition: Partition) -> None:
        model = self.model.partitions[partition]
        for isolation in (COMMITTED, UNCOMMITTED):
            end = model.lso if isolation == COMMITTED else model.hw
            start = self.rng.randint(model.start, end)
            reader = Reader(self, partition, isolation, start)
            while reader.poll(2000):
                pass

    # ---- rest

    def come_to_rest(self) -> None:
        """The network is empty, what is overdue is aborted: nothing is open, nothing is missing."""
        while self.late:
            self._deliver(self.late.pop())
        self._forget_all()
        for ms in (1_000, TIMEOUT_MS + CLEANUP_MS, CLEANUP_MS, 1_000):
            self.machine.settle()
            self.machine.advance(ms)
        self.machine.settle()
        for reader in self.readers:
            while reader.poll(1 << 20):
                pass
        self._check_rest()
        if self.machine.is_full or self.rng.random() < 0.3:
            self.machine.restart()
            self._check_rest()
        for partition in PARTITIONS:
            self._read_anew(partition)
            self._trim(partition)
        if self.rng.random() < 0.3:
            self.machine.clock.advance(8 * DAY_MS)
            self.machine.run_due()
            self.machine.settle()
            self.machine.expire()
            self.happened["everything expires"] += 1
        self.happened["rests"] += 1

    def _check_rest(self) -> None:
        self.model.check_rest()
        for name, found in self.machine.transactions.all_transactions():
            check(found.state in AT_REST, name, "is", found.state.label, "at rest")
        for partition in (*PARTITIONS, *OFFSET_PARTITIONS):
            left = [one for one in self.machine.logs[partition].core.producers() if one[5] >= 0]
            check(not left, partition, "is at rest, but open in the log:", left)
