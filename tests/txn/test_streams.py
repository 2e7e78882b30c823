"""Kafka Streams with exactly_once_v2: a windowed count over a repartition topic, a state store and
its changelog, while the broker and the application are killed. Each word counts once: each window
of each word is counted 1, 2, 3 and so on, with none left out or repeated."""

from __future__ import annotations

import random
import subprocess
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.support import wire
from tests.support.kafka_streams import compiled, streams_command
from tests.support.processes import BrokerProcess
from tests.support.rounds import rounds
from tests.support.tally import Tally
from tests.support.waits import wait_for
from tests.txn.committed import Follower

WORDS = [f"word-{n}" for n in range(17)]
SOURCE, SINK, PARTITIONS = "words", "counts", 2
START_MS, STEP_MS, WINDOW_MS = 1_700_000_000_000, 100, 10_000
LIMIT_S = 240.0
SETTINGS = {"log.retention.ms": "-1", "group.initial.rebalance.delay.ms": "0",
            "transaction.state.log.num.partitions": "3", "offsets.topic.num.partitions": "3",
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
            "log.message.timestamp.before.max.ms": "9223372036854775807"}  # fmt: skip


class Application:
    """The application's process, the words that it gets and the counts that it makes."""

    def __init__(self, broker: BrokerProcess, folder: Path, class_path: str) -> None:
        self.broker, self.folder = broker, folder
        self.command = streams_command(
            class_path, "WindowedCount", broker.bootstrap, SOURCE, SINK, str(folder / "state")
        )
        wire.create_topic(broker.port, SOURCE, PARTITIONS)
        wire.create_topic(broker.port, SINK, PARTITIONS)
        self.producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0,
                                  "enable.idempotence": True, "message.timeout.ms": 120_000,
                                  "reconnect.backoff.max.ms": 200})  # fmt: skip
        self.sent: dict[str, int] = defaultdict(int)
        self.number = 0
        self.followers = [Follower(SINK, partition) for partition in range(PARTITIONS)]
        self.counted: dict[str, list[int]] = defaultdict(list)
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        with (self.folder / "application.log").open("ab") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def send(self, count: int) -> None:
        """So many words more."""
        for _ in range(count):
            word, at_ms = WORDS[self.number % len(WORDS)], START_MS + self.number * STEP_MS
            self.producer.produce(SOURCE, word, str(self.number), timestamp=at_ms)
            self.sent[f"{word}@{at_ms - at_ms % WINDOW_MS}"] += 1
            self.number += 1
        assert self.producer.flush(120) == 0

    def look(self) -> int:
        """Reads on in the counts; how many there are. Each is by one higher than the last."""
        assert self.process is not None and self.process.poll() is None, self.tail()
        for follower in self.followers:
            for found in follower.read(self.broker.port):
                key, counts = found.key.decode(), self.counted[found.key.decode()]
                assert int(found.value) == len(counts) + 1, f"{key} at {found}: {counts}"
                counts.append(int(found.value))
        return sum(map(len, self.counted.values()))

    def tail(self) -> str:
        return (self.folder / "application.log").read_text()[-4000:]


@pytest.fixture
def application(
    start_kbroker: Callable[..., BrokerProcess], tmp_path: Path
) -> Iterator[Application]:
    folder = tmp_path / "classes"
    folder.mkdir()
    class_path = compiled(Path(__file__).parent / "java/WindowedCount.java", folder)
    made = Application(start_kbroker(SETTINGS), tmp_path, class_path)
    yield made
    made.kill()


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("kills", rounds(2, long=10, full=40))
def test_counts_are_exact(application: Application, kills: int, tally: Tally) -> None:
    moments = random.Random(kills)
    application.send(200)
    wait_for("the first counts", application.look, LIMIT_S, 0.2)
    for kill in range(kills):
        application.send(200)
        goal = min(application.look() + moments.randint(1, 150), application.number)
        wait_for("some counts more", lambda goal=goal: application.look() >= goal, LIMIT_S, 0.1)
        if kill % 4 == 3:
            application.kill()
            application.start()
        else:
            application.broker.kill()
            application.broker.start()
    application.send(100)
    wait_for(
        "everything is counted",
        lambda: application.look() >= application.number, LIMIT_S, 0.2,
    )  # fmt: skip
    counts = {key: len(found) for key, found in application.counted.items()}
    tally("P4", tried=kills, lost=int(counts != application.sent))
    assert counts == application.sent
