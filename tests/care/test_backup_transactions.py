"""Backups of a directory in which transactions are open, prepared, and go on meanwhile."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from kbroker.care import backup_live
from kbroker.care.backup import create
from kbroker.care.backup_live import LiveDirectories
from kbroker.care.folders import Key
from kbroker.care.manifest import Extent
from kbroker.care.restore import restore
from kbroker.client import Admin, Producer
from kbroker.txn.transaction import State
from tests.support.fixtures import BrokerFactory
from tests.support.hanging import last_stable
from tests.support.kbroker import KbrokerProcess
from tests.support.processes import BrokerProcess
from tests.support.transactional import WireProducer, committed_offset, values_of
from tests.support.txn_log import places, prepare
from tests.support.waits import wait_for

TOPIC, PARTITIONS = "t", 4
ABORTED = 4  # each so many-th transaction
TIMEOUT_S = 120.0


@contextmanager
def restored(backup: Path, home: Path, directories: int = 1) -> Iterator[BrokerProcess]:
    first, *more = places = [home / f"back-{number}" for number in range(directories)]
    restore(backup, places)
    broker = KbrokerProcess(home / "again", data_dir=first, more_dirs=tuple(more))
    broker.start()
    try:
        yield broker
    finally:
        broker.kill()


def all_is_stable(broker: BrokerProcess) -> None:
    def ends() -> list[tuple[int, int]]:
        return [last_stable(broker, TOPIC, partition) for partition in range(PARTITIONS)]

    wait_for("all is stable", lambda: all(lso == end for lso, end in ends()), TIMEOUT_S)


def make_topic(broker: BrokerProcess) -> None:
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.create_topic(TOPIC, partitions=PARTITIONS, configs={"segment.ms": "300"})


@pytest.mark.parametrize("live", [True, False], ids=["live", "killed"])
def test_open_and_prepared(start_kbroker: BrokerFactory, tmp_path: Path, live: bool) -> None:
    """What was decided is finished, what was open stays so until its producer or its time ends."""
    broker = start_kbroker({"offsets.topic.num.partitions": "2"})
    make_topic(broker)
    names = ("committing", "aborting", "staying")
    producers = {name: WireProducer(broker, name, timeout_ms=600_000) for name in names}
    for name, producer in producers.items():
        producer.init()
        for partition in range(PARTITIONS):
            producer.send(TOPIC, partition, name.encode())
        producer.commit_offset(name, TOPIC, 7)
    if live:
        for name, commit in (("committing", True), ("aborting", False)):
            producers[name].end(commit)
        create(broker.data_dir, tmp_path / "backup")
        broker.kill()
    else:
        broker.kill()
        assert {one.value.state for one in places(broker.data_dir).values()} == {State.ONGOING}
        prepare(broker.data_dir, "committing", State.PREPARE_COMMIT)
        prepare(broker.data_dir, "aborting", State.PREPARE_ABORT)
        create(broker.data_dir, tmp_path / "backup")
    with restored(tmp_path / "backup", tmp_path) as again:
        for producer in producers.values():
            producer.broker = again
        producers["committing"].until_state("CompleteCommit")
        producers["aborting"].until_state("CompleteAbort")
        staying = producers["staying"]
        staying.until_state("Ongoing")
        staying.send(TOPIC, 0, b"more")
        staying.end(True)
        staying.until_state("CompleteCommit")
        all_is_stable(again)
        expected = Counter({b"committing": PARTITIONS, b"staying": PARTITIONS, b"more": 1})
        assert Counter(values_of(again, TOPIC, "read_committed", PARTITIONS)) == expected
        kept = {name: committed_offset(again, name, TOPIC) for name in names}
        assert kept == {"committing": 7, "aborting": -1, "staying": 7}


def test_states_of_every_directory_decide(
    start_kbroker: BrokerFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Transactions that go on when the ends of logs are noted, and are committed by the moment."""
    second = tmp_path / "second"
    broker = start_kbroker({"offsets.topic.num.partitions": "2"}, more_dirs=(second,))
    make_topic(broker)
    producers = [WireProducer(broker, f"id-{number}") for number in range(8)]
    for number, producer in enumerate(producers):
        producer.init()
        producer.send(TOPIC, number % PARTITIONS, producer.name.encode())
    moment_ms = backup_live._moment_ms

    def committed_before() -> int:
        for number, producer in enumerate(producers):
            producer.send(TOPIC, number % PARTITIONS, producer.name.encode())
            producer.end(True)
            producer.until_state("CompleteCommit")
        return moment_ms()

    taken: list[str] = []
    take = LiveDirectories._partition

    def noted(live: LiveDirectories, folder: Any, key: Key, *rest: Any) -> Extent | None:
        taken.append(key[0])
        return take(live, folder, key, *rest)

    monkeypatch.setattr(backup_live, "_moment_ms", committed_before)
    monkeypatch.setattr(LiveDirectories, "_partition", noted)
    create(broker.data_dir, tmp_path / "backup")
    broker.kill()
    assert [name for name, _ in groupby(taken)] == ["__transaction_state", TOPIC]
    assert places(broker.data_dir) and places(second)
    with restored(tmp_path / "backup", tmp_path, 2) as again:
        all_is_stable(again)
        expected = {producer.name.encode(): 2 for producer in producers}
        assert Counter(values_of(again, TOPIC, "read_committed", PARTITIONS)) == expected


class Writer(threading.Thread, ABC):
    """One transaction after the other: its number to each partition, and as a group's offset."""

    def __init__(self, broker: BrokerProcess, name: str) -> None:
        super().__init__(name=name)
        self.bootstrap = broker.bootstrap
        self.committed = -1
        self.stop = threading.Event()
        self.failed: BaseException | None = None

    def run(self) -> None:
        try:
            self.begin()
            number = 0
            while not self.stop.is_set():
                commit = number % ABORTED != ABORTED - 1
                self.write(b"%s %d" % (self.name.encode(), number), number + 1, commit)
                if commit:
                    self.committed = number
                number += 1
        except BaseException as error:
            self.failed = error

    @abstractmethod
    def begin(self) -> None:
        """Become the producer of the transactional id, which is the thread's name."""

    @abstractmethod
    def write(self, value: bytes, offset: int, commit: bool) -> None:
        """A transaction."""


class Second(Writer):
    """kbroker's client, version 2 of the protocol."""

    def begin(self) -> None:
        self.producer = Producer(bootstrap_servers=self.bootstrap, transactional_id=self.name)
        self.producer.init_transactions()

    def write(self, value: bytes, offset: int, commit: bool) -> None:
        self.producer.begin()
        for partition in range(PARTITIONS):
            self.producer.send(TOPIC, value, partition=partition)
        self.producer.send_offsets_to_transaction({(TOPIC, 0): offset}, self.name)
        if commit:
            self.producer.commit()
        else:
            self.producer.flush()
            self.producer.abort()


class First(Writer):
    """librdkafka, version 1 of the protocol: a producer keeps its epoch."""

    def begin(self) -> None:
        servers = {"bootstrap.servers": self.bootstrap}
        self.producer = confluent_kafka.Producer({**servers, "transactional.id": self.name})
        self.producer.init_transactions()
        member = confluent_kafka.Consumer({**servers, "group.id": self.name})
        self.group = member.consumer_group_metadata()

    def write(self, value: bytes, offset: int, commit: bool) -> None:
        self.producer.begin_transaction()
        for partition in range(PARTITIONS):
            self.producer.produce(TOPIC, value, partition=partition)
        place = confluent_kafka.TopicPartition(TOPIC, 0, offset)
        self.producer.send_offsets_to_transaction([place], self.group)
        if commit:
            self.producer.commit_transaction()
        else:
            self.producer.flush()
            self.producer.abort_transaction()


@pytest.mark.parametrize("directories", [1, 2])
def test_transactions_that_go_on(
    start_kbroker: BrokerFactory, tmp_path: Path, directories: int
) -> None:
    """Each is in the backup whole, with its offsets, or not at all; nobody waits for one."""
    more = tuple(tmp_path / f"more-{number}" for number in range(1, directories))
    broker = start_kbroker({"offsets.topic.num.partitions": "2"}, more_dirs=more)
    make_topic(broker)
    writers: list[Writer] = [Second(broker, "b"), Second(broker, "c"), First(broker, "a")]
    for writer in writers:
        writer.start()

    def went_on(more: int) -> None:
        before = [writer.committed for writer in writers]
        wait_for("transactions", lambda: all(
            writer.failed or writer.committed >= least + more
            for writer, least in zip(writers, before, strict=True)), TIMEOUT_S)  # fmt: skip

    try:
        went_on(20)
        told = {writer.name: writer.committed for writer in writers}
        create(broker.data_dir, tmp_path / "backup")
        went_on(5)
    finally:
        for writer in writers:
            writer.stop.set()
        for writer in writers:
            writer.join(TIMEOUT_S)
    assert not [writer.failed for writer in writers if writer.failed]
    broker.kill()
    with restored(tmp_path / "backup", tmp_path, directories) as again:
        for name in told:
            WireProducer(again, name).init()  # the next of that name; what was open is aborted
        all_is_stable(again)
        seen = Counter(values_of(again, TOPIC, "read_committed", PARTITIONS))
        assert set(seen.values()) == {PARTITIONS}, [v for v, n in seen.items() if n != PARTITIONS]
        for name, last in told.items():
            numbers = sorted(int(value.split()[1]) for value in seen
                             if value.startswith(name.encode()))  # fmt: skip
            wanted = [n for n in range(numbers[-1] + 1) if n % ABORTED != ABORTED - 1]
            assert numbers == wanted and numbers[-1] >= last
            assert committed_offset(again, name, TOPIC) == numbers[-1] + 1
