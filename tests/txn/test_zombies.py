"""A member stands still in the middle of a transaction until the group has given what it had to
another, who does its work; then it wakes and goes on: it is refused, and what it has copied counts
nothing. Members copy with the offsets in the transaction (tests/txn/copier.py), each under its own
transactional id, so that it is the group that fences (KIP-447), not InitProducerId."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.support import wire
from tests.support.processes import BrokerProcess
from tests.support.tally import Tally
from tests.support.transactional import values_of
from tests.support.waits import wait_for

SETTINGS = {"group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "1000",
            "transaction.state.log.num.partitions": "2", "offsets.topic.num.partitions": "2",
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}  # fmt: skip
SOURCE, SINK, PARTITIONS = "source", "sink", 2
VALUES = [b"%d" % n for n in range(200)]
LIMIT_S = 90.0
REFUSALS = {"offsets": {"UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION"},
            "commit": {"_FENCED", "INVALID_TXN_STATE"}}  # fmt: skip
"""By where it stood still: the group's coordinator refuses it, or, when its transaction has timed
out, the transaction's: librdkafka's by its epoch, who speaks version 2 as who was aborted."""


class Member:
    """A process that copies, and its history."""

    def __init__(
        self, broker: BrokerProcess, history: Path, kind: str, hold: str, most: int = 50
    ) -> None:
        self.history = history
        self.flag = history.with_name(f"{history.name}.hold")
        words = [kind, broker.bootstrap, "copiers", SOURCE, SINK, str(history), hold, str(most)]
        with history.with_suffix(".err").open("ab") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.txn.copier", *words], stdout=errors, stderr=errors
            )

    def told(self, event: str) -> list[list[str]]:
        """The words of these events, in order."""
        text = self.history.read_text() if self.history.exists() else ""
        lines = [line.split(" ") for line in text.splitlines()]
        return [words for found, *words in lines if found == event]

    def owned(self) -> int:
        return len(self.told("owns")[-1]) if self.told("owns") else 0

    def copied(self) -> int:
        return sum(int(count) for (count,) in self.told("copied"))

    def signal(self, number: int) -> None:
        os.kill(self.process.pid, number)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def start(
    start_kbroker: Callable[..., BrokerProcess], tmp_path: Path
) -> Iterator[Callable[[str, str], tuple[BrokerProcess, Member, Member]]]:
    members: list[Member] = []

    def run(kind: str, hold: str) -> tuple[BrokerProcess, Member, Member]:
        """A broker, one that will be a zombie, and its heir; each has a partition."""
        broker = start_kbroker(SETTINGS)
        for topic in (SOURCE, SINK):
            wire.create_topic(broker.port, topic, PARTITIONS)
        members.append(Member(broker, tmp_path / "zombie", kind, hold))
        members.append(Member(broker, tmp_path / "heir", kind, "nowhere"))
        wait_for("each has one", lambda: [one.owned() for one in members] == [1, 1], LIMIT_S)
        return broker, members[0], members[1]

    yield run
    for member in members:
        member.end()


def stand_still_until_replaced(broker: BrokerProcess, zombie: Member, heir: Member) -> None:
    """In the middle of its first transaction, until the other has copied everything."""
    zombie.flag.touch()
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number, value in enumerate(VALUES):
        producer.produce(SOURCE, value, partition=number % PARTITIONS)
    assert producer.flush(30) == 0
    wait_for("it is in a transaction", lambda: zombie.told("holds"), LIMIT_S)
    zombie.signal(signal.SIGSTOP)
    try:
        wait_for("the other has all", lambda: heir.copied() >= len(VALUES), LIMIT_S)
    finally:
        zombie.flag.unlink()
        zombie.signal(signal.SIGCONT)


def copies(broker: BrokerProcess) -> Counter:
    return Counter(values_of(broker, SINK, "read_committed", PARTITIONS))


@pytest.mark.parametrize(
    ("kind", "hold"),
    [
        ("confluent", "offsets"),
        ("kbroker", "commit"),
        pytest.param("confluent", "commit", marks=pytest.mark.long),
        pytest.param("kbroker", "offsets", marks=pytest.mark.long),
    ],
)
def test_a_zombie_writes_nothing(
    start: Callable[..., tuple[BrokerProcess, Member, Member]], kind: str, hold: str, tally: Tally
) -> None:
    """Nor does it keep its heir from writing: only behind its offsets, until it has timed out."""
    broker, zombie, heir = start(kind, hold)
    stand_still_until_replaced(broker, zombie, heir)
    wait_for("the zombie has heard", lambda: zombie.process.poll() is not None, LIMIT_S)
    ((refusal,),) = zombie.told("refused")
    assert refusal in REFUSALS[hold] and not zombie.told("copied")
    found = copies(broker)
    tally("F24", tried=1, lost=int(found != Counter(VALUES)))
    assert found == Counter(VALUES), found - Counter(VALUES) or Counter(VALUES) - found


def test_control_who_commits_for_the_name_alone_copies_twice(
    start: Callable[..., tuple[BrokerProcess, Member, Member]], tally: Tally
) -> None:
    """The group cannot know who that is."""
    broker, zombie, heir = start("kbroker", "alone")
    stand_still_until_replaced(broker, zombie, heir)
    wait_for("it has committed", lambda: zombie.told("copied"), LIMIT_S)
    assert not zombie.told("refused")
    twice = copies(broker) - Counter(VALUES)
    tally("F24", control=len(twice))
    assert twice
