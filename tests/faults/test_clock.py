"""F15: the wall clock jumps, back and far ahead, while records are written and groups read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.clients.test_groups_kills import PARTITIONS, SETTINGS, Scene
from tests.support import wire
from tests.support.load import Load
from tests.support.members.team import Team
from tests.support.native import Words, preloaded, shared_library
from tests.support.oracle import judge, log_start
from tests.support.processes import BrokerProcess
from tests.support.rounds import rounds
from tests.support.tally import Tally
from tests.support.waits import wait_for

HOUR_S = 3600
DAY_S = 24 * HOUR_S
JUMPS_S = (-2 * HOUR_S, 400 * DAY_S, DAY_S, -30 * DAY_S)
#: Nothing goes by its age, and no record is too new for a broker whose clock went back.
FOREVER = {
    "log.retention.ms": "-1",
    "log.message.timestamp.after.max.ms": str(2**63 - 1),
    "log.retention.check.interval.ms": "200",
    "log.initial.task.delay.ms": "200",
    "log.segment.delete.delay.ms": "0",
}
AN_HOUR = {"retention.ms": str(HOUR_S * 1000)}
StartBroker = Callable[..., BrokerProcess]


@pytest.fixture
def clock(tmp_path: Path) -> Iterator[Words]:
    """Its first word is by how many seconds the broker's clock is off."""
    with Words(tmp_path / "clock", 1) as words:
        yield words


@pytest.fixture
def broker(start_kbroker: StartBroker, tmp_path: Path, clock: Words) -> BrokerProcess:
    library = shared_library("clock", tmp_path)
    environ = {"LD_PRELOAD": preloaded(library), "KBROKER_TEST_CLOCK": str(clock.path)}
    return start_kbroker(SETTINGS | FOREVER, environ=environ)


@pytest.mark.timeout(3600)
# Each kind of jump, and the first again after the others.
@pytest.mark.parametrize(
    "jumps_s", rounds(JUMPS_S[:2], long=(*JUMPS_S, JUMPS_S[0]), full=JUMPS_S * 5)
)
def test_the_clock_jumps(
    broker: BrokerProcess, clock: Words, topic: str, tmp_path: Path, *,
    jumps_s: tuple[int, ...], tally: Tally,
) -> None:  # fmt: skip
    """Nobody's session ends of it, groups of both protocols take new members, no record goes."""
    scene = Scene(broker, topic, tmp_path, seed=15)
    team = scene.team
    next_protocol = team_of_the_next_protocol(scene, tmp_path)
    try:
        team.add("confluent/range")
        team.add("confluent/range")
        next_protocol.add("kbroker/consumer")
        team.wait_shared()
        next_protocol.wait_shared()
        changes = [member.update().changes for member in team.members]
        for jump_s in jumps_s:
            scene.later()
            clock[0] += jump_s
            scene.later()
            newcomer = next_protocol.add("kbroker/consumer")
            next_protocol.wait_shared()
            next_protocol.stop(newcomer)
            next_protocol.wait_shared()
            team.check_commits()
        assert changes == [member.update().changes for member in team.members]
        scene.kill_broker()
        clock[0] = 0
        scene.kill_broker()
        histories = scene.finish()
        lost = judge(broker.port, topic, PARTITIONS, histories).count()
        tally("F15", tried=len(jumps_s), lost=lost)
    finally:
        next_protocol.end()
        scene.end()


def team_of_the_next_protocol(scene: Scene, folder: Path) -> Team:
    home = folder / "next"
    home.mkdir()
    team = Team(scene.broker.bootstrap, scene.team.topic, home, partitions=PARTITIONS)
    team.group += "-next"
    return team


@pytest.mark.timeout(300)
def test_control_what_may_be_an_hour_old_goes_after_a_day(
    broker: BrokerProcess, clock: Words, topic: str, tmp_path: Path, tally: Tally
) -> None:
    """By policy: so the broker's clock did jump, and a record that goes is missed."""
    wire.create_topic(broker.port, topic, 1, AN_HOUR)
    with Load(broker.bootstrap, topic, tmp_path, producers=1, partitions=1) as load:
        load.wait_for_acks(50)
        histories = load.finish()
    assert not judge(broker.port, topic, 1, histories).faults()
    clock[0] = DAY_S
    wait_for("old records go", lambda: log_start(broker.port, topic, 0) > 0, 60)
    lost = len(judge(broker.port, topic, 1, histories).lost)
    tally("F15", control=lost)
    assert lost
