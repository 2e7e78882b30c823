"""Restart is replay: how long a broker takes over a million commits, and what it holds then."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from kbroker.config import BrokerConfig
from kbroker.config.topic import log_config
from kbroker.ext.log import Log
from kbroker.ext.offsets_build import commit_key, commit_value
from kbroker.ext.records import build
from kbroker.group.partition import group_partition
from tests.support import wire
from tests.support.kbroker import KbrokerProcess

pytestmark = pytest.mark.long

GROUPS = 1_000
LOADED = re.compile(r"loaded (\d+) groups and (\d+) committed offsets in (\d+) ms")


def write_commits(broker: KbrokerProcess, topic_id: bytes, commits: int, keys: int) -> None:
    """Each commit in a batch of its own, as consumers write them; `keys` partitions a group."""
    now_ms = int(time.time() * 1000)
    config = log_config(BrokerConfig({}), {"cleanup.policy": "compact"})
    offsets_id = bytes(16)
    by_partition: dict[int, list[tuple[str, int]]] = {}
    for number in range(commits):
        group = f"group-{number % GROUPS}"
        part = by_partition.setdefault(group_partition(group, 50), [])
        part.append((group, number // GROUPS))
    for partition, some in by_partition.items():
        folder = broker.data_dir / f"__consumer_offsets-{partition}"
        log = Log(str(folder), "__consumer_offsets", offsets_id, partition, config,
                  clean=True, durable=False)  # fmt: skip
        for group, number in some:
            value = commit_value(number, 0, "", now_ms, -1, topic_id, 4)
            log.append(build([(now_ms, commit_key(group, "t", number % keys), value)]),
                       leader_epoch=log.leader_epoch)  # fmt: skip
        log.close(clean=True)


def rss_kib(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0])


def crowded_out_ms(pid: int) -> float:
    """How long a thread of a process, the one that had to most, was ready to run and waited for a
    processor, which others had."""
    waited = [0]
    for told in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        with contextlib.suppress(OSError):  # the thread has ended
            waited.append(int(told.read_text().split()[1]))
    return max(waited) / 1e6


@pytest.fixture
def broker(tmp_path: Path):
    process = KbrokerProcess(tmp_path)
    process.start()
    admin = AdminClient({"bootstrap.servers": process.bootstrap})
    made = admin.create_topics([NewTopic("t", 1000, 1), NewTopic("other", 1, 1)])
    for future in made.values():
        future.result(60)
    del admin
    body = {"key_type": 0, "coordinator_keys": ["any"]}
    wire.call_once(process.port, wire.FIND_COORDINATOR, 4, body)
    yield process
    process.kill()


def loaded(broker: KbrokerProcess) -> re.Match[str] | None:
    return LOADED.search(broker.log_text())


@pytest.mark.parametrize("keys", [10, 1000])
def test_a_million_commits(broker: KbrokerProcess, keys: int) -> None:
    """Loaded in three seconds, and others can produce and fetch meanwhile.

    The seconds are the clock's, but for those in which other processes had the processors: a load
    that waits for anything else is slow, however little it computes.
    """
    topic_id = wire.topic_id(broker.port, "t").bytes
    broker.stop()
    write_commits(broker, topic_id, 1_000_000, keys)
    broker.start()
    produce_ms, fetch_ms = use_until(broker, lambda: loaded(broker) is not None)
    found = loaded(broker)
    assert found is not None and broker.process is not None
    crowded_ms = crowded_out_ms(broker.process.pid)
    groups, offsets, took_ms = map(int, found.groups())
    print(f"\n{found.group()}, {crowded_ms:.0f} of them without a processor; slowest produce "
          f"{produce_ms:.0f} ms, fetch {fetch_ms:.0f} ms, "
          f"{rss_kib(broker.process.pid) / 1024:.0f} MiB resident")  # fmt: skip
    assert (groups, offsets) == (GROUPS, GROUPS * keys)
    assert took_ms - crowded_ms <= 3_000
    assert produce_ms < 1_000
    assert fetch_ms < 1_000


def use_until(broker: KbrokerProcess, is_over: Callable[[], bool]) -> tuple[float, float]:
    """Produce and fetch one record after the other; the longest that one of each took (ms)."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0})
    consumer = Consumer({
        "bootstrap.servers": broker.bootstrap, "group.id": "none", "enable.auto.commit": False,
    })  # fmt: skip
    producer.list_topics("other", timeout=10)
    consumer.assign([TopicPartition("other", 0, 0)])
    produced = fetched = 0.0
    deadline = time.monotonic() + 60
    try:
        while not is_over() and time.monotonic() < deadline:
            began = time.monotonic()
            producer.produce("other", b"x", partition=0)
            assert producer.flush(30) == 0
            there = time.monotonic()
            message = consumer.poll(30)
            assert message is not None and message.error() is None
            produced = max(produced, there - began)
            fetched = max(fetched, time.monotonic() - there)
    finally:
        consumer.close()
    return produced * 1000, fetched * 1000
