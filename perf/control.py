"""The control plane at scale: topics created and deleted by the thousand, beside Apache Kafka.

    python -m perf.control [--system NAME]... [--figure NAME]... [--scale N]

    one-request   2,000 topics of 4 partitions created, then deleted, in one request each
    hundreds      the same in requests of 100 topics
    partitions    20,000 partitions, in topics of 100
    metadata      Metadata of all topics (2,000 of 4 partitions), by one client: the median
    groups        3,000 groups described in one DescribeGroups, each with a committed offset
    joins         500 members join one group

A creation ends when a record was written to the last partition, a deletion when Metadata has none
of the topics. Meanwhile other clients ask for the Metadata of a topic of their own without pause:
their 99th of 100 answers and the longest. Each figure has a fresh broker; the CPU is the broker's.
Nothing else may run meanwhile: quote ratios.
"""

from __future__ import annotations

import argparse
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from perf.lifecycle import cpu_seconds, empty_home
from perf.series import say
from perf.systems import BY_NAME, start
from tests.support import wire
from tests.support.processes import BrokerProcess
from tests.support.waits import wait_for
from tests.support.wire import (
    CREATE_TOPICS,
    DELETE_TOPICS,
    FIND_COORDINATOR,
    METADATA,
    PRODUCE,
    WireConnection,
)
from tests.wire.test_classic_groups import Member
from tests.wire.test_connections import produce_body

OFFSET_COMMIT, DESCRIBE_GROUPS = 8, 15
SYSTEMS = ("kbroker-fsync", "kafka")
TIMEOUT_MS = 300_000
OTHERS = 2
TOPICS, PARTITIONS, GROUPS, MEMBERS = 2_000, 4, 3_000, 500


class Figure(NamedTuple):
    """One measurement: its name, seconds, CPU seconds, and the answers of others (ms)."""

    name: str
    seconds: float
    cpu_s: float
    others_p99_ms: float
    others_max_ms: float


class Others:
    """Clients that ask for the Metadata of a topic of their own without pause."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._stopping = threading.Event()
        self._took_s: list[float] = []
        self._threads = [threading.Thread(target=self._ask) for _ in range(OTHERS)]
        for thread in self._threads:
            thread.start()

    def _ask(self) -> None:
        with WireConnection(self._port, timeout_s=120) as connection:
            while not self._stopping.wait(0.002):
                begun = time.monotonic()
                connection.call(METADATA, 9, {"topics": [{"name": "others"}]})
                self._took_s.append(time.monotonic() - begun)

    def finish(self) -> tuple[float, float]:
        """Stop; the 99th of 100 answers and the longest (ms)."""
        self._stopping.set()
        for thread in self._threads:
            thread.join()
        took_s = sorted(self._took_s)
        return took_s[len(took_s) * 99 // 100] * 1e3, took_s[-1] * 1e3


class Bench:
    """A broker, and what was measured on it."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.broker = broker
        self.figures: list[Figure] = []
        wire.create_topic(broker.port, "others")

    @contextmanager
    def measured(self, name: str) -> Iterator[None]:
        """Measure what is done inside, beside the others."""
        others = Others(self.broker.port)
        time.sleep(0.5)
        begun_s, cpu_s = time.monotonic(), cpu_seconds(self.broker.pid)
        yield
        seconds = time.monotonic() - begun_s
        cpu_s = cpu_seconds(self.broker.pid) - cpu_s
        self.figures.append(Figure(name, seconds, cpu_s, *others.finish()))

    def create(self, names: list[str], partitions: int, at_once: int) -> None:
        """Create topics in requests of so many, and write to the last partition."""
        with WireConnection(self.broker.port, timeout_s=300) as connection:
            for first in range(0, len(names), at_once):
                topics = [
                    {"name": name, "num_partitions": partitions, "replication_factor": 1}
                    for name in names[first : first + at_once]
                ]
                body = {"topics": topics, "timeout": TIMEOUT_MS}
                answer = connection.call(CREATE_TOPICS, 7, body)
                assert not any(each["error_code"] for each in answer["topics"])
            wait_for("the last topic takes a record", lambda: self._writes(names[-1]), 120, 0.002)

    def _writes(self, topic: str) -> bool:
        from tests.faults.test_disk import numbered  # noqa: PLC0415  not for other figures

        answer = wire.call_once(self.broker.port, PRODUCE, 9, produce_body(topic, numbered(1)))
        return not answer["responses"][0]["partition_responses"][0]["error_code"]

    def delete(self, names: list[str], at_once: int) -> None:
        """Delete topics in requests of so many, until Metadata has none of them."""
        with WireConnection(self.broker.port, timeout_s=300) as connection:
            for first in range(0, len(names), at_once):
                body = {
                    "topics": [{"name": name} for name in names[first : first + at_once]],
                    "timeout": TIMEOUT_MS,
                }
                answer = connection.call(DELETE_TOPICS, 6, body)
                assert not any(each["error_code"] for each in answer["responses"])
            wait_for("they are gone", lambda: self._count(connection) == 1, 120, 0.002)

    @staticmethod
    def _count(connection: WireConnection) -> int:
        topics = connection.call(METADATA, 9, {"topics": None})["topics"]
        return sum(not each["is_internal"] for each in topics)


def topics_in(bench: Bench, label: str, at_once: int, scale: int) -> None:
    names = [f"t{number}" for number in range(TOPICS // scale)]
    with bench.measured(f"create, {label}"):
        bench.create(names, PARTITIONS, at_once)
    time.sleep(2)
    with bench.measured(f"delete, {label}"):
        bench.delete(names, at_once)


def one_request(bench: Bench, scale: int) -> None:
    topics_in(bench, "in one request", TOPICS, scale)


def hundreds(bench: Bench, scale: int) -> None:
    topics_in(bench, "in requests of 100", 100, scale)


def partitions(bench: Bench, scale: int) -> None:
    names = [f"t{number}" for number in range(200 // scale)]
    with bench.measured("create, 20,000 partitions"):
        bench.create(names, 100, 50)


def metadata(bench: Bench, scale: int) -> None:
    bench.create([f"t{number}" for number in range(TOPICS // scale)], PARTITIONS, TOPICS)
    took_s = []
    with (
        bench.measured("Metadata of all, 20 times"),
        WireConnection(bench.broker.port, timeout_s=120) as connection,
    ):
        for _ in range(20):
            begun_s = time.monotonic()
            connection.send(METADATA, 9, {"topics": None})
            connection.receive_frame()
            took_s.append(time.monotonic() - begun_s)
    say(f"    the median {statistics.median(took_s) * 1e3:.1f} ms")


def groups(bench: Bench, scale: int) -> None:
    port = bench.broker.port
    names = [f"g{number}" for number in range(GROUPS // scale)]
    commit(port, names)
    with (
        WireConnection(port, timeout_s=120) as connection,
        bench.measured("DescribeGroups of 3,000"),
    ):
        connection.send(DESCRIBE_GROUPS, 5, {"groups": names})
        connection.receive_frame()


def commit(port: int, names: list[str]) -> None:
    """Commit an offset of each group, once its coordinator is there."""
    wire.call_once(port, FIND_COORDINATOR, 4, {"key_type": 0, "coordinator_keys": names[:1]})
    partition = {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}
    with WireConnection(port, timeout_s=120) as connection:
        for name in names:
            body = {
                "group_id": name, "generation_id_or_member_epoch": -1, "member_id": "",
                "topics": [{"name": "others", "partitions": [partition]}],
            }  # fmt: skip
            wait_for(name, lambda body=body: _commits(connection, body), 60, 0.05)


def _commits(connection: WireConnection, body: dict[str, Any]) -> bool:
    answer = connection.call(OFFSET_COMMIT, 8, body)
    return not answer["topics"][0]["partitions"][0]["error_code"]


def joins(bench: Bench, scale: int) -> None:
    commit(bench.broker.port, ["joined"])
    members = [Member(bench.broker, "joined") for _ in range(MEMBERS // scale)]
    with bench.measured("500 members join"):
        for member in members:
            member.begin_join()
        for member in members:
            assert member.take()["error_code"] == 0
    for member in members:
        member.connection.close()


FIGURES: dict[str, Callable[[Bench, int], None]] = {
    "one-request": one_request,
    "hundreds": hundreds,
    "partitions": partitions,
    "metadata": metadata,
    "groups": groups,
    "joins": joins,
}


def main() -> None:
    """Measure, and print a row a figure and system."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--system", action="append", choices=SYSTEMS)
    parser.add_argument("--figure", action="append", choices=FIGURES)
    parser.add_argument("--scale", type=int, default=1, help="divide all counts, for a short try")
    options = parser.parse_args()
    print("| figure | system | s | CPU-s | others p99, ms | others longest, ms |")
    print("|---|---|---|---|---|---|")
    for name in options.figure or FIGURES:
        for system in options.system or SYSTEMS:
            with empty_home("control") as home:
                broker = start(BY_NAME[system], home)
                try:
                    bench = Bench(broker)
                    FIGURES[name](bench, options.scale)
                finally:
                    broker.kill()
            for figure in bench.figures:
                print(
                    f"| {figure.name} | {BY_NAME[system].title} | {figure.seconds:.2f} "
                    f"| {figure.cpu_s:.2f} | {figure.others_p99_ms:.1f} "
                    f"| {figure.others_max_ms:.1f} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
