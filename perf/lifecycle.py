"""Start to first answer, an idle broker, and many partitions and connections."""

from __future__ import annotations

import os
import resource
import shutil
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kbroker.testing import Broker
from perf import admin
from perf.native import BUILD, load
from perf.rows import BY_NAME as ROWS_BY_NAME
from perf.series import produces, say
from perf.systems import System, Unavailable, start
from tests.support.processes import BrokerProcess
from tests.support.waits import free_ports, wait_for

STARTS = 5
TEST_STARTS = 20
START_TIMEOUT_S = 60.0
IDLE_SECONDS = 10.0
IDLE_CONNECTIONS = 100
CLEAN_PARTITIONS = 1_000
MANY_PARTITIONS = 10_000
MANY_CONNECTIONS = 5_000
TOPIC_PARTITIONS = 1_000
DESCRIPTORS_WANTED = 200_000


@dataclass(frozen=True)
class Measured:
    """One figure with the most that it may be; no bound: for comparison only. `note` stands behind
    it; `void` is why it does not count, whatever it is."""

    what: str
    system: str
    value: float
    unit: str
    at_most: float | None = None
    note: str = ""
    void: str = ""

    def text(self) -> str:
        return f"{self.value:,.4g} {self.unit}" + (f" ({self.note})" if self.note else "")

    def verdict(self) -> str:
        if self.at_most is None:
            return ""
        held = "held" if self.value <= self.at_most else "**missed**"
        if self.void:
            held = f"**did not hold: {self.void}**"
        return f"at most {self.at_most:,g} {self.unit}: {held}"


@contextmanager
def empty_home(name: str) -> Iterator[Path]:
    home = BUILD / "data" / name
    shutil.rmtree(home, ignore_errors=True)
    try:
        yield home
    finally:
        shutil.rmtree(home, ignore_errors=True)


@contextmanager
def running(system: System, name: str = "life") -> Iterator[BrokerProcess]:
    """A system in an empty directory, gone at the end."""
    with empty_home(f"{system.name}-{name}") as home:
        process = start(system, home)
        try:
            yield process
        finally:
            process.kill()


def timed_start(process: BrokerProcess) -> float:
    """Milliseconds from the launch to the first answer, on a port chosen ahead."""
    begun = time.perf_counter()
    process.launch()
    return admin.ms_to_first_answer(process.port, begun, START_TIMEOUT_S)


def first_start_ms(system: System) -> float:
    """The median of some starts: the first of a sitting finds its files out of the cache."""
    return statistics.median(_first_start_ms(system) for _ in range(STARTS))


def _first_start_ms(system: System) -> float:
    with empty_home(f"{system.name}-start") as home:
        process = system.make(home)
        process.port = process.port or free_ports(1)[0]
        if system.name.startswith("kafka"):
            process.command()  # the format step is not part of a start
        try:
            return timed_start(process)
        finally:
            process.kill()


def fixture_ms() -> float:
    """What the fixture `kbroker` of the pytest plugin costs a test before its first line."""

    def once() -> float:
        begun = time.perf_counter()
        with Broker():
            return (time.perf_counter() - begun) * 1000

    return statistics.median(once() for _ in range(TEST_STARTS))


def clean_start_ms(system: System) -> float:
    """A start after a clean shutdown with 1,000 partitions in which there is a record each."""
    with running(system) as process:
        admin.create_topics(process.port, {"many": CLEAN_PARTITIONS})
        wait_for("records are taken", lambda: fill(process), START_TIMEOUT_S)
        process.stop()
        return timed_start(process)


def fill(process: BrokerProcess) -> bool:
    """A short load over every partition of the topic `many`."""
    arguments = ["many", CLEAN_PARTITIONS, CLEAN_PARTITIONS, 1, 1, 100, -1, 0]
    figures = load("produce", process.port, process.pid, 0.5, *arguments)
    return figures["errors"] == 0 and figures["lost"] == 0


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def thread_seconds(pid: int, name: str) -> tuple[float, float] | None:
    """Of the thread of that name so far: on a processor, and ready but waiting for one. None where
    there is no such thread."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        if (task / "comm").read_text().strip() == name:
            running, waiting, _ = (task / "schedstat").read_text().split()
            return int(running) / 1e9, int(waiting) / 1e9
    return None


def megabytes(process: BrokerProcess) -> float:
    return process.resident_kib() * 1024 / 1e6


def idle(system: System) -> tuple[float, float]:
    """(MB resident, CPU percent) with 100 connections that do nothing."""
    with running(system) as process:
        held = admin.hold_connections(process.port, IDLE_CONNECTIONS)
        time.sleep(IDLE_SECONDS / 2)
        before = cpu_seconds(process.pid)
        time.sleep(IDLE_SECONDS)
        percent = (cpu_seconds(process.pid) - before) / IDLE_SECONDS * 100
        resident = megabytes(process)
        for sock in held:
            sock.close()
    return resident, percent


def disk_bytes(directory: Path) -> int:
    """What a directory takes on the disk, in allocated blocks."""
    return sum(path.lstat().st_blocks * 512 for path in directory.rglob("*"))


def many(system: System) -> tuple[float, float]:
    """(MB of disk of 10,000 empty partitions, MB resident with 5,000 connections under load)."""
    raise_descriptor_limit()
    row = ROWS_BY_NAME["one100"]
    with running(system) as process:
        for number in range(MANY_PARTITIONS // TOPIC_PARTITIONS):
            admin.create_topics(process.port, {f"many-{number}": TOPIC_PARTITIONS})
        disk = disk_bytes(process.data_dir) / 1e6
        held = admin.hold_connections(process.port, MANY_CONNECTIONS)
        admin.create_topics(process.port, {row.name: row.partitions})
        wait_for("records are taken", lambda: produces(process, row), START_TIMEOUT_S)
        load(row.mode, process.port, process.pid, 2, *row.arguments(row.name))
        arguments = ["many-0", TOPIC_PARTITIONS, TOPIC_PARTITIONS, 1, 1, 100, -1, 0]
        load("produce", process.port, process.pid, 2, *arguments)
        resident = megabytes(process)
        for sock in held:
            sock.close()
    return disk, resident


def raise_descriptor_limit() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS_WANTED if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS_WANTED)
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def measure(systems: Sequence[System]) -> list[Measured]:
    """All of it, for each system; only kbroker's own have targets, and only it is put to 10,000."""
    found: list[Measured] = []
    for system in systems:
        bound = system.name == "kbroker-fsync"
        for step in (starts, rests, *([crowds] if bound else [])):
            try:
                found += step(system, bound)
            except Unavailable as reason:
                say(str(reason))
                break
            except (RuntimeError, OSError, TimeoutError, AssertionError) as error:
                say(f"{system.name}: {step.__name__} failed: {error}")
    for one in found:
        say(f"{one.system}: {one.what}: {one.text()} {one.verdict()}")
    return found


Step = Callable[[System, bool], list[Measured]]


def starts(system: System, bound: bool) -> list[Measured]:
    found = [Measured("start to first answer, empty directory", system.title,
                      first_start_ms(system), "ms", 200 if bound else None)]  # fmt: skip
    if system.name != "tansu":
        found.append(Measured("the same with 1,000 partitions after a clean shutdown", system.title,
                              clean_start_ms(system), "ms", 1000 if bound else None))  # fmt: skip
    if bound:
        found.append(Measured("a broker for a test, by the fixture of the pytest plugin",
                              "kbroker, page-cache", fixture_ms(), "ms", 300))  # fmt: skip
    return found


def rests(system: System, bound: bool) -> list[Measured]:
    resident, percent = idle(system)
    return [
        Measured("idle with 100 connections", system.title, resident, "MB", 45 if bound else None),
        Measured("idle with 100 connections", system.title, percent, "% CPU",
                 0.2 if bound else None),
    ]  # fmt: skip


def crowds(system: System, bound: bool) -> list[Measured]:
    disk, resident = many(system)
    return [
        Measured("disk of 10,000 empty partitions", system.title, disk, "MB", 200),
        Measured("10,000 partitions, 5,000 connections, under load", system.title, resident, "MB",
                 1000),
    ]  # fmt: skip
