"""What `kbroker check` finds of a broker that runs: answers, partitions, limits of its process."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

from kbroker import runfile
from kbroker.cli.cluster_health import look, troubles, unseen_text
from kbroker.cli.finding import FAILED, FILES_LOW, OK, WARNING, Finding, files_text
from kbroker.cli.options import asked
from kbroker.cli.scrape import lives, state_troubles

__all__ = ["running_findings"]

_ANSWER_S = 10.0
_NEAR = 0.8  # of a limit
_LOOK_INSIDE = "`kbroker cluster health` with -X or --profile looks inside"


def running_findings(info: runfile.RunInfo) -> Iterator[Finding]:
    """In the order in which they matter."""
    yield from _answers(info)
    if info.produce_refused:
        yield Finding("produce", FAILED, f"refused: {info.produce_refused} is reached")
    for name, trouble in state_troubles(info).items():
        if trouble:
            yield Finding(name, FAILED, trouble)
    if info.durability != "fsync":
        text = f"{info.durability}: a power cut may take back acknowledged records"
        yield Finding("durability", WARNING, text)
    process = Path(f"/proc/{info.pid}")
    yield from _open_files(process)
    yield from _maps(process)


def _answers(info: runfile.RunInfo) -> Iterator[Finding]:
    from kbroker.client.cluster import Cluster
    from kbroker.client.errors import KafkaError

    if not info.listeners:
        return
    address, plain = asked(info.listeners)
    began = time.perf_counter()
    try:
        with Cluster(address, timeout_s=_ANSWER_S) as cluster:
            told = look(cluster)
    except (KafkaError, ValueError) as error:
        if not plain and lives(info):
            yield Finding("answers", OK, f"it lives; {address} asks who one is: {_LOOK_INSIDE}")
        else:
            yield Finding("answers", FAILED, f"{address}: {error}")
        return
    took_ms = (time.perf_counter() - began) * 1e3
    yield Finding("answers", OK, f"{address}, all that was asked in {took_ms:.0f} ms")
    wrong = list(troubles(told))
    text = "; ".join(wrong) if wrong else f"{told['partitions']}, all led and in sync"
    yield Finding("partitions", OK if told["healthy"] else FAILED, text)
    if told["log_dirs_unseen"]:
        yield Finding("log directories", WARNING, unseen_text(told))


def _open_files(process: Path) -> Iterator[Finding]:
    try:
        count = len(os.listdir(process / "fd"))
        limits = (process / "limits").read_text().splitlines()
    except OSError:
        yield Finding("open files", WARNING, "the process is another user's: not to be seen")
        return
    soft = next(line.split()[3] for line in limits if line.startswith("Max open files"))
    limit = int(soft) if soft.isdigit() else None
    near = limit is not None and count > limit * _NEAR
    low = limit is not None and limit < FILES_LOW
    text = f"{count} of {soft}" + (files_text() if near or low else "")
    yield Finding("open files", WARNING if near or low else OK, text)


def _maps(process: Path) -> Iterator[Finding]:
    try:
        with (process / "maps").open() as lines:
            count = sum(1 for _ in lines)
        most = int(Path("/proc/sys/vm/max_map_count").read_text())
    except (OSError, ValueError):
        return
    near = count > most * _NEAR
    text = f"{count} of vm.max_map_count {most}; two for each segment in use"
    yield Finding("memory maps", WARNING if near else OK, text)
