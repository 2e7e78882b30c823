"""Kafka's ConsumerGroupCommand in all its modes; kbroker makes it say what Kafka makes it say."""

from __future__ import annotations

import contextlib
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer

from kbroker.client import Producer
from kbroker.client.cluster import Cluster
from kbroker.client.group_offsets import commit_offsets
from tests.support import wire
from tests.support.java import java_command
from tests.support.processes import BrokerProcess
from tests.support.waits import wait_for

MODES: dict[str, list[str]] = {
    "list": ["--list"],
    "list states": ["--list", "--state"],
    "list stable": ["--list", "--state", "stable"],
    "list empty": ["--list", "--state", "Empty,Dead"],
    "list types": ["--list", "--type"],
    "list classic": ["--list", "--type", "classic", "--state"],
    "list consumer": ["--list", "--type", "Consumer"],
    "describe": ["--describe", "--group", "LIVE"],
    "describe offsets": ["--describe", "--group", "LIVE", "--offsets", "--verbose"],
    "describe members": ["--describe", "--group", "LIVE", "--members"],
    "describe members verbose": ["--describe", "--group", "LIVE", "--members", "--verbose"],
    "describe state": ["--describe", "--group", "LIVE", "--state"],
    "describe state verbose": ["--describe", "--group", "LIVE", "--state", "--verbose"],
    "describe alone": ["--describe", "--group", "ALONE", "--verbose"],
    "describe alone members": ["--describe", "--group", "ALONE", "--members"],
    "describe alone state": ["--describe", "--group", "ALONE", "--state"],
    "describe two": ["--describe", "--group", "ALONE", "--group", "LIVE", "--state"],
    "describe all": ["--describe", "--all-groups", "--state"],
    "describe none": ["--describe", "--group", "NONE"],
    "list modern": ["--list", "--type", "consumer", "--state", "stable"],
    "describe modern": ["--describe", "--group", "MODERN", "--verbose"],
    "describe modern members": ["--describe", "--group", "MODERN", "--members", "--verbose"],
    "describe modern state": ["--describe", "--group", "MODERN", "--state", "--verbose"],
    "reset a modern one": ["--reset-offsets", "--group", "MODERN", "--all-topics", "--to-latest"],
    "delete a modern one": ["--delete", "--group", "MODERN"],
    "delete offsets of a modern one": ["--delete-offsets", "--group", "MODERN", "--topic", "T"],
    "reset a live one": ["--reset-offsets", "--group", "LIVE", "--topic", "T", "--to-earliest"],
    "delete a live one": ["--delete", "--group", "LIVE"],
    "delete offsets of a live one": ["--delete-offsets", "--group", "LIVE", "--topic", "T"],
}
RESETS = {
    "to earliest": (["--to-earliest"], "0 0"),
    "to latest": (["--to-latest"], "10 10"),
    "to current": (["--to-current"], "4 6"),
    "to offset": (["--to-offset", "7"], "7 7"),
    "beyond": (["--to-offset", "70"], "10 10"),
    "shift by": (["--shift-by", "-5"], "0 1"),
    "to datetime": (["--to-datetime", "1970-01-01T00:00:04.500"], "4 4"),
    "to the future": (["--to-datetime", "2001-01-01T00:00:00.000"], "10 10"),
    "by duration": (["--by-duration", "P1D"], "10 10"),
}
LAST = {
    "export": ["--reset-offsets", "--group", "ALONE", "--all-topics", "--to-current", "--export"],
    "from file": ["--reset-offsets", "--group", "ALONE", "--from-file", "FILE", "--execute"],
    "after it": ["--describe", "--group", "ALONE"],
    "one partition": ["--reset-offsets", "--group", "ALONE", "--topic", "T:1", "--to-latest",
                      "--execute"],
    "no such partition": ["--reset-offsets", "--group", "ALONE", "--topic", "T:9", "--to-latest"],
    "all groups": ["--reset-offsets", "--group", "ALONE", "--group", "LIVE", "--topic", "T",
                   "--to-latest", "--execute"],
    "a new group": ["--reset-offsets", "--group", "NEW", "--topic", "T", "--to-earliest",
                    "--execute"],
    "the new group": ["--describe", "--group", "NEW", "--offsets"],
    "delete offsets": ["--delete-offsets", "--group", "ALONE", "--topic", "T:0"],
    "delete unknown offsets": ["--delete-offsets", "--group", "ALONE", "--topic", "NOPE"],
    "offsets left": ["--describe", "--group", "ALONE"],
    "delete": ["--delete", "--group", "ALONE", "--group", "NEW"],
    "delete none": ["--delete", "--group", "NONE"],
    "gone": ["--describe", "--group", "ALONE"],
}  # fmt: skip


def commands() -> dict[str, list[str]]:
    """Every command of the scenario, in order."""
    resets = {
        f"{name}, {how}": ["--reset-offsets", "--group", "ALONE", "--topic", "T", *words, *flags]
        for name, (words, _) in RESETS.items()
        for how, flags in (("dry run", ["--dry-run"]), ("all topics", []))
    }
    for name, words in resets.items():
        if name.endswith("all topics"):
            at = words.index("--topic")
            words[at : at + 2] = ["--all-topics"]
    return MODES | resets | LAST


def run_all(broker: BrokerProcess, names: dict[str, str], classes: Path) -> dict[str, str]:
    """What the tool says to each command, with what differs from run to run made the same."""
    wanted = commands()
    script = "".join(
        "\t".join(["--bootstrap-server", broker.bootstrap,
                   *(re.sub(r"^[A-Z]+", lambda m: names.get(m[0], m[0]), word) for word in words)])
        + "\n"
        for words in wanted.values()
    )  # fmt: skip
    done = subprocess.run(
        java_command("Tool", "groups", classes=classes), check=True, input=script, text=True,
        capture_output=True, timeout=240,
    )  # fmt: skip
    parts = re.split(r"\n-- (\d+)\n", done.stdout)
    assert len(parts) == 2 * len(wanted) + 1, done.stdout[-2000:]
    told = {name: told_alike(parts[2 * at]) for at, name in enumerate(wanted)}
    return {
        name: ours_in(said, names["MARK"]) if name.startswith(("list", "describe all")) else said
        for name, said in told.items()
    }


def ours_in(text: str, mark: str) -> str:
    """The lines about the scenario's own groups: other tests' are there too."""
    return "\n".join(line for line in text.split("\n") if mark in line)


def told_alike(text: str) -> str:
    """Sorted lines, one blank between words; ports, member ids and Java's traces left out."""
    text = re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UUID", text)
    text = re.sub(r"[\w+/-]{22}(?= +/127)", "UUID", text)
    text = re.sub(r"127\.0\.0\.1:\d+", "HERE", text)
    lines = [re.sub(r" +", " ", line).strip() for line in text.splitlines()]
    return "\n".join(sorted(line for line in lines if line and not line.startswith("at ")))


@contextlib.contextmanager
def scenario(broker: BrokerProcess, mark: str, folder: Path) -> Iterator[dict[str, str]]:
    """A topic of ten records in each of two partitions, a group that reads it, and one alone."""
    names = {"MARK": mark, "T": f"{mark}-topic", "LIVE": f"{mark}-live", "ALONE": f"{mark}-alone",
             "NEW": f"{mark}-new", "MODERN": f"{mark}-modern", "NONE": f"{mark}-none",
             "FILE": str(folder / "plan.csv")}  # fmt: skip
    Path(names["FILE"]).write_text(f"{names['T']},0,3\n{names['T']},1,400\n")
    wire.create_topic(broker.port, names["T"], 2, {"retention.ms": "-1"})
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        for number in range(20):
            at = 1000 * (number // 2 + 1)
            producer.send(names["T"], b"%d" % number, partition=number % 2, timestamp_ms=at)
    with Cluster(broker.bootstrap) as cluster:
        commit_offsets(cluster, names["ALONE"], {(names["T"], 0): 4, (names["T"], 1): 6})
        base = {
            "bootstrap.servers": broker.bootstrap, "client.id": "reader",
            "auto.offset.reset": "earliest", "enable.auto.commit": False,
        }  # fmt: skip
        classic = {"partition.assignment.strategy": "range", "group.instance.id": "seat"}
        consumers = [
            Consumer(base | classic | {"group.id": names["LIVE"]}),
            Consumer(base | {"group.protocol": "consumer", "group.id": names["MODERN"]}),
        ]
        for consumer in consumers:
            consumer.subscribe([names["T"]])
            wait_for("20 records", reading(consumer), 30)
            consumer.commit(asynchronous=False)
        try:
            yield names
        finally:
            for consumer in consumers:
                consumer.close()


def reading(consumer: Consumer) -> Callable[[], bool]:
    """Reads on at each call, until there were all 20 records."""
    read: list[Any] = []

    def on() -> bool:
        read.extend(consumer.consume(20, 0.2))
        return len(read) == 20

    return on


@pytest.mark.long
def test_every_mode(target: BrokerProcess, topic: str, classes: Path, tmp_path: Path) -> None:
    with scenario(target, f"tool-{topic}", tmp_path) as names:
        told = run_all(target, names, classes)
    live, alone, at = names["LIVE"], names["ALONE"], names["T"]
    assert {live, alone} <= set(told["list"].split("\n"))
    assert f"{live} Stable" in told["list stable"]
    assert alone not in told["list stable"]
    assert f"{alone} Empty" in told["list empty"]
    assert f"{live} Classic" in told["list types"]
    assert f"{alone} Classic Empty" in told["list classic"]
    assert live not in told["list consumer"]
    assert f"{live} {at} 1 10 10 0 seat-UUID /127.0.0.1 reader" in told["describe"]
    assert (
        f"{live} seat-UUID seat /127.0.0.1 reader 2 - {at}:0,1 - -"
        in (told["describe members verbose"])
    )
    assert f"{live} HERE (1) range Stable 1" in told["describe state"]
    assert f"{alone} {at} 1 - 6 10 4 - - -" in told["describe alone"]
    assert f"Consumer group '{alone}' has no active members." in told["describe alone state"]
    for name, (_, expected) in RESETS.items():
        for how in ("dry run", "all topics"):
            moved = [f"{alone} {at} {index} {offset}" for index, offset in
                     enumerate(expected.split())]  # fmt: skip
            assert [line for line in told[f"{name}, {how}"].split("\n") if line in moved] == moved
    modern = names["MODERN"]
    assert f"{modern} Consumer Stable" in told["list modern"]
    assert re.search(
        rf"{modern} HERE \(1\) uniform Stable \d+ \d+ 1", told["describe modern state"]
    )
    assert f"{at}:0,1" in told["describe modern members"]
    for kind in ("live", "modern"):
        assert "the current state is Stable" in told[f"reset a {kind} one"]
    assert "The group is not empty" in told["delete a live one"]
    assert "actively subscribed to it" in told["delete offsets of a live one"]
    assert f"{alone} {at} 1 10 10 0" in told["after it"]
    assert "Successful" in told["delete offsets"]
    assert f"{alone} {at} 0" not in told["offsets left"]
    assert "was successful" in told["delete"]
    assert "could not be deleted" in told["delete none"]
    assert "does not exist" in told["gone"] or "not found" in told["gone"]


@pytest.mark.long
def test_the_tool_says_the_same_of_both_brokers(
    kafka: BrokerProcess, kbroker: BrokerProcess, classes: Path, tmp_path: Path
) -> None:
    told = []
    for broker in (kafka, kbroker):
        with scenario(broker, "compared", tmp_path) as names:
            told.append(run_all(broker, names, classes))
    differ = [name for name in told[0] if told[0][name] != told[1][name]]
    assert not differ, "\n\n".join(f"{n}:\n{told[0][n]}\n--\n{told[1][n]}" for n in differ)
