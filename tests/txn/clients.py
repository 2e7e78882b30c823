"""Transactional producers of the simulation: what they do, and what they are told.

A client's life is a generator: it yields a `Call`, which sends a request to the machine, and goes
on with the answer, or with None where the connection was lost or its patience is over.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from kbroker.errors import ClientError, ErrorCode
from kbroker.ext import records, testing_log
from kbroker.group.commits import PartitionCommit, TopicCommit, TxnCommit
from kbroker.group.partition import group_partition
from kbroker.txn.steps import Add, End, Producer
from kbroker.txn.transaction import Partition
from tests.txn.machine import (
    COORDINATORS,
    OFFSETS,
    PARTITIONS,
    TIMEOUT_MS,
    Answer,
)
from tests.txn.model import ABORT, COMMIT, Txn, check

if TYPE_CHECKING:
    from tests.txn.simulation import Simulation

Told = Callable[[Any], None]
Life = Generator["Call", Any, None]
OK, DUPLICATE, OUT_OF_ORDER = 0, 2, -1
GROUPS = ("g0", "g1", "g2")
_PATIENT: tuple[ErrorCode, ...] = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)
_TRIES = 4
_labels = itertools.count(1)


class Call(NamedTuple):
    """A request: `send` hands it to the machine; `late`: as what it counts when the network keeps
    it and it comes later; empty where version 0 has no defence against that."""

    send: Callable[[Told], None]
    late: str = ""


class Lot(NamedTuple):
    """What goes into a partition: the batch and its first sequence."""

    data: bytes
    sequence: int
    values: list[bytes]


class Client:
    """One of those that share a transactional id; `version` 2 speaks KIP-890's protocol."""

    def __init__(self, sim: Simulation, name: str, version: int) -> None:
        self.sim, self.name, self.version = sim, name, version
        self.producer = Producer(-1, -1)
        self.incarnation = 0
        self.asked, self.told_ms = 0, 0
        """Its last InitProducerId, and when it was last told how to go on."""
        self.sequences: dict[Partition, int] = {}

    @property
    def is_fenced(self) -> bool:
        """Whether another was told that the id is its own, since this one was."""
        return self.sim.newest.get(self.name, 0) > self.incarnation

    @property
    def is_alone(self) -> bool:
        """Whether nobody has asked for the id since, and no transaction can have timed out."""
        age_ms = self.sim.machine.clock.wall_ms() - self.told_ms
        return self.sim.asked.get(self.name, 0) == self.asked and age_ms < TIMEOUT_MS

    def _check_goes_on(self, code: Any, old: int = OK) -> None:
        """Who is alone is told nothing that ends it; `old`: but for this with version 0."""
        passes = (OK, DUPLICATE, *_PATIENT, OK if self.version else old)
        if isinstance(code, int) and code not in passes:
            check(not self.is_alone, f"{self.name!r}, {self.producer}, is alone, and told", code)

    def life(self) -> Life:
        """For ever: gets the id, and makes some transactions."""
        while True:
            got = yield from self._init()
            for _ in range(self.sim.rng.randint(1, 12) if got else 0):
                if not (yield from self._transaction()):
                    break
            if self.is_fenced and self.sim.rng.random() < 0.8:
                yield Call(self.sim.sleep)

    def _until(self, call: Call, tries: int = _TRIES) -> Generator[Call, Any, Any]:
        """The answer, asked for again where that may help; None: there came none."""
        answer = None
        for _ in range(tries):
            answer = yield call
            if answer is not None and answer not in _PATIENT:
                return answer
        return answer

    # ---- the id

    def _init(self) -> Generator[Call, Any, bool]:
        def send(told: Told) -> None:
            machine = self.sim.machine

            def hear(answer: Any) -> None:
                told((self._fences(answer), answer))

            self.asked = self.sim.asked[self.name] = next(_labels)
            init = machine.transactions.init(self.name, TIMEOUT_MS, None)
            machine.transactions.perform(self.name, init, Answer(machine, hear), lambda code: code)

        found = yield from self._until(Call(send))
        if found is None:
            return False
        if not found[0]:
            self._check_goes_on(found[1])
            return False
        self.incarnation = found[0]
        self._is(found[1])
        return True

    def _fences(self, answer: Any) -> int:
        """Who gets the id comes after all who got it before, whether it still listens or not."""
        if not isinstance(answer, Producer) or answer.id < 0:
            return 0
        self.sim.newest[self.name] = next(_labels)
        return self.sim.newest[self.name]

    def _is(self, producer: Producer) -> None:
        self.told_ms = self.sim.machine.clock.wall_ms()
        if producer != self.producer:
            self.producer, self.sequences = producer, {}

    # ---- a transaction

    def _transaction(self) -> Generator[Call, Any, bool]:
        rng = self.sim.rng
        label = f"{self.name}.{next(_labels)}".encode()
        txn = self.sim.model.begin(label)
        started, sound = False, True
        for number in range(rng.choice((0, 1, 1, 2, 3))):
            parts = rng.sample(PARTITIONS, rng.randint(1, len(PARTITIONS)))
            sound, started = (yield from self._send(txn, number, parts)), True
            if not sound:
                break
        if sound and rng.random() < 0.4:
            sound, started = (yield from self._commit_offsets(txn)), True
        if not sound and rng.random() < 0.5:
            return False
        if not started:
            return True
        ended = yield from self._end(txn, sound and rng.random() < 0.75)
        # With version 0 the next one would go on behind a sequence that nobody knows.
        return ended and (sound or self.version > 0)

    def _end(self, txn: Txn, commit: bool) -> Generator[Call, Any, bool]:
        outcome = COMMIT if commit else ABORT
        asked, fenced = End(self.producer, commit, self.version), self.is_fenced

        def send(told: Told) -> None:
            machine = self.sim.machine
            machine.transactions.perform(
                self.name,
                lambda slot, now_ms: machine.transactions.end(slot, self.name, asked, now_ms),
                Answer(machine, told),
                lambda code: code,
                patient=False,
            )

        self.sim.model.asks(txn, outcome)
        answer = yield from self._until(Call(send, "end" if self.version else ""), 8)
        if not isinstance(answer, Producer):
            self._check_goes_on(answer, ErrorCode.INVALID_TXN_STATE)  # nothing was added to it
            return False
        check(not fenced, f"{txn.label!r} was fenced, and told its end is", outcome)
        self.sim.model.told(txn, outcome)
        self.sim.happened[f"told {outcome}"] += 1
        self._is(answer if self.version else self.producer)
        return True

    # ---- records

    def _send(
        self, txn: Txn, number: int, parts: list[Partition]
    ) -> Generator[Call, Any, bool]:
        """Records for some partitions in one request; whether all of them are acknowledged."""
        if not self.version and not (yield from self._add(parts)):
            return False
        fenced = self.is_fenced
        lots = {part: self._lot(txn, number, part) for part in parts}
        for _ in range(_TRIES):
            send = partial(self._produce, self.producer, dict(lots))
            answer = yield Call(send, "records")
            if answer is None:
                if self.sim.rng.random() < 0.4:
                    return False
                continue
            for code, _ in answer.values():
                # A frame of the transaction before that comes late is verified with this one's.
                self._check_goes_on(code, OUT_OF_ORDER)
            for part in [part for part, (code, _) in answer.items() if code in (OK, DUPLICATE)]:
                check(not fenced, f"{txn.label!r} was fenced, and wrote to", part)
                lot, base = lots.pop(part), answer[part][1]
                self.sequences[part] = lot.sequence + len(lot.values)
                for n, value in enumerate(lot.values):
                    self.sim.model.acked(txn, part, base + n, value)
            if not lots:
                return True
            if not all(code in _PATIENT for code, _ in answer.values() if code):
                return False
        return False

    def _lot(self, txn: Txn, number: int, part: Partition) -> Lot:
        values = [
            b"%s#%d.%d.%s" % (txn.label, number, n, b"." * self.sim.rng.randint(0, 40))
            for n in range(self.sim.rng.randint(1, 3))
        ]
        sequence = self.sequences.get(part, 0)
        now_ms = self.sim.machine.clock.wall_ms()
        data = records.build(
            [(now_ms, None, value) for value in values], producer_id=self.producer.id,
            producer_epoch=self.producer.epoch, transactional=True, base_sequence=sequence,
        )  # fmt: skip
        return Lot(data, sequence, values)

    def _add(self, parts: list[Partition]) -> Generator[Call, Any, bool]:
        asked = Add(self.producer, parts, 0)

        def send(told: Told) -> None:
            machine = self.sim.machine

            def operation(slot: Any, now_ms: int) -> Any:
                machine.transactions.add(slot, self.name, asked, now_ms)
                return OK

            machine.transactions.perform(
                self.name, operation, Answer(machine, told), lambda code: code
            )

        answer = yield from self._until(Call(send))
        self._check_goes_on(answer)
        return answer == OK

    def _produce(self, producer: Producer, lots: Mapping[Partition, Lot], told: Told) -> None:
        """As the data plane does (ext/produce_verify.pyx): a guard for each partition on which the
        transaction opens, the coordinator asked about these, then the appends; acks=all."""
        machine = self.sim.machine
        codes: dict[Partition, tuple[int, int]] = {}
        guards: dict[Partition, int] = {}
        for part, lot in lots.items():
            code, guards[part] = testing_log.verify(
                machine.logs[part].core, *producer, lot.sequence, self.version > 0,
                machine.clock.wall_ms(),
            )  # fmt: skip
            if code:
                codes[part] = code, -1
        answer, life = Answer(machine, told), machine.lives

        def append(refused: Mapping[Partition, ErrorCode]) -> None:
            if machine.lives != life:
                return
            for part, lot in lots.items():
                if part in codes:
                    continue
                if refused.get(part):
                    codes[part] = refused[part], -1
                else:
                    codes[part] = machine.produce(part, lot.data, guards[part])
            answer.send_after_all(codes)

        opened = [part for part in lots if guards[part] and part not in codes]
        if opened:
            machine.transactions.begin_on(
                self.name, producer, opened, adds=self.version > 0, then=append
            )
        else:
            append({})

    # ---- offsets of a group

    def _commit_offsets(self, txn: Txn) -> Generator[Call, Any, bool]:
        group = self.sim.rng.choice(GROUPS)
        if not self.version and not (yield from self._add([offsets_partition(group)])):
            return False
        part, fenced = self.sim.rng.choice(PARTITIONS), self.is_fenced
        offset = self.sim.next_offset(txn.label)
        topic_id = self.sim.machine.topics.by_name(part[0]).topic_id  # type: ignore[union-attr]
        topics = [TopicCommit(part[0], topic_id, [PartitionCommit(part[1], offset)])]
        commit = TxnCommit(group, topics, 5 if self.version else 3, self.producer)
        answer = yield from self._until(
            Call(partial(self._store, commit), "offsets" if self.version else "")
        )
        if not isinstance(answer, Mapping):
            self._check_goes_on(answer)
            return False
        self._check_goes_on(answer["topics"][0]["partitions"][0]["error_code"])
        taken = not answer["topics"][0]["partitions"][0]["error_code"]
        check(not (taken and fenced), f"{txn.label!r} was fenced, and committed an offset")
        return taken

    def _store(self, commit: TxnCommit, told: Told) -> None:
        """As the handler does (kbroker/api/k28_txn_offset_commit.py)."""
        machine = self.sim.machine
        answer, life = Answer(machine, told), machine.lives

        def store(refused: Mapping[Partition, ErrorCode]) -> None:
            if machine.lives != life:
                return
            code = next(iter(refused.values()), ErrorCode.NONE)
            try:
                if code:
                    raise ClientError(code)
                machine.groups.handle(
                    commit.group_id,
                    answer,
                    lambda rooms, reply, now: rooms.offsets.commit_in_transaction(
                        commit, reply, now
                    ),
                )
            except ClientError as error:
                answer.fail(error.code)

        try:
            if machine.groups.in_transaction(commit.group_id, *commit.producer):
                store({})
                return
            machine.transactions.begin_on(
                self.name, Producer(*commit.producer), [offsets_partition(commit.group_id)],
                adds=self.version > 0, then=store,
            )  # fmt: skip
        except ClientError as error:  # an append that takes long has paused a coordinator
            answer.fail(error.code)


def offsets_partition(group: str) -> Partition:
    """Where a group's offsets are kept."""
    return OFFSETS, group_partition(group, COORDINATORS)

