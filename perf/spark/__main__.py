"""The data source beside Spark's own connector, on the same topic of the same kbroker.

    python -m perf.spark [--megabytes N] [--record BYTES]... [--partitions N] [--threads N]
                         [--source NAME]... [--work NAME]... [--turns N] [--per-trigger N]

Works: count; sum of a number parsed out of each value; parquet, everything written to files;
stream, micro-batches of --per-trigger rows. Each source and work runs in a Spark of its own
(perf.spark.job), in turn; figures are medians of the turns, after a small run that warms up. The
connector's jars are fetched by Maven (examples/pipeline/connector.py). With the defaults it is a
look of some minutes; the whole is --megabytes 5000 --record 1000 --record 100.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from examples.pipeline import connector
from kbroker.client import Admin, Producer
from perf.lifecycle import empty_home
from perf.native import ROOT
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
    """What a Spark told; its messages go on to stderr."""
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    told = subprocess.run(
        [sys.executable, "-m", "perf.spark.job", json.dumps(job)],
        stdout=subprocess.PIPE,
        check=True,
        cwd=ROOT,
        env=dict(os.environ, PYTHONPATH=path, PYSPARK_PYTHON=sys.executable),
        timeout=TIMEOUT_S,
    )
    found: dict[str, Any] = json.loads(told.stdout.splitlines()[-1])
    return found


def line(job: dict[str, Any], told: dict[str, Any]) -> str:
    """One row of the table."""
    runs = told["runs"]
    rows = runs[0]["rows"]
    wall_s = statistics.median(one["wall_s"] for one in runs)
    cpu_s = statistics.median(one["cpu_s"] for one in runs)
    first = f" | {told['first_s']:.2f}" if "first_s" in told else " |"
    return (
        f"| {job['size']} B | {job['work']} | {job['source']} | {rows:,} | {rows / wall_s:,.0f} |"
        f" {cpu_s:.1f} | {rows / cpu_s:,.0f}{first} |"
    )


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
    given = parser.parse_args()
    sources = given.source or SOURCES
    jars = [str(path) for path in connector.jars()] if "kafka" in sources else []
    print("| record | work | source | rows | rows/s | CPU s | rows per CPU s | first batch, s |")
    print("|---|---|---|---|---|---|---|---|")
    with empty_home("spark") as home, _running(home) as broker:
        for size in given.record or (1000,):
            topic = f"of-{size}"
            records = given.megabytes * 1_000_000 // size
            fill(broker.bootstrap, topic, records=records, size=size, partitions=given.partitions)
            for work in given.work or WORKS:
                for source in sources:
                    job = {
                        "source": source, "work": work, "size": size, "topic": topic,
                        "bootstrap": broker.bootstrap, "partitions": given.partitions,
                        "threads": given.threads, "turns": given.turns, "jars": jars,
                        "per_trigger": given.per_trigger, "records": records,
                    }  # fmt: skip
                    print(line(job, run(job)), flush=True)


if __name__ == "__main__":
    main()
