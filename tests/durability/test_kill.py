"""kill -9 under load: nothing acknowledged is lost, nothing repeated, every file stays right."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import wire
from tests.support.kafka import dump_log
from tests.support.load import Load, judge
from tests.support.processes import BrokerProcess
from tests.support.waits import wait_for

PARTITIONS = 3
#: Small segments, so that kills meet rolls as well.
SMALL_SEGMENTS = {"segment.bytes": "1048576", "segment.index.bytes": "65536"}


def dump_everything(broker: BrokerProcess, topic: str) -> None:
    """DumpLogSegments over all files of a topic of a stopped broker."""
    for partition in range(PARTITIONS):
        folder = broker.partition_dir(topic, partition)
        dump_log(sorted(folder.glob("*.log")))
        for suffix in ("*.index", "*.timeindex"):
            dump_log(sorted(folder.glob(suffix)), "--index-sanity-check")
        if snapshots := sorted(folder.glob("*.snapshot")):
            dump_log(snapshots)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("cycles", [5, pytest.param(50, marks=pytest.mark.long)])
def test_kill_under_load(
    start_target: Callable[..., BrokerProcess], topic: str, tmp_path: Path, cycles: int
) -> None:
    moments = random.Random(cycles)
    broker = start_target()
    wire.create_topic(broker.port, topic, PARTITIONS, SMALL_SEGMENTS)
    load = Load(broker.bootstrap, topic, tmp_path, partitions=PARTITIONS)
    try:
        for _ in range(cycles):
            load.wait_for_acks(moments.randint(100, 1500))
            broker.kill()
            broker.start()
        load.wait_for_acks(500)
        histories = load.finish()
    finally:
        load.kill()
    verdict = judge(broker.port, topic, PARTITIONS, histories)
    assert not verdict.faults()
    assert sum(len(history.acked) for history in histories) > cycles * 100
    assert not any(history.failed for history in histories)
    assert broker.stop() in (0, 143)
    dump_everything(broker, topic)


@pytest.mark.timeout(600)
def test_kill_while_recovering(
    start_target: Callable[..., BrokerProcess], topic: str, tmp_path: Path
) -> None:
    """A kill in the middle of a recovery leaves a log that the next start recovers."""
    broker = start_target()
    wire.create_topic(broker.port, topic, PARTITIONS, SMALL_SEGMENTS)
    load = Load(broker.bootstrap, topic, tmp_path, partitions=PARTITIONS)
    try:
        load.wait_for_acks(3000)
        histories = load.finish()
    finally:
        load.kill()
    broker.kill()
    for _ in range(5):
        wait_until_it_recovers(broker)
        broker.kill()
    broker.start()
    assert not judge(broker.port, topic, PARTITIONS, histories).faults()


def wait_until_it_recovers(broker: BrokerProcess) -> None:
    """Launches a broker and returns when it has begun to print: in the middle of its start."""
    size = len(broker.log_text())
    broker.launch()
    wait_for("the start prints", lambda: len(broker.log_text()) > size, 30)
