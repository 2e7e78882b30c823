"""The broker ends right before and right after each durable step of a transaction.

Whatever the step: what was told holds, a commit that was begun is finished, one that was not is
aborted, the records of all partitions and the group's offset go together, and the id goes on.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import wire
from tests.support.kbroker import KbrokerProcess
from tests.support.rounds import scaled
from tests.support.tally import Tally
from tests.support.transactional import WireProducer, committed_offset
from tests.support.waits import wait_for
from tests.support.wire import FIND_COORDINATOR, ConnectionClosedError
from tests.wire.test_transactions import read

LONG = pytest.mark.long
DEAD = (ConnectionClosedError, ConnectionError, TimeoutError)
GROUP = "g"
TIMEOUT_MS, OVERDUE_MS, EXPIRED_MS = 60_000, 1_000, 4_000
WHEN = ("before", "after", "durable")
WRITE_TXN_MARKERS, DESCRIBE_PRODUCERS = 27, 61
AT_REST = ("CompleteCommit", "CompleteAbort", "Empty")
GONE = "105"
"""TRANSACTIONAL_ID_NOT_FOUND: it has expired."""
COMMITS = ("commit", "exhausted", "expired")
MOST = 60


class DyingBroker(KbrokerProcess):
    """One that ends itself where it is told to (tests/txn/dying.py)."""

    def command(self) -> list[str]:
        command = super().command()
        command[command.index("kbroker.cli")] = "tests.txn.dying"
        return command

    @property
    def words(self) -> Path:
        return Path(self.environ["KBROKER_TEST_DIE"])

    def arm(self, number: int, when: str) -> None:
        """From now on steps are counted."""
        self.steps_file.unlink(missing_ok=True)
        fresh = self.words.with_suffix(".new")
        fresh.write_text(f"{number} {when} {self.rounds}")
        fresh.replace(self.words)
        self.rounds += 1

    def disarm(self) -> None:
        self.words.unlink(missing_ok=True)

    rounds = 0

    @property
    def steps_file(self) -> Path:
        return self.words.with_suffix(".steps")

    def steps(self) -> list[str]:
        """Those that were begun since it was armed."""
        return self.steps_file.read_text().splitlines() if self.steps_file.exists() else []

    def bury(self) -> None:
        """It has ended itself, and can be started again."""
        assert self.process is not None
        assert self.process.wait(30) == -signal.SIGKILL, self.log_tail()
        self.process = None


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., DyingBroker]]:
    made: list[DyingBroker] = []

    def run(environ: dict[str, str] | None = None, **settings: str) -> DyingBroker:
        named = {name.replace("_", "."): value for name, value in settings.items()}
        named |= {"transaction.state.log.num.partitions": "2", "offsets.topic.num.partitions": "2"}
        root = Path(__file__).parents[2]
        broker = DyingBroker(
            tmp_path, named,
            environ={"KBROKER_TEST_DIE": str(tmp_path / "die"), "PYTHONPATH": str(root),
                     **(environ or {})},
        )  # fmt: skip
        made.append(broker)
        broker.start()
        wire.create_topic(broker.port, "t", 2)
        for kind in (0, 1):
            body = {"key_type": kind, "coordinator_keys": [GROUP]}
            wire.call_once(broker.port, FIND_COORDINATOR, 4, body)
        return broker

    yield run
    for broker in made:
        broker.kill()


class Attempt:
    """One transaction, numbered, whose broker is to end in the middle of it."""

    def __init__(self, broker: DyingBroker, kind: str, number: int) -> None:
        self.broker, self.kind, self.number = broker, kind, number
        self.what = kind.partition("-")[0]
        name = f"{kind}-{self.turn(number)}"
        self.producer = self.made(name, OVERDUE_MS if self.what == "overdue" else TIMEOUT_MS)
        self.value = b"%d" % number
        self.told = self.is_whole = False
        self.first_id = -1

    def turn(self, number: int) -> int:
        """Ids go on in turn. An id that has used up its first epochs has many afterwards, so each
        is another; and while one is to expire no other one may."""
        return {"exhausted": number, "expired": 0}.get(self.what, number % 2)

    def made(self, name: str, timeout_ms: int = TIMEOUT_MS) -> WireProducer:
        return WireProducer(self.broker, name, 1 if self.kind.endswith("v1") else 2, timeout_ms)

    @property
    def commits(self) -> bool:
        return self.what in COMMITS

    def run(self) -> None:
        """Until the broker is gone, or all is done."""
        producer = self.producer
        try:
            producer.init()
            self.first_id = producer.id
            producer.send("t", 0, self.value)
            producer.send("t", 1, self.value)
            producer.commit_offset(GROUP, "t", self.number)
            self.finish()
            self.told = True
            producer.until_state(*((GONE,) if self.what == "expired" else AT_REST))
        except DEAD:
            return
        except AssertionError:  # refused: on a busy machine it may be overdue before it is whole
            assert self.what == "overdue"
        self.is_whole = True

    def finish(self) -> None:
        """What ends it."""
        producer = self.producer
        if self.what == "fenced":
            self.made(producer.name).init()
        elif self.what == "marked":
            self.mark()
            producer.end(False)
        elif self.what != "overdue":
            producer.end(self.commits)

    def mark(self) -> None:
        """An administrator aborts it past its coordinator, as `txn abort` does."""
        for partition in (0, 1):
            topics = [{"name": "t", "partition_indexes": [partition]}]
            told = wire.call_once(self.broker.port, DESCRIBE_PRODUCERS, 0, {"topics": topics})
            (epoch,) = (
                one["coordinator_epoch"]
                for one in told["topics"][0]["partitions"][0]["active_producers"]
                if one["producer_id"] == self.producer.id
            )
            marker = {"producer_id": self.producer.id, "producer_epoch": self.producer.epoch,
                      "transaction_result": False, "coordinator_epoch": max(epoch, 0),
                      "topics": topics}  # fmt: skip
            answer = wire.call_once(self.broker.port, WRITE_TXN_MARKERS, 1, {"markers": [marker]})
            (found,) = answer["markers"][0]["topics"][0]["partitions"]
            assert found["error_code"] == 0, answer

    def outcome(self) -> bool:
        """Whether it is there: everywhere or nowhere, once nothing is open any more."""
        if self.told and self.what == "expired":
            self.producer.until_state(GONE)
        heir = self.made(self.producer.name)
        heir.init()
        assert self.what != "exhausted" or heir.id != self.first_id, heir.who
        here = [self.value in read(self.broker, partition) for partition in (0, 1)]
        here.append(committed_offset(self.broker, GROUP, "t") == self.number)
        assert len(set(here)) == 1, f"{self.number}: {here}"
        return here[0]


def begun(steps: list[str], when: str) -> bool:
    """Whether the decision to commit was appended before the broker ended at the last of these."""
    taken = steps[:-1] if when == "before" else steps
    return "PrepareCommit" in taken


def try_points(
    broker: DyingBroker, kind: str, points: list[tuple[int, str]], first: int
) -> tuple[int, set[str]]:
    """Each point in turn; how many there were, and the names of the steps. A point behind the last
    step is none: then the transaction is whole."""
    tried, names = 0, set()
    for number, (step, when) in enumerate(points, first):
        attempt = Attempt(broker, kind, number)
        broker.arm(step, when)
        attempt.run()
        if attempt.is_whole:
            broker.disarm()
            assert attempt.outcome() == attempt.commits
            continue
        broker.bury()
        steps = broker.steps()
        broker.disarm()
        tried += 1
        names.add(f"{steps[-1]} {when}")
        broker.start()
        came = attempt.outcome()
        told = f"{kind} {number}: at step {step} ({steps}), {when}"
        assert came == (attempt.commits and begun(steps, when)), told
        assert came or not (attempt.told and attempt.commits), told
    return tried, names


STEPS = ("Empty", "Ongoing", "go on", "offsets", "marker t", "marker __consumer_offsets")
COMMIT, ABORT = ("PrepareCommit", "CompleteCommit"), ("PrepareAbort", "CompleteAbort")
ENDS = {
    "commit": COMMIT,
    "exhausted": COMMIT,
    "expired": (*COMMIT, "gone"),
    "abort": ABORT,
    "fenced": ABORT,
    "overdue": ABORT,
    "marked": ("told marker t", *ABORT),
}
FOLLOWED = ("Ongoing", "PrepareCommit", "PrepareAbort", "marker t")
"""What the disk has to have before something follows from it: batches, markers, the end."""
SETTINGS: dict[str, dict[str, Any]] = {
    "overdue": {"transaction_abort_timed_out_transaction_cleanup_interval_ms": "50"},
    "expired": {"transactional_id_expiration_ms": str(EXPIRED_MS),
                "transaction_remove_expired_transaction_cleanup_interval_ms": "50"},
    "exhausted": {"environ": {"KBROKER_TEST_LAST_EPOCH": "1"}},
}  # fmt: skip


@pytest.mark.timeout(300)
def test_some_points(start: Callable[..., DyingBroker], tally: Tally) -> None:
    """The decision, the markers and the end of a commit."""
    broker = start()
    counted = steps_of(broker, "commit")
    at = counted.index("PrepareCommit") + 1
    assert counted[at : at + 3] == ["marker __consumer_offsets", "marker t", "marker t"], counted
    points = [(at, "before"), (at, "durable"), (at + 2, "before"), (at + 3, "after"),
              (at + 4, "before"), (at + 4, "after")]  # fmt: skip
    tried, names = try_points(broker, "commit", points, 10)
    tally("F24", tried=tried)
    assert tried == len(points), names


def steps_of(broker: DyingBroker, kind: str) -> list[str]:
    """The steps of a transaction at which nothing happens."""
    attempt = Attempt(broker, kind, 1)
    broker.arm(MOST * 10, "after")
    attempt.run()
    wait_for("its end", lambda: ENDS[attempt.what][-1] in broker.steps(), 60)
    broker.disarm()
    steps = broker.steps()
    assert attempt.outcome() == attempt.commits
    return steps


KINDS = ("commit-v2", "commit-v1", "abort-v2", "abort-v1", "fenced-v2", "fenced-v1", "overdue-v2",
         "overdue-v1", "exhausted-v2", "expired-v2", "marked-v1")  # fmt: skip
#: A kill takes nothing that was written, synced or not: the steps are the same, only their order
#: may differ, so that one kind for each end is enough.
UNSYNCED_KINDS = scaled(("commit-v2", "fenced-v1", "expired-v2"), full=KINDS)
CASES = [
    *(("fsync", kind) for kind in KINDS),
    *(("page-cache", kind) for kind in UNSYNCED_KINDS),
]


@LONG
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("durability", "kind"), CASES)
def test_every_point(
    start: Callable[..., DyingBroker], kind: str, durability: str, tally: Tally
) -> None:
    ends = ENDS[what := kind.partition("-")[0]]
    broker = start(kbroker_durability=durability, **SETTINGS.get(what, {}))
    count = len(steps_of(broker, kind))
    points = [(step, when) for step in range(1, count + 1) for when in WHEN]
    tried, names = try_points(broker, kind, points, 10)
    tally("F24", tried=tried)
    wanted = {f"{step} {when}" for step in (*STEPS, *ends) for when in ("before", "after")}
    wanted |= {f"{step} durable" for step in (*STEPS, *ends) if step in FOLLOWED}
    assert wanted <= names, wanted - names
