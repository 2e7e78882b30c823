"""Python clients of Kafka beside each other, against the same kbroker.

    python -m perf.client [--client NAME]... [--work NAME]... [--bytes N]... [--rounds N]
                          [--scale X] [--minutes M] [--readme]
    python -m perf.client --memory MILLIONS [--readme]

Each work runs in a process of its own (perf.client_load), all clients in turn, round after round;
the figures are medians. CPU seconds are the client process's, user and system, all its threads.
What takes longer than its deadline is ended, told and not tried again; no round begins a work
after --minutes. --memory sends and reads so many million messages of 100 B with this client, each
way, and tells how much memory it held on the way. Nothing else may run meanwhile.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from perf import admin
from perf.client_load import CHUNK, PARTITIONS, PARTS, READ_MESSAGES, WORKS, Job
from perf.lifecycle import empty_home
from perf.native import ROOT
from perf.report import machine, replace_in_readme
from perf.series import say
from tests.support.kbroker import KbrokerProcess
from tests.support.processes import BrokerProcess

CLIENTS = {
    "kbroker": "kbroker",
    "confluent-kafka": "confluent-kafka 2.16",
    "aiokafka": "aiokafka 0.14",
    "kafka-python": "kafka-python 3.0",
    "socket": "bare socket",
}
SIZES = (100, 1000)
TIMEOUT_S = 30  # of one run; what hangs costs no more, and once
FILL_TIMEOUT_S = 90
MEMORY_TIMEOUT_S = 600

#: Messages of 100 B in one go: some seconds for each client. Of 1 KB it is a quarter.
COUNTS = {
    ("socket", "send_batch"): 6_000_000,
    ("socket", "poll_batch"): 6_000_000,
    ("kbroker", "send"): 2_000_000,
    ("kbroker", "send_batch"): 6_000_000,
    ("kbroker", "iterate"): 3_000_000,
    ("kbroker", "poll_batch"): 6_000_000,
    ("kbroker", "poll_packed"): 6_000_000,
    ("confluent-kafka", "send"): 1_000_000,
    ("confluent-kafka", "send_batch"): 1_000_000,
    ("confluent-kafka", "iterate"): 2_000_000,
    ("aiokafka", "send"): 60_000,
    ("aiokafka", "send_batch"): 300_000,
    ("aiokafka", "iterate"): 150_000,
    ("aiokafka", "poll_batch"): 300_000,
    ("kafka-python", "send"): 60_000,
    ("kafka-python", "iterate"): 150_000,
    ("kafka-python", "poll_batch"): 150_000,
}
LARGE_SHARE = 4
PRODUCING = ("send", "send_batch")

#: What this client has to reach, in messages per CPU second, as multiples of confluent-kafka's.
TARGETS = {"send": ("send", 2), "send_batch": ("send", 8),
           "iterate": ("iterate", 2), "poll_batch": ("iterate", 10)}  # fmt: skip
BESIDE = "confluent-kafka"
TITLES = {
    "send": "produce one by one",
    "send_batch": "produce in batches",
    "iterate": "consume by iteration",
    "poll_batch": "consume in batches",
    "poll_packed": "the same, values copied into one run",
}


class Measured(NamedTuple):
    """One run."""

    messages: int
    seconds: float
    cpu_s: float
    rss_kb: list[int]

    @property
    def rate(self) -> float:
        return self.messages / self.seconds

    @property
    def cpu_s_per_million(self) -> float:
        return self.cpu_s / self.messages * 1e6


Key = tuple[str, str, int]


@contextmanager
def running() -> Iterator[BrokerProcess]:
    with empty_home("clients") as home:
        process = KbrokerProcess(home)
        process.start()
        try:
            yield process
        finally:
            process.kill()


def run(client: str, work: str, job: Job, timeout_s: float = TIMEOUT_S) -> Measured:
    """A process of the client at its work. TimeoutExpired: it took longer, and was killed."""
    command = [sys.executable, "-m", "perf.client_load", client, work, *map(str, job)]
    done = subprocess.run(
        command, cwd=ROOT, check=False, capture_output=True, text=True, timeout=timeout_s
    )
    if done.returncode != 0:
        raise RuntimeError(f"{client} {work}: {done.stderr[-2000:]}")
    return Measured(**json.loads(done.stdout.splitlines()[-1]))


def count_of(client: str, work: str, size: int, scale: float) -> int:
    count = COUNTS[client, work] * scale
    return max(int(count if size == SIZES[0] else count / LARGE_SHARE), CHUNK)


def measure(told: argparse.Namespace) -> dict[Key, list[Measured]]:
    """Every client at every work in turn; what fails is told, and has no figure."""
    found: dict[Key, list[Measured]] = {}
    failed: set[Key] = set()
    over = time.monotonic() + 60 * told.minutes
    pairs = [(c, work) for work in told.work for c in told.client if (c, work) in WORKS]
    with running() as process:
        for size in told.bytes:
            fill(process, size, pairs, told.scale)
        turns = [(turn, size, *pair) for turn in range(told.rounds) for size in told.bytes
                 for pair in pairs]  # fmt: skip
        for turn, size, client, work in turns:
            key = client, work, size
            if key in failed or time.monotonic() > over:
                continue
            topic = f"{client}-{work}-{size}-{turn}" if work in PRODUCING else stored(size)
            job = Job(process.bootstrap, topic, size, count_of(client, work, size, told.scale))
            one = attempt(process, client, work, job)
            if one is None:
                failed.add(key)
            else:
                found.setdefault(key, []).append(one)
    return found


def stored(size: int) -> str:
    return f"stored-{size}"


def fill(process: BrokerProcess, size: int, pairs: Sequence[tuple[str, str]], scale: float) -> None:
    """Messages to be read, by the client whose batches are the largest."""
    most = max((count_of(*pair, size, scale) for pair in pairs if pair[1] not in PRODUCING),
               default=0)  # fmt: skip
    if most:
        admin.create_topics(process.port, {stored(size): PARTITIONS})
        job = Job(process.bootstrap, stored(size), size, most + 2 * PARTS * CHUNK)
        run("kbroker", "send_batch", job, FILL_TIMEOUT_S)


def attempt(process: BrokerProcess, client: str, work: str, job: Job) -> Measured | None:
    if work in PRODUCING:
        admin.create_topics(process.port, {job.topic: PARTITIONS})
    try:
        one = run(client, work, job)
    except (RuntimeError, subprocess.TimeoutExpired) as error:
        say(f"{client} {work} {job.size} B failed: {error}")
        return None
    say(f"{client} {work} {job.size} B: {one.rate:,.0f}/s, {one.cpu_s_per_million:.3f} CPU-s/M")
    return one


def median(found: dict[Key, list[Measured]], key: Key) -> tuple[float, float] | None:
    """Messages per second, and CPU seconds a million."""
    runs = found.get(key)
    if not runs:
        return None
    return (statistics.median(one.rate for one in runs),
            statistics.median(one.cpu_s_per_million for one in runs))  # fmt: skip


def beside(found: dict[Key, list[Measured]], client: str, work: str, size: int) -> float | None:
    """Messages per CPU second, in confluent-kafka's at the work that this one is held against."""
    ours = median(found, (client, work, size))
    theirs = median(found, (BESIDE, TARGETS.get(work, ("iterate", 0))[0], size))
    return theirs[1] / ours[1] if ours and theirs else None


def cell(found: dict[Key, list[Measured]], client: str, work: str, size: int) -> str:
    one = median(found, (client, work, size))
    if one is None:
        return "-"
    times = beside(found, client, work, size)
    return f"{one[0]:,.0f}; {one[1]:.2f}" + (f"; {times:.2g}x" if times else "")


def verdict(found: dict[Key, list[Measured]], work: str, size: int) -> str:
    """How much more this client does in a CPU second than confluent-kafka, and the target."""
    if work not in TARGETS:
        return ""
    of, least = TARGETS[work]
    times = beside(found, "kbroker", work, size)
    if times is None:
        return "not measured"
    told = f"{times:.1f}x, at least {least}x {of}"
    return told if times >= least else f"**{told}: missed**"


def table(found: dict[Key, list[Measured]]) -> str:
    lines = [
        f"| messages/s; CPU-s a million; x | {' | '.join(CLIENTS.values())} | target |",
        "|---" * (len(CLIENTS) + 2) + "|",
    ]
    for work, title in TITLES.items():
        for size in SIZES:
            cells = " | ".join(cell(found, client, work, size) for client in CLIENTS)
            lines.append(f"| {title}, {size:,} B | {cells} | {verdict(found, work, size)} |")
    return "\n".join(lines)


def memory(millions: int) -> list[str]:
    """What this client held on the way through so many messages of 100 B."""
    lines = [f"| resident MB after millions of messages of {SIZES[0]} B | at the beginning | "
             + " | ".join(f"{millions * part / PARTS:g}" for part in range(1, PARTS + 1)) + " |",
             "|---" * (PARTS + 2) + "|"]  # fmt: skip
    with running() as process:
        for work in TARGETS:
            topic = f"{work}-memory" if work in PRODUCING else "send_batch-memory"
            if work in PRODUCING:
                admin.create_topics(process.port, {topic: PARTITIONS})
            count = millions * 1_000_000 - 2 * READ_MESSAGES * (work not in PRODUCING)
            job = Job(process.bootstrap, topic, SIZES[0], count)
            held = run("kbroker", work, job, MEMORY_TIMEOUT_S).rss_kb
            lines.append(f"| {work} | {' | '.join(f'{kb / 1024:.0f}' for kb in held)} |")
            say(lines[-1])
    return lines


def where(told: argparse.Namespace, before: float, rounds: int) -> str:
    """Of what the table tells."""
    return (
        f"`python -m perf.client` on {machine()}, load average before: {before:.1f}; medians of"
        f" {rounds} rounds in one sitting, {told.scale:g} of the messages. x: messages per CPU"
        " second beside confluent-kafka's, of send or of iterate. Same batching for all"
        " (131,072 B, 5 ms), acks=all, idempotence; confluent-kafka consumes by `consume(10000)`,"
        " kafka-python with receive_message_max_bytes raised to 64 MiB, without which it reads"
        " nothing (perf/README.md). bare socket: requests made beforehand, answers not looked at."
        " `-`: it has none, or did not end in time."
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m perf.client")
    parser.add_argument("--client", action="append", choices=list(CLIENTS))
    parser.add_argument("--work", action="append", choices=list(TITLES))
    parser.add_argument("--bytes", action="append", type=int, choices=SIZES)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0, help="of the numbers of messages")
    parser.add_argument("--minutes", type=float, default=6.0, help="after which none begins")
    parser.add_argument("--memory", type=int, metavar="MILLIONS", default=0)
    parser.add_argument("--readme", action="store_true", help="put what was found into README.md")
    told = parser.parse_args()
    told.client = told.client or list(CLIENTS)
    told.work = told.work or list(TITLES)
    told.bytes = told.bytes or list(SIZES)
    before = os.getloadavg()[0]
    if told.memory:
        name, parts = "perf.client.memory", ["\n".join(memory(told.memory))]
    else:
        found = measure(told)
        rounds = max(map(len, found.values()), default=0)
        name, parts = "perf.client", [where(told, before, rounds), table(found)]
    text = "\n\n".join(parts) + "\n"
    print(text)
    if told.readme:
        replace_in_readme(text, name)


if __name__ == "__main__":
    main()
