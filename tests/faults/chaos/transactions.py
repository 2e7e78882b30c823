"""Transactions that commit or abort, and a comparison with the records that readers see."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from tests.faults.chaos.workload import Session, Workload
from tests.support.processes import BrokerProcess
from tests.support.transactional import WireProducer, committed_offset
from tests.support.waits import passes
from tests.support.wire import ConnectionClosedError
from tests.txn.committed import Follower

#: Errors after which the same request may succeed: no leader yet, timed out, coordinator or
#: replicas on their way, the transaction before is ending, a log whose lock a slow write has.
AGAIN = {3, 5, 6, 7, 14, 15, 16, 19, 51, 56}
PARTITIONS = 2
PAUSE_S = 0.1
#: The share of transactions that commit an offset of a group as well.
OFFSETS_PART = 0.3
#: The limit for the end of the last transaction, from the end of the delays.
FINISH_S = 15.0
COMMITTED, ABORTED, UNKNOWN = "committed", "aborted", "unknown"


NO_ANSWER = -1000


class InterruptedTransactionError(Exception):
    """The workload was stopped before the request had succeeded."""


class PatientProducer(WireProducer):
    """A producer that repeats each request until `is_over`."""

    def __init__(
        self, session: Session, name: str, protocol: int, is_over: Callable[[], bool]
    ) -> None:
        super().__init__(session.broker, name, protocol)
        self.session, self.is_over = session, is_over
        self.pause: Callable[[], object] = lambda: passes(1000 * PAUSE_S)

    def _once(self, api: int, version: int, body: dict[str, Any]) -> dict[str, Any]:
        answer = self.session.call(api, version, body)
        if answer is None:
            raise ConnectionClosedError
        return answer

    def _until(self, what: str, ask: Callable[[], int]) -> None:
        while True:
            try:
                code = ask()
            except ConnectionClosedError:
                code = NO_ANSWER
            if code == 0:
                return
            if code != NO_ANSWER and code not in AGAIN:
                raise AssertionError(f"{self.name}: {what}: error {code}")
            if self.is_over():
                raise InterruptedTransactionError(f"{what}: {code}")
            self.pause()


class Transactions(Workload):
    """One transactional producer of version 1 or 2 of the protocol."""

    def __init__(
        self, name: str, broker: BrokerProcess, seed: str, protocol: int, topic: str
    ) -> None:
        super().__init__(name, broker, seed)
        self.topic = topic
        self.producer = PatientProducer(self.session, name, protocol, self.stopping.is_set)
        self.outcomes: list[str] = []
        self.offsets: list[int] = []
        self._is_open = self._is_ready = False

    def step(self) -> None:
        try:
            if not self._is_ready:
                self.producer.init()
                self._is_ready = True
            self._transact()
        except InterruptedTransactionError:
            return
        self.pause(PAUSE_S)

    def _transact(self) -> None:
        number, commit = len(self.outcomes), self.chance.random() < 0.7
        self.outcomes.append(ABORTED)  # until its end is requested
        self._is_open = True
        for partition in range(PARTITIONS):
            self.producer.send(self.topic, partition, self._value(number, partition))
        if self.chance.random() < OFFSETS_PART:
            self.offsets.append(number)
            self.producer.commit_offset(self.name, self.topic, number)
        if commit:
            self.outcomes[number] = UNKNOWN
        self.producer.end(commit=commit)
        self._is_open = False
        if commit:
            self.outcomes[number] = COMMITTED
        self.counts[self.outcomes[number]] += 1

    def _value(self, number: int, partition: int) -> bytes:
        return f"{self.name} {number} {partition}".encode()

    def finish(self) -> None:
        """Fence the producer, which ends a transaction that is open: readers wait for its end."""
        if not self._is_ready:
            return
        deadline = time.monotonic() + FINISH_S
        self.producer.is_over = lambda: time.monotonic() > deadline
        try:
            self.producer.init()
        except InterruptedTransactionError as error:
            self.fault(f"its last transaction has not ended: {error}")

    def judge(self) -> list[str]:
        """Compare the committed records and the committed offset with the outcomes."""
        values = [
            record.value
            for partition in range(PARTITIONS)
            for record in Follower(self.topic, partition).read(self.broker.port)
        ]
        wrong = self.judge_values(values)
        if self.offsets:
            wrong += self.judge_offset(committed_offset(self.broker, self.name, self.topic))
        return wrong

    def judge_values(self, values: list[bytes]) -> list[str]:
        """Return transactions that are torn, stored twice, lost, or visible though aborted."""
        wrong = []
        for number, outcome in enumerate(self.outcomes):
            counts = [values.count(self._value(number, n)) for n in range(PARTITIONS)]
            allowed = {COMMITTED: [1], ABORTED: [0], UNKNOWN: [0, 1]}[outcome]
            if not any(counts == [times] * PARTITIONS for times in allowed):
                wrong.append(f"{self.name} {number}: {outcome}, and is read {counts} times")
        return wrong

    def judge_offset(self, offset: int) -> list[str]:
        """Return whether the committed offset is impossible, as a line; -1 for no offset."""
        possible = {-1}
        for number in self.offsets:
            if self.outcomes[number] == COMMITTED:
                possible = {number}
            elif self.outcomes[number] == UNKNOWN:
                possible.add(number)
        if offset in possible:
            return []
        return [f"{self.name}: the committed offset is {offset}, not one of {sorted(possible)}"]
