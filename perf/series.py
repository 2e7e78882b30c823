"""One series: a system started anew, warmed, and put through rows; and many in turn."""

from __future__ import annotations

import os
import shutil
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from perf import admin
from perf.native import BUILD, Figures, is_sound, load
from perf.pages import UsedPages
from perf.rows import BY_NAME as ROWS_BY_NAME
from perf.rows import Row
from perf.systems import System, Unavailable, start
from tests.support.processes import BrokerProcess
from tests.support.waits import wait_for

WARM_UP_BYTES = 2_000_000_000
WARM_UP_SECONDS_MAX = 20
LEADER_TIMEOUT_S = 30.0

#: figures by (row, system), one for each round
Results = dict[tuple[str, str], list[Figures]]


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def round_name(row: Row) -> str:
    """The topic of a row; one that reads has the topic of the row that wrote."""
    return row.after or row.name


def produces(process: BrokerProcess, row: Row) -> bool:
    """True once the row's load runs without an error: partitions have their leaders."""
    return is_sound(load(row.mode, process.port, process.pid, 0.1, *row.arguments(row.name)))


def prepare(process: BrokerProcess, system: System, row: Row) -> None:
    """Creates the row's topic."""
    if system.has_topics and row.mode == "produce":
        admin.create_topics(process.port, {row.name: row.partitions})
        wait_for(f"{row.name} takes records", lambda: produces(process, row), LEADER_TIMEOUT_S)


def warm_up(process: BrokerProcess, system: System) -> None:
    """Two gigabytes before anything counts: compilers, allocators and pages have had theirs."""
    topic = "warm-up"
    row = ROWS_BY_NAME["kb900"]
    admin.create_topics(process.port, {topic: row.partitions})
    written = seconds = 0.0
    while written < WARM_UP_BYTES and seconds < WARM_UP_SECONDS_MAX:
        figures = load(row.mode, process.port, process.pid, 1, *row.arguments(topic))
        written += figures["mb_s"] * 1e6 * figures["seconds"]
        seconds += figures["seconds"]


def with_sources(rows: Iterable[Row]) -> list[Row]:
    """The rows, each after the one whose topic it reads."""
    needed: dict[str, Row] = {}
    for row in rows:
        if row.after:
            needed.setdefault(row.after, ROWS_BY_NAME[row.after])
        needed[row.name] = row
    return list(needed.values())


class Series:
    """A system in its round. Data stay until the end: what is deleted gives its pages back."""

    def __init__(self, system: System, home: Path, seconds: float, pages: UsedPages) -> None:
        self.system = system
        self.home = home
        self.seconds = seconds
        self.pages = pages
        self.process: BrokerProcess | None = None

    def __enter__(self) -> Series:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        shutil.rmtree(self.home, ignore_errors=True)

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process = None

    def broker(self, row: Row) -> BrokerProcess:
        """The process for a row: a new one where the system wants that, or for the first."""
        if self.process is not None and self.system.fresh_each_row and not row.after:
            self.stop()
        if self.process is None:
            self.process = start(self.system, self.home / row.name)
            if self.system.warm_up:
                warm_up(self.process, self.system)
        return self.process

    def run(self, row: Row) -> Figures:
        process = self.broker(row)
        prepare(process, self.system, row)
        os.sync()
        self.pages.keep()
        arguments = row.arguments(round_name(row))
        return load(row.mode, process.port, process.pid, self.seconds, *arguments)


def run_series(
    system: System, rows: Sequence[Row], seconds: float, pages: UsedPages, results: Results
) -> None:
    """One round of one system; what goes wrong in a row is told and leaves the row without one."""
    home = BUILD / "data" / system.name
    shutil.rmtree(home, ignore_errors=True)
    with Series(system, home, seconds, pages) as series:
        for row in with_sources(rows):
            if system.name in row.not_for:
                continue
            try:
                figures = series.run(row)
            except (RuntimeError, OSError, TimeoutError, AssertionError) as error:
                say(f"{system.name:20} {row.name:10} failed: {error}")
                series.stop()
                continue
            say(f"{system.name:20} {row.name:10} {told(row, figures)}")
            if is_sound(figures):
                results[row.name, system.name].append(figures)


def told(row: Row, figures: Figures) -> str:
    """One line for people."""
    shown = [f"{figures[name]:,.3f} {name}" for name in row.shown]
    if "p99_ms" not in row.shown:
        shown.append(f"p99 {figures['p99_ms']:.2f} ms")
    if not is_sound(figures):
        shown.append(f"errors {figures['errors']:.0f} (code {figures['last_error']:.0f}), "
                     f"lost {figures['lost']:.0f}: no figure")  # fmt: skip
    return ", ".join((*shown, f"{figures['rss_mb']:.0f} MB"))


def run_rounds(
    systems: Sequence[System], rows: Sequence[Row], rounds: int, seconds: float, pages: UsedPages
) -> tuple[Results, dict[str, str]]:
    """All systems in turn, several times; (results, why a system is not among them)."""
    results: Results = defaultdict(list)
    missing: dict[str, str] = {}
    for number in range(1, rounds + 1):
        for system in systems:
            if system.name in missing:
                continue
            say(f"-- round {number} of {rounds}: {system.title}")
            pages.refresh()
            try:
                run_series(system, rows, seconds, pages, results)
            except Unavailable as reason:
                missing[system.name] = str(reason)
                say(str(reason))
    return results, missing


def median(results: Results, row: str, system: str, figure: str) -> float | None:
    """The median over the rounds; None where no round gave a figure."""
    values = [figures[figure] for figures in results.get((row, system), [])]
    return statistics.median(values) if values else None
