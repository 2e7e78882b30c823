"""The group of `make run` (examples/readers.py) on a small topic: what it tells of, and that what
is missing is told as lost."""

from __future__ import annotations

import signal
import time
import zlib
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from confluent_kafka.admin import AdminClient

from examples import readers
from kbroker.client import Producer
from kbroker.client.admin import delete_records
from kbroker.client.cluster import Cluster
from tests.support import wire
from tests.support.kbroker import KbrokerProcess

PARTITIONS = 4
RECORDS = 2000  # of each partition

Sums = dict[int, dict[int, int]]


@pytest.fixture
def sums(kbroker: KbrokerProcess, topic: str) -> Sums:
    """Partition -> offset -> CRC-32 of what was produced there."""
    wire.create_topic(kbroker.port, topic, PARTITIONS)
    made: Sums = {index: {} for index in range(PARTITIONS)}
    with Producer(bootstrap_servers=kbroker.bootstrap) as producer:
        for offset in range(RECORDS):
            for index in made:
                value = b"%d of %d" % (offset, index)
                producer.send(topic, value, partition=index)
                made[index][offset] = zlib.crc32(value)
    return made


@pytest.fixture
def admin(kbroker: KbrokerProcess) -> Iterator[AdminClient]:
    """A client; the group is gone before and after."""
    admin = AdminClient({"bootstrap.servers": kbroker.bootstrap})
    readers.forget_last_time(admin)
    yield admin
    readers.forget_last_time(admin)


def test_a_group_shares_a_topic_and_the_reader_ahead_is_killed(
    kbroker: KbrokerProcess, topic: str, sums: Sums, admin: AdminClient
) -> None:
    sharing = readers.Sharing(kbroker.bootstrap, topic)
    told: list[int] = []
    try:
        sharing.run(sums, told.append)
    finally:
        sharing.end()
    assert sharing.total == PARTITIONS * RECORDS == told[-1]
    assert sharing.seen == {(index, offset) for index in sums for offset in sums[index]}
    assert {reader.name: reader.process.returncode for reader in sharing.readers} == {
        name: -signal.SIGKILL if name == sharing.victim else 0 for name in readers.READERS
    }
    assert sum(reader.flights for reader in sharing.readers) == sharing.total + sharing.repeated
    assert readers.committed(admin) == dict.fromkeys(sums, RECORDS)


@pytest.mark.long
def test_a_record_that_is_missing_is_lost(
    kbroker: KbrokerProcess,
    topic: str,
    sums: Sums,
    admin: AdminClient,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The canary. All others are read, the wait goes on, and the clock runs ahead to its end."""
    with Cluster(kbroker.bootstrap) as cluster:
        delete_records(cluster, {(topic, 0): 1})
    turns = 0  # since all others were read

    def monotonic() -> float:
        return time.monotonic() + (readers.TIMEOUT_S if turns > 1 else 0)

    def progress(seen: int) -> None:
        nonlocal turns
        turns += seen == PARTITIONS * RECORDS - 1 and sharing.killed_at is not None

    sharing = readers.Sharing(kbroker.bootstrap, topic)
    try:
        with monkeypatch.context() as during:
            during.setattr(readers, "time", SimpleNamespace(monotonic=monotonic))
            with pytest.raises(readers.LostError, match=r"^1 flights were read by nobody"):
                sharing.run(sums, progress)
    finally:
        sharing.end()


@pytest.mark.long
def test_a_record_that_is_another_is_told(
    kbroker: KbrokerProcess, topic: str, sums: Sums, admin: AdminClient
) -> None:
    del admin
    sums[2][RECORDS // 2] += 1
    sharing = readers.Sharing(kbroker.bootstrap, topic)
    try:
        with pytest.raises(readers.LostError, match=f"read something else at 2:{RECORDS // 2}$"):
            sharing.run(sums, lambda _: None)
    finally:
        sharing.end()
