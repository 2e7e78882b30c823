"""F14: SIGSTOP, for longer than a session, then SIGCONT: of the broker, and of members."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.clients.test_groups_kills import PARTITIONS, SETTINGS, Scene
from tests.faults.scenes import lost_without_the_end
from tests.support import wire
from tests.support.members.team import SESSION_MS, Member
from tests.support.oracle import judge
from tests.support.processes import BrokerProcess
from tests.support.rounds import scaled
from tests.support.tally import Tally
from tests.support.waits import wait_for

pytestmark = pytest.mark.long
StartBroker = Callable[..., BrokerProcess]
OFFSET_COMMIT = 8
#: A little more than a session.
OVER_S = SESSION_MS / 1000 + 1
SHORT_PAUSES_S = (0.2, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0) * scaled(1, full=3)
#: Beyond a session nothing changes with the length.
LONG_PAUSES_S = (OVER_S, *scaled((15.0,), full=(15.0, 30.0, 60.0)))
ROUNDS = scaled(2, full=8)


def pause(pid: int, seconds: float) -> None:
    """Stops a process for so long, in the middle of whatever it does."""
    os.kill(pid, signal.SIGSTOP)
    try:
        subprocess.run(["sleep", f"{seconds:.3f}"], check=True)
    finally:
        os.kill(pid, signal.SIGCONT)


@pytest.fixture
def scene(start_kbroker: StartBroker, topic: str, tmp_path: Path) -> Iterator[Scene]:
    made = Scene(start_kbroker(SETTINGS), topic, tmp_path, seed=14)
    yield made
    made.end()


def rest(scene: Scene, fault: str, tally: Tally, tried: int) -> None:
    """All is read and committed; then the two controls."""
    broker, team = scene.broker, scene.team
    histories = scene.finish()
    tally(fault, tried=tried, lost=judge(broker.port, team.topic, PARTITIONS, histories).count())
    went_back = taken_back(scene)
    control = lost_without_the_end(broker, team.topic, PARTITIONS, histories)
    tally(fault, control=control + went_back)
    assert control and went_back


def taken_back(scene: Scene) -> int:
    """Whoever commits for a group without members may go back, and that is seen: how often."""
    part = {"partition_index": 0, "committed_offset": 0, "committed_leader_epoch": -1,
            "committed_metadata": ""}  # fmt: skip
    body = {"group_id": scene.team.group, "generation_id_or_member_epoch": -1, "member_id": "",
            "topics": [{"name": scene.team.topic, "partitions": [part]}]}  # fmt: skip
    answer = wire.call_once(scene.broker.port, OFFSET_COMMIT, 8, body)
    assert answer["topics"][0]["partitions"][0]["error_code"] == 0, answer
    return len(scene.team.taken_back(scene.team.committed_now()))


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("kind", "pauses_s"),
    [
        ("confluent/range", (*SHORT_PAUSES_S, *LONG_PAUSES_S)),
        ("kbroker/consumer", (*SHORT_PAUSES_S, *LONG_PAUSES_S)),
    ],
)
def test_the_broker_stands_still(
    scene: Scene, kind: str, pauses_s: tuple[float, ...], tally: Tally
) -> None:
    """Sessions may end of it; no record and no commit is lost, and the group comes to rest."""
    team = scene.team
    for _ in range(2):
        team.add(kind, commit="async")
    team.wait_shared()
    for seconds in pauses_s:
        scene.later()
        pause(scene.broker.pid, seconds)
        team.check_commits()
    team.wait_shared()
    rest(scene, "F14", tally, len(pauses_s))


def stand_still_until_replaced(scene: Scene, member: Member) -> None:
    """A member stops for as long as it takes the group to give what it has to the others."""
    had, changes = set(member.update().owned), member.history.changes
    others = [one for one in scene.team.live() if one is not member]
    os.kill(member.process.pid, signal.SIGSTOP)
    try:
        wait_for(
            f"others have {had}",
            lambda: had <= set().union(*(one.update().owned for one in others)),
            180,
        )
        scene.later()
    finally:
        os.kill(member.process.pid, signal.SIGCONT)
    wait_for("the zombie hears of it", lambda: member.update().changes > changes, 180)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("kind", "members", "rounds"),
    [
        ("confluent/range", 3, ROUNDS),
        ("kbroker/cooperative-sticky", 3, ROUNDS),
        ("kbroker/consumer", 3, ROUNDS),
        ("confluent/consumer", 3, ROUNDS),
    ],
)
def test_a_member_stands_still_and_is_a_zombie(
    scene: Scene, kind: str, members: int, rounds: int, tally: Tally
) -> None:
    """What it had goes to others; what it commits when it wakes takes nothing back."""
    team = scene.team
    for _ in range(members):
        team.add(kind, commit="sync")
    team.wait_shared()
    for _ in range(rounds):
        scene.later()
        stand_still_until_replaced(scene, scene.moments.choice(team.live()))
        team.check_commits()
        team.wait_shared()
    rest(scene, "F25", tally, rounds)
