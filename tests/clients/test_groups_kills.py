"""kill -9 of the broker in the middle of rebalances, while records come and are committed.

Whatever the protocol and the way to commit: every record is seen, what is committed was seen, and a
commit that was visible is never taken back. With librdkafka and Java, and in one group with
aiokafka as well, at kbroker alone: it does not reliably return to a group of Apache Kafka's after
this. kafka-python 3.0.0 does to neither: behind the records of an epoch before the leader's it asks
for that epoch's end again and again (OffsetForLeaderEpoch, 50 times a second) and hardly ever
fetches. kcat ends when its last broker is gone.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support import wire
from tests.support.load import Load
from tests.support.members.team import Team
from tests.support.oracle import History, judge
from tests.support.processes import BrokerProcess
from tests.support.rounds import combined, scaled

PARTITIONS = 4
# librdkafka gives up on a heartbeat after one interval, and does not ask for everything in the next
# (the consumer protocol): an assignment told in the answer that it did not wait for is never heard
# of, and its partitions stay where they are until the rebalance timeout, five minutes. A disk that
# is busy may hold an answer for a second.
SETTINGS = {
    "group.initial.rebalance.delay.ms": "100",
    "group.consumer.min.heartbeat.interval.ms": "1500",
    "group.consumer.heartbeat.interval.ms": "1500",
    "group.consumer.min.session.timeout.ms": "6000",
    "group.consumer.session.timeout.ms": "6000",
}
COMMITS = ("auto", "sync", "async")
LONG = pytest.mark.long


class Scene:
    """A broker, producers that never pause, and a team that reads what they send."""

    def __init__(self, broker: BrokerProcess, topic: str, folder: Path, seed: int) -> None:
        self.broker, self.moments = broker, random.Random(seed)
        wire.create_topic(broker.port, topic, PARTITIONS)
        self.team = Team(broker.bootstrap, topic, folder, partitions=PARTITIONS)
        self.load = Load(broker.bootstrap, topic, folder, producers=1, partitions=PARTITIONS)

    def later(self) -> None:
        """Until some more records were acknowledged: a moment that chance picks."""
        self.load.wait_for_acks(self.moments.randint(50, 800))

    def kill_broker(self) -> None:
        """At once, and up again."""
        self.broker.kill()
        self.broker.start()

    def finish(self) -> list[History]:
        """All is read and committed by those who are left; what was sent."""
        histories = self.load.finish()
        verdict = judge(self.broker.port, self.team.topic, PARTITIONS, histories)
        assert not verdict.faults()
        self.team.wait_delivered()
        self.team.wait_committed()
        self.team.stop(*self.team.live())
        assert self.team.check_commits() == self.team.ends()
        return histories

    def end(self) -> None:
        """Nothing is left running."""
        self.load.kill()
        self.team.end()


@pytest.fixture
def scene(
    start_target: Callable[..., BrokerProcess], topic: str, tmp_path: Path,
    request: pytest.FixtureRequest,
) -> Iterator[Scene]:  # fmt: skip
    made = Scene(start_target(SETTINGS), topic, tmp_path, seed=hash(request.node.name) & 0xFFFF)
    made.team.classes = lambda: request.getfixturevalue("classes")
    yield made
    made.end()


FULL = (
    (["confluent/range"], scaled(6, full=12)),
    (["confluent/cooperative-sticky"], scaled(6, full=12)),
    (["confluent/consumer"], scaled(6, full=12)),
    (["java/consumer", "confluent/consumer"], scaled(5, full=8)),
    (["java/cooperative-sticky"], scaled(5, full=8)),
)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("kinds", "cycles", "commit"),
    [
        (["confluent/range"], 2, "async"),
        *(pytest.param(*run, commit, marks=LONG) for run, commit in combined(FULL, COMMITS)),
    ],
)
def test_the_broker_is_killed_in_rebalances(
    scene: Scene, kinds: list[str], commit: str, cycles: int
) -> None:
    """Each cycle a member comes, leaves or dies, and the broker with it, a moment later or two."""
    team, pick = scene.team, scene.moments
    for at in range(3):
        team.add(kinds[at % len(kinds)], commit=commit)
    team.wait_shared()
    for cycle in range(cycles):
        scene.later()
        what = ("come", "leave", "die")[cycle % 3]
        if what == "come" or len(team.staying()) < 2:
            team.add(kinds[cycle % len(kinds)], commit=commit)
        elif what == "leave":
            team.dismiss(pick.choice(team.staying()))
        else:
            team.kill(pick.choice(team.staying()))
        if cycle % 2:
            scene.later()
        scene.kill_broker()
        team.check_commits()
        if cycle % 4 == 3:
            team.wait_shared()
    scene.finish()


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("commit", scaled(COMMITS[2:], full=COMMITS))
@pytest.mark.parametrize("start_target", ["kbroker"], indirect=True)
def test_the_broker_is_killed_under_libraries_in_one_group(scene: Scene, commit: str) -> None:
    """Each time the group comes to rest again, with all who live; once one has died as well."""
    team = scene.team
    for kind in ("confluent/range", "aiokafka/range", "java/range"):
        team.add(kind, commit=commit)
    team.wait_shared()
    for cycle in range(6):
        scene.later()
        if cycle == 2:
            team.kill(team.members[0])
            team.add("java/range", commit=commit)
            scene.later()
        scene.kill_broker()
        team.check_commits()
        team.wait_shared()
    scene.finish()
