"""What compaction costs, beside Apache Kafka's own cleaner on the same files.

    python -m perf.cleaner [--mb MB] [--rounds N] [--shape SHAPE]... [--readme]

Each shape is MB (1024 unless told) of keyed records, each key about five times, in segments of
64 MiB. For every round the folder is copied, and all but its active segment is cleaned: once by
kbroker.ext.cleaner, once by Kafka's Cleaner (perf/CompactLog.java, with the flags of its start
script), which before has cleaned another copy that does not count, so that its code is compiled.
CPU is all threads of the process, from before the first pass to after the last swap; GB are bytes
read by the second pass. Medians; the page cache is as it is. What both leave is compared.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import statistics
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

from kbroker.ext import records
from kbroker.ext.cleaner import Cleaner, Throttle, survey
from kbroker.ext.log import Log
from perf.native import BUILD
from perf.report import machine, replace_in_readme
from perf.systems import KAFKA_JVM
from tests.support.java import java, kafka_libs, log4j_config
from tests.support.logs import CONFIG

NOW_MS = 1_700_000_000_000
MAP_BYTES = 128 << 20
SEGMENT_BYTES = 64 << 20
TIMES_A_KEY = 5
CPU_AT_MOST = 0.5                       # of Kafka's


class Shape(NamedTuple):
    """Records of `value_bytes`, so many in a batch, in a codec."""

    title: str
    value_bytes: int
    records_a_batch: int
    codec: str = "none"


SHAPES = {
    "kb1": Shape("16 records of 1 KB", 1024, 16),
    "b100": Shape("100 records of 100 B", 100, 100),
    "snappy": Shape("16 records of 1 KB, snappy", 1024, 16, "snappy"),
    "lz4": Shape("16 records of 1 KB, lz4", 1024, 16, "lz4"),
    "zstd": Shape("16 records of 1 KB, zstd", 1024, 16, "zstd"),
    "gzip": Shape("16 records of 1 KB, gzip", 1024, 16, "gzip"),
}

HEAD = (
    "| batches | kbroker CPU-s/GB | Apache Kafka 4.3 CPU-s/GB | CPU beside Kafka's "
    "| kbroker s/GB | Kafka s/GB |",
    "|---|---|---|---|---|---|",
)


class Figure(NamedTuple):
    """One cleaning."""

    cpu_s: float
    wall_s: float
    read_bytes: int


def open_log(folder: Path) -> Log:
    more = {"segment_bytes": SEGMENT_BYTES, "cleanup_compact": 1, "cleanup_delete": 0}
    return Log(str(folder), "perf", bytes(16), 0, CONFIG | more, clean=True, durable=False)


def fill(folder: Path, shape: Shape, size: int) -> None:
    """A log of `size` bytes, whose last segment is active and empty."""
    dice = random.Random(1)
    words = [dice.randbytes(6).hex().encode() for _ in range(2000)]
    log = open_log(folder)
    keys = max(1, size // (shape.value_bytes + 30) // TIMES_A_KEY)
    text = b" ".join(dice.choice(words) for _ in range(100_000))
    while log.log_end_offset == 0 or log.size_bytes < size:
        rows = []
        for _ in range(shape.records_a_batch):
            at = dice.randrange(len(text) - shape.value_bytes)
            value = text[at : at + shape.value_bytes]
            rows.append((NOW_MS, b"key-%012d" % dice.randrange(keys), value))
        log.append(records.build(rows, codec=shape.codec), leader_epoch=0)
    log.roll()
    log.close()


def kbroker(folder: Path) -> Figure:
    log = open_log(folder)
    found = survey(log, None, NOW_MS)
    assert found is not None
    hands = Cleaner(Throttle(1e300), map_bytes=MAP_BYTES, load_factor=0.9, io_bytes=256 * 1024)
    cpu, began = time.process_time(), time.monotonic()
    done = hands.clean(log, found, NOW_MS)
    figure = Figure(time.process_time() - cpu, time.monotonic() - began, done.read_bytes)
    assert done.end_offset == log.log_end_offset, "the map was too small for the comparison"
    log.unlink_deleted(at_once=True)
    log.close()
    return figure


def kafka(warm: Path, folder: Path) -> Figure:
    done = subprocess.run(
        [java(), *KAFKA_JVM, f"-Dlog4j2.configurationFile={log4j_config()}", "-cp",
         f"{kafka_libs()}/*", str(Path(__file__).with_name("CompactLog.java")), "warm", str(NOW_MS),
         str(MAP_BYTES), str(warm), str(folder), f"segment.bytes={SEGMENT_BYTES}"],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    _, cpu_ns, wall_ns, read_bytes = (int(line) for line in done.stdout.split()[-4:])
    return Figure(cpu_ns / 1e9, wall_ns / 1e9, read_bytes)


def content(folder: Path) -> list[tuple[int, bytes | None, bytes | None]]:
    found = []
    for path in sorted(folder.glob("*.log")):
        found += [(one.offset, one.key, one.value) for one in records.read(path.read_bytes())]
    return found


def measure(name: str, size: int, rounds: int) -> str:
    """A line of the table."""
    home = BUILD / "cleaner"
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    source = home / "source" / "perf-0"
    source.parent.mkdir()
    fill(source, SHAPES[name], size)
    figures: dict[str, list[Figure]] = {"kbroker": [], "kafka": []}
    for _ in range(rounds):
        ours, theirs, warm = (home / one / "perf-0" for one in ("kbroker", "kafka", "warm"))
        for copy in (ours, theirs, warm):
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(source, copy)
        os.sync()
        figures["kbroker"].append(kbroker(ours))
        os.sync()
        figures["kafka"].append(kafka(warm, theirs))
        assert content(ours) == content(theirs)
    shutil.rmtree(home)

    def cost(system: str) -> tuple[float, float]:
        """CPU seconds and seconds a GB."""
        return (
            statistics.median(one.cpu_s / one.read_bytes * 1e9 for one in figures[system]),
            statistics.median(one.wall_s / one.read_bytes * 1e9 for one in figures[system]),
        )

    (mine, mine_s), (other, other_s) = cost("kbroker"), cost("kafka")
    return (f"| {SHAPES[name].title} | {mine:.2f} | {other:.2f} | {verdict(mine / other)} "
            f"| {mine_s:.1f} | {other_s:.1f} |")  # fmt: skip


def verdict(ratio: float) -> str:
    """What is missed stands out."""
    told = f"{ratio:.2f}x, at most {CPU_AT_MOST:g}x"
    return told if ratio <= CPU_AT_MOST else f"**{told}: missed**"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m perf.cleaner")
    parser.add_argument("--mb", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--shape", action="append", choices=sorted(SHAPES))
    parser.add_argument("--readme", action="store_true", help="put the table into README.md")
    told = parser.parse_args()
    busy_before = os.getloadavg()[0]
    lines = list(HEAD)
    print(*HEAD, sep="\n")
    for name in told.shape or SHAPES:
        lines.append(measure(name, told.mb << 20, told.rounds))
        print(lines[-1], flush=True)
    if told.readme:
        where = f"`python -m perf.cleaner --readme` on {machine()}, {told.mb} MiB of each, load "
        where += f"average before: {busy_before:.1f}; medians of {told.rounds} rounds."
        replace_in_readme("\n".join([where, "", *lines, ""]), "perf.cleaner")


if __name__ == "__main__":
    main()
