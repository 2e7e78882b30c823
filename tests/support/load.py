"""Producers in processes of their own that keep a history, and the judgement of what is stored.

Each producer is librdkafka with idempotence and acks=all; it sends numbered values round robin to
all partitions and writes a line per event to its history file:

    sent NUMBER PARTITION
    acked NUMBER PARTITION OFFSET
    failed NUMBER ERROR

The history outlives the broker, so that afterwards it can be said what was lost (acked and not
there), repeated, reordered, or stored though nobody sent it.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.reference.crafted_batches import parse_batches
from tests.support import wire
from tests.support.waits import wait_for

BURST = 20


def produce_until_told(arguments: argparse.Namespace) -> None:
    """The body of a producer process; SIGTERM makes it flush and end."""
    from confluent_kafka import Producer

    stopping: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopping.append(number))
    producer = Producer({
        "bootstrap.servers": arguments.bootstrap, "enable.idempotence": True, "linger.ms": 2,
        "message.timeout.ms": 120_000, "reconnect.backoff.ms": 20,
        "reconnect.backoff.max.ms": 200, "retry.backoff.ms": 20, "socket.timeout.ms": 10_000,
        "log_level": 0,
    })  # fmt: skip
    with Path(arguments.history).open("w", buffering=1) as history:

        def report(error: Any, message: Any) -> None:
            number = int(message.value().split(b" ")[1])
            if error is not None:
                history.write(f"failed {number} {error.name()}\n")
            else:
                history.write(f"acked {number} {message.partition()} {message.offset()}\n")

        number = 0
        while not stopping:
            for _ in range(BURST):
                partition = number % arguments.partitions
                value = b"%s %d %s" % (arguments.name.encode(), number, b"." * arguments.padding)
                history.write(f"sent {number} {partition}\n")
                producer.produce(arguments.topic, value, partition=partition, on_delivery=report)
                number += 1
            producer.poll(0.02)
            while len(producer) > 2000 and not stopping:
                producer.poll(0.1)
        history.write(f"left {producer.flush(90)}\n")


@dataclass
class History:
    """What one producer knows: the partition of each number sent, and where acks say it is."""

    name: str
    sent: dict[int, int] = field(default_factory=dict)
    acked: dict[int, tuple[int, int]] = field(default_factory=dict)
    failed: dict[int, str] = field(default_factory=dict)


class Load:
    """Producers under way against one topic."""

    def __init__(
        self, bootstrap: str, topic: str, folder: Path, *, producers: int = 2, partitions: int = 3,
        padding: int = 100,
    ) -> None:  # fmt: skip
        self.topic, self.partitions = topic, partitions
        self.files = [folder / f"history-{index}" for index in range(producers)]
        self.processes = [
            subprocess.Popen([
                sys.executable, "-m", "tests.support.load", "--bootstrap", bootstrap,
                "--topic", topic, "--partitions", str(partitions), "--history", str(path),
                "--name", path.name, "--padding", str(padding),
            ])
            for path in self.files
        ]  # fmt: skip

    def acked_count(self) -> int:
        return sum(path.read_bytes().count(b"\nacked ") for path in self.files if path.exists())

    def wait_for_acks(self, more: int, timeout_s: float = 60) -> None:
        """Waits until so many more records are acknowledged."""
        goal = self.acked_count() + more
        wait_for(f"{more} more acks", lambda: self.acked_count() >= goal, timeout_s)

    def finish(self) -> list[History]:
        """Lets the producers flush and end; returns what they know."""
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            assert process.wait(120) == 0
        return [read_history(path) for path in self.files]

    def kill(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()


def read_history(path: Path) -> History:
    history = History(path.name)
    for line in path.read_text().splitlines():
        match line.split(" "):
            case ["sent", number, partition]:
                history.sent[int(number)] = int(partition)
            case ["acked", number, partition, offset]:
                history.acked[int(number)] = (int(partition), int(offset))
            case ["failed", number, error]:
                history.failed[int(number)] = error
    return history


# --- judgement ----------------------------------------------------------------------------------


@dataclass
class Verdict:
    """What is wrong, each as a list of readable lines."""

    lost: list[str] = field(default_factory=list)
    repeated: list[str] = field(default_factory=list)
    reordered: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)
    torn: list[str] = field(default_factory=list)

    def faults(self) -> dict[str, list[str]]:
        """Kind of fault -> its first lines; empty where all is well."""
        return {kind: lines[:5] for kind, lines in vars(self).items() if lines}


def stored_values(port: int, topic: str, partition: int, verdict: Verdict) -> dict[int, bytes]:
    """Offset -> value of all that a partition serves, batches checked on the way."""
    values: dict[int, bytes] = {}
    offset = 0
    with wire.WireConnection(port) as connection:
        while True:
            part = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
            body = {"replica_id": -1, "topics": [{"topic": topic, "partitions": [part]}]}
            answer = connection.call(wire.FETCH, 11, body)["responses"][0]["partitions"][0]
            assert answer["error_code"] == 0, answer
            if not answer["records"]:
                assert offset == answer["high_watermark"], f"{offset} of {answer}"
                return values
            for batch in parse_batches(answer["records"]):
                if "records" not in batch:
                    break
                if not batch["crc_is_right"] or batch["base_offset"] > offset:
                    verdict.torn.append(f"{topic}-{partition} at {offset}: {batch}")
                for record in batch["records"]:
                    values[batch["base_offset"] + record["offset_delta"]] = record["value"]
                offset = batch["base_offset"] + batch["last_offset_delta"] + 1


def judge(port: int, topic: str, partitions: int, histories: list[History]) -> Verdict:
    """Reads everything back and holds it against the histories."""
    verdict = Verdict()
    stored = {p: stored_values(port, topic, p, verdict) for p in range(partitions)}
    by_name = {history.name: history for history in histories}
    places: dict[tuple[str, int], list[tuple[int, int]]] = defaultdict(list)
    for partition, values in stored.items():
        newest: dict[str, int] = {}
        for offset, value in sorted(values.items()):
            name, number_text, _ = value.decode().split(" ")
            number = int(number_text)
            places[name, number].append((partition, offset))
            if by_name[name].sent.get(number) != partition:
                verdict.foreign.append(f"{name} {number} at {partition}:{offset}")
            if number < newest.get(name, -1):
                verdict.reordered.append(f"{name} {number} at {offset} after {newest[name]}")
            newest[name] = max(number, newest.get(name, -1))
    for (name, number), where in places.items():
        if len(where) > 1:
            verdict.repeated.append(f"{name} {number} at {where}")
    for history in histories:
        for number, place in history.acked.items():
            if place not in places.get((history.name, number), []):
                verdict.lost.append(f"{history.name} {number} acked at {place}")
    return verdict


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for option in ("--bootstrap", "--topic", "--history", "--name"):
        parser.add_argument(option, required=True)
    parser.add_argument("--partitions", type=int, required=True)
    parser.add_argument("--padding", type=int, required=True)
    produce_until_told(parser.parse_args())
