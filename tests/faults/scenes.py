"""What faults share: a log with its last records gone, and calls of the broker that go wrong."""

from __future__ import annotations

import os
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.needs import need_command
from tests.support.oracle import History, judge
from tests.support.processes import BrokerProcess


def batch_places(data: bytes) -> list[tuple[int, int]]:
    """(position, size) of each whole batch of a segment's bytes; zeros behind them end it."""
    places, at = [], 0
    while at + 12 <= len(data):
        (length,) = struct.unpack_from(">i", data, at + 8)
        if length <= 0 or at + 12 + length > len(data):
            break
        places.append((at, 12 + length))
        at += 12 + length
    return places


def newest_segment(folder: Path) -> Path:
    """The last segment of a partition that holds a batch."""
    return [path for path in sorted(folder.glob("*.log")) if batch_places(path.read_bytes())][-1]


def cut_last_batch(folder: Path) -> None:
    """Takes the last batch of a partition away, as if it had never reached the disk."""
    path = newest_segment(folder)
    os.truncate(path, batch_places(path.read_bytes())[-1][0])


def lost_without_the_end(
    broker: BrokerProcess, topic: str, partitions: int, histories: list[History]
) -> int:
    """The control of whatever keeps all records: how many are lost when a batch of each is."""
    broker.stop()
    for partition in range(partitions):
        cut_last_batch(broker.partition_dir(topic, partition))
    broker.start()
    return len(judge(broker.port, topic, partitions, histories).lost)


@contextmanager
def injected(
    broker: BrokerProcess, calls: str, what: str, path: Path | None = None
) -> Iterator[None]:
    """System calls of the running broker go wrong, by strace: `what` is `error=EIO:when=3`,
    `delay_enter=1s`, `retval=4096`; `path`: only those about that file."""
    program = need_command("strace", "strace")
    about = [] if path is None else ["-P", str(path)]
    tracer = subprocess.Popen(
        [program, "-f", "-p", str(broker.pid), "-o", "/dev/null", *about,
         "-e", f"trace={calls}", "-e", f"inject={calls}:{what}"],
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert tracer.stderr is not None
    first = tracer.stderr.readline()
    assert "attached" in first, first
    try:
        yield
    finally:
        tracer.terminate()
        try:
            tracer.wait(30)
        except subprocess.TimeoutExpired:  # a call that it holds up keeps it from going
            tracer.kill()
            tracer.wait()
