"""kbroker.exactlyOnce: tasks and the driver of an epoch, without and with a real Spark."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from kbroker.client import Admin
from kbroker.client.errors import KafkaError, ProducerFencedError, TransactionTimeoutError
from pyspark_kbroker import epochs
from pyspark_kbroker.epochs import Task
from pyspark_kbroker.errors import EpochError, OptionError
from pyspark_kbroker.options import WriteOptions, write_options
from pyspark_kbroker.sending import Written
from pyspark_kbroker.write import BatchWriter, StreamWriter
from tests.spark.records import fill, make, numbered, patient
from tests.support.processes import BrokerProcess
from tests.support.transactional import values_of
from tests.support.waits import wait_for

pytestmark = pytest.mark.timeout(900)

PARTITIONS = 2


class Sink:
    """A stream's sink as Spark uses it: a part for each task, then the driver's decision."""

    def __init__(self, broker: BrokerProcess, topic: str, **more: str) -> None:
        make(broker.bootstrap, topic, PARTITIONS)
        self.broker, self.topic = broker, topic
        told = {"kafka.bootstrap.servers": broker.bootstrap, "topic": topic,
                "kbroker.exactlyOnce": "true"}  # fmt: skip
        self.options: WriteOptions = write_options(told | more)

    def write(self, epoch: int, *parts: Sequence[bytes]) -> list[Written]:
        """Each part by a task of its own."""
        return [self.task(epoch, number, *values) for number, values in enumerate(parts)]

    def task(self, epoch: int, number: int, *values: bytes) -> Written:
        batches = [pa.record_batch({"value": pa.array([value], pa.binary())}) for value in values]
        return epochs.write(self.options, Task(self.topic, epoch, number), iter(batches))

    def commit(self, epoch: int, messages: Sequence[Any]) -> None:
        epochs.commit(self.options, messages, epoch)

    def seen(self, isolation: str = "read_committed") -> Counter[bytes]:
        return Counter(values_of(self.broker, self.topic, isolation, PARTITIONS))


@pytest.fixture
def sink(target: BrokerProcess, topic: str) -> Iterator[Sink]:
    yield Sink(target, topic)


def test_nothing_is_seen_before_all_is_committed(sink: Sink) -> None:
    messages = sink.write(0, [b"a", b"b"], [], [b"c"])
    assert [one.records for one in messages] == [2, 0, 1]
    assert sink.seen() == Counter()
    sink.commit(0, messages)
    wait_for("all is seen", lambda: sink.seen() == Counter([b"a", b"b", b"c"]), 60)
    sink.commit(1, sink.write(1, [b"d"], [b"e"]))
    wait_for("the next as well", lambda: sum(sink.seen().values()) == 5, 60)


def test_the_driver_is_killed_before_it_commits(sink: Sink) -> None:
    sink.write(0, [b"a"], [b"b"])
    sink.commit(0, sink.write(0, [b"a"], [b"b"]))
    wait_for("once", lambda: sink.seen() == Counter([b"a", b"b"]), 60)
    assert sink.seen("read_uncommitted") == Counter([b"a", b"b"] * 2)


def test_the_driver_is_killed_after_it_has_committed(sink: Sink) -> None:
    """Spark's checkpoint lacks the epoch, which is written again: nothing is sent."""
    sink.commit(0, sink.write(0, [b"a"], [b"b", b"c"]))
    again = sink.write(0, [b"a"], [b"c", b"b"])  # of a shuffle: the same rows, in another order
    assert again == [Written(0), Written(0)]
    sink.commit(0, again)
    assert sink.seen("read_uncommitted") == Counter([b"a", b"b", b"c"])


def test_the_driver_is_killed_in_between(sink: Sink) -> None:
    """The first task is committed, the others are not: only these are written again."""
    first, *_ = sink.write(0, [b"a"], [b"b"], [b"c"])
    assert first.transaction is not None
    with Admin(bootstrap_servers=sink.broker.bootstrap) as admin:
        admin.end_transaction(first.transaction, commit=True)
        admin.end_transaction(first.transaction, commit=True)  # its answer was lost
    again = sink.write(0, [b"a"], [b"b"], [b"c"])
    assert [one.records for one in again] == [0, 1, 1]
    sink.commit(0, again)
    wait_for("once", lambda: sink.seen() == Counter([b"a", b"b", b"c"]), 60)


def test_another_attempt_takes_its_place(sink: Sink) -> None:
    """The task was done, and Spark's second attempt of it began later: nothing is committed."""
    messages = sink.write(0, [b"a"], [b"b"])
    sink.task(0, 1, b"b")
    with pytest.raises(EpochError, match="ended before all"):
        sink.commit(0, messages)
    epochs.abort(sink.options, messages)
    assert sink.seen() == Counter()
    sink.commit(0, sink.write(0, [b"a"], [b"b"]))
    wait_for("once", lambda: sink.seen() == Counter([b"a", b"b"]), 60)


def test_a_task_that_is_passed_by_writes_nothing(sink: Sink) -> None:
    messages = sink.write(0, [b"a"], [b"b"])
    epochs.abort(sink.options, messages)
    (transaction,) = (one.transaction for one in messages[:1])
    assert transaction is not None
    with (
        Admin(bootstrap_servers=sink.broker.bootstrap) as admin,
        pytest.raises(KafkaError),
    ):
        admin.end_transaction(transaction, commit=True)
    assert sink.seen() == Counter()


def test_other_rows_are_refused(sink: Sink) -> None:
    """Another split into tasks would double rows; it is told, and nothing of it is seen."""
    sink.commit(0, sink.write(0, [b"a", b"b"], [b"c"]))
    with pytest.raises(EpochError, match="committed with other rows"):
        sink.task(0, 0, b"a")
    with pytest.raises(EpochError, match="committed with other rows"):
        sink.task(0, 1)
    with pytest.raises(EpochError, match="the checkpoint is an old one"):
        sink.commit(1, sink.write(1, [b"d"]))
        sink.task(0, 0, b"a", b"b")


def test_fewer_tasks_are_refused(sink: Sink) -> None:
    messages = sink.write(0, [b"a"], [b"b"], [b"c"])
    last = messages[-1].transaction
    assert last is not None
    with Admin(bootstrap_servers=sink.broker.bootstrap) as admin:
        epochs._check_count(admin, messages, sink.topic, 0)
        admin.end_transaction(last, commit=True)  # and the driver is killed
    again = sink.write(0, [b"a", b"c"], [b"b"])
    with pytest.raises(EpochError, match="written in 2 tasks, and was to be committed in 3"):
        sink.commit(0, again)
    epochs.abort(sink.options, again)
    assert sink.seen() == Counter([b"c"])
    sink.commit(0, sink.write(0, [b"a"], [b"b"], [b"c"]))
    wait_for("once", lambda: sink.seen() == Counter([b"a", b"b", b"c"]), 60)


@pytest.mark.long
def test_an_epoch_that_takes_too_long(kbroker: BrokerProcess, topic: str) -> None:
    sink = Sink(kbroker, topic, **{"kafka.transaction.timeout.ms": "1000"})
    messages = sink.write(0, [b"a"])

    def failed() -> str | None:
        (transaction,) = (one.transaction for one in messages)
        assert transaction is not None
        with Admin(bootstrap_servers=kbroker.bootstrap) as admin:
            told = admin.describe_transactions([transaction.transactional_id])
            state = told[transaction.transactional_id].state
        return None if state == "Ongoing" else state

    wait_for("the timeout", failed, 60)
    with pytest.raises((EpochError, ProducerFencedError)):
        sink.commit(0, messages)
    sink.commit(0, sink.write(0, [b"a"]))
    wait_for("once", lambda: sink.seen() == Counter([b"a"]), 60)


def test_more_time_than_brokers_grant(target: BrokerProcess, topic: str) -> None:
    sink = Sink(target, topic, **{"kafka.transaction.timeout.ms": "900001"})
    with pytest.raises(OptionError, match=r"set it to their transaction\.max\.timeout\.ms"):
        sink.task(0, 0, b"a")


@pytest.mark.long
def test_nobody_answers() -> None:
    """No task waits longer than it was told to."""
    told = {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t", "kafka.max.block.ms": "3000",
            "kbroker.exactlyOnce": "true"}  # fmt: skip
    begun = time.monotonic()
    with pytest.raises(TransactionTimeoutError, match=r"127\.0\.0\.1:1"):
        epochs.write(write_options(told), Task("q", 0, 0), iter(()))
    assert time.monotonic() - begun < 30


def test_wrong_options(kbroker: BrokerProcess) -> None:
    base = {"kafka.bootstrap.servers": kbroker.bootstrap, "topic": "t",
            "kbroker.exactlyOnce": "true"}  # fmt: skip
    with pytest.raises(OptionError, match="is for streams"):
        BatchWriter(write_options(base))
    with pytest.raises(OptionError, match="neither true nor false"):
        write_options(base | {"kbroker.exactlyOnce": "yes"})
    with pytest.raises(OptionError, match=r"set kbroker\.exactlyOnce=true"):
        write_options(base | {"kafka.transactional.id": "mine"})
    with pytest.raises(OptionError, match="idempotence"):
        write_options(base | {"kafka.enable.idempotence": "false"})
    with pytest.raises(RuntimeError, match="no query"):
        StreamWriter(write_options(base)).write(iter(()))


@pytest.mark.long
def test_a_replayed_epoch(
    spark: SparkSession, target: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    """Spark forgets that it has committed the last epochs, as if it had been killed before."""
    make(target.bootstrap, topic, 3)
    make(target.bootstrap, f"{topic}-out", PARTITIONS)
    fill(target.bootstrap, topic, [one for n in range(3) for one in
                                   numbered(20, partition=n, first=20 * n)])  # fmt: skip
    checkpoint = tmp_path / "checkpoint"

    def run() -> None:
        frame = (
            spark.readStream.format("kbroker")
            .option("kafka.bootstrap.servers", target.bootstrap)
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", "20")
            .load()
        )
        writer = (
            frame.select("key", "value")
            .writeStream.format("kbroker")
            .option("kafka.bootstrap.servers", target.bootstrap)
            .option("topic", f"{topic}-out")
            .option("kbroker.exactlyOnce", "true")
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
        )
        assert patient(lambda: writer.start().awaitTermination(240))

    run()
    expected = Counter(b"%d" % n for n in range(60))

    def seen(isolation: str) -> Counter[bytes]:
        return Counter(values_of(target, f"{topic}-out", isolation, PARTITIONS))

    wait_for("every row once", lambda: seen("read_committed") == expected, 60)
    every = seen("read_uncommitted")
    last = max(int(path.name) for path in (checkpoint / "commits").glob("[0-9]*"))
    assert last >= 2
    for path in (checkpoint / "commits").iterdir():
        if path.name.lstrip(".").startswith(str(last)):
            path.unlink()
    run()
    assert seen("read_committed") == expected
    assert seen("read_uncommitted") == every
