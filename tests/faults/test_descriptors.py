"""A broker with few file descriptors: partitions, a start after a crash, new topics."""

from __future__ import annotations

import os
import resource
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from kbroker.client import Admin, Consumer, Producer, TopicPartition, offsets
from kbroker.client.errors import PolicyViolationError
from tests.support import wire
from tests.support.kbroker import KbrokerProcess
from tests.support.needs import need_command
from tests.support.waits import wait_for

SLOW_S = 60
PARTITIONS = 400
IDLE = 300  # more connections than descriptors of a limit of 256


class LimitedBroker(KbrokerProcess):
    """`limits`: soft and hard limit of open files, as prlimit takes them."""

    limits = "256:256"

    def command(self) -> list[str]:
        program = need_command("prlimit", "util-linux")
        return [program, f"--nofile={self.limits}", *super().command()]


@pytest.fixture
def limited(tmp_path: Path) -> Iterator[Callable[[str], LimitedBroker]]:
    brokers: list[LimitedBroker] = []

    def start(limits: str) -> LimitedBroker:
        broker = LimitedBroker(tmp_path / "broker", {"log.initial.task.delay.ms": "0"})
        broker.limits = limits
        brokers.append(broker)
        broker.start()
        return broker

    yield start
    for broker in brokers:
        broker.kill()


def open_files(broker: KbrokerProcess) -> int:
    assert broker.process is not None
    return len(os.listdir(f"/proc/{broker.process.pid}/fd"))


def write_each(broker: KbrokerProcess, topic: str) -> None:
    """Write a record to each partition."""
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        sent = [producer.send(topic, b"%d" % n, partition=n) for n in range(PARTITIONS)]
        for one in sent:
            one.result(SLOW_S)


def test_more_written_partitions_than_descriptors(
    limited: Callable[[str], LimitedBroker], topic: str
) -> None:
    broker = limited("256:256")
    wire.create_topic(broker.port, topic, PARTITIONS)
    write_each(broker, topic)
    write_each(broker, topic)
    wait_for("files above the bound are closed", lambda: open_files(broker) < 200, SLOW_S)
    broker.kill()
    for folder in broker.data_dir.glob(f"{topic}-*"):
        (segment,) = folder.glob("*.log")
        os.truncate(segment, 0)  # the WAL brings it back
    broker.start()
    assert open_files(broker) < 100
    found: dict[int, list[bytes | None]] = {}
    with Consumer(bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, n) for n in range(PARTITIONS)])

        def all_read() -> bool:
            for record in consumer.poll(1.0):
                found.setdefault(record.partition, []).append(record.value)
            return sum(map(len, found.values())) >= 2 * PARTITIONS

        wait_for("all records are read", all_read, SLOW_S)
    assert found == {n: [b"%d" % n] * 2 for n in range(PARTITIONS)}
    wait_for("files above the bound are closed", lambda: open_files(broker) < 200, SLOW_S)


def test_soft_limit_is_raised(limited: Callable[[str], LimitedBroker]) -> None:
    broker = limited("256:2048")
    assert broker.process is not None
    limits = Path(f"/proc/{broker.process.pid}/limits").read_text()
    (line,) = [line for line in limits.splitlines() if line.startswith("Max open files")]
    assert line.split()[3:5] == ["2048", "2048"]
    assert "2048 open files: 1024 for segments" in broker.log_text()


def test_topic_without_descriptors_is_refused(
    limited: Callable[[str], LimitedBroker], topic: str
) -> None:
    """It is refused with a clear error, nothing is created, and it works with descriptors again."""
    broker = limited("256:256")
    assert broker.process is not None
    pid = broker.process.pid
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.list_topics()
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (open_files(broker) + 2, 256))
        with pytest.raises(PolicyViolationError, match="too few file descriptors"):
            admin.create_topic(topic)
        assert topic not in [one.name for one in admin.list_topics()]
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (256, 256))
        admin.create_topic(topic)
        with Producer(bootstrap_servers=broker.bootstrap) as producer:
            assert producer.send(topic, b"1").result(SLOW_S).offset == 0


def test_idle_connections_leave_files_descriptors(
    limited: Callable[[str], LimitedBroker], topic: str
) -> None:
    """With as many connections as fit, every partition is written, and a start after a crash has
    all of it."""
    broker = limited("256:256")
    wire.create_topic(broker.port, topic, PARTITIONS)
    with ExitStack() as idle, Producer(bootstrap_servers=broker.bootstrap) as producer:
        producer.send(topic, b"0", partition=0).result(SLOW_S)
        for _ in range(IDLE):
            idle.enter_context(socket.create_connection(("127.0.0.1", broker.port), SLOW_S))
        wait_for("connections have taken theirs", lambda: open_files(broker) >= 224, SLOW_S)
        for sent in [producer.send(topic, b"%d" % n, partition=n) for n in range(1, PARTITIONS)]:
            sent.result(SLOW_S)
    broker.kill()
    broker.start()
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        ends = admin.list_offsets(
            {TopicPartition(topic, n): offsets.LATEST for n in range(PARTITIONS)}
        )
    assert {one.offset for one in ends.values()} == {1} and len(ends) == PARTITIONS
