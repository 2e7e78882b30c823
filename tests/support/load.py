"""Producers in processes of their own that keep a history.

Each sends numbered values round robin to all partitions and writes a line per event to its file:

    kind KIND
    sent NUMBER PARTITION
    acked NUMBER PARTITION OFFSET       (offset -1: acks=0 is told none)
    failed NUMBER ERROR

The history outlives the broker; `tests.support.oracle` says afterwards what was lost. Kinds:
`confluent` and `kbroker` are idempotent, with acks=all; the others are librdkafka's and may repeat
records; `acks-0` may lose them as well.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import threading
from collections import deque
from pathlib import Path
from typing import Any, Self, TextIO

from tests.support.oracle import ANYWHERE, History, read_history
from tests.support.waits import wait_for

BURST = 20
UNANSWERED_MAX = 2000
KINDS: dict[str, dict[str, Any]] = {
    "confluent": {"enable.idempotence": True},
    "kbroker": {},
    "acks-1": {"acks": 1},
    "acks-0": {"acks": 0},
    "not-idempotent": {"enable.idempotence": False, "acks": "all"},
}


class Confluent:
    """librdkafka's producer."""

    def __init__(self, bootstrap: str, topic: str, kind: str, history: TextIO) -> None:
        from confluent_kafka import Producer

        self.topic, self.history = topic, history
        self.producer = Producer({
            "bootstrap.servers": bootstrap, "linger.ms": 2, "message.timeout.ms": 120_000,
            "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200, "retry.backoff.ms": 20,
            "socket.timeout.ms": 10_000, "log_level": 0,
        } | KINDS[kind])  # fmt: skip

    def _report(self, error: Any, message: Any) -> None:
        number = int(message.value().split(b" ")[1])
        if error is not None:
            self.history.write(f"failed {number} {error.name()}\n")
            return
        told = message.offset()
        offset = ANYWHERE if told is None or told < 0 else told
        self.history.write(f"acked {number} {message.partition()} {offset}\n")

    def send(self, number: int, value: bytes, partition: int) -> None:
        self.producer.produce(self.topic, value, partition=partition, on_delivery=self._report)

    def pause(self, stopping: threading.Event) -> None:
        """Answers are taken; while too many are missing nothing more is to be sent."""
        self.producer.poll(0.02)
        while len(self.producer) > UNANSWERED_MAX and not stopping.is_set():
            self.producer.poll(0.1)

    def finish(self) -> int:
        return int(self.producer.flush(90))


class Own:
    """kbroker.client's producer. It tells of deliveries on a thread of its own; the history is
    written by one."""

    def __init__(self, bootstrap: str, topic: str, kind: str, history: TextIO) -> None:
        from kbroker.client import Producer

        self.topic, self.history, self.unanswered = topic, history, 0
        self.told: deque[tuple[int, Any]] = deque()
        self.producer = Producer({
            "bootstrap.servers": bootstrap, "linger.ms": 2, "delivery.timeout.ms": 120_000,
            "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200, "retry.backoff.ms": 20,
            "request.timeout.ms": 10_000,
        } | KINDS[kind])  # fmt: skip

    def send(self, number: int, value: bytes, partition: int) -> None:
        self.unanswered += 1
        self.producer.send(
            self.topic, value, partition=partition,
            on_delivery=lambda delivery: self.told.append((number, delivery)),
        )  # fmt: skip

    def _write(self) -> None:
        while self.told:
            number, delivery = self.told.popleft()
            self.unanswered -= 1
            error = delivery.exception(0)
            if error is not None:
                self.history.write(f"failed {number} {type(error).__name__}\n")
            else:
                done = delivery.result(0)
                self.history.write(f"acked {number} {done.partition} {done.offset}\n")

    def pause(self, stopping: threading.Event) -> None:
        stopping.wait(0.02)
        self._write()
        while self.unanswered > UNANSWERED_MAX and not stopping.is_set():
            stopping.wait(0.05)
            self._write()

    def finish(self) -> int:
        self.producer.close(90)
        self._write()
        return self.unanswered


def produce_until_told(arguments: argparse.Namespace) -> None:
    """The body of a producer process; SIGTERM makes it flush and end."""
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda number, _: stopping.set())
    with Path(arguments.history).open("w", buffering=1) as history:
        history.write(f"kind {arguments.kind}\n")
        make = Own if arguments.kind == "kbroker" else Confluent
        producer = make(arguments.bootstrap, arguments.topic, arguments.kind, history)
        number = 0
        while not stopping.is_set():
            for _ in range(BURST):
                partition = number % arguments.partitions
                value = b"%s %d %s" % (arguments.name.encode(), number, b"." * arguments.padding)
                history.write(f"sent {number} {partition}\n")
                producer.send(number, value, partition)
                number += 1
            producer.pause(stopping)
        history.write(f"left {producer.finish()}\n")


class Load:
    """Producers under way against one topic, one of each of `kinds`; killed at the block's end."""

    def __init__(
        self, bootstrap: str, topic: str, folder: Path, *, producers: int = 2, partitions: int = 3,
        padding: int = 100, kinds: tuple[str, ...] = (),
    ) -> None:  # fmt: skip
        self.topic, self.partitions = topic, partitions
        kinds = kinds or ("confluent",) * producers
        self.files = [folder / f"history-{index}" for index in range(len(kinds))]
        self.processes = [
            subprocess.Popen([
                sys.executable, "-m", "tests.support.load", "--bootstrap", bootstrap,
                "--topic", topic, "--partitions", str(partitions), "--history", str(path),
                "--name", path.name, "--padding", str(padding), "--kind", kind,
            ])
            for path, kind in zip(self.files, kinds, strict=True)
        ]  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.kill()

    def acked_count(self) -> int:
        return sum(self._acked_counts())

    def _acked_counts(self) -> list[int]:
        return [
            path.read_bytes().count(b"\nacked ") if path.exists() else 0 for path in self.files
        ]

    def wait_for_acks(self, more: int, timeout_s: float = 120) -> None:
        """Waits until so many more records are acknowledged."""
        goal = self.acked_count() + more
        wait_for(f"{more} more acks", lambda: self.acked_count() >= goal, timeout_s)

    def wait_for_each(self, timeout_s: float = 120) -> None:
        """Waits until every producer was told of one more record: all of them are under way."""
        before = self._acked_counts()

        def under_way() -> bool:
            return all(now > then for now, then in zip(self._acked_counts(), before, strict=True))

        wait_for("every producer is acknowledged", under_way, timeout_s)

    def finish(self) -> list[History]:
        """Lets the producers flush and end; returns what they know. One that has not begun to
        write would be ended by the signal instead."""
        wait_for("every producer has begun", self._begun, 120)
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            assert process.wait(120) == 0
        return [read_history(path) for path in self.files]

    def _begun(self) -> bool:
        return all(
            (path.exists() and path.stat().st_size) or process.poll() is not None
            for path, process in zip(self.files, self.processes, strict=True)
        )

    def kill(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for option in ("--bootstrap", "--topic", "--history", "--name"):
        parser.add_argument(option, required=True)
    parser.add_argument("--kind", choices=KINDS, required=True)
    parser.add_argument("--partitions", type=int, required=True)
    parser.add_argument("--padding", type=int, required=True)
    produce_until_told(parser.parse_args())
