"""The consumer group protocol (KIP-848) as Java's consumer and librdkafka speak it.

What is particular to it: expressions that the broker resolves, members that are fenced and come
back, groups that pass from one protocol to the other while they consume.
"""

from __future__ import annotations

import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from kbroker.client.admin_configs import alter_configs
from kbroker.client.cluster import Cluster
from tests.support import wire
from tests.support.fixtures import BrokerFactory
from tests.support.java import java_command
from tests.support.processes import BrokerProcess
from tests.support.waits import wait_for

TIMEOUT_S = 60
QUICK = {
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.min.session.timeout.ms": "2000",
    "group.consumer.session.timeout.ms": "3000",
    "group.consumer.assignment.interval.ms": "0",
    "group.initial.rebalance.delay.ms": "0",
}
CLASSIC = ("group.protocol=classic", "session.timeout.ms=6000", "heartbeat.interval.ms=200",
           "partition.assignment.strategy="
           "org.apache.kafka.clients.consumer.CooperativeStickyAssignor")  # fmt: skip
CONSUMER = ("group.protocol=consumer",)
GROUP = 32  # the kind of resource


class Member:
    """A Java consumer in a process, its lines read as they come."""

    def __init__(self, classes: Path, bootstrap: str, what: str, *settings: str) -> None:
        self.owned: set[str] = set()
        self.read: list[str] = []
        self.lines: list[str] = []
        self.process = subprocess.Popen(
            java_command("Subscriber", what, f"bootstrap.servers={bootstrap}", "group.id=g",
                         *settings, classes=classes),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        self._reader = threading.Thread(target=self._follow, daemon=True)
        self._reader.start()

    def _follow(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            word, _, rest = line.rstrip("\n").partition(" ")
            if word == "owns":
                self.owned = set(rest.split())
            elif word == "read":
                self.read.append(rest)
            else:
                self.lines.append(line)

    def leave(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        assert self.process.wait(TIMEOUT_S) == 0, "".join(self.lines)
        self._reader.join(TIMEOUT_S)
        assert self.lines[-1:] == ["left\n"], "".join(self.lines)

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(TIMEOUT_S)
        self._reader.join(TIMEOUT_S)
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()


@pytest.fixture
def broker(start_target: BrokerFactory) -> BrokerProcess:
    return start_target(QUICK)


@pytest.fixture
def member(broker: BrokerProcess, classes: Path) -> Iterator[Callable[..., Member]]:
    made: list[Member] = []

    def start(what: str, *settings: str) -> Member:
        made.append(Member(classes, broker.bootstrap, what, *settings))
        return made[-1]

    yield start
    for one in made:
        one.kill()


def produce(broker: BrokerProcess, topic: str, first: int, count: int) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(first, first + count):
        producer.produce(topic, f"value {number}", partition=number % 4)
    assert producer.flush(TIMEOUT_S) == 0


def wait_shared(*members: Member, partitions: int = 4, topic: str = "t") -> None:
    """Each has its part, and together they have everything."""

    def is_shared() -> bool:
        owned = [one for member in members for one in member.owned]
        return all(m.owned for m in members) and sorted(owned) == [
            f"{topic}-{p}" for p in range(partitions)
        ]

    wait_for(f"{len(members)} members share {topic}", is_shared, TIMEOUT_S)


def wait_read(count: int, *members: Member) -> None:
    """Everything was read, and nothing twice."""
    wait_for("everything is read", lambda: sum(len(m.read) for m in members) >= count, TIMEOUT_S)
    read = [value for member in members for value in member.read]
    assert sorted(read) == sorted(f"value {number}" for number in range(count))


@pytest.mark.long
def test_a_member_dies(broker: BrokerProcess, member: Callable[..., Member]) -> None:
    wire.create_topic(broker.port, "t", 4)
    first, second, third = (member("t", *CONSUMER) for _ in range(3))
    wait_shared(first, second, third)
    produce(broker, "t", 0, 100)
    wait_read(100, first, second, third)
    second.kill()
    wait_shared(first, third)
    first.leave()
    wait_shared(third)


@pytest.mark.long
def test_a_member_that_was_fenced_rejoins(
    broker: BrokerProcess, member: Callable[..., Member]
) -> None:
    wire.create_topic(broker.port, "t", 4)
    first, second = member("t", *CONSUMER), member("t", *CONSUMER)
    wait_shared(first, second)
    # A consumer that does not know its positions yet would stop when it is fenced.
    produce(broker, "t", 0, 40)
    wait_read(40, first, second)
    first.process.send_signal(signal.SIGSTOP)
    try:
        wait_shared(second)
    finally:
        first.process.send_signal(signal.SIGCONT)
    wait_shared(first, second)


@pytest.mark.long
def test_a_static_member_restarts(broker: BrokerProcess, member: Callable[..., Member]) -> None:
    """It has to be back before its session ends, and a virtual machine may take long to start."""
    wire.create_topic(broker.port, "t", 4)
    with Cluster(broker.bootstrap) as cluster:
        alter_configs(cluster, GROUP, "g", set_values={"consumer.session.timeout.ms": "45000"})
    first = member("t", *CONSUMER, "group.instance.id=i")
    second = member("t", *CONSUMER)
    wait_shared(first, second)
    produce(broker, "t", 0, 40)
    wait_read(40, first, second)
    had = set(first.owned)
    first.leave()
    again = member("t", *CONSUMER, "group.instance.id=i")
    wait_shared(again, second)
    assert again.owned == had
    produce(broker, "t", 40, 40)
    wait_read(80, first, second, again)


@pytest.mark.long
def test_expressions(broker: BrokerProcess, member: Callable[..., Member]) -> None:
    for name in ("red-1", "red-2", "blue"):
        wire.create_topic(broker.port, name, 1)
    one = member("~red-[0-9]", *CONSUMER)
    wait_for("topics that match", lambda: one.owned == {"red-1-0", "red-2-0"}, TIMEOUT_S)
    wire.create_topic(broker.port, "red-3", 1)
    wait_for("a new topic", lambda: "red-3-0" in one.owned, TIMEOUT_S)
    other = member("~.*-2|blue", *CONSUMER)
    wait_for("other topics", lambda: "blue-0" in other.owned, TIMEOUT_S)
    wait_for(
        "each topic is with one",
        lambda: sorted([*one.owned, *other.owned]) == ["blue-0", "red-1-0", "red-2-0", "red-3-0"],
        TIMEOUT_S,
    )


def test_upgrade_and_downgrade(broker: BrokerProcess, member: Callable[..., Member]) -> None:
    """Members are replaced one by one, first to the new protocol and then back; nothing is lost
    and nothing read twice."""
    wire.create_topic(broker.port, "t", 4)
    old = [member("t", *CLASSIC) for _ in range(2)]
    wait_shared(*old)
    produce(broker, "t", 0, 100)
    wait_read(100, *old)
    new = [member("t", *CONSUMER)]
    wait_shared(*old, *new)
    produce(broker, "t", 100, 100)
    wait_read(200, *old, *new)
    for one in old:
        one.leave()
    wait_shared(*new)
    produce(broker, "t", 200, 100)
    wait_read(300, *old, *new)
    back = [member("t", *CLASSIC)]
    wait_shared(*new, *back)
    produce(broker, "t", 300, 100)
    wait_read(400, *old, *new, *back)
    new[0].leave()
    wait_shared(*back)
    produce(broker, "t", 400, 100)
    wait_read(500, *old, *new, *back)


@pytest.mark.long
def test_librdkafka_beside_java(broker: BrokerProcess, member: Callable[..., Member]) -> None:
    wire.create_topic(broker.port, "t", 4)
    first = member("t", *CONSUMER)
    wait_shared(first)
    other = Consumer({
        "bootstrap.servers": broker.bootstrap, "group.id": "g", "group.protocol": "consumer",
        "auto.offset.reset": "earliest",
    })  # fmt: skip
    try:
        other.subscribe(["t"])

        def is_shared() -> bool:
            other.poll(0.1)
            return len(other.assignment()) == len(first.owned) == 2

        wait_for("both have two partitions", is_shared, TIMEOUT_S)
    finally:
        other.close()
    wait_shared(first)


@pytest.mark.long
def test_expressions_of_librdkafka(broker: BrokerProcess) -> None:
    """It sends names and expressions together."""
    for name in ("red-1", "red-2", "blue", "green"):
        wire.create_topic(broker.port, name, 1)
    consumer = Consumer({
        "bootstrap.servers": broker.bootstrap, "group.id": "g", "group.protocol": "consumer",
        "topic.metadata.refresh.interval.ms": 500,
    })  # fmt: skip
    try:
        consumer.subscribe(["^red-.*", "blue"])

        def topics() -> list[str]:
            consumer.poll(0.1)
            return sorted(one.topic for one in consumer.assignment())

        wait_for("names and matches", lambda: topics() == ["blue", "red-1", "red-2"], TIMEOUT_S)
        wire.create_topic(broker.port, "red-3", 1)
        wait_for("a new match", lambda: "red-3" in topics(), TIMEOUT_S)
    finally:
        consumer.close()
