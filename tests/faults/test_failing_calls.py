"""F5 and F6: calls that change the disk fail: at any position, of any kind, once or for good."""

from __future__ import annotations

import errno
import os
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.faults.test_disk import numbered, produce, stored_numbers
from tests.support import wire
from tests.support.native import Words, preloaded, shared_library
from tests.support.oracle import CommitHistory
from tests.support.processes import BrokerProcess
from tests.support.rounds import scaled
from tests.support.tally import Tally
from tests.support.tree import ROOT
from tests.support.waits import wait_for
from tests.support.wire import (
    LIST_OFFSETS,
    PRODUCE,
    ConnectionClosedError,
    WireConnection,
)  # fmt: skip
from tests.wire.test_connections import produce_body

LONG = pytest.mark.long
StartBroker = Callable[..., BrokerProcess]

#: tests/support/failing.c's words, and the kinds of calls that the first of them selects.
KINDS, PASS, CODE, HITS, STAY, CHANCE, DRAW = range(7)
CALLS = {"pwrite": 1, "write": 2, "sync": 4, "rename": 8, "create": 16, "size": 32, "unlink": 64}
OPEN = 128
#: How often a call of each kind is to fail.
TRIES = scaled(60, full=320)
#: How many of 320 calls of a kind fail at the least: of some a broker makes few.
LEAST = {"pwrite": 160, "write": 50, "sync": 160, "rename": 40, "create": 120, "size": 120,
         "unlink": 16}  # fmt: skip
CODES = (errno.EIO, errno.ENOSPC, errno.EDQUOT)


# --- F5: one log, many seeds --------------------------------------------------------------------


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("first", "seeds"), [
        (0, 150),
        *(pytest.param(n * 1000, 1000, marks=LONG) for n in range(1, scaled(3, full=6))),
    ]
)
def test_a_disk_that_fails_at_random(
    tmp_path: Path, first: int, seeds: int, tally: Tally
) -> None:
    """tests/faults/seeded_disk.py, in a process with the failing disk in front."""
    with Words(tmp_path / "words", 7) as words:
        environ = {
            "LD_PRELOAD": preloaded(shared_library("failing", tmp_path)),
            "KBROKER_TEST_FAIL": str(words.path),
            "KBROKER_TEST_FAIL_ROOT": str(tmp_path / "logs"),
        }
        command = [sys.executable, "-m", "tests.faults.seeded_disk", str(words.path),
                   str(tmp_path / "logs"), str(first), str(seeds)]  # fmt: skip
        told = subprocess.run(
            command, env=os.environ | environ, cwd=ROOT, capture_output=True, text=True, check=False
        )
    assert told.returncode == 0, told.stdout + told.stderr
    tried, lost, control = map(int, told.stdout.split()[-3:])
    tally("F5", tried=tried, lost=lost, control=control)
    assert not lost, told.stderr
    assert control


# --- F6: a broker at work -----------------------------------------------------------------------


@pytest.fixture
def words(tmp_path: Path) -> Iterator[Words]:
    with Words(tmp_path / "words", 7) as made:
        yield made


@pytest.fixture
def settings() -> dict[str, str]:
    return {"log.segment.bytes": "1048576", "offsets.topic.num.partitions": "1",
            "kbroker.journal.bytes.max": "16777216",
            "kbroker.journal.buffer.bytes": "1048576",
            # Else each of a thousand starts walks the whole log: no run is as long as this.
            "log.initial.task.delay.ms": "200", "log.flush.offset.checkpoint.interval.ms": "200",
            "replica.high.watermark.checkpoint.interval.ms": "20"}  # fmt: skip


@pytest.fixture
def broker(
    start_kbroker: StartBroker, settings: dict[str, str], tmp_path: Path, words: Words
) -> BrokerProcess:
    folder = tmp_path / "data"
    environ = {
        "LD_PRELOAD": preloaded(shared_library("failing", tmp_path)),
        "KBROKER_TEST_FAIL": str(words.path),
        "KBROKER_TEST_FAIL_ROOT": str(folder),
    }
    return start_kbroker(settings, data_dir=folder, environ=environ)


class Client:
    """Numbered records to one topic, and a group's commits; what it was told of either."""

    def __init__(self, port: int, topic: str) -> None:
        self.port, self.topic, self.number = port, topic, 0
        self.acked: dict[int, int] = {}
        self.commits = CommitHistory("group")

    def work(self, count: int) -> None:
        """Goes on until so many were tried, or the broker closes the connection."""
        with (
            suppress(ConnectionClosedError, OSError),
            WireConnection(self.port, timeout_s=60) as connection,
        ):
            for _ in range(count):
                self.number += 1
                part = produce(connection, self.topic, self.number)
                if part["error_code"] == 0:
                    assert part["base_offset"] not in self.acked
                    self.acked[part["base_offset"]] = self.number

    def lost(self) -> list[str]:
        """What was acknowledged and is not there."""
        stored = stored_numbers(self.port, self.topic)
        return [
            f"{number} at {offset}: {stored.get(offset)}"
            for offset, number in self.acked.items()
            if stored.get(offset) != number
        ]


def serves_writes(broker: BrokerProcess, client: Client) -> bool:
    """Whether one more record is acknowledged, as it is when all is well again."""
    before = len(client.acked)
    if broker.is_running():
        client.work(1)
    return len(client.acked) > before


def fresh(broker: BrokerProcess) -> None:
    """Killed and started on a disk that works."""
    if broker.process is not None:
        broker.kill()
    broker.start()


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    "kinds",
    [tuple(CALLS) * 2, *(pytest.param((kind,) * TRIES, marks=LONG) for kind in CALLS)],
    ids=["all", *CALLS],
)
def test_a_call_fails_under_a_broker_at_work(
    broker: BrokerProcess, words: Words, topic: str, kinds: tuple[str, ...], tally: Tally
) -> None:
    """What is acknowledged in spite of it is kept; a broker that goes offline says so, or ends,
    and comes back; after ENOSPC it goes on by itself. All that was acknowledged is read again
    after each start: that grows with the square of the length, so each kind has its own broker."""
    chance = random.Random(f"6 {kinds[-1]}")
    wire.create_topic(broker.port, topic)
    client = Client(broker.port, topic)
    client.work(5)
    tried, lost = 0, []
    for kind in kinds:
        code, stays = chance.choice(CODES), chance.random() < 0.3
        words[HITS], words[PASS], words[CODE] = 0, chance.randrange(8), code
        words[STAY], words[KINDS] = int(stays), CALLS[kind]
        client.work(12)
        with suppress(TimeoutError):  # what only checkpoints do comes a moment later
            wait_for("a failure", lambda: words[HITS], 0.4)
        client.work(2)
        hits, words[KINDS] = words[HITS], 0
        tried += hits > 0
        if not serves_writes(broker, client) or chance.random() < 0.2:
            fresh(broker)
            assert serves_writes(broker, client), f"{kind}, {errno.errorcode[code]}"
            lost += [f"{kind}, {errno.errorcode[code]}: {line}" for line in client.lost()]
    fresh(broker)
    lost += client.lost()
    tally("F6", tried=tried, lost=len(lost))
    assert not lost, "\n".join(lost[:20])
    assert tried > (2 if len(set(kinds)) > 1 else LEAST[kinds[0]] * len(kinds) // 320)


def test_control_whoever_counts_what_was_refused_misses_it(
    broker: BrokerProcess, words: Words, topic: str, tally: Tally
) -> None:
    """Every write fails, and this client takes no error for an answer."""
    wire.create_topic(broker.port, topic)
    client = Client(broker.port, topic)
    client.work(5)
    end = max(client.acked) + 1
    words[PASS], words[CODE], words[STAY], words[KINDS] = 0, errno.EIO, 1, CALLS["pwrite"]
    client.work(5)
    words[KINDS] = 0
    client.acked |= {end + n: 6 + n for n in range(5)}
    fresh(broker)
    missed = client.lost()
    tally("F6", control=len(missed))
    assert missed


# --- no descriptor is left ----------------------------------------------------------------------


def high_watermark(port: int, topic: str) -> int:
    partition = {"partition_index": 0, "timestamp": -1}
    asked = {"replica_id": -1, "topics": [{"name": topic, "partitions": [partition]}]}
    (told,) = wire.call_once(port, LIST_OFFSETS, 6, asked)["topics"]
    return int(told["partitions"][0]["offset"])


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "settings",
    [{"kbroker.journal.buffer.bytes": "1048576", "log.initial.task.delay.ms": "3600000"}],
)
def test_a_flush_that_finds_no_descriptor_has_produce_wait(
    broker: BrokerProcess, words: Words, topic: str
) -> None:
    """A batch that no group of the journal holds is answered after a flush of its partition, the
    first one, which opens files. It waits, the log says why, and it all goes on by itself."""
    wire.create_topic(broker.port, topic)
    wire.call_once(broker.port, PRODUCE, 9, produce_body(topic, numbered(1, 10)))
    body = produce_body(topic, numbered(2, 1_048_450)) | {"timeout": 120_000}
    answers = []

    def produce_large() -> None:
        with WireConnection(broker.port, timeout_s=200) as connection:
            answers.append(connection.call(PRODUCE, 9, body))

    words[PASS], words[CODE], words[STAY], words[KINDS] = 0, errno.EMFILE, 1, OPEN
    producing = threading.Thread(target=produce_large, daemon=True)
    producing.start()
    why = "put off: Too many open files (errno 24)"
    wait_for("the log says why", lambda: why in broker.log_text(), 60)
    assert not answers and high_watermark(broker.port, topic) == 1
    words[KINDS] = 0
    producing.join(120)
    assert answers[0]["responses"][0]["partition_responses"][0]["error_code"] == 0
    assert high_watermark(broker.port, topic) == 2
    with WireConnection(broker.port) as connection:
        assert produce(connection, topic, 3)["error_code"] == 0
    assert " offline" not in broker.log_text()
    fresh(broker)
    assert sorted(stored_numbers(broker.port, topic).values()) == [1, 2, 3]
