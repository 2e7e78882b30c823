"""What faults cost those who are not at fault: `python -m perf.faults [--gib N] [SYSTEM...]`.

Restart: records in large batches to so many GiB, SIGKILL, and the time from the launch until every
partition tells where it ends; the files are in the page cache. Refusal: from the send of a record
whose sync fails until its producer is told. Neighbours: the p99 of a client that sends 2,000
records a second, by itself, beside 5,000 connections that have sent one byte, and beside bytes that
are no requests. Medians of three, by turns.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import socket
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from multiprocessing import Process

from perf import admin
from perf.lifecycle import raise_descriptor_limit, running
from perf.native import is_sound, load
from perf.rows import BY_NAME as ROWS_BY_NAME
from perf.rows import Row
from perf.series import prepare, say
from perf.systems import BY_NAME as SYSTEMS_BY_NAME
from perf.systems import System
from tests.faults.scenes import injected
from tests.reference.crafted_batches import Batch, Record
from tests.support.processes import BrokerProcess
from tests.support.wire import LIST_OFFSETS, PRODUCE, ConnectionClosedError, WireConnection

SYSTEMS = ("kbroker-fsync", "kbroker-page-cache", "kafka")
SYNCED = ("kbroker-fsync", "kafka-flush")  # those where a failed sync is somebody's answer
FILLING, STEADY = ROWS_BY_NAME["kb900"], ROWS_BY_NAME["lat2k"]
ROUNDS = 3
SECONDS = 5.0
SILENT = 5_000
NONSENSE_A_SECOND = 500
RESTART_TIMEOUT_S = 300.0


def ends(port: int, row: Row) -> bool:
    """Whether every partition tells where it ends."""
    parts = [{"partition_index": part, "timestamp": -1} for part in range(row.partitions)]
    body = {"replica_id": -1, "topics": [{"name": row.name, "partitions": parts}]}
    try:
        with WireConnection(port) as connection:
            answer = connection.call(LIST_OFFSETS, 6, body)
    except (OSError, ConnectionClosedError):
        return False
    return all(not part["error_code"] for part in answer["topics"][0]["partitions"])


def restart_s(system: System, gib: float) -> float:
    """Seconds a GiB."""
    with running(system, "restart") as process:
        prepare(process, system, FILLING)
        written = 0.0
        while written < gib * 2**30:
            arguments = FILLING.arguments(FILLING.name)
            figures = load(FILLING.mode, process.port, process.pid, 0.5, *arguments)
            written += figures["mb_s"] * 1e6 * figures["seconds"]
        process.kill()
        begun = time.perf_counter()
        process.launch()
        while not ends(process.port, FILLING):
            if time.perf_counter() - begun > RESTART_TIMEOUT_S:
                raise TimeoutError(f"{system.title} does not come back")
            time.sleep(0.002)
        return (time.perf_counter() - begun) / (written / 2**30)


def refused_ms(system: System) -> float:
    """By strace, whose share is in it. A broker that ends instead has told as well."""
    part = {"index": 0, "records": Batch(records=[Record(value=b"x" * 1024)]).encode()}
    topics = [{"name": FILLING.name, "partition_data": [part]}]
    body = {"acks": -1, "timeout": 30_000, "topic_data": topics}
    with running(system, "refused") as process:
        prepare(process, system, FILLING)
        with (
            injected(process, "fdatasync,fsync", "error=EIO:when=20+"),
            WireConnection(process.port) as connection,
        ):
            refused = False
            while not refused:
                begun = time.perf_counter()
                try:
                    answer = connection.call(PRODUCE, 9, body)
                    refused = answer["responses"][0]["partition_responses"][0]["error_code"] != 0
                except (OSError, ConnectionClosedError):
                    refused = True
            return (time.perf_counter() - begun) * 1000


@contextmanager
def silent(port: int) -> Iterator[None]:
    with contextlib.ExitStack() as held:
        for _ in range(SILENT):
            held.enter_context(admin.connect(port)).sendall(b"\0")
        yield


@contextmanager
def nonsense(port: int) -> Iterator[None]:
    """From a process of its own, with what is left of the processors: another machine's would cost
    the broker's nothing."""
    talker = Process(target=talk_nonsense, args=(port,))
    talker.start()
    try:
        yield
        if not talker.is_alive():
            raise RuntimeError("the sender of nonsense ended")
    finally:
        talker.kill()
        talker.join()


def talk_nonsense(port: int) -> None:
    """Until it is killed: frames of random bytes, some with a length that lies."""
    os.nice(19)
    chance = random.Random(1)
    while True:
        body = chance.randbytes(chance.randrange(4, 400))
        told = len(body) if chance.random() < 0.8 else chance.randrange(1 << 32)
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1) as sock:
            sock.sendall(told.to_bytes(4, "big") + body)
        time.sleep(1 / NONSENSE_A_SECOND)


def p99_ms(process: BrokerProcess) -> float:
    arguments = STEADY.arguments(STEADY.name)
    figures = load(STEADY.mode, process.port, process.pid, SECONDS, *arguments)
    if not is_sound(figures):
        raise RuntimeError(f"the healthy client met errors: {figures}")
    return figures["p99_ms"]


Beside = Callable[[int], AbstractContextManager[None]]
NEIGHBOURS: dict[str, Beside] = {
    "alone": lambda _port: contextlib.nullcontext(),
    f"beside {SILENT:,} connections of one byte": silent,
    f"beside {NONSENSE_A_SECOND} frames of nonsense a second": nonsense,
}


def neighbours(system: System) -> dict[str, float]:
    """p99 in ms by who is there as well."""
    found: dict[str, list[float]] = {name: [] for name in NEIGHBOURS}
    with running(system, "neighbours") as process:
        prepare(process, system, STEADY)
        p99_ms(process)
        for _ in range(ROUNDS):
            for name, beside in NEIGHBOURS.items():
                with beside(process.port):
                    found[name].append(p99_ms(process))
    return {name: statistics.median(values) for name, values in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m perf.faults", description=__doc__)
    parser.add_argument("systems", nargs="*", default=SYSTEMS, metavar="SYSTEM")
    parser.add_argument("--gib", type=float, default=4, help="written before the kill")
    told = parser.parse_args()
    raise_descriptor_limit()
    for name in told.systems:
        system = SYSTEMS_BY_NAME[name]
        taken = statistics.median(restart_s(system, told.gib) for _ in range(ROUNDS))
        say(f"{system.title}: restart after SIGKILL: {taken:.2f} s a GiB")
        if name in SYNCED:
            told_ms = statistics.median(refused_ms(system) for _ in range(ROUNDS))
            say(f"{system.title}: told of a failed sync after {told_ms:.1f} ms")
        measured = neighbours(system)
        say(f"{system.title}: p99 of 2,000 records a second")
        for who, value in measured.items():
            say(f"  {who}: {value:.2f} ms, {value / measured['alone']:.2f}x")


if __name__ == "__main__":
    main()
