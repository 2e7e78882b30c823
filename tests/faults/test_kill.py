"""F1 and F13: kill -9 under load and in the middle of recovery: nothing lost, nothing repeated."""

from __future__ import annotations

import os
import random
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.clients.test_groups_kills import SETTINGS
from tests.faults.scenes import injected, lost_without_the_end
from tests.support import wire
from tests.support.kafka import dump_log
from tests.support.load import Load
from tests.support.members.team import Team
from tests.support.oracle import judge
from tests.support.processes import BrokerProcess
from tests.support.rounds import rounds
from tests.support.tally import Tally
from tests.support.waits import wait_for

PARTITIONS = 3
#: Small segments, so that kills meet rolls as well.
SMALL_SEGMENTS = {"segment.bytes": "1048576", "segment.index.bytes": "65536"}
PRODUCERS = ("confluent", "confluent", "kbroker", "acks-1")
GROUPS = ("confluent/range", "kbroker/consumer")
StartBroker = Callable[..., BrokerProcess]


def dump_everything(broker: BrokerProcess, topic: str) -> None:
    """DumpLogSegments over all files of a topic of a stopped broker."""
    for partition in range(PARTITIONS):
        folder = broker.partition_dir(topic, partition)
        dump_log(sorted(folder.glob("*.log")))
        for suffix in ("*.index", "*.timeindex"):
            dump_log(sorted(folder.glob(suffix)), "--index-sanity-check")
        if snapshots := sorted(folder.glob("*.snapshot")):
            dump_log(snapshots)


@contextmanager
def reading(broker: BrokerProcess, topic: str, folder: Path) -> Iterator[list[Team]]:
    """A group of each protocol that reads what comes, and commits."""
    teams = []
    try:
        for number, kind in enumerate(GROUPS):
            home = folder / f"group-{number}"
            home.mkdir()
            team = Team(broker.bootstrap, topic, home, partitions=PARTITIONS)
            team.group += f"-{number}"
            teams.append(team)
            team.add(kind, commit="async")
        yield teams
    finally:
        for team in teams:
            team.end()


@pytest.mark.timeout(3600)
# 50 kills passed each time that 200 did, but for producers that gave up (see below).
@pytest.mark.parametrize("cycles", rounds(2, long=40, full=200))
def test_kill_under_load(
    start_target: StartBroker, topic: str, tmp_path: Path, cycles: int, tally: Tally
) -> None:
    """Four producers and two groups go on through it; what was committed never goes back.

    Every other life lasts until each producer has got through. librdkafka forgets a broker that
    was its last one and begins again with the bootstrap servers, which it asks for when one of its
    timers wants a leader or metadata, once a second: of lives of 0.2 s it sees none, of 0.4 s two
    in fifteen, idempotent or not, and gives its records up after two minutes of such.
    """
    moments = random.Random(cycles)
    broker = start_target(SETTINGS)
    wire.create_topic(broker.port, topic, PARTITIONS, SMALL_SEGMENTS)
    with (
        Load(broker.bootstrap, topic, tmp_path, partitions=PARTITIONS, kinds=PRODUCERS) as load,
        reading(broker, topic, tmp_path) as teams,
    ):
        load.wait_for_each()
        for cycle in range(cycles):
            if cycle % 2:
                load.wait_for_each()
            load.wait_for_acks(moments.randint(100, 1500))
            broker.kill()
            broker.start()
            if cycle % 4 == 3:
                for team in teams:
                    team.check_commits()
        load.wait_for_acks(500)
        histories = load.finish()
        for team in teams:
            team.wait_delivered()
            team.wait_committed()
    verdict = judge(broker.port, topic, PARTITIONS, histories)
    tally("F1", tried=cycles, lost=verdict.count())
    assert not verdict.faults()
    assert sum(len(history.acked) for history in histories) > cycles * 100
    assert not any(history.failed for history in histories)
    assert broker.stop() in (0, 143)
    dump_everything(broker, topic)


@pytest.mark.timeout(300)
def test_control_what_nobody_acknowledged_is_lost(
    start_kbroker: StartBroker, topic: str, tmp_path: Path, tally: Tally
) -> None:
    """acks=0: taken for done when the socket has it, and a broker that stands reads no socket."""
    broker = start_kbroker()
    wire.create_topic(broker.port, topic, PARTITIONS)
    with Load(broker.bootstrap, topic, tmp_path, partitions=PARTITIONS, kinds=("acks-0",)) as load:
        load.wait_for_acks(200)
        os.kill(broker.pid, signal.SIGSTOP)
        load.wait_for_acks(200)
        broker.kill()
        broker.start()
        histories = load.finish()
    verdict = judge(broker.port, topic, PARTITIONS, histories)
    tally("F1", control=len(verdict.lost))
    assert verdict.lost


@pytest.mark.timeout(300)
def test_control_without_idempotence_records_come_twice(
    start_kbroker: StartBroker, topic: str, tmp_path: Path, tally: Tally
) -> None:
    """Appended and not answered yet, as every sync is held up: the retry is stored again."""
    broker = start_kbroker()
    wire.create_topic(broker.port, topic, PARTITIONS)
    kinds = ("not-idempotent",)
    with Load(broker.bootstrap, topic, tmp_path, partitions=PARTITIONS, kinds=kinds) as load:
        load.wait_for_acks(200)
        log = broker.partition_dir(topic, 0) / f"{0:020}.log"
        with injected(broker, "fdatasync", "delay_enter=60s"):
            acked, size = load.acked_count(), log.stat().st_size
            wait_for("records that wait for a sync", lambda: log.stat().st_size > size, 60)
            os.kill(broker.pid, signal.SIGKILL)  # and gone when strace lets go of it
        broker.kill()
        broker.start()
        load.wait_for_acks(200)
        histories = load.finish()
    assert acked >= 200
    for history in histories:
        history.exact = True
    verdict = judge(broker.port, topic, PARTITIONS, histories)
    tally("F1", control=len(verdict.repeated))
    tally("F23", control=len(verdict.repeated))
    assert verdict.repeated
    assert not verdict.lost


# --- F13 ----------------------------------------------------------------------------------------

IN_A_ROW = 5


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("rounds", rounds(1, long=4, full=20))
def test_kill_while_recovering(
    start_target: StartBroker, topic: str, tmp_path: Path, rounds: int, tally: Tally
) -> None:
    """A kill in the middle of a recovery leaves a log that the next start recovers."""
    moments = random.Random(rounds)
    broker = start_target()
    wire.create_topic(broker.port, topic, PARTITIONS, SMALL_SEGMENTS)
    with Load(broker.bootstrap, topic, tmp_path, partitions=PARTITIONS) as load:
        for _ in range(rounds):
            load.wait_for_acks(3000)
            broker.kill()
            for _ in range(IN_A_ROW):
                start_half(broker, moments.uniform(0, 0.5))
                broker.kill()
            broker.start()
        load.wait_for_acks(200)
        histories = load.finish()
    verdict = judge(broker.port, topic, PARTITIONS, histories)
    tally("F13", tried=rounds * IN_A_ROW, lost=verdict.count())
    assert not verdict.faults()
    if broker.name == "kbroker":
        control = lost_without_the_end(broker, topic, PARTITIONS, histories)
        tally("F13", control=control)
        assert control


def start_half(broker: BrokerProcess, more_s: float) -> None:
    """Launches a broker and returns when it has begun to print and a moment has gone by."""
    size = len(broker.log_text())
    broker.launch()
    wait_for("the start prints", lambda: len(broker.log_text()) > size, 60)
    assert broker.process is not None
    try:
        broker.process.wait(more_s)
    except subprocess.TimeoutExpired:
        return
    raise AssertionError(f"{broker.name} ended by itself:\n{broker.log_tail()}")
