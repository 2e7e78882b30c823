"""kbroker.exactlyOnce under kill -9 of driver, executors, Python's workers and broker: every row
once."""

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
from typing import NamedTuple

import pyspark
import pytest

from examples.pipeline.processes import kill_and_wait
from kbroker.client import Admin
from tests.spark.records import Sent, fill, make
from tests.support.fixtures import BrokerFactory
from tests.support.needs import need_command
from tests.support.processes import BrokerProcess
from tests.support.rounds import scaled
from tests.support.transactional import values_of
from tests.support.tree import ROOT
from tests.support.waits import wait_for

PARTITIONS = 3
EXECUTORS = 2
ROWS = 300  # three epochs
ROUNDS = scaled(1, full=2)
TIMEOUT_S = 900


class Member(NamedTuple):
    """A process of a job."""

    pid: int
    command: list[str]


class Job:
    """The driver with its JVM, executors and Python's workers in a session of its own."""

    def __init__(self, broker: BrokerProcess, home: Path) -> None:
        self.spark_home = home / "spark"
        self.temporary = home / "job"
        self.command = [
            sys.executable, "-m", "tests.spark.exactly_once_job", broker.bootstrap, "in", "out",
            str(self.temporary),
        ]  # fmt: skip
        self.log = home / "job.log"
        self.process: subprocess.Popen[bytes] | None = None
        self.temporary.mkdir()
        link_spark(self.spark_home)

    def start(self) -> None:
        here = {"PYTHONPATH": ROOT, "SPARK_HOME": self.spark_home, "TMPDIR": self.temporary}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command, cwd=ROOT, stdout=log, stderr=log, start_new_session=True,
                env=os.environ | {name: str(path) for name, path in here.items()}
                | {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable},
            )  # fmt: skip

    def _members(self) -> Iterator[Member]:
        """What lives of its session, which is as far as executors and Spark's daemons go."""
        assert self.process is not None
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    state, *fields = (entry / "stat").read_text().rpartition(")")[2].split()
                    command = (entry / "cmdline").read_bytes().decode().split("\0")
                except OSError:
                    continue
                if int(fields[2]) == self.process.pid and state not in "ZX":
                    yield Member(int(entry.name), command)

    def executors(self) -> dict[str, int]:
        """The process of each executor by its number, which Spark gives once."""
        backend = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
        return {
            command[command.index("--executor-id") + 1]: pid
            for pid, command in self._members()
            if backend in command
        }

    def kill_driver(self) -> None:
        """With all that it has started, as when its machine goes."""
        if self.process is None:
            return
        while members := list(self._members()):  # the last of them may have started others
            for pid, _ in members:
                kill_and_wait(pid)
        self.process.wait()
        self.process = None

    def kill_executors(self, count: int) -> set[str]:
        """The JVMs; Python's workers under them find out. The numbers of who was killed."""
        running = wait_for("executors", self._all_executors, TIMEOUT_S, 0.05)
        killed = dict(list(running.items())[:count])
        for pid in killed.values():
            os.kill(pid, signal.SIGKILL)
        return set(killed)

    def await_others(self, killed: set[str]) -> None:
        """Returns when executors run in the place of those."""

        def are_there() -> bool:
            running = self._all_executors()
            return bool(running) and killed.isdisjoint(running)

        wait_for(f"others for executors {killed}", are_there, TIMEOUT_S, 0.05)

    def _all_executors(self) -> dict[str, int]:
        """Nothing while one is missing."""
        running = self.executors()
        return running if len(running) == EXECUTORS else {}

    def kill_workers(self) -> int:
        """Python's processes that run tasks; Spark starts others, and the tasks again."""
        killed = 0
        for pid, command in list(self._members()):
            if "pyspark.daemon" in command:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
                killed += 1
        return killed


def link_spark(home: Path) -> None:
    """A SPARK_HOME of links to the installed one: executors of a local cluster have their folders
    in its `work`, which no setting of Spark moves."""
    home.mkdir()
    for entry in Path(pyspark.__file__).parent.iterdir():
        (home / entry.name).symlink_to(entry)


@pytest.fixture
def job(start_target: BrokerFactory, tmp_path: Path) -> Iterator[tuple[BrokerProcess, Job]]:
    need_command("java", "openjdk-17-jre-headless")
    broker = start_target({"log.retention.ms": "-1"})
    broker.start_timeout_s = 240
    for topic in ("in", "out"):
        make(broker.bootstrap, topic, PARTITIONS)
    made = Job(broker, tmp_path)
    made.start()
    yield broker, made
    made.kill_driver()


@pytest.mark.full  # the kills below have it, too
@pytest.mark.long
@pytest.mark.timeout(1800)
def test_all_executors_are_killed(job: tuple[BrokerProcess, Job]) -> None:
    """In an epoch's transactions: others begin its tasks again, and write what comes after."""
    broker, spark = job
    sent = send(broker, 0)
    in_an_epoch(broker, sent)
    killed = spark.kill_executors(EXECUTORS)
    assert len(seen(broker)) < sent, "nothing was left to do for other executors"
    spark.await_others(killed)
    once(broker, sent, "all executors")


@pytest.mark.long
@pytest.mark.timeout(5400)
def test_kills(job: tuple[BrokerProcess, Job]) -> None:
    """Each in turn, while an epoch's transactions are open or being committed."""
    broker, spark = job
    dice = random.Random(8)
    sent = 0
    for what in ["workers", "an executor", "driver", "all executors", "broker"] * ROUNDS:
        sent = send(broker, sent)
        in_an_epoch(broker, sent)
        threading.Event().wait(dice.uniform(0, 1))  # somewhere in it
        if what == "workers":
            wait_for("workers", spark.kill_workers, TIMEOUT_S, 0.05)
        elif what == "an executor":
            spark.await_others(spark.kill_executors(1))
        elif what == "all executors":
            spark.await_others(spark.kill_executors(EXECUTORS))
        elif what == "driver":
            spark.kill_driver()
            spark.start()
        elif what == "broker":
            broker.kill()
            broker.start()
        once(broker, sent, what)
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


def once(broker: BrokerProcess, sent: int, what: str) -> None:
    """Waits for all rows, and wants each once."""
    wait_for(f"all rows after a kill of {what}", partial(is_seen, broker, sent), TIMEOUT_S, 1)
    assert Counter(seen(broker)) == Counter(b"%d" % n for n in range(sent)), what


def is_seen(broker: BrokerProcess, rows: int) -> bool:
    return len(seen(broker)) >= rows


def seen(broker: BrokerProcess) -> list[bytes]:
    return values_of(broker, "out", "read_committed", PARTITIONS)
