"""One Spark process of perf.spark: reads the topic in one way with one source, told as JSON.

    python -m perf.spark.job '{"source": "kbroker", "work": "count", ...}'

CPU seconds are those of the JVM and of everything that was begun by it (Python's daemon and its
workers), user and system, between the end of a first small run, which warms up, and the end.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

DIGITS = 12  # of each value, at its beginning: what `sum` parses
_TICKS = os.sysconf("SC_CLK_TCK")


def _stat(pid: int) -> tuple[int, int] | None:
    """(parent, ticks of its own and of children that have ended)."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    words = text.rpartition(")")[2].split()
    return int(words[1]), sum(map(int, words[11:15]))


def cpu_s(root: int) -> float:
    """Of a process and all below it that are there."""
    every = {int(n): _stat(int(n)) for n in os.listdir("/proc") if n.isdecimal()}
    told = {pid: stat for pid, stat in every.items() if stat is not None}
    wanted, grown = {root}, True
    while grown:
        more = {pid for pid, (parent, _) in told.items() if parent in wanted} - wanted
        wanted |= more
        grown = bool(more)
    return sum(told[pid][1] for pid in wanted if pid in told) / _TICKS


def _session(job: dict[str, Any], home: str) -> SparkSession:
    builder = SparkSession.builder.master(f"local[{job['threads']}]").appName("perf.spark")
    settings = {
        "spark.driver.memory": "2g",
        "spark.ui.enabled": "false",
        "spark.local.dir": home,
        "spark.sql.warehouse.dir": f"{home}/warehouse",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.session.timeZone": "UTC",
    }
    if job["source"] == "kafka":
        settings["spark.jars"] = ",".join(job["jars"])
    session = builder.config(map=settings).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def _options(job: dict[str, Any]) -> dict[str, str]:
    return {"kafka.bootstrap.servers": job["bootstrap"], "subscribe": job["topic"]}


def _batch(session: SparkSession, job: dict[str, Any], end: dict[str, int] | None) -> DataFrame:
    reader = session.read.format(job["source"]).options(**_options(job))
    if end is not None:
        reader = reader.option("endingOffsets", json.dumps({job["topic"]: end}))
    return reader.load()


def _do(frame: DataFrame, work: str, home: str, every: int = 0) -> int:
    """Rows that were read; every: records of the topic where all of them are."""
    if work == "count":
        return frame.count()
    if work == "sum":
        number = f"cast(cast(substring(value, 1, {DIGITS}) as string) as bigint)"
        row = frame.selectExpr(f"{number} n").selectExpr("sum(n)", "count(n)").first()
        assert row is not None
        if every:
            assert row[0] == every * (every - 1) // 2, row
        return int(row[1])
    out = tempfile.mkdtemp(dir=home)
    frame.write.mode("overwrite").parquet(f"{out}/rows")
    rows = frame.sparkSession.read.parquet(f"{out}/rows").count()
    shutil.rmtree(out)
    return rows


def _stream(session: SparkSession, job: dict[str, Any], home: str) -> tuple[int, float]:
    """Rows, and seconds from start() to the end of the first micro-batch."""
    reader = session.readStream.format(job["source"]).options(**_options(job))
    reader = reader.option("startingOffsets", "earliest")
    frame = reader.option("maxOffsetsPerTrigger", str(job["per_trigger"])).load()
    number = f"cast(cast(substring(value, 1, {DIGITS}) as string) as bigint)"
    begun = time.monotonic()
    query = (
        frame.selectExpr(f"{number} n")
        .writeStream.format("noop")
        .option("checkpointLocation", tempfile.mkdtemp(dir=home))
        .trigger(availableNow=True)
        .start()
    )
    first_s = 0.0
    while not first_s and query.isActive:
        if query.lastProgress:
            first_s = time.monotonic() - begun
        time.sleep(0.005)
    query.awaitTermination()
    return sum(progress["numInputRows"] for progress in query.recentProgress), first_s


def main() -> None:
    job = json.loads(sys.argv[1])
    home = tempfile.mkdtemp(prefix="perf-spark-", dir=job["home"])
    session = _session(job, home)
    jvm = session.sparkContext._gateway.proc.pid  # type: ignore[union-attr]
    told: dict[str, Any] = {"runs": []}
    _do(_batch(session, job, dict.fromkeys(map(str, range(job["partitions"])), 100)), "sum", home)
    for _ in range(job["turns"]):
        before, begun = cpu_s(jvm), time.monotonic()
        if job["work"] == "stream":
            rows, told["first_s"] = _stream(session, job, home)
        else:
            rows = _do(_batch(session, job, None), job["work"], home, job["records"])
        assert rows == job["records"], rows
        wall_s, spent_s = time.monotonic() - begun, cpu_s(jvm) - before
        told["runs"].append({"rows": rows, "wall_s": wall_s, "cpu_s": spent_s})
    session.stop()
    shutil.rmtree(home, ignore_errors=True)
    sys.stdout.write(json.dumps(told) + "\n")


if __name__ == "__main__":
    main()
