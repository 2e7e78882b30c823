"""What TLS costs, beside Apache Kafka, and what authorization costs, beside an open broker.

    python -m perf.security [--rounds N] [--seconds S] [--rights-rounds N] [--only tls|rights]
                            [--readme]

    produce     one connection, batches of 900 KB in one Produce each, acks=1, four in flight
    fetch       one connection reads them again, 1 MB in each answer
    handshakes  connections that ask for ApiVersions and go, a full handshake each, two at a time

All over TLS 1.3 with AES-256-GCM and a key on the curve P-256, what both agree on unasked; in the
page cache. What is measured is the processor time of the broker, so that the client, Python's
OpenSSL, does not count; handshakes per second are those of one core of it. Both brokers run all the
time and are measured in turn; a Java VM is warmed first. Rights: see perf.authorised. A sitting
takes eight minutes; nothing else may run meanwhile.
"""

from __future__ import annotations

import argparse
import math
import os
import ssl
import statistics
import struct
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from kio.index import load_request_schema

from perf import admin, authorised, lifecycle
from perf.report import machine, replace_in_readme
from perf.series import say
from perf.systems import Kafka
from tests.reference.crafted_batches import batch
from tests.support import messages
from tests.support.certificates import Authority
from tests.support.kbroker import KbrokerProcess
from tests.support.processes import BrokerProcess
from tests.support.waits import free_ports

PRODUCE, PRODUCE_VERSION = 0, 9
FETCH, FETCH_VERSION = 1, 11
WRITTEN, READ, TOPIC_BYTES = "written", "read", 512 << 20
READ_BATCHES = 300
BATCH_RECORDS, RECORD_BYTES = 900, 1000
IN_FLIGHT, CLIENTS = 4, 2
ROUNDS, SECONDS, WARM_S = 3, 4.0, 10.0
GB = 1e9
CPU_AT_MOST, RATE_AT_LEAST = 0.5, 3.0
TITLES = {"kbroker": "kbroker, page-cache", "kafka": "Apache Kafka 4.3"}


class Bench(NamedTuple):
    """A broker with a TLS listener."""

    process: BrokerProcess
    port: int
    context: ssl.SSLContext

    def connect(self) -> ssl.SSLSocket:
        return self.context.wrap_socket(admin.connect(self.port), server_hostname="127.0.0.1")


def receive(connection: ssl.SSLSocket, into: bytearray) -> int:
    """An answer, its size; only its beginning stays in `into`."""
    (size,) = struct.unpack(">i", admin.read_exactly(connection, 4))
    room, left = memoryview(into), size
    while left > 0:
        got = connection.recv_into(room[: min(left, len(into))])
        if not got:
            raise ConnectionError("the broker closed the connection")
        left -= got
    return int(size)


def frame(key: int, version: int, body: dict[str, object]) -> bytes:
    data = messages.encode(load_request_schema(key, version), body)
    return messages.request_frame(key, version, data, 1)


# ---- what is measured: each gives amount and how many of it there were, for so long


def produce(
    bench: Bench, seconds: float, topic: str = WRITTEN, batches: float = math.inf
) -> float:
    """GB that were sent."""
    records = batch(*(os.urandom(RECORD_BYTES) for _ in range(BATCH_RECORDS)))
    partition = {"index": 0, "records": records}
    topics = [{"name": topic, "partition_data": [partition]}]
    sent = frame(PRODUCE, PRODUCE_VERSION, {"acks": 1, "timeout": 30000, "topic_data": topics})
    into, begun, count = bytearray(4096), time.perf_counter(), 0
    with bench.connect() as connection:
        for _ in range(IN_FLIGHT):
            connection.sendall(sent)
        while time.perf_counter() - begun < seconds and count < batches:
            receive(connection, into)
            connection.sendall(sent)
            count += 1
        for _ in range(IN_FLIGHT):
            receive(connection, into)
    return (count + IN_FLIGHT) * len(sent) / GB


def fetch(bench: Bench, seconds: float) -> float:
    """GB that were read, from the beginning over and over."""
    into, begun, got, offset = bytearray(1 << 20), time.perf_counter(), 0, 0
    with bench.connect() as connection:
        while time.perf_counter() - begun < seconds:
            partition = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
            topics = [{"topic": READ, "partitions": [partition]}]
            body: dict[str, object] = {
                "replica_id": -1, "max_wait": 0, "min_bytes": 0, "max_bytes": 1 << 20,
                "session_epoch": -1, "topics": topics,
            }  # fmt: skip
            connection.sendall(frame(FETCH, FETCH_VERSION, body))
            size = receive(connection, into)
            got += size
            offset = offset + BATCH_RECORDS if size > RECORD_BYTES else 0
    return got / GB


def handshakes(bench: Bench, seconds: float) -> float:
    """How many there were."""
    done: list[int] = []
    until = time.perf_counter() + seconds

    def shake() -> None:
        count = 0
        while time.perf_counter() < until:
            with bench.connect() as connection:
                admin.ask(connection, admin.API_VERSIONS, 0, b"")
            count += 1
        done.append(count)

    threads = [threading.Thread(target=shake) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if len(done) != CLIENTS:
        raise RuntimeError("a client of the handshakes failed")
    return float(sum(done))


WORK: dict[str, Callable[[Bench, float], float]] = {
    "produce": produce,
    "fetch": fetch,
    "handshakes": handshakes,
}


def measure(bench: Bench, what: str, seconds: float) -> float:
    """CPU seconds of the broker for one GB or one handshake."""
    before = lifecycle.cpu_seconds(bench.process.pid)
    amount = WORK[what](bench, seconds)
    return (lifecycle.cpu_seconds(bench.process.pid) - before) / amount


# ---- brokers


@contextmanager
def running() -> Iterator[dict[str, Bench]]:
    """Both brokers, warm, with a topic to read and one to write that does not grow for ever."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        authority = Authority(folder)
        store = authority.issue("broker").pem
        context = ssl.create_default_context(cafile=str(authority.certificate))
        benches = {}
        for name in TITLES:
            home = stack.enter_context(lifecycle.empty_home(f"{name}-security"))
            process, port = started(name, home, store)
            stack.callback(process.kill)
            admin.create_topics(process.port, {WRITTEN: 1, READ: 1})
            benches[name] = Bench(process, port, context)
            produce(benches[name], math.inf, READ, READ_BATCHES)
        for name, bench in benches.items():
            for work in WORK.values():
                work(bench, WARM_S if name == "kafka" else 1.0)
        yield benches


def started(name: str, home: Path, store: Path) -> tuple[BrokerProcess, int]:
    """A broker and its port with TLS."""
    common = {"log.retention.bytes": str(TOPIC_BYTES), "log.segment.bytes": str(TOPIC_BYTES // 4),
              "log.retention.check.interval.ms": "1000", "log.segment.delete.delay.ms": "1000",
              "log.initial.task.delay.ms": "1000"}  # fmt: skip
    if name == "kbroker":
        settings = {"kbroker.durability": "page-cache", "ssl.keystore.location": str(store)}
        ours = KbrokerProcess(home, common | settings, listeners=("SSL",))
        ours.start()
        return ours, ours.ports["SSL"]
    (port,) = free_ports(1)
    theirs = Kafka(home, common)
    theirs.port = theirs.port or free_ports(1)[0]
    listeners = theirs.properties()["listeners"]
    theirs.settings |= {
        "listeners": f"{listeners},SSL://127.0.0.1:{port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SSL:SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(store),
    }
    theirs.start()
    return theirs, port


# ---- the table


def table(medians: Mapping[tuple[str, str], float]) -> list[str]:
    lines = [
        "| over TLS 1.3 | kbroker, page-cache | Apache Kafka 4.3 | target |",
        "|---|---|---|---|",
    ]
    for what in WORK:
        mine, other = medians["kbroker", what], medians["kafka", what]
        if what == "handshakes":
            cells = f"{1 / mine:,.0f} a second and core | {1 / other:,.0f} a second and core"
            ratio, held = other / mine, other / mine >= RATE_AT_LEAST
            wanted = f"at least {RATE_AT_LEAST:g}x"
        else:
            cells = f"{mine:.3f} CPU-s/GB | {other:.3f} CPU-s/GB"
            ratio, held = mine / other, mine / other <= CPU_AT_MOST
            wanted = f"at most {CPU_AT_MOST:g}x"
        verdict = f"{ratio:.2f}x, {wanted}"
        lines.append(f"| {what} | {cells} | {verdict if held else f'**{verdict}: missed**'} |")
    return lines


def medians_of(rounds: int, seconds: float) -> dict[tuple[str, str], float]:
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    with running() as benches:
        for _ in range(rounds):
            for what in WORK:
                for name, bench in benches.items():
                    found[name, what].append(measure(bench, what, seconds))
                    say(f"{name}, {what}: {found[name, what][-1]:.6f} CPU-s")
    return {key: statistics.median(values) for key, values in found.items()}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m perf.security")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="over TLS")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of each cell of TLS")
    parser.add_argument("--rights-rounds", type=int, default=authorised.ROUNDS, help="of rights")
    parser.add_argument("--only", choices=("tls", "rights"), help="the other half is left out")
    parser.add_argument("--readme", action="store_true", help="put the tables into README.md")
    told = parser.parse_args(arguments)
    if told.readme and told.only:
        parser.error("README.md has both tables: --readme goes without --only")
    before = os.getloadavg()[0]
    tables = []
    if told.only != "rights":
        tables.append(table(medians_of(told.rounds, told.seconds)))
    if told.only != "tls":
        tables.append(authorised.table(authorised.measure(told.rights_rounds)))
    where = (
        f"`python -m perf.security --readme` on {machine()}, at nice {os.nice(0)}, load average"
        f" before: {before:.1f}; medians of {told.rounds} rounds of {told.seconds:g} s over TLS, of"
        f" {told.rights_rounds} of {authorised.SECONDS:g} s of rights."
    )
    report = "\n\n".join(["\n".join(lines) for lines in ([where], *tables)]) + "\n"
    print(report)
    if told.readme:
        replace_in_readme(report, "perf.security")


if __name__ == "__main__":
    main()
