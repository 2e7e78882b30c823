"""What Python in the broker process costs the data plane: it should be its CPU share alone.

    python -m perf.gil

1. kb16 with a thread of the broker process spinning in pure Python, beside kb16 with the same
   spinner in a process of its own.
2. p99 of lat2k while the control plane creates 10,000 topics, beside p99 when it is idle.
"""

from __future__ import annotations

import os
import statistics
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from perf import admin
from perf.lifecycle import Measured, empty_home, raise_descriptor_limit
from perf.native import ROOT, Figures, is_sound, load
from perf.rows import BY_NAME as ROWS_BY_NAME
from perf.rows import Row
from perf.series import produces, say
from tests.support.kbroker import KbrokerProcess
from tests.support.processes import BrokerProcess
from tests.support.waits import wait_for

ROUNDS = 4
SECONDS = 2.0
TOPICS = 10_000
TOPICS_A_REQUEST = 50
READY_TIMEOUT_S = 60.0
TITLE = "kbroker, page-cache"
SETTINGS = {"kbroker.durability": "page-cache"}


class Spinning(KbrokerProcess):
    """The broker beside a spinner, which is a `thread` of it or a `process`."""

    def __init__(self, home: Path, where: str) -> None:
        super().__init__(home, SETTINGS)
        self.where = where

    def command(self) -> list[str]:
        settings = self.settings | {
            "log.dirs": str(self.data_dir),
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
        }
        command = [sys.executable, "-m", "perf.spinning", self.where]
        for key, value in settings.items():
            command += ["--set", f"{key}={value}"]
        return command

    def environment(self) -> dict[str, str]:
        return super().environment() | {"PYTHONPATH": str(ROOT)}


@contextmanager
def serving(make: Callable[[Path], BrokerProcess], row: Row) -> Iterator[BrokerProcess]:
    """A broker with the row's topic; gone at the end."""
    with empty_home("gil") as home:
        process = make(home)
        process.start()
        try:
            admin.create_topics(process.port, {row.name: row.partitions})
            wait_for("records are taken", lambda: produces(process, row), READY_TIMEOUT_S)
            yield process
        finally:
            process.kill()


def run(process: BrokerProcess, row: Row) -> Figures:
    """The row; an open loop sleeps, as the control plane wants the other processor."""
    os.sync()
    arguments = [*row.arguments(row.name), *(["sleep"] if row.rate else [])]
    figures = load(row.mode, process.port, process.pid, SECONDS, *arguments)
    if not is_sound(figures):
        raise RuntimeError(f"{row.name}: errors {figures['errors']}, lost {figures['lost']}")
    return figures


def spinning_loss() -> Measured:
    """Per cent of kb16's rate that the place of the spinner costs."""
    row = ROWS_BY_NAME["kb16"]
    rates: dict[str, list[float]] = {"thread": [], "process": []}
    for number in range(ROUNDS):
        for where in sorted(rates, reverse=number % 2 == 0):
            with serving(partial(Spinning, where=where), row) as process:
                rates[where].append(run(process, row)["mb_s"])
            say(f"kb16 beside a spinning {where}: {rates[where][-1]:,.0f} MB/s")
    loss = (1 - statistics.median(rates["thread"]) / statistics.median(rates["process"])) * 100
    what = "kb16 lost where a spinning Python thread is the broker's own, not another process's"
    return Measured(what, TITLE, loss, "%", 10)


def create_many(process: BrokerProcess, done: threading.Event, faults: list[Exception]) -> None:
    """10,000 topics over one connection, one request after the other."""
    try:
        with admin.connect(process.port) as sock:
            for first in range(0, TOPICS, TOPICS_A_REQUEST):
                numbers = range(first, first + TOPICS_A_REQUEST)
                admin.create_over(sock, {f"made-{number}": 1 for number in numbers})
    except (OSError, RuntimeError) as error:
        faults.append(error)
    finally:
        done.set()


def busy_control_plane() -> Measured:
    """p99 of produce while topics are created, as a multiple of p99 before."""
    row = ROWS_BY_NAME["lat2k"]
    raise_descriptor_limit()
    with serving(partial(KbrokerProcess, settings=SETTINGS), row) as process:
        idle = [run(process, row)["p99_ms"] for _ in range(ROUNDS)]
        done, faults, busy = threading.Event(), list[Exception](), list[float]()
        creator = threading.Thread(target=create_many, args=(process, done, faults))
        creator.start()
        while not done.is_set():
            busy.append(run(process, row)["p99_ms"])
        creator.join()
    if faults:
        raise faults[0]
    say(f"p99 idle {idle} ms, while 10,000 topics are created {busy} ms")
    ratio = statistics.median(busy) / statistics.median(idle)
    what = "p99 of lat2k while 10,000 topics are created, beside idle"
    return Measured(what, TITLE, ratio, "x", 2)


def measure() -> list[Measured]:
    found = []
    for step in (spinning_loss, busy_control_plane):
        try:
            found.append(step())
        except (RuntimeError, OSError, TimeoutError, AssertionError) as error:
            say(f"{step.__name__} failed: {error}")
    return found


if __name__ == "__main__":
    for one in measure():
        print(f"{one.what}: {one.text()} ({one.verdict()})")
