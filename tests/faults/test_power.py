"""F2: power loss: acks=all is on the disk. The control, without the sync, must lose."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import wire
from tests.support.load import Load
from tests.support.loopfs import LoopFilesystem
from tests.support.needs import need_loop
from tests.support.oracle import Verdict, judge
from tests.support.processes import BrokerProcess
from tests.support.rounds import rounds
from tests.support.tally import Tally

PARTITIONS = 3
StartBroker = Callable[..., BrokerProcess]

#: What makes each broker sync before it answers, and what makes it not. The journal is as small as
#: it can be and the records are large: its files are freed and used again between two cuts.
SYNCED = {
    "kafka": {"log.flush.interval.messages": "1"},
    "kbroker": {"kbroker.journal.bytes.max": "16777216", "log.segment.bytes": "4194304"},
}
PADDING_BYTES = 16_000
ACKS_MAX = 3000  # that are waited for from one cut to the next
DISK_MIB = 8192  # several times what they take: some more come before the cut does
UNSYNCED = {"kafka": {}, "kbroker": {"kbroker.durability": "page-cache"}}


def kind_of(request: pytest.FixtureRequest) -> str:
    return str(request.node.callspec.params["start_target"])


def cycles_of_loss(
    start: StartBroker, settings: dict[str, str], topic: str, folder: Path, cycles: int
) -> Verdict:
    """Runs the load, cuts the power under it so many times, and judges what came back."""
    moments = random.Random(cycles)
    # Kafka does not sync the snapshots of its producers, and repeats records where they are gone.
    cached = settings is SYNCED["kbroker"]
    with LoopFilesystem(folder, DISK_MIB, write_cache=cached) as disk:
        broker = start(settings, data_dir=disk.path / "data")
        wire.create_topic(broker.port, topic, PARTITIONS)
        if broker.name == "kafka":
            disk.sync()  # it never syncs what `format` wrote, and would not start again
        padding = min(PADDING_BYTES, (1 << 30) // (cycles * ACKS_MAX))
        load = Load(broker.bootstrap, topic, folder, partitions=PARTITIONS, padding=padding)
        try:
            for _ in range(cycles):
                load.wait_for_acks(moments.randint(100, ACKS_MAX))
                disk.cut_power()
                broker.kill()
                disk.restore_power()
                broker.start()
            load.wait_for_acks(200)
            histories = load.finish()
            return judge(broker.port, topic, PARTITIONS, histories)
        finally:
            load.kill()
            broker.kill()


@pytest.mark.timeout(7200)
# All that 500 cuts have found was in the first dozens, or in the size of the disk.
@pytest.mark.parametrize("cycles", rounds(3, long=40, full=500))
def test_acked_survives(
    request: pytest.FixtureRequest, start_target: StartBroker, topic: str, tmp_path: Path,
    *, cycles: int, tally: Tally,
) -> None:  # fmt: skip
    need_loop()
    settings = SYNCED[kind_of(request)]
    verdict = cycles_of_loss(start_target, settings, topic, tmp_path, cycles)
    tally("F2", tried=cycles, lost=verdict.count())
    assert not verdict.faults()


@pytest.mark.timeout(900)
def test_control_without_sync_loses(
    request: pytest.FixtureRequest, start_target: StartBroker, topic: str, tmp_path: Path,
    tally: Tally,
) -> None:  # fmt: skip
    """The same cut with the page cache's durability: a test that cannot fail proves nothing.

    The producers do not go on after the cut: what they were told is lost, and with it the
    sequence that an idempotent producer would need to go on from.
    """
    need_loop()
    with LoopFilesystem(tmp_path, 1024, write_cache=True) as disk:
        broker = start_target(UNSYNCED[kind_of(request)], data_dir=disk.path / "data")
        wire.create_topic(broker.port, topic, PARTITIONS)
        disk.sync()
        with Load(broker.bootstrap, topic, tmp_path, partitions=PARTITIONS) as load:
            load.wait_for_acks(500)
            histories = load.finish()
        disk.cut_power()
        broker.kill()
        disk.restore_power()
        broker.start()
        verdict = judge(broker.port, topic, PARTITIONS, histories)
        broker.kill()
    tally("F2", control=len(verdict.lost))
    assert verdict.lost
