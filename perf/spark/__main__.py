"""The data source beside Spark's own connector, on the same topic of the same kbroker.

    python -m perf.spark [--megabytes N] [--record BYTES]... [--partitions N] [--threads N]
                         [--source NAME]... [--work NAME]... [--turns N] [--per-trigger N]
                         [--readme]

Works: count; sum of a number parsed out of each value; parquet, everything written to files;
stream, micro-batches of --per-trigger rows. Each source and work runs in a Spark of its own
(perf.spark.job), in turn; figures are medians of the turns, after a small run that warms up. The
connector's jars are fetched by Maven (examples/pipeline/connector.py). With the defaults it is a
look of some minutes; the whole is --megabytes 5000 --record 1000 --record 100 --readme.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from examples.pipeline import connector
from kbroker.client import Admin, Producer
from perf.lifecycle import empty_home
from perf.native import ROOT
from perf.report import machine, replace_in_readme
from perf.spark.job import DIGITS
from tests.support.kbroker import KbrokerProcess

SOURCES = ("kafka", "kbroker")
WORKS = ("count", "sum", "parquet", "stream")
CHUNK = 20_000
TIMEOUT_S = 3600


def _values(first: int, count: int, size: int) -> Iterator[bytes]:
    """Numbers in digits, then bytes that do not compress to nothing."""
    noise = os.urandom(size // 2).hex().encode()[: size - DIGITS]
    for n in range(first, first + count):
        yield b"%0*d" % (DIGITS, n) + noise


def fill(bootstrap: str, topic: str, *, records: int, size: int, partitions: int) -> None:
    """Records 0, 1, ... without keys, in runs to each partition in turn."""
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topic(topic, partitions=partitions)
    with Producer(bootstrap_servers=bootstrap, batch_size=65536) as producer:
        chunk = min(CHUNK, max(records // (4 * partitions), 1))
        for turn, first in enumerate(range(0, records, chunk)):
            values = [*_values(first, min(chunk, records - first), size)]
            producer.send_batch(topic, values, partition=turn % partitions)


def run(job: dict[str, Any]) -> dict[str, Any]:
    """What a Spark told; its messages go on to stderr. Python keeps what it compiled, whatever this
    one was told: else each of Spark's processes would compile all modules anew."""
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    kept = {name: text for name, text in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    told = subprocess.run(
        [sys.executable, "-m", "perf.spark.job", json.dumps(job)],
        stdout=subprocess.PIPE,
        check=True,
        cwd=ROOT,
        env=dict(kept, PYTHONPATH=path, PYSPARK_PYTHON=sys.executable),
        timeout=TIMEOUT_S,
    )
    found: dict[str, Any] = json.loads(told.stdout.splitlines()[-1])
    return found


def middle(told: dict[str, Any], name: str) -> float:
    """Of the turns."""
    return statistics.median(one[name] for one in told["runs"])


def line(size: int, work: str, found: dict[str, dict[str, Any]]) -> str:
    """One row of the table: both sources, the data source beside the connector."""
    rows = next(iter(found.values()))["runs"][0]["rows"]

    def cells(of: Callable[[dict[str, Any]], str]) -> str:
        return " | ".join(of(found[source]) if source in found else "" for source in SOURCES)

    def per_cpu_s(told: dict[str, Any]) -> float:
        return float(rows / middle(told, "cpu_s"))

    both = found.keys() >= {*SOURCES}
    ratio = f"{per_cpu_s(found['kbroker']) / per_cpu_s(found['kafka']):.2f}x" if both else ""
    rates = cells(lambda told: f"{rows / middle(told, 'wall_s'):,.0f}")
    costs = cells(lambda told: f"{per_cpu_s(told):,.0f}")
    firsts = cells(lambda told: f"{told['first_s']:.1f}" if "first_s" in told else "")
    return f"| {size} B | {work} | {rows:,} | {rates} | {costs} | {ratio} | {firsts} |"


@contextmanager
def _running(home: Path) -> Iterator[KbrokerProcess]:
    broker = KbrokerProcess(home)
    broker.start()
    try:
        yield broker
    finally:
        broker.stop()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m perf.spark")
    parser.add_argument("--megabytes", type=int, default=200)
    parser.add_argument("--record", type=int, action="append")
    parser.add_argument("--partitions", type=int, default=8)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--source", choices=SOURCES, action="append")
    parser.add_argument("--work", choices=WORKS, action="append")
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--per-trigger", type=int, default=1_000_000)
    parser.add_argument("--readme", action="store_true", help="put the table into README.md")
    given = parser.parse_args()
    before = os.getloadavg()[0]
    lines = [
        "| record | work | rows | `kafka` rows/s | `kbroker` rows/s | `kafka` rows per CPU s |"
        " `kbroker` rows per CPU s | x | `kafka` first batch, s | `kbroker` first batch, s |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    print("\n".join(lines), flush=True)
    for size in given.record or (1000,):
        for one in measured(given, size):
            print(one, flush=True)
            lines.append(one)
    if given.readme:
        where = (
            f"`python -m perf.spark` on {machine()}, load average before: {before:.1f}; PySpark"
            f" {version('pyspark')}, local[{given.threads}], {given.megabytes:,} MB in"
            f" {given.partitions} partitions, medians of {given.turns} turns; CPU of the JVM and of"
            " Python's workers together."
        )
        replace_in_readme("\n".join([where, "", *lines, ""]), "perf.spark")


def measured(given: argparse.Namespace, size: int) -> Iterator[str]:
    """A row for each work with records of this size, in a broker of their own."""
    sources = given.source or SOURCES
    jars = [str(path) for path in connector.jars()] if "kafka" in sources else []
    with empty_home("spark") as home, _running(home) as broker:
        topic = f"of-{size}"
        records = given.megabytes * 1_000_000 // size
        fill(broker.bootstrap, topic, records=records, size=size, partitions=given.partitions)
        for work in given.work or WORKS:
            found = {}
            for source in sources:
                job = {
                    "source": source, "work": work, "size": size, "topic": topic,
                    "bootstrap": broker.bootstrap, "partitions": given.partitions,
                    "threads": given.threads, "turns": given.turns, "jars": jars,
                    "per_trigger": given.per_trigger, "records": records, "home": str(home),
                }  # fmt: skip
                found[source] = run(job)
            yield line(size, work, found)


if __name__ == "__main__":
    main()
