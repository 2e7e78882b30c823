"""A call that reads fails while a broker starts after a crash: that is never taken for absence."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kbroker.client import Producer
from tests.support import wire
from tests.support.native import Words, preloaded, shared_library
from tests.support.processes import BrokerProcess
from tests.support.tally import Tally
from tests.support.tree import ROOT

LONG = pytest.mark.long
#: tests/support/failing.c; and how many starts there are at the least.
KINDS = {"open": (128, 40), "read": (256, 40), "list": (512, 8), "stat": (1024, 8)}
PARTITIONS = 2
SMALL_SEGMENTS = {"segment.bytes": "1048576"}  # three of them a partition


@pytest.fixture
def template(start_kbroker: Callable[..., BrokerProcess], topic: str, tmp_path: Path) -> Path:
    """A data directory after kill -9 and a power cut: segments, indexes, producers, transactions of
    both ends, a compaction that was being put in place. Some is in the WAL alone."""
    chance = random.Random(1)
    settings = {
        "kbroker.journal.bytes.max": "33554432",  # the WAL has all that was written
        "transaction.state.log.num.partitions": "1",
    }
    broker = start_kbroker(settings, data_dir=tmp_path / "template")
    wire.create_topic(broker.port, topic, PARTITIONS, SMALL_SEGMENTS)
    with Producer(bootstrap_servers=broker.bootstrap, transactional_id=topic) as producer:
        producer.init_transactions()
        for number in range(12):
            producer.begin()
            for partition in range(PARTITIONS):
                for _ in range(4):
                    producer.send(topic, chance.randbytes(60_000), partition=partition)
            producer.flush()
            if number % 3:
                producer.commit()
            else:
                producer.abort()
    broker.kill()
    for partition in range(PARTITIONS):
        folder = broker.data_dir / f"{topic}-{partition}"
        *_, first, second, last = sorted(folder.glob("*.log"))
        os.truncate(last, 0)
        both = first.read_bytes() + second.read_bytes()
        first.with_suffix(".log.swap").write_bytes(both)
    return broker.data_dir


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("step", [3, pytest.param(1, marks=LONG)])
@pytest.mark.parametrize("kind", KINDS)
def test_failing_read_at_a_start_loses_nothing(
    template: Path, tmp_path: Path, kind: str, step: int, tally: Tally
) -> None:
    bit, least = KINDS[kind]
    copy = tmp_path / "copy"
    with Words(tmp_path / "words", 7) as words:
        environ = {
            "LD_PRELOAD": preloaded(shared_library("failing", tmp_path)),
            "KBROKER_TEST_FAIL": str(words.path),
            "KBROKER_TEST_FAIL_ROOT": str(copy),
        }
        command = [sys.executable, "-m", "tests.faults.failing_starts", str(words.path),
                   str(template), str(copy), str(bit), str(step)]  # fmt: skip
        done = subprocess.run(
            command, env=os.environ | environ, cwd=ROOT, capture_output=True, text=True, check=False
        )
    assert done.returncode == 0, done.stdout + done.stderr
    starts, lost = map(int, done.stdout.split())
    tally("F9", tried=starts, lost=lost)
    assert not lost, done.stderr
    assert starts >= least // step
