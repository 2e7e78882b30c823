"""Restart is replay: how long a broker takes over a million commits, and what it holds then."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

import pytest
from confluent_kafka import Producer
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


def cpu_ms(pid: int) -> int:
    """Processor time of a process, its start included."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) * 1000 // os.sysconf("SC_CLK_TCK")


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
    """Loaded in three seconds, and others can produce meanwhile."""
    topic_id = wire.topic_id(broker.port, "t").bytes
    broker.stop()
    write_commits(broker, topic_id, 1_000_000, keys)
    broker.start()
    slowest_ms = produce_until(broker, lambda: loaded(broker) is not None)
    found = loaded(broker)
    assert found is not None and broker.process is not None
    groups, offsets, took_ms = map(int, found.groups())
    print(f"\n{found.group()}; slowest produce {slowest_ms:.0f} ms, "
          f"{rss_kib(broker.process.pid) / 1024:.0f} MiB resident")  # fmt: skip
    assert (groups, offsets) == (GROUPS, GROUPS * keys)
    # By the clock where the machine is ours, else by what of it the broker had.
    assert min(took_ms, cpu_ms(broker.process.pid)) <= 3_000
    assert slowest_ms < 1_000


def produce_until(broker: KbrokerProcess, is_over) -> float:
    """Produce one record after the other; the longest that one took (ms)."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0})
    producer.list_topics("other", timeout=10)
    slowest = 0.0
    deadline = time.monotonic() + 60
    while not is_over() and time.monotonic() < deadline:
        began = time.monotonic()
        producer.produce("other", b"x", partition=0)
        assert producer.flush(30) == 0
        slowest = max(slowest, time.monotonic() - began)
    return slowest * 1000
