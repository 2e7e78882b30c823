"""kbroker.exactlyOnce under kill -9 of driver, executors' processes and broker: every row once."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from examples.pipeline.processes import kill_and_wait
from kbroker.client import Admin
from tests.spark.records import Sent, fill, make
from tests.support.fixtures import BrokerFactory
from tests.support.processes import BrokerProcess
from tests.support.transactional import values_of
from tests.support.tree import ROOT
from tests.support.waits import wait_for

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]

PARTITIONS = 3
ROWS = 300  # three epochs
ROUNDS = 2
TIMEOUT_S = 900


class Job:
    """The driver with its JVM and workers in a session of its own."""

    def __init__(self, broker: BrokerProcess, home: Path) -> None:
        self.command = [
            sys.executable, "-m", "tests.spark.exactly_once_job", broker.bootstrap, "in", "out",
            str(home / "checkpoint"),
        ]  # fmt: skip
        self.log = home / "job.log"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command, cwd=ROOT, stdout=log, stderr=log, start_new_session=True,
                env=dict(os.environ, PYTHONPATH=str(ROOT)),
            )  # fmt: skip

    def _members(self) -> Iterator[tuple[int, str]]:
        """Processes of its session, which is as far as Spark's daemons go, and their commands."""
        assert self.process is not None
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    fields = (entry / "stat").read_text().rpartition(")")[2].split()
                    command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                except OSError:
                    continue
                if int(fields[3]) == self.process.pid:
                    yield int(entry.name), command

    def kill_driver(self) -> None:
        """With all that it has started, as when its machine goes."""
        if self.process is None:
            return
        for pid, _ in list(self._members()):
            kill_and_wait(pid)
        self.process.kill()
        self.process.wait()
        self.process = None

    def kill_workers(self) -> int:
        """The processes that run tasks; Spark starts others, and the tasks again."""
        killed = 0
        for pid, command in list(self._members()):
            if "pyspark.daemon" in command:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
                killed += 1
        return killed


@pytest.fixture
def job(start_target: BrokerFactory, tmp_path: Path) -> Iterator[tuple[BrokerProcess, Job]]:
    broker = start_target({"log.retention.ms": "-1"})
    broker.start_timeout_s = 240
    for topic in ("in", "out"):
        make(broker.bootstrap, topic, PARTITIONS)
    made = Job(broker, tmp_path)
    made.start()
    yield broker, made
    made.kill_driver()


def test_kills(job: tuple[BrokerProcess, Job]) -> None:
    """Each in turn, while an epoch's transactions are open or being committed."""
    broker, spark = job
    dice = random.Random(8)
    sent = 0
    for what in ["workers", "driver", "broker"] * ROUNDS:
        sent = send(broker, sent)
        in_an_epoch(broker, sent)
        threading.Event().wait(dice.uniform(0, 1))  # somewhere in it
        if what == "workers":
            wait_for("workers", spark.kill_workers, TIMEOUT_S, 0.05)
        elif what == "driver":
            spark.kill_driver()
            spark.start()
        elif what == "broker":
            broker.kill()
            broker.start()
        all_seen = partial(is_seen, broker, sent)
        wait_for(f"all rows after a kill of {what}", all_seen, TIMEOUT_S, 1)
        assert Counter(seen(broker)) == Counter(b"%d" % n for n in range(sent)), what
    every = Counter(values_of(broker, "out", "read_uncommitted", PARTITIONS))
    assert every.keys() == {b"%d" % n for n in range(sent)}
    written_again = sum(count - 1 for count in every.values())
    assert written_again, "no kill fell into an epoch"


def send(broker: BrokerProcess, first: int) -> int:
    """The next rows of the source; how many there are then."""
    rows = [Sent(b"%d" % n, partition=n % PARTITIONS) for n in range(first, first + ROWS)]
    fill(broker.bootstrap, "in", rows)
    return first + ROWS


def in_an_epoch(broker: BrokerProcess, sent: int) -> None:
    """Until a task has a transaction open, unless all is done already."""
    with Admin(bootstrap_servers=broker.bootstrap) as admin:

        def is_open() -> bool:
            busy = ("Ongoing", "PrepareCommit")
            return bool(admin.list_transactions(states=busy)) or len(seen(broker)) >= sent

        wait_for("an epoch", is_open, TIMEOUT_S, 0.02)


def is_seen(broker: BrokerProcess, rows: int) -> bool:
    return len(seen(broker)) >= rows


def seen(broker: BrokerProcess) -> list[bytes]:
    return values_of(broker, "out", "read_committed", PARTITIONS)
