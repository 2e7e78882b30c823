"""Kafka's TransactionsCommand in all its modes; kbroker makes it say what Kafka makes it say."""

from __future__ import annotations

import contextlib
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import KafkaException, Producer

from tests.support import wire
from tests.support.hanging import Hanging, hang, last_stable, unverified
from tests.support.java import java_command
from tests.support.processes import BrokerProcess

#: Every command in order. What is in capitals stands for a name or a number of the scenario.
MODES: dict[str, list[str]] = {
    "list": ["list"],
    "list longer": ["list", "--duration-filter", "3600000"],
    "list running": ["list", "--duration-filter", "0"],
    "list by pattern": ["list", "--transactional-id-pattern", "MARK-(open|done)"],
    "list by a bad pattern": ["list", "--transactional-id-pattern", "MARK-(open"],
    "describe open": ["describe", "--transactional-id", "OPEN"],
    "describe done": ["describe", "--transactional-id", "DONE"],
    "describe none": ["describe", "--transactional-id", "NONE"],
    "producers": ["describe-producers", "--topic", "T", "--partition", "0"],
    "producers of the broker": ["describe-producers", "--broker-id", "1", "--topic", "T",
                                "--partition", "1"],
    "find without scope": ["find-hanging"],
    "find partition without topic": ["find-hanging", "--broker-id", "1", "--partition", "0"],
    "find": ["find-hanging", "--topic", "T"],
    "find in a partition": ["find-hanging", "--topic", "T", "--partition", "1"],
    "find on the broker": ["find-hanging", "--broker-id", "1"],
    "find longer": ["find-hanging", "--topic", "T", "--max-transaction-timeout", "2000000000"],
    "abort nothing": ["abort", "--topic", "T", "--partition", "0"],
    "abort where there is none": ["abort", "--topic", "T", "--partition", "0", "--start-offset",
                                  "77"],
    "abort without epochs": ["abort", "--topic", "T", "--partition", "0", "--producer-id", "ID"],
    "abort": ["abort", "--topic", "T", "--partition", "0", "--start-offset", "START"],
    "abort again": ["abort", "--topic", "T", "--partition", "0", "--start-offset", "START"],
    "abort as of old": ["abort", "--topic", "T", "--partition", "1", "--producer-id", "ID",
                        "--producer-epoch", "EPOCH", "--coordinator-epoch", "-1"],
    "found no more": ["find-hanging", "--topic", "T"],
    "force": ["forceTerminateTransaction", "--transactionalId", "OPEN"],
    "force one that is done": ["forceTerminateTransaction", "--transactionalId", "DONE"],
    "list at the end": ["list"],
    "no such command": ["conjure"],
}  # fmt: skip


#: Those that end with another status than 0.
FAILING = {
    "list by a bad pattern", "describe none", "find without scope",
    "find partition without topic", "abort nothing", "abort where there is none",
    "abort without epochs", "abort again", "no such command",
}  # fmt: skip
FIRST_COLUMNS = ("TransactionalId", "CoordinatorId", "ProducerId", "Topic")
TIMES = {"LastTimestamp", "CurrentTransactionStartTimeMs", "TransactionDurationMs", "Duration(min)"}


def transactional(broker: BrokerProcess, name: str) -> Producer:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": name})
    producer.init_transactions(60)
    producer.begin_transaction()
    return producer


class Scenario:
    """A topic with a transaction that committed, one that is open in both partitions, and one
    that hangs in each: of a transactional id that knows nothing of it."""

    def __init__(self, broker: BrokerProcess, mark: str) -> None:
        self.broker, self.mark, self.topic = broker, mark, f"{mark}-topic"
        wire.create_topic(broker.port, self.topic, 2)
        done = transactional(broker, f"{mark}-done")
        done.produce(self.topic, b"done", partition=0)
        done.commit_transaction(60)
        with unverified(broker):
            self.hanging: list[Hanging] = [
                hang(broker, f"{mark}-hanging-{n}", self.topic, n) for n in range(2)
            ]
        self.open = transactional(broker, f"{mark}-open")
        for n in range(2):
            self.open.produce(self.topic, b"open", partition=n)
        assert self.open.flush(60) == 0

    def words(self, command: list[str], at: int) -> list[str]:
        one = self.hanging[at]
        names: dict[str, Any] = {
            "MARK": self.mark, "T": self.topic, "ID": one.producer_id, "EPOCH": one.producer_epoch,
            "START": one.start_offset,
        } | {name.upper(): f"{self.mark}-{name}" for name in ("open", "done", "none")}  # fmt: skip
        return [re.sub(r"^[A-Z]+", lambda m: str(names.get(m[0], m[0])), word) for word in command]

    def run(self, classes: Path) -> dict[str, Told]:
        """What the tool says to each command."""
        script = "".join(
            "\t".join(
                ["--bootstrap-server", self.broker.bootstrap, *self.words(words, "of old" in name)]
            )
            + "\n"
            for name, words in MODES.items()
        )
        done = subprocess.run(
            java_command("Tool", "transactions", classes=classes), check=True, input=script,
            text=True, capture_output=True, timeout=240,
        )  # fmt: skip
        parts = re.split(r"\n-- (\d+)\n", done.stdout)
        assert len(parts) == 2 * len(MODES) + 1, done.stdout[-2000:]
        return {
            name: self.told(parts[2 * at], int(parts[2 * at + 1])) for at, name in enumerate(MODES)
        }

    def told(self, text: str, status: int) -> Told:
        """Rows by the titles of their columns, with names for producer ids and without times; of
        what is told of the whole broker, the scenario's own: a transactional id of another test
        may be empty, or end its line. Other lines as they are."""
        lines = [line for line in text.splitlines() if line.strip()]
        titles = lines[0].split() if lines else [""]
        if titles[0] not in FIRST_COLUMNS:
            said = [" ".join(line.split()) for line in lines if line.split()[0] != "at"]
            return Told(status, [], "\n".join(said))
        cells = [[cell.strip() for cell in line.split("\t")[:-1]] for line in lines[1:]]
        rows = [dict(zip(titles, row, strict=True)) for row in cells if len(row) == len(titles)]
        owners = [str(one.producer_id) for one in self.hanging]
        for row in rows:
            found = row["ProducerId"]
            row["ProducerId"] = f"hanging-{owners.index(found)}" if found in owners else "other"
            row.update({title: "some" for title in TIMES & row.keys() if row[title] != "None"})
        ours = [
            row for row in rows
            if self.mark in row.get("TransactionalId", row.get("Topic", self.mark))
        ]  # fmt: skip
        return Told(status, sorted(ours, key=str), "")


class Told(NamedTuple):
    """What a command said."""

    status: int
    rows: list[dict[str, str]]
    text: str

    def column(self, title: str) -> list[str]:
        return [row[title] for row in self.rows]


@contextlib.contextmanager
def scenario(broker: BrokerProcess, mark: str) -> Iterator[Scenario]:
    """The open transaction is found fenced at the end, and nothing hangs any more."""
    made = Scenario(broker, mark)
    yield made
    with pytest.raises(KafkaException) as caught:
        made.open.commit_transaction(60)
    assert caught.value.args[0].name() == "_FENCED", caught.value
    for partition in range(2):
        stable, end = last_stable(broker, made.topic, partition)
        assert stable == end


def test_every_mode(target: BrokerProcess, topic: str, classes: Path) -> None:
    mark = f"txns-{topic}"
    with scenario(target, mark) as made:
        told = made.run(classes)
    failing = [name for name, one in told.items() if one.status]
    assert failing == [name for name in MODES if name in FAILING]
    states = dict(zip(told["list"].column("TransactionalId"),
                      told["list"].column("TransactionState"), strict=True))  # fmt: skip
    assert states == {
        f"{mark}-open": "Ongoing", f"{mark}-done": "CompleteCommit",
        f"{mark}-hanging-0": "Empty", f"{mark}-hanging-1": "Empty",
    }  # fmt: skip
    assert f"{mark}-open" not in told["list longer"].column("TransactionalId")
    assert f"{mark}-open" in told["list running"].column("TransactionalId")
    pattern = told["list by pattern"].column("TransactionalId")
    assert pattern == [f"{mark}-done", f"{mark}-open"]
    (described,) = told["describe open"].rows
    assert described["TransactionState"] == "Ongoing"
    assert sorted(described["TopicPartitions"].split(",")) == [f"{made.topic}-{n}" for n in (0, 1)]
    assert told["describe done"].column("TransactionState") == ["CompleteCommit"]
    for partition, name in ((0, "producers"), (1, "producers of the broker")):
        (start,) = (row["CurrentTransactionStartOffset"] for row in told[name].rows
                    if row["ProducerId"] == f"hanging-{partition}")  # fmt: skip
        assert start == str(made.hanging[partition].start_offset)
    both = ["hanging-0", "hanging-1"]
    assert told["find"].column("ProducerId") == both
    assert told["find on the broker"].column("ProducerId") == both
    assert told["find in a partition"].column("ProducerId") == both[1:]
    assert told["find longer"].rows == []
    assert told["found no more"].rows == []
    assert "Could not find any open transactions" in told["abort again"].text
    states = dict(zip(told["list at the end"].column("TransactionalId"),
                      told["list at the end"].column("TransactionState"), strict=True))  # fmt: skip
    assert states[f"{mark}-open"] == "Empty"  # and another epoch
    assert states[f"{mark}-done"] == "Empty"


@pytest.mark.long
def test_the_tool_says_the_same_of_both_brokers(
    kafka: BrokerProcess, kbroker: BrokerProcess, classes: Path
) -> None:
    told = []
    for broker in (kafka, kbroker):
        with scenario(broker, "txns-compared") as made:
            told.append(made.run(classes))
    differ = [name for name in told[0] if told[0][name] != told[1][name]]
    assert not differ, "\n\n".join(f"{n}:\n{told[0][n]}\n--\n{told[1][n]}" for n in differ)
