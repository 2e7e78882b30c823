"""Consumer groups: what heartbeats cost, how long commits and joins take, beside Apache Kafka.

    python -m perf.groups [--system NAME]... [--figure NAME]... [--readme]

    heartbeats  1,000 classic groups of 10 members, heartbeats every 3 s: the broker's CPU
    commits     100 consumers commit 10 partitions each second each: p99
    join        300 classic members join one group at once: until all have their assignment
    join-848    300 members of the consumer protocol: until each partition has its owner
    load        1,000,000 offsets of 1,000 groups: until each partition is answered for
    busy        commits without pause keep the control plane busy: p99 of lat2k beside idle

Every member has a connection of its own. Nothing else may run meanwhile.
"""

from __future__ import annotations

import argparse
import os
import statistics
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from perf import admin, group_load
from perf import group_wire as wire
from perf.filling import loaded_after
from perf.group_members import (
    ClassicMember,
    Clock,
    Committing,
    ConsumerMember,
    Flooding,
    Loop,
)
from perf.lifecycle import (
    Measured,
    cpu_seconds,
    empty_home,
    raise_descriptor_limit,
    thread_seconds,
)
from perf.native import is_sound, load, program
from perf.report import machine, replace_in_readme
from perf.rows import BY_NAME as ROWS_BY_NAME
from perf.series import produces, say
from perf.systems import Kafka
from tests.support.kbroker import KbrokerProcess
from tests.support.processes import BrokerProcess
from tests.support.waits import wait_for

GROUPS, MEMBERS, INTERVAL_S = 1_000, 10, 3.0
SETTLE_S, MEASURE_S = 10.0, 30.0
COMMITTERS, COMMIT_PARTITIONS, COMMIT_S = 100, 10, 30.0
JOINERS = 300
# As many commits that a sync may hold up keep the control plane busy until it is over.
FLOODERS, FLOODED, FLOOD_DEPTH = 1_000, 200, 2
FLOOD_SETTLE_S = 2.0
CONTROL = "kbroker-control"
BUSY_SHARE = 0.9
BUSY_ROUNDS, BUSY_S = 5, 3.0
TIMEOUT_S = 180.0
TOPIC = "shared"
DISK_ALONE = "the disk alone: p99 of as many synced writes of a page"

JOINS = """\
Where joins are delayed by 3 s these are part of the figure, from the last member that came on;
Apache Kafka waits for them twice. The members of the consumer protocol wait for two heartbeat
intervals, as with Apache Kafka: in one the first member, which was given every partition, learns
what to give up, in the next the others learn what is free. At 5 s, the least interval that is
allowed by default, these alone are the bound of 10 s; at 1 s
`group.consumer.min.heartbeat.interval.ms` is lowered, too."""

INITIAL_DELAY = "group.initial.rebalance.delay.ms"
CONSUMER_INTERVALS = (
    "group.consumer.heartbeat.interval.ms",
    "group.consumer.min.heartbeat.interval.ms",
)


class System(NamedTuple):
    """A broker to be measured."""

    name: str
    title: str
    make: Callable[[Path, dict[str, str]], BrokerProcess]


SYSTEMS = {
    "kbroker": System("kbroker", "kbroker, fsync", KbrokerProcess),
    "kafka": System("kafka", "Apache Kafka 4.3", Kafka),
}


@contextmanager
def running(system: System, partitions: int, **told: str) -> Iterator[BrokerProcess]:
    """A broker with the topic and its coordinators; gone at the end."""
    settings = {INITIAL_DELAY: "0", **told}
    with empty_home(f"{system.name}-groups") as home:
        try:
            process = system.make(home, settings)
            process.start()
        except pytest.skip.Exception as skipped:
            raise RuntimeError(f"{system.title}: {skipped}") from None
        try:
            admin.create_topics(process.port, {TOPIC: partitions})
            wait_for("coordinators", lambda: has_coordinator(process), TIMEOUT_S, 0.2)
            yield process
        finally:
            process.kill()


def has_coordinator(process: BrokerProcess) -> bool:
    with admin.connect(process.port) as sock:
        body = wire.text("any") + b"\0"
        answer = admin.ask(sock, wire.FIND_COORDINATOR, wire.FIND_VERSION, body)
    return bool(struct.unpack_from(">h", answer, 4)[0] == wire.NONE)


@contextmanager
def members(process: BrokerProcess) -> Iterator[Loop]:
    loop = Loop(process.port)
    try:
        yield loop
    finally:
        loop.close()


def settle(loop: Loop, joined: Sequence[ClassicMember]) -> float:
    """Until every member has its assignment: when the last of them had it."""
    if not loop.run(Clock() + TIMEOUT_S, lambda: all(m.stable_at is not None for m in joined)):
        raise TimeoutError(f"not stable within {TIMEOUT_S:g} s: errors {loop.errors}")
    return max(member.stable_at or 0.0 for member in joined)


def sound(loop: Loop) -> None:
    if loop.errors:
        raise RuntimeError(f"errors by code: {loop.errors}")


def p99_ms(seconds: Sequence[float]) -> float:
    return statistics.quantiles(seconds, n=100)[98] * 1000


# ---- the figures


def heartbeats(system: System) -> list[Measured]:
    with running(system, MEMBERS) as process, members(process) as loop:
        joined = [
            ClassicMember(loop, f"group-{number}", TOPIC, MEMBERS, INTERVAL_S)
            for number in range(GROUPS)
            for _ in range(MEMBERS)
        ]
        begun = Clock()
        for member in joined:
            member.join()
        settle(loop, joined)
        say(f"{system.name}: {len(joined)} members stable after {Clock() - begun:.1f} s")
        loop.run(Clock() + SETTLE_S)
        for member in joined:
            member.beats.clear()
        before, begun = cpu_seconds(process.pid), Clock()
        loop.run(begun + MEASURE_S)
        percent = (cpu_seconds(process.pid) - before) / (Clock() - begun) * 100
        beats = [beat for member in joined for beat in member.beats]
        sound(loop)
    say(f"{system.name}: {len(beats) / MEASURE_S:,.0f} heartbeats/s, p99 {p99_ms(beats):.2f} ms")
    what = f"{GROUPS:,} classic groups of {MEMBERS} members heartbeat"
    return [Measured(what, system.title, percent, "% of a core", 15)]


def commits(system: System) -> list[Measured]:
    groups = COMMITTERS // MEMBERS
    with running(system, MEMBERS * COMMIT_PARTITIONS) as process, members(process) as loop:
        joined = [
            Committing(loop, f"group-{number % groups}", TOPIC, MEMBERS, INTERVAL_S)
            for number in range(COMMITTERS)
        ]
        for member in joined:
            member.join()
        settle(loop, joined)
        begun = Clock()
        for number, member in enumerate(joined):
            first = number // groups * COMMIT_PARTITIONS
            commit = begin_commits(member, range(first, first + COMMIT_PARTITIONS))
            loop.at(begun + number / COMMITTERS, commit)
        loop.run(begun + 2)
        for member in joined:
            member.commits.clear()
        loop.run(Clock() + COMMIT_S)
        sound(loop)
        took = [commit for member in joined for commit in member.commits]
    say(f"{system.name}: {len(took)} commits, median {statistics.median(took) * 1000:.2f} ms")
    what = f"p99 of commits, {COMMITTERS} consumers once a second"
    found = [Measured(what, system.title, p99_ms(took), "ms", 20)]
    if system.name == "kbroker":
        found.append(Measured(DISK_ALONE, system.title, p99_ms(synced_writes()), "ms"))
    return found


def synced_writes() -> list[float]:
    """Seconds of each synced write of a page, as many and as long as there were commits, in a file
    that was written before: the least that a commit can take, and what else the disk does."""
    page = bytes(4096)
    took = []
    with empty_home("disk-alone") as home:
        home.mkdir(parents=True)
        with (home / "pages").open("wb", buffering=0) as file:
            file.write(page * (writes := int(COMMITTERS * COMMIT_S)))
            os.fsync(file.fileno())
            begun = Clock()
            for number in range(writes):
                time.sleep(max(0.0, begun + number / COMMITTERS - Clock()))
                at = Clock()
                os.pwrite(file.fileno(), page, number * len(page))
                os.fdatasync(file.fileno())
                took.append(Clock() - at)
    return took


def begin_commits(member: Committing, indexes: range) -> Callable[[], None]:
    return lambda: member.commit(indexes, 1.0)


def join(system: System) -> list[Measured]:
    """Without the initial delay, and with Kafka's own of 3 s, which in Kafka late comers double."""
    what = f"{JOINERS} classic members join at once until stable"
    return [
        Measured(what, system.title, joining(system, 0), "s", 5),
        Measured(f"{what}, {INITIAL_DELAY}=3000", system.title, joining(system, 3_000), "s", 5),
    ]


def joining(system: System, delay_ms: int) -> float:
    """Seconds until all members have an assignment of one generation."""
    settings = {INITIAL_DELAY: str(delay_ms)}
    with running(system, JOINERS, **settings) as process, members(process) as loop:
        joined = [ClassicMember(loop, "all", TOPIC, JOINERS, INTERVAL_S) for _ in range(JOINERS)]
        begun = Clock()
        for member in joined:
            member.join()

        def stable() -> bool:
            return all(
                member.stable_at is not None and member.generation == joined[0].generation
                for member in joined
            )

        if not loop.run(begun + TIMEOUT_S, stable):
            raise TimeoutError(f"not stable within {TIMEOUT_S:g} s: errors {loop.errors}")
        sound(loop)
        return max(member.stable_at or 0.0 for member in joined) - begun


def join_848(system: System) -> list[Measured]:
    """With the least interval that is allowed by default, which is the default, and with less."""
    what = f"{JOINERS} members of the consumer protocol join at once until stable"
    return [
        Measured(f"{what}, heartbeats every {seconds} s", system.title, value, "s", 10)
        for seconds in (1, 5)
        for value in [joining_848(system, seconds * 1000)]
    ]


def joining_848(system: System, interval_ms: int) -> float:
    """Seconds until each member has its one partition and knows the last epoch. Two intervals:
    one until who was first is told to give up, one until the others are told what they have."""
    settings = {key: str(interval_ms) for key in CONSUMER_INTERVALS}
    with running(system, JOINERS, **settings) as process, members(process) as loop:
        joined = [ConsumerMember(loop, "all", TOPIC) for _ in range(JOINERS)]
        begun = Clock()
        for member in joined:
            member.join()

        def stable() -> bool:
            if any(len(member.owned.partitions) != 1 for member in joined):
                return False
            owned = {member.owned.partitions for member in joined}
            return len(owned) == JOINERS and len({member.epoch for member in joined}) == 1

        if not loop.run(begun + TIMEOUT_S, stable):
            raise TimeoutError(f"not stable within {TIMEOUT_S:g} s: errors {loop.errors}")
        sound(loop)
        return max(member.changed_at for member in joined) - begun


def load_offsets(system: System) -> list[Measured]:
    """From the first answer of the broker on; it starts beside its coordinators' loading."""
    with running(system, 1) as process:
        admin.create_topics(process.port, group_load.topics())
        process.stop()
        group_load.fill(process)
        process.start()
        names = group_load.one_of_each_partition()
        seconds = loaded_after(process, names, group_load.is_loading, TIMEOUT_S)
    what = f"{group_load.GROUPS * 1_000:,} offsets of {group_load.GROUPS:,} groups loaded"
    return [Measured(what, system.title, seconds, "s", 3)]


def busy(system: System) -> list[Measured]:
    """The flood is a process of its own; lat2k sleeps, as the brokers want both processors."""
    row = ROWS_BY_NAME["lat2k"]
    program("load")

    def p99(process: BrokerProcess) -> float:
        arguments = [*row.arguments(row.name), "sleep"]
        figures = load(row.mode, process.port, process.pid, BUSY_S, *arguments)
        if not is_sound(figures):
            raise RuntimeError(f"lat2k: errors {figures['errors']}, lost {figures['lost']}")
        return figures["p99_ms"]

    with running(system, FLOODED) as process:
        admin.create_topics(process.port, {row.name: row.partitions})
        wait_for("records are taken", lambda: produces(process, row), TIMEOUT_S)
        p99(process)
        idle = [p99(process) for _ in range(BUSY_ROUNDS)]
        with flooding(process.port):
            usage = Usage(process.pid)
            flooded = [p99(process) for _ in range(BUSY_ROUNDS)]
            note, void = usage.told()
    say(f"{system.name}: p99 idle {idle} ms, under commits {flooded} ms, {note}")
    ratio = statistics.median(flooded) / statistics.median(idle)
    what = "p99 of lat2k while commits keep the control plane busy, beside idle"
    return [Measured(what, system.title, ratio, "x", 2, note, void)]


class Usage:
    """How busy a broker is from now on; kbroker's control plane is one thread.

    That it was ready counts, too: with two processors it may have to wait for one."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._begun = Clock()
        self._cpu_s = cpu_seconds(pid)
        self._thread = thread_seconds(pid, CONTROL)

    def told(self) -> tuple[str, str]:
        """In words, and why that is not enough: empty where it is."""
        took = Clock() - self._begun
        thread = thread_seconds(self._pid, CONTROL)
        if self._thread is None or thread is None:
            return f"{(cpu_seconds(self._pid) - self._cpu_s) / took:.0%} of a core in all", ""
        ran, waited = (now - then for now, then in zip(thread, self._thread, strict=True))
        note = f"{CONTROL} running {ran / took:.0%}, ready {waited / took:.0%} of the time"
        busy_share = (ran + waited) / took
        void = "" if busy_share >= BUSY_SHARE else f"the control plane was busy {busy_share:.0%}"
        return note, void


@contextmanager
def flooding(port: int) -> Iterator[None]:
    """Commits go on in another process. Raises RuntimeError where they did not until the end."""
    command = [sys.executable, "-m", "perf.groups", "--flood", str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as flooder:
        try:
            assert flooder.stdout is not None
            if not flooder.stdout.readline():
                raise RuntimeError("the flood of commits did not begin")
            yield
            if flooder.poll() is not None:
                raise RuntimeError("commits of the flood failed")
        finally:
            flooder.terminate()


def flood(port: int) -> None:
    """Commits of simple consumers without pause, until the process is ended or one fails."""
    loop = Loop(port)
    for number in range(FLOODERS):
        Flooding(loop, f"flood-{number}", TOPIC, number % FLOODED, FLOOD_DEPTH)
    loop.run(Clock() + FLOOD_SETTLE_S)
    loop.errors.clear()  # of coordinators that were being loaded
    print("flooding", flush=True)
    loop.run(Clock() + TIMEOUT_S, lambda: bool(loop.errors))
    sound(loop)
    raise TimeoutError(f"nobody ended the flood for {TIMEOUT_S:g} s")


FIGURES: dict[str, Callable[[System], list[Measured]]] = {
    "heartbeats": heartbeats,
    "commits": commits,
    "join": join,
    "join-848": join_848,
    "load": load_offsets,
    "busy": busy,
}


def table(measured: Sequence[Measured]) -> str:
    """A row for each figure, a column for each system, and whether kbroker met the bound."""
    titles = [system.title for system in SYSTEMS.values()]
    found = {(one.what, one.system): one for one in measured}
    lines = [f"| consumer groups | {' | '.join(titles)} | target |", "|---|---|---|---|"]
    for what in dict.fromkeys(one.what for one in measured):
        of_systems = [found.get((what, title)) for title in titles]
        cells = ["-" if one is None else one.text() for one in of_systems]
        verdict = "" if of_systems[0] is None else of_systems[0].verdict()
        lines.append(f"| {what} | {' | '.join(cells)} | {verdict} |")
    return "\n".join(lines)


def measure(figures: Sequence[str], systems: Sequence[str]) -> list[Measured]:
    """Every figure of every system in turn; what fails is told and has no figure."""
    found = []
    for figure in figures:
        for system in systems:
            try:
                for one in FIGURES[figure](SYSTEMS[system]):
                    print(f"{one.system}: {one.what}: {one.text()} ({one.verdict()})", flush=True)
                    found.append(one)
            except (RuntimeError, OSError, TimeoutError, AssertionError) as error:
                say(f"{system} {figure} failed: {error}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m perf.groups")
    parser.add_argument("--system", action="append", choices=sorted(SYSTEMS))
    parser.add_argument("--figure", action="append", choices=sorted(FIGURES))
    parser.add_argument("--readme", action="store_true", help="put the table into README.md")
    parser.add_argument("--flood", type=int, help=argparse.SUPPRESS)
    told = parser.parse_args()
    if told.flood:
        flood(told.flood)
        return
    raise_descriptor_limit()
    busy_before = os.getloadavg()[0]
    found = measure(told.figure or list(FIGURES), told.system or list(SYSTEMS))
    if told.readme:
        command = "`python -m perf.groups --readme`"
        where = f"{command} on {machine()}, at nice {os.nice(0)}, load average before: "
        where += f"{busy_before:.1f}."
        replace_in_readme(f"{where}\n\n{table(found)}\n\n{JOINS}\n", "perf.groups")


if __name__ == "__main__":
    main()
