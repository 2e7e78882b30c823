"""Messages are copied in transactions with their offsets while the broker and the copiers are
killed: of each there is exactly one copy (as Apache Kafka's transactions_test, in its numbers)."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.support import wire
from tests.support.processes import BrokerProcess
from tests.support.rounds import scaled
from tests.support.tally import Tally
from tests.support.transactional import values_of
from tests.support.waits import wait_for
from tests.txn.committed import Follower
from tests.txn.test_zombies import PARTITIONS, SETTINGS, SINK, SOURCE, Member

A_TRANSACTION = 750
LIMIT_S = 180.0


class Copying:
    """A broker, and two that copy from one of its topics into another."""

    def __init__(self, broker: BrokerProcess, home: Path) -> None:
        self.broker, self.home = broker, home
        for topic in (SOURCE, SINK):
            wire.create_topic(broker.port, topic, PARTITIONS)
        self.followers = [Follower(SINK, n) for n in range(PARTITIONS)]
        self.fed = self.copied = 0
        self.members = [self._member(n) for n in range(PARTITIONS)]

    def _member(self, number: int) -> Member:
        history = self.home / f"copier-{number}"
        return Member(self.broker, history, "kbroker", "nowhere", A_TRANSACTION)

    def feed(self, count: int) -> None:
        producer = Producer({"bootstrap.servers": self.broker.bootstrap, "linger.ms": 5})
        for number in range(self.fed, self.fed + count):
            producer.produce(SOURCE, b"%d" % number, partition=number % PARTITIONS)
        assert producer.flush(60) == 0
        self.fed += count

    def until(self, copied: int) -> None:
        """So many are there for readers of committed records; who has ended begins anew."""

        def is_there() -> bool:
            for number, member in enumerate(self.members):
                if member.process.poll() is not None:
                    self.members[number] = self._member(number)
            for one in self.followers:
                self.copied += len(one.read(self.broker.port))
            return self.copied >= copied

        wait_for(f"{copied} copies", is_there, LIMIT_S)

    def bounce(self, number: int) -> None:
        """The broker's turn, or that of one of its clients."""
        if number % 2:
            self.members[number // 2 % PARTITIONS].end()
        else:
            self.broker.kill()
            self.broker.start()

    def end(self) -> None:
        for member in self.members:
            member.end()


@pytest.fixture
def copying(start_kbroker: Callable[..., BrokerProcess], tmp_path: Path) -> Iterator[Copying]:
    made = Copying(start_kbroker(SETTINGS), tmp_path)
    yield made
    made.end()


@pytest.mark.timeout(7200)
@pytest.mark.parametrize(
    ("count", "bounces"),
    [
        (6_000, 2),
        pytest.param(*scaled((30_000, 12), full=(100_000, 40)), marks=pytest.mark.long),
    ],
)
def test_there_is_one_copy_of_each(
    copying: Copying, count: int, bounces: int, tally: Tally
) -> None:
    moments = random.Random(bounces)
    for number in range(bounces):
        before = copying.fed
        copying.feed(count // (bounces + 1))
        copying.until(moments.randint(before + 1, copying.fed - 1))
        copying.bounce(number)
    copying.feed(count - copying.fed)
    copying.until(count)
    copying.end()
    found = Counter(values_of(copying.broker, SINK, "read_committed", PARTITIONS))
    expected = Counter(b"%d" % n for n in range(count))
    wrong = (found - expected) + (expected - found)
    tally("P4", tried=bounces, lost=wrong.total())
    assert not wrong, wrong.most_common(10)
