"""Two log directories, two brokers in turns: each finds every partition where the other left it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from kbroker.client import Consumer, Producer, TopicPartition
from tests.support import wire
from tests.support.kafka import KafkaProcess, tool_output
from tests.support.kbroker import KbrokerProcess
from tests.support.processes import BrokerProcess
from tests.support.rounds import combined
from tests.support.waits import wait_for

pytestmark = pytest.mark.long

PARTITIONS = 4
SLOW_S = 60


class Turns:
    """The directories, and who serves them."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.first, self.second = home / "first", home / "second"
        self.values: dict[str, list[bytes]] = {}
        self.turn = 0

    def broker(self, kind: str) -> BrokerProcess:
        self.turn += 1
        home = self.home / f"{kind}-{self.turn}"
        if kind == "kbroker":
            made: BrokerProcess = KbrokerProcess(
                home, {}, data_dir=self.first, more_dirs=(self.second,)
            )
        else:
            made = KafkaProcess(
                home, {"log.dirs": f"{self.first},{self.second}"}, data_dir=self.first
            )
        made.start()
        return made

    def where(self, topic: str) -> dict[int, Path]:
        """The directory of each partition's folder."""
        found: dict[int, Path] = {}
        for directory in (self.first, self.second):
            for path in directory.glob(f"{topic}-*"):
                number = path.name.removeprefix(f"{topic}-")
                if number.isdigit():
                    assert int(number) not in found, f"{path} and {found[int(number)]}"
                    found[int(number)] = directory
        return found

    def write(self, broker: BrokerProcess, topic: str) -> None:
        values = [f"{self.turn}-{number}".encode() for number in range(80)]
        with Producer(bootstrap_servers=broker.bootstrap) as producer:
            sent = [
                producer.send(topic, value, partition=number % PARTITIONS)
                for number, value in enumerate(values)
            ]
            for one in sent:
                one.result(SLOW_S)
        self.values.setdefault(topic, []).extend(values)

    def check(self, broker: BrokerProcess) -> None:
        """Every record of every topic is served."""
        for topic, values in self.values.items():
            wire.wait_for_topic(broker.port, topic, PARTITIONS, SLOW_S)
            with Consumer(bootstrap_servers=broker.bootstrap) as consumer:
                consumer.assign([TopicPartition(topic, index) for index in range(PARTITIONS)])
                consumer.seek_to_beginning()
                found: list[bytes] = []

                def all_read() -> bool:
                    found.extend(one.value or b"" for one in consumer.poll(1.0))  # noqa: B023
                    return len(found) >= len(values)  # noqa: B023

                wait_for(f"{topic} is read", all_read, SLOW_S)
            assert sorted(found) == sorted(values)


def move(broker: BrokerProcess, topic: str, partition: int, target: Path, plan: Path) -> None:
    """By Kafka's own tool, and until it says that it is done."""
    part = {"topic": topic, "partition": partition, "replicas": [1], "log_dirs": [str(target)]}
    plan.write_text(json.dumps({"version": 1, "partitions": [part]}))
    named = ("--bootstrap-server", broker.bootstrap, "--reassignment-json-file", str(plan))
    told = tool_output("reassign-partitions", *named, "--execute")
    assert "Successfully started moving log directory" in told, told
    done = f"Reassignment of replica {topic}-{partition}-1 completed successfully"
    wait_for(
        "the move is over",
        lambda: done in tool_output("reassign-partitions", *named, "--verify"),
        SLOW_S,
    )


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("began", "end"), combined(["kafka", "kbroker"], ["kill", "stop"]))
def test_turns(tmp_path: Path, began: str, end: str) -> None:
    turns = Turns(tmp_path)
    kinds = [began, "kbroker" if began == "kafka" else "kafka"]
    for turn in range(4):
        broker = turns.broker(kinds[turn % 2])
        finish: Callable[[], int] = broker.stop if end == "stop" else broker.kill
        try:
            turns.check(broker)
            topic = f"made-{turn}"
            wire.create_topic(broker.port, topic, PARTITIONS)
            wire.wait_for_topic(broker.port, topic, PARTITIONS, SLOW_S)
            for one in [*turns.values, topic]:
                turns.write(broker, one)
            before = turns.where(topic)
            assert len(before) == PARTITIONS and len(set(before.values())) == 2, before
            target = turns.second if before[0] == turns.first else turns.first
            move(broker, topic, 0, target, tmp_path / "plan.json")
            wait_for("it is there", lambda: turns.where(topic)[0] == target, SLOW_S)  # noqa: B023
            turns.check(broker)
        finally:
            finish()
