"""A compacted topic of transactions, cleaned while it is written, read and killed: aborted records
go, and whoever reads what is committed sees the same as if nothing had been cleaned."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import OFFSET_BEGINNING, KafkaError, TopicPartition
from confluent_kafka import Consumer as LibrdkafkaConsumer

from kbroker.client.consumer import Consumer
from kbroker.files import read_offset_checkpoint
from tests.long.test_cleaner_kafka import KAFKA_SETTINGS, MAP_BYTES, clean, files, kafka
from tests.long.test_cleaner_kafka import SETTINGS as LOG_SETTINGS
from tests.reference import cleaner as oracle
from tests.reference.cleaner_history import RETENTION_MS, read_committed
from tests.reference.crafted_batches import Record
from tests.support import wire
from tests.support.kafka import dump_log
from tests.support.kbroker import KbrokerProcess
from tests.support.logs import open_log
from tests.support.rounds import rounds
from tests.support.transactional import WireProducer
from tests.support.waits import wait_for
from tests.txn.committed import Follower, Found

LONG = pytest.mark.long
TOPIC, KEYS, PRODUCERS, STEPS = "compacted", 30, 4, 60
SETTINGS = {"log.cleaner.backoff.ms": "50", "transaction.state.log.num.partitions": "2",
            "offsets.topic.num.partitions": "2"}  # fmt: skip
COMPACTED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01",
             "segment.ms": "200", "delete.retention.ms": "300"}  # fmt: skip
COMMITTED, UNCOMMITTED = "read_committed", "read_uncommitted"
LIMIT_S = 120


class Row(NamedTuple):
    """A record, in the order of offsets, and the number of its transaction."""

    key: bytes
    value: bytes | None
    transaction: int


class Writers:
    """Producers of both protocols whose transactions overlap, and what of them counts."""

    def __init__(self, broker: KbrokerProcess, dice: random.Random) -> None:
        self.dice = dice
        self.producers = [WireProducer(broker, f"id{n}", 1 + n % 2) for n in range(PRODUCERS)]
        self.rows: list[Row] = []
        self.open: dict[int, int] = {}
        """Producers and the numbers of their transactions."""
        self.count = 0
        self.committed: set[int] = set()

    def begin_anew(self) -> None:
        """All of them; what is open is aborted."""
        for producer in self.producers:
            producer.init()
        self.open.clear()

    def send(self, number: int) -> None:
        if number not in self.open:
            self.count += 1
            self.open[number] = self.count
        rows = []
        for _ in range(self.dice.randint(1, 4)):
            value = b"%d" % (len(self.rows) + len(rows)) if self.dice.random() < 0.9 else None
            rows.append(Row(b"%d" % self.dice.randrange(KEYS), value, self.open[number]))
        self.producers[number].send(TOPIC, 0, *(Record(row.value, row.key) for row in rows))
        self.rows += rows

    def end(self, number: int, *, commit: bool) -> None:
        self.producers[number].end(commit)
        transaction = self.open.pop(number)
        if commit:
            self.committed.add(transaction)

    def step(self) -> None:
        number = self.dice.randrange(PRODUCERS)
        if number in self.open and self.dice.random() < 0.4:
            self.end(number, commit=self.dice.random() < 0.6)
        else:
            self.send(number)

    def end_all(self) -> None:
        for number in list(self.open):
            self.end(number, commit=self.dice.random() < 0.5)

    def expected(self) -> dict[bytes, bytes]:
        """The last committed value of each key, up to the first transaction that is open."""
        still = set(self.open.values())
        last: dict[bytes, bytes | None] = {}
        for row in self.rows:
            if row.transaction in still:
                break
            if row.transaction in self.committed:
                last[row.key] = row.value
        return living(last)

    def dropped(self) -> set[bytes]:
        """Values that nobody may see who reads what is committed."""
        return {
            row.value
            for row in self.rows
            if row.value is not None and row.transaction not in self.committed
        }


def living(last: dict[bytes, bytes | None]) -> dict[bytes, bytes]:
    return {key: value for key, value in last.items() if value is not None}


# ---- readers: all of partition 0


def by_librdkafka(broker: KbrokerProcess, isolation: str = COMMITTED) -> list[Found]:
    consumer = LibrdkafkaConsumer({
        "bootstrap.servers": broker.bootstrap, "group.id": "unused", "check.crcs": True,
        "isolation.level": isolation, "enable.partition.eof": True, "enable.auto.commit": False,
    })  # fmt: skip
    consumer.assign([TopicPartition(TOPIC, 0, OFFSET_BEGINNING)])
    found: list[Found] = []
    while True:
        message = consumer.poll(60)
        assert message is not None, "no end of the partition within 60 s"
        error = message.error()
        if error is None:
            found.append(Found(message.offset(), message.key(), message.value()))
        else:
            assert error.code() == KafkaError._PARTITION_EOF, error
            consumer.close()
            return found


def by_kbroker(broker: KbrokerProcess) -> list[Found]:
    where = (TOPIC, 0)
    found: list[Found] = []
    with Consumer(
        bootstrap_servers=broker.bootstrap, isolation_level=COMMITTED, check_crcs=True
    ) as consumer:
        consumer.assign([where])
        consumer.seek_to_beginning([where])
        (end,) = consumer.end_offsets([where]).values()
        until = time.monotonic() + 60
        while consumer.position(where) < end:
            assert time.monotonic() < until, "no end of the partition within 60 s"
            found += [Found(one.offset, one.key, one.value) for one in consumer.poll(0.5)]
    return found


def by_frames(broker: KbrokerProcess) -> list[Found]:
    return Follower(TOPIC, 0).read(broker.port)


READERS: tuple[Callable[[KbrokerProcess], list[Found]], ...] = (
    by_librdkafka, by_kbroker, by_frames,
)  # fmt: skip


def check(broker: KbrokerProcess, writers: Writers) -> list[list[Found]]:
    """What each reader finds, who begins at the beginning."""
    all_found = []
    for read in READERS:
        found = read(broker)
        all_found.append(found)
        offsets = [one.offset for one in found]
        assert offsets == sorted(set(offsets))
        assert living({one.key: one.value for one in found}) == writers.expected(), read.__name__
        assert not writers.dropped() & {one.value for one in found}, read.__name__
    return all_found


# ---- the tests


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[KbrokerProcess]:
    made = KbrokerProcess(tmp_path / "kbroker", SETTINGS)
    made.start()
    wire.create_topic(made.port, TOPIC, 1, COMPACTED)
    yield made
    made.kill()


def clean_to(broker: KbrokerProcess) -> int:
    """The offset up to which a cleaning has seen the log."""
    path = broker.data_dir / "cleaner-offset-checkpoint"
    return read_offset_checkpoint(path).get((TOPIC, 0), 0)


def write_until_cleaned(broker: KbrokerProcess, writers: Writers) -> None:
    """Segments are rolled by what is written; all of now has been seen by a cleaning then."""
    writers.send(0)
    writers.end_all()
    (end,) = [one["offset"] for one in latest(broker)]

    def is_clean() -> bool:
        writers.send(0)
        writers.end(0, commit=True)
        return clean_to(broker) >= end

    wait_for("the log is clean", is_clean, LIMIT_S, 0.1)


def latest(broker: KbrokerProcess) -> list[dict[str, int]]:
    part = {"partition_index": 0, "timestamp": -1}
    body = {"replica_id": -1, "isolation_level": 0,
            "topics": [{"name": TOPIC, "partitions": [part]}]}  # fmt: skip
    found: list[dict[str, int]] = wire.call_once(broker.port, wire.LIST_OFFSETS, 6, body)[
        "topics"
    ][0]["partitions"]
    return found


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("rounds", rounds(1, long=5, full=15))
def test_every_reader_sees_the_same(broker: KbrokerProcess, rounds: int) -> None:
    writers = Writers(broker, random.Random(rounds))
    for _ in range(rounds):
        writers.begin_anew()
        for _ in range(STEPS):
            writers.step()
        check(broker, writers)
        write_until_cleaned(broker, writers)
        writers.send(1)
        check(broker, writers)
        broker.kill()
        broker.start()
    writers.begin_anew()
    seen = clean_to(broker)
    gone = [one for one in by_librdkafka(broker, UNCOMMITTED) if one.value in writers.dropped()]
    assert not [one for one in gone if one.offset < seen], "aborted records that were not cleaned"
    broker.stop()
    broker.settings["log.cleaner.enable"] = "false"
    broker.start()
    first, *others = check(broker, writers)
    assert all(other == first for other in others)
    assert len(first) < len(writers.rows)
    for _ in range(5):
        offset = writers.dice.randint(0, first[-1].offset)
        rest = Follower(TOPIC, 0, offset).read(broker.port)
        assert rest == [one for one in first if one.offset >= offset]
    broker.stop()
    dump_log(sorted(broker.partition_dir(TOPIC, 0).glob("*.log")), "--deep-iteration")


@LONG
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(4))
def test_kafkas_cleaner_leaves_the_same(
    broker: KbrokerProcess, tmp_path: Path, seed: int
) -> None:
    """Of what coordinators and clients of both protocols have written, byte for byte."""
    broker.stop()
    broker.settings["log.cleaner.enable"] = "false"
    broker.start()
    writers = Writers(broker, random.Random(seed))
    writers.begin_anew()
    for _ in range(4 * STEPS):
        writers.step()
    writers.end_all()
    writers.send(0)  # stays open
    wanted = writers.expected()
    broker.stop()
    folders = [tmp_path / name / f"{TOPIC}-0" for name in ("ours", "theirs")]
    for folder in folders:
        shutil.copytree(broker.partition_dir(TOPIC, 0), folder)
        (folder / "partition.metadata").unlink()
    began_ms = int(time.time() * 1000)
    for later_ms in (0, 2 * RETENTION_MS, 4 * RETENTION_MS):
        for folder in folders:
            for snapshot in folder.glob("*.snapshot"):
                snapshot.unlink()  # both know of producers what is in the log
        now_ms = began_ms + later_ms
        end = clean(folders[0], now_ms)
        told = kafka("clean", str(now_ms), "0", str(MAP_BYTES), str(folders[1]), *KAFKA_SETTINGS)
        assert int(told[0]) == end > 0
        ours, theirs = (files(folder, ".log", ".txnindex") for folder in folders)
        for name in sorted(ours.keys() | theirs.keys()):
            if name.endswith(".log"):
                assert oracle.content(ours[name]) == oracle.content(theirs[name]), name
            assert ours[name] == theirs[name], name
        for folder in folders:
            log = open_log(folder, clean=False, **LOG_SETTINGS)
            assert read_committed(log) == wanted
            log.close()
