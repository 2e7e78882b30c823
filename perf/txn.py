"""Transactions: how many a second one producer ends and what each costs, beside Apache Kafka.

    python -m perf.txn [--rounds N] [--seconds S] [--figure NAME]... [--readme]

    write  one producer, 1, 10 and 100 records of 1 KB over 4 partitions in each transaction, one
           after the other: transactions per second, the broker's CPU for each, p99 of the commit
           (EndTxn to its answer) and of all of it (first record to the commit's answer); durable,
           for which Kafka flushes every message, and in the page cache
    read   a log of which 1% of the transactions were aborted: CPU for a GB that a reader of what is
           committed costs, beside a reader of everything
    load   a start with 1,000,000 records of 10,000 transactional ids: until each partition is
           answered for, and how a record goes through another topic meanwhile, beside as long after

The producer speaks version 2 of the protocol (KIP-890) and costs next to nothing itself. All four
brokers run all the time, one of them is measured at a time, all in turn; each of `load` runs alone.
A sitting takes five minutes; nothing else may run meanwhile.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

from perf import admin, lifecycle, txn_load
from perf.filling import loaded_after
from perf.native import is_sound, load, program
from perf.report import machine, replace_in_readme
from perf.series import say
from perf.systems import BY_NAME as SYSTEMS
from perf.systems import Unavailable
from perf.txn_wire import Load, Timed, TxnProducer
from tests.support.processes import BrokerProcess

PARTITIONS, RECORD_BYTES = 4, 1024
RECORDS = (1, 10, 100)
ROUNDS, SECONDS = 3, 3.0
#: A Java VM is warm after some thousand transactions; kbroker has nothing to warm.
WARM_S = {"kafka": 10.0, "kafka-flush": 10.0, "kbroker-page-cache": 2.0, "kbroker-fsync": 2.0}
PAIRS = {"fsync": ("kbroker-fsync", "kafka-flush"),
         "page-cache": ("kbroker-page-cache", "kafka")}  # fmt: skip
TOPIC, READ_TOPIC = "txn", "aborted"

READ_TRANSACTIONS, READ_RECORDS, ABORTED_OF = 20_000, 10, 100
FILL_S, READ_S = 20.0, 1.5
READ_BYTES = 1 << 20

CPU_AT_MOST, READ_AT_MOST, LOAD_AT_MOST_S = 1 / 3, 1.1, 3
LOAD_TIMEOUT_S = 180.0

Key = tuple[str, int]


class Figures(NamedTuple):
    """Of one broker, of one round or the medians of all."""

    rate: float
    cpu_us: float
    p99_commit_ms: float
    p99_all_ms: float


class Bench:
    """A broker and its producer."""

    def __init__(self, process: BrokerProcess) -> None:
        self.process = process
        admin.create_topics(process.port, {TOPIC: PARTITIONS, READ_TOPIC: PARTITIONS})
        self.producer = TxnProducer(process.port, TOPIC)
        self.producer.init()
        self._loads = {records: self.load(TOPIC, records) for records in RECORDS}

    def load(self, topic: str, records: int) -> Load:
        return self.producer.load(topic, range(PARTITIONS), records, RECORD_BYTES)

    def transactions(self, records: int, seconds: float) -> Iterator[Timed]:
        """For so long, at least one."""
        until = time.perf_counter() + seconds
        while True:
            one = self.producer.transact(self._loads[records])
            yield one
            if one.ended >= until:
                return

    def measure(self, records: int, seconds: float) -> Figures:
        before, begun = lifecycle.cpu_seconds(self.process.pid), time.perf_counter()
        took = list(self.transactions(records, seconds))
        spent = lifecycle.cpu_seconds(self.process.pid) - before
        return Figures(
            len(took) / (time.perf_counter() - begun),
            spent / len(took) * 1e6,
            p99_ms([one.ended - one.ending for one in took]),
            p99_ms([one.ended - one.begun for one in took]),
        )


def p99_ms(seconds: Sequence[float]) -> float:
    """The greatest of a few."""
    if len(seconds) < 100:
        return max(seconds) * 1000
    return statistics.quantiles(seconds, n=100)[98] * 1000


@contextmanager
def running(names: Sequence[str]) -> Iterator[dict[str, Bench]]:
    """Brokers, warm; all gone at the end. One that this machine cannot run is told and missing."""
    with ExitStack() as stack:
        benches = {}
        for name in names:
            try:
                benches[name] = Bench(stack.enter_context(lifecycle.running(SYSTEMS[name], "txn")))
            except Unavailable as reason:
                say(str(reason))
        for name, bench in benches.items():
            for records in RECORDS:
                for _ in bench.transactions(records, WARM_S[name] / len(RECORDS)):
                    pass
        yield benches


# ---- the figures


def write(benches: Mapping[str, Bench], rounds: int, seconds: float) -> list[str]:
    """Every cell of every broker in turn, round after round."""
    found: dict[Key, list[Figures]] = defaultdict(list)
    for _ in range(rounds):
        for records in RECORDS:
            for name, bench in benches.items():
                one = bench.measure(records, seconds)
                found[name, records].append(one)
                say(f"{name}, {records} records: {text(one)}")
    for name, bench in benches.items():
        if bench.producer.retries:
            say(f"{name}: asked again {bench.producer.retries} times")
    medians = {
        key: Figures(*(statistics.median(values) for values in zip(*of_rounds, strict=True)))
        for key, of_rounds in found.items()
    }
    return write_table(medians)


def text(one: Figures | None) -> str:
    if one is None:
        return "-"
    return (f"{one.rate:,.0f}/s; {one.cpu_us:,.0f} us; {one.p99_commit_ms:.2f} ms;"
            f" {one.p99_all_ms:.2f} ms")  # fmt: skip


def write_table(medians: Mapping[Key, Figures]) -> list[str]:
    lines = [
        "| transactions of one producer, records of 1 KB over 4 partitions: a second; broker's CPU"
        " for each; p99 of the commit; p99 of all of it | kbroker | Apache Kafka 4.3 | rate: at"
        " least 1x; CPU: at most 0.33x; p99 of the commit: at most 1x |",
        "|---|---|---|---|",
    ]
    for durability, (ours, theirs) in PAIRS.items():
        for records in RECORDS:
            mine, other = medians.get((ours, records)), medians.get((theirs, records))
            what = f"{records} record{'s' * (records > 1)}, {durability}"
            lines.append(f"| {what} | {text(mine)} | {text(other)} | {verdicts(mine, other)} |")
    return lines


def verdicts(mine: Figures | None, other: Figures | None) -> str:
    if mine is None or other is None:
        return "not measured"
    rate, cpu = mine.rate / other.rate, mine.cpu_us / other.cpu_us
    p99 = mine.p99_commit_ms / other.p99_commit_ms
    held = [(rate, rate >= 1), (cpu, cpu <= CPU_AT_MOST), (p99, p99 <= 1)]
    return "; ".join(f"{x:.2f}x" if good else f"**{x:.2f}x: missed**" for x, good in held)


def read(benches: Mapping[str, Bench], rounds: int, _seconds: float) -> list[str]:
    """In the page cache. The reader goes over the log from its beginning, over and over."""
    program("load")
    lines = [
        "| reading, 1% of the transactions aborted | everything | what is committed | at most"
        f" {READ_AT_MOST:g}x |",
        "|---|---|---|---|",
    ]
    for name in PAIRS["page-cache"]:
        if name not in benches:
            continue
        fill(name, benches[name])
        spent: dict[str, list[float]] = {"": [], "committed": []}
        for _ in range(2 * rounds + 1):  # they are short, and nearly the same
            for isolation, figures in spent.items():
                figures.append(fetch(benches[name].process, isolation))
        every, committed = (statistics.median(figures) for figures in spent.values())
        ratio = f"{committed / every:.3f}x"
        if name.startswith("kbroker") and committed > every * READ_AT_MOST:
            ratio = f"**{ratio}: missed**"
        say(f"{name}: {spent}")
        lines.append(f"| {SYSTEMS[name].title} | {every:.3f} CPU-s/GB | {committed:.3f} CPU-s/GB"
                     f" | {ratio} |")  # fmt: skip
        say(lines[-1])
    return lines


def fill(name: str, bench: Bench) -> None:
    """As many transactions as there is time for; every hundredth is aborted."""
    one = bench.load(READ_TOPIC, READ_RECORDS)
    until, written = time.monotonic() + FILL_S, 0
    while written < READ_TRANSACTIONS and (time.monotonic() < until or written < 2 * ABORTED_OF):
        bench.producer.transact(one, commit=written % ABORTED_OF != ABORTED_OF // 2)
        written += 1
    say(f"{name}: {written:,} transactions of {READ_RECORDS} records to read")


def fetch(process: BrokerProcess, isolation: str) -> float:
    """CPU seconds of the broker for a GB."""
    options = [READ_TOPIC, PARTITIONS, PARTITIONS, READ_BYTES, *([isolation] if isolation else [])]
    figures = load("fetch", process.port, process.pid, READ_S, *options)
    if not is_sound(figures):
        raise RuntimeError(f"fetch: errors {figures['errors']}, lost {figures['lost']}")
    return figures["cpu_s_gb"]


def load_states(names: Sequence[str]) -> list[str]:
    """Each broker alone, in the page cache, from its first answer on."""
    lines = [
        f"| {txn_load.RECORDS:,} records of {txn_load.IDS:,} transactional ids loaded | until the"
        f" last partition is answered for, at most {LOAD_AT_MOST_S} s | records through another"
        " topic meanwhile, the longest | as long afterwards |",
        "|---|---|---|---|",
    ]
    for name in PAIRS["page-cache"]:
        if name in names:
            try:
                lines.append(load_row(name))
            except Unavailable as reason:
                say(str(reason))
    return lines


def load_row(name: str) -> str:
    with lifecycle.running(SYSTEMS[name], "txn-load") as process:
        txn_load.prepare(process, LOAD_TIMEOUT_S)
        process.start()
        with txn_load.Through(process.port) as through:
            begun = time.perf_counter()
            names = txn_load.one_of_each_partition()
            seconds = loaded_after(process, names, txn_load.is_loading, LOAD_TIMEOUT_S)
            loaded = time.perf_counter()
            time.sleep(seconds)
            meanwhile = through.rounds(begun, loaded)
            after = through.rounds(loaded, loaded + seconds)
    took = f"{seconds:.2f} s"
    if name.startswith("kbroker") and seconds > LOAD_AT_MOST_S:
        took = f"**{took}: missed**"
    cells = [f"{one.count:,}; {one.longest_ms:.1f} ms" for one in (meanwhile, after)]
    row = f"| {SYSTEMS[name].title} | {took} | {cells[0]} | {cells[1]} |"
    say(row)
    return row


FIGURES: dict[str, Callable[[Mapping[str, Bench], int, float], list[str]]] = {
    "write": write,
    "read": read,
}
ALONE: dict[str, Callable[[Sequence[str]], list[str]]] = {"load": load_states}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m perf.txn")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of each cell of a round")
    parser.add_argument("--figure", action="append", choices=[*FIGURES, *ALONE])
    parser.add_argument("--system", action="append", choices=list(WARM_S))
    parser.add_argument("--readme", action="store_true", help="put the tables into README.md")
    told = parser.parse_args()
    before = os.getloadavg()[0]
    asked, names = told.figure or [*FIGURES, *ALONE], told.system or list(WARM_S)
    tables = ["\n".join(ALONE[figure](names)) for figure in asked if figure in ALONE]
    if beside := [figure for figure in asked if figure in FIGURES]:
        with running(names) as benches:
            tables = [
                *("\n".join(FIGURES[one](benches, told.rounds, told.seconds)) for one in beside),
                *tables,
            ]
    command = "`python -m perf.txn --readme`"
    where = (
        f"{command} on {machine()}, at nice {os.nice(0)}, load average before: {before:.1f};"
        f" medians of {told.rounds} rounds of {told.seconds:g} s. fsync: Kafka with"
        " `log.flush.interval.messages=1`."
    )
    report = "\n\n".join([where, *tables]) + "\n"
    print(report)
    if told.readme:
        replace_in_readme(report, "perf.txn")


if __name__ == "__main__":
    main()
