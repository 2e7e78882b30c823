"""Transactions while the broker is killed, compared with what read_committed finds.

Two clients: librdkafka in version 1 of the protocol, where an abort keeps the epoch, and kbroker's
own in version 2, where each end raises it. librdkafka 2.16 gives the sequence number of a record
that it aborts before the answer to the next one (tests/clients/test_transactions_cut.py), which
costs a committed transaction that record; here it aborts when every record is answered, and after
any error a new producer takes its place, whose epoch is a new one. So each record that is missing
or too many is the broker's fault. kbroker's client aborts at any moment.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections import Counter
from typing import Protocol

import pytest
from confluent_kafka import KafkaException
from confluent_kafka import Producer as RdkafkaProducer

from kbroker.client.errors import KafkaError
from kbroker.client.producer import Producer
from tests.support.fixtures import BrokerFactory
from tests.support.processes import BrokerProcess
from tests.support.rounds import scaled
from tests.support.wire import create_topic
from tests.txn.committed import Follower
from tests.txn.teller import COMMON, patiently

TOPIC, PARTITIONS = "kills", 12
RUN_S = scaled(150, full=4 * 3600)
SETTINGS = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
            "log.segment.bytes": str(1 << 24)}  # fmt: skip
#: The pause between a start and the next kill, in seconds.
PAUSE_S = (0.2, 4.0)
#: How long a client may need to end a transaction.
LIMIT_S = 120.0
COMMITTED, ABORTED, UNKNOWN = "committed", "aborted", "unknown"
#: A transaction: its outcome, and the partitions that have one record of it each.
Outcomes = list[tuple[str, tuple[int, ...]]]


class Client(Protocol):
    """A producer. The transaction of the one before ends when it is made."""

    def begin(self) -> None: ...

    def send(self, value: str, partition: int) -> None: ...

    def settle(self, seconds: float) -> None:
        """Waits for answers, for as long as the client needs in order to abort."""

    def abort(self) -> None: ...

    def commit(self) -> None: ...

    def close(self) -> None: ...


class Rdkafka:
    """librdkafka's."""

    errors = KafkaException

    def __init__(self, bootstrap: str, name: str, linger_ms: int) -> None:
        self.producer = RdkafkaProducer(COMMON | {
            "bootstrap.servers": bootstrap, "transactional.id": name,
            "transaction.timeout.ms": 60_000, "linger.ms": linger_ms,
        })  # fmt: skip
        patiently(lambda: self.producer.init_transactions(30))

    def begin(self) -> None:
        self.producer.begin_transaction()

    def send(self, value: str, partition: int) -> None:
        self.producer.produce(TOPIC, value, partition=partition)

    def settle(self, seconds: float) -> None:
        left = self.producer.flush(LIMIT_S)
        assert left == 0, f"{left} records without an answer after {LIMIT_S:.0f} s"

    def abort(self) -> None:
        patiently(lambda: self.producer.abort_transaction(10))

    def commit(self) -> None:
        patiently(lambda: self.producer.commit_transaction(10))

    def close(self) -> None:
        self.producer.purge()


class Own:
    """kbroker's."""

    errors = KafkaError

    def __init__(self, bootstrap: str, name: str, linger_ms: int) -> None:
        self.producer = Producer({
            "bootstrap.servers": bootstrap, "transactional.id": name, "linger.ms": linger_ms,
            "transaction.timeout.ms": 60_000, "reconnect.backoff.max.ms": 200,
            "request.timeout.ms": 10_000,
        })  # fmt: skip
        self.producer.init_transactions(LIMIT_S)

    def begin(self) -> None:
        self.producer.begin()

    def send(self, value: str, partition: int) -> None:
        self.producer.send(TOPIC, value.encode(), partition=partition)

    def settle(self, seconds: float) -> None:
        try:
            self.producer.flush(seconds)
        except TimeoutError:
            return

    def abort(self) -> None:
        self.producer.abort(LIMIT_S)

    def commit(self) -> None:
        self.producer.commit(LIMIT_S)

    def close(self) -> None:
        self.producer.close(0)


PRODUCERS: tuple[type[Rdkafka] | type[Own], ...] = (Rdkafka, Rdkafka, Rdkafka, Own, Own, Own)


class Worker:
    """A producer in a thread of its own. `outcomes` is what judge() compares the log with."""

    def __init__(
        self, kind: type[Rdkafka] | type[Own], bootstrap: str, name: str, down: threading.Event
    ) -> None:
        self.kind, self.bootstrap, self.name, self.down = kind, bootstrap, name, down
        self.chance = random.Random(name)
        self.outcomes: Outcomes = []
        self.faults: list[str] = []
        self.counts: Counter[str] = Counter()
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self._run, name=name)
        self.thread.start()

    def _run(self) -> None:
        try:
            while not self.stopping.is_set():
                with contextlib.closing(self.client()) as client:
                    self._work(client)
        except BaseException as error:  # the main thread reports it
            self.faults.append(f"{self.name}: {error!r}")

    def _work(self, client: Client) -> None:
        """Until this client meets an error."""
        try:
            while not self.stopping.is_set():
                self._transact(client)
        except self.kind.errors as failed:
            self.counts[f"{self.kind.__name__} {failed!r:.90}"] += 1

    def client(self) -> Client:
        return self.kind(self.bootstrap, self.name, self.chance.choice((0, 2)))

    def _transact(self, client: Client) -> None:
        number = len(self.outcomes)
        count = self.chance.randint(1, PARTITIONS)
        chosen = tuple(sorted(self.chance.sample(range(PARTITIONS), count)))
        self.outcomes.append((ABORTED, chosen))
        client.begin()
        for partition in chosen:
            client.send(f"{self.name} {number} {partition}", partition)
        if self.chance.random() < 0.3:
            self._wait_for_kill(client)
            client.abort()
            self.counts[f"{self.kind.__name__} {ABORTED}"] += 1
            return
        self.outcomes[number] = UNKNOWN, chosen
        client.commit()
        self.outcomes[number] = COMMITTED, chosen
        self.counts[f"{self.kind.__name__} {COMMITTED}"] += 1

    def _wait_for_kill(self, client: Client) -> None:
        """Settle, and half of the times wait for the next kill."""
        client.settle(self.chance.choice((0.001, 0.002, 0.02, 3)))
        if self.chance.random() < 0.5:
            at_kill = self.down.wait(self.chance.uniform(0, PAUSE_S[1]))
            self.counts[f"{self.kind.__name__} aborts at a kill"] += at_kill


def judge(name: str, outcomes: Outcomes, values: list[Counter[str]]) -> list[str]:
    """Return lost, repeated, torn and aborted records; `values` has one counter a partition."""
    wrong = []
    for number, (outcome, chosen) in enumerate(outcomes):
        found = [values[n][f"{name} {number} {n}"] for n in chosen]
        allowed = {COMMITTED: {1}, ABORTED: {0}, UNKNOWN: {0, 1}}[outcome]
        if len(set(found)) > 1 or not set(found) <= allowed:
            wrong.append(f"{name} {number}: {outcome}, {dict(zip(chosen, found, strict=True))}")
    return wrong


def read(port: int) -> list[Counter[str]]:
    return [Counter(one.value.decode() for one in Follower(TOPIC, n).read(port))
            for n in range(PARTITIONS)]  # fmt: skip


def kill_until(broker: BrokerProcess, workers: list[Worker], down: threading.Event) -> int:
    """Kill and start the broker for RUN_S. Return the number of kills."""
    chance, until, kills = random.Random(1), time.monotonic() + RUN_S, 0
    while time.monotonic() < until and not any(worker.faults for worker in workers):
        workers[0].stopping.wait(chance.uniform(*PAUSE_S))
        broker.kill()
        kills += 1
        down.set()
        broker.start()
        down.clear()
    return kills


@pytest.mark.long
@pytest.mark.timeout(16_000)
def test_committed_transactions_outlive_kills(start_kbroker: BrokerFactory) -> None:
    broker = start_kbroker(SETTINGS)
    create_topic(broker.port, TOPIC, PARTITIONS, {})
    down = threading.Event()
    workers = [Worker(kind, broker.bootstrap, f"worker-{n}", down)
               for n, kind in enumerate(PRODUCERS)]  # fmt: skip
    try:
        kills = kill_until(broker, workers, down)
    finally:
        for worker in workers:
            worker.stopping.set()
        for worker in workers:
            worker.thread.join(180)
    counts = sum((worker.counts for worker in workers), Counter[str]())
    print(f"{broker.name}: {kills} kills, {dict(counts)}")
    assert not [fault for worker in workers for fault in worker.faults]
    for kind in ("Rdkafka", "Own"):
        assert counts[f"{kind} aborts at a kill"] and counts[f"{kind} {COMMITTED}"], counts

    for worker in workers:
        worker.client().close()  # ends a transaction that its last producer left open
    values = read(broker.port)
    wrong = [line for one in workers for line in judge(one.name, one.outcomes, values)]
    assert not wrong, "\n".join(wrong[:40])
    assert "dropped without an answer" not in broker.log_text()


@pytest.mark.parametrize(
    ("outcome", "first", "second"),
    [(COMMITTED, 1, 0), (COMMITTED, 0, 0), (COMMITTED, 2, 1), (ABORTED, 1, 1), (ABORTED, 0, 1),
     (UNKNOWN, 1, 0), (UNKNOWN, 2, 2)],
)  # fmt: skip
def test_control_wrong_records_are_noticed(outcome: str, first: int, second: int) -> None:
    values = [Counter({"a 0 0": first}), Counter({"a 0 1": second})]
    (line,) = judge("a", [(outcome, (0, 1))], values)
    assert outcome in line
    right = 1 if outcome == COMMITTED else 0
    values = [Counter({"a 0 0": right}), Counter({"a 0 1": right})]
    assert judge("a", [(outcome, (0, 1))], values) == []
