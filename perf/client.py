"""Python clients of Kafka beside each other, against the same kbroker.

    python -m perf.client [--client NAME]... [--work NAME]... [--bytes N]... [--rounds N]
                          [--scale X] [--memory MILLIONS] [--readme]

Each work runs in a process of its own (perf.client_load), all clients in turn, round after round;
the figures are medians. CPU seconds are the client process's, user and system, all its threads.
--memory sends and reads so many million messages of 100 B with this client, and tells how much
memory it held at the beginning and at the end. Nothing else may run meanwhile.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from perf import admin
from perf.client_load import CHUNK, PARTITIONS, READ_MESSAGES, WORKS, Job
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
}
SIZES = (100, 1000)
TIMEOUT_S = 120

#: Messages of 100 B in one go: some seconds for each client. Of 1 KB it is a quarter.
COUNTS = {
    ("kbroker", "send"): 2_000_000,
    ("kbroker", "send_batch"): 6_000_000,
    ("kbroker", "iterate"): 3_000_000,
    ("kbroker", "poll_batch"): 6_000_000,
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
TITLES = {
    "send": "produce one by one",
    "send_batch": "produce in batches",
    "iterate": "consume by iteration",
    "poll_batch": "consume in batches",
}


class Measured(NamedTuple):
    """One run."""

    messages: int
    seconds: float
    cpu_s: float
    rss_begin_kb: int
    rss_end_kb: int

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


def run(client: str, work: str, job: Job) -> Measured:
    """A process of the client at its work."""
    command = [sys.executable, "-m", "perf.client_load", client, work, *map(str, job)]
    done = subprocess.run(
        command, cwd=ROOT, check=False, capture_output=True, text=True, timeout=TIMEOUT_S
    )
    if done.returncode != 0:
        raise RuntimeError(f"{client} {work}: {done.stderr[-2000:]}")
    return Measured(**json.loads(done.stdout.splitlines()[-1]))


def count_of(client: str, work: str, size: int, scale: float) -> int:
    count = COUNTS[client, work] * scale
    return max(int(count if size == SIZES[0] else count / LARGE_SHARE), CHUNK)


def measure(told: argparse.Namespace) -> dict[Key, list[Measured]]:
    """Every client at every work in turn; what fails is told and has no figure."""
    found: dict[Key, list[Measured]] = {}
    with running() as process:
        for size in told.bytes:
            pairs = [(c, work) for work in told.work for c in told.client if (c, work) in WORKS]
            fill(process, size, pairs, told.scale)
            for turn in range(told.rounds):
                for client, work in pairs:
                    topic = f"{client}-{work}-{size}-{turn}" if work in PRODUCING else stored(size)
                    job = Job(
                        process.bootstrap, topic, size, count_of(client, work, size, told.scale)
                    )
                    one = attempt(process, client, work, job)
                    if one is not None:
                        found.setdefault((client, work, size), []).append(one)
    return found


def stored(size: int) -> str:
    return f"stored-{size}"


def fill(process: BrokerProcess, size: int, pairs: Sequence[tuple[str, str]], scale: float) -> None:
    """Messages to be read, by the client whose batches are the largest."""
    most = max((count_of(*pair, size, scale) for pair in pairs if pair[1] not in PRODUCING),
               default=0)  # fmt: skip
    if most:
        admin.create_topics(process.port, {stored(size): PARTITIONS})
        run("kbroker", "send_batch", Job(process.bootstrap, stored(size), size, most + 2 * CHUNK))


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


def cell(runs: Sequence[Measured] | None) -> str:
    if not runs:
        return "-"
    rate = statistics.median(one.rate for one in runs)
    cost = statistics.median(one.cpu_s_per_million for one in runs)
    return f"{rate:,.0f}; {cost:.2f}"


def verdict(found: dict[Key, list[Measured]], work: str, size: int) -> str:
    """How much more this client does in a CPU second than confluent-kafka, and the target."""
    of, least = TARGETS[work]
    ours = found.get(("kbroker", work, size))
    theirs = found.get(("confluent-kafka", of, size))
    if not ours or not theirs:
        return "not measured"
    times = statistics.median(one.cpu_s_per_million for one in theirs) / statistics.median(
        one.cpu_s_per_million for one in ours
    )
    told = f"{times:.1f}x, at least {least}x {of}"
    return told if times >= least else f"**{told}: missed**"


def table(found: dict[Key, list[Measured]]) -> str:
    lines = [
        f"| messages/s; CPU-s a million | {' | '.join(CLIENTS.values())} | target |",
        "|---" * (len(CLIENTS) + 2) + "|",
    ]
    for work, title in TITLES.items():
        for size in SIZES:
            runs = [found.get((client, work, size)) for client in CLIENTS]
            cells = " | ".join(cell(one) for one in runs)
            lines.append(f"| {title}, {size:,} B | {cells} | {verdict(found, work, size)} |")
    return "\n".join(lines)


def memory(millions: int) -> list[str]:
    """What this client held before and after so many messages of 100 B."""
    lines = []
    with running() as process:
        for work in TITLES:
            topic = f"{work}-memory" if work in PRODUCING else "send_batch-memory"
            if work in PRODUCING:
                admin.create_topics(process.port, {topic: PARTITIONS})
            count = millions * 1_000_000 - 2 * READ_MESSAGES * (work not in PRODUCING)
            one = run("kbroker", work, Job(process.bootstrap, topic, SIZES[0], count))
            lines.append(
                f"{work}: {one.messages:,} messages, {one.rss_begin_kb / 1024:.0f} MB resident"
                f" at the beginning, {one.rss_end_kb / 1024:.0f} MB at the end"
            )
            say(lines[-1])
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m perf.client")
    parser.add_argument("--client", action="append", choices=list(CLIENTS))
    parser.add_argument("--work", action="append", choices=list(TITLES))
    parser.add_argument("--bytes", action="append", type=int, choices=SIZES)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0, help="of the numbers of messages")
    parser.add_argument("--memory", type=int, metavar="MILLIONS", default=0)
    parser.add_argument("--readme", action="store_true", help="put the table into README.md")
    told = parser.parse_args()
    told.client = told.client or list(CLIENTS)
    told.work = told.work or list(TITLES)
    told.bytes = told.bytes or list(SIZES)
    before = os.getloadavg()[0]
    found = measure(told)
    text = table(found)
    print(text)
    lines = memory(told.memory) if told.memory else []
    if told.readme:
        where = (
            f"`python -m perf.client` on {machine()}, load average before: {before:.1f}; medians"
            f" of {told.rounds} rounds in one sitting, {told.scale:g} of the messages."
            " Same batching for all (131,072 B, 5 ms), acks=all, idempotence; confluent-kafka"
            " consumes by `consume(10000)`; kafka-python reads with receive_message_max_bytes"
            " raised to 64 MiB, without which it reads nothing (perf/README.md)."
        )
        parts = [where, text, *lines]
        replace_in_readme("\n\n".join(parts) + "\n", "perf.client")


if __name__ == "__main__":
    main()
