"""Where a new stream begins, however often Spark asks, and what its first micro-batch has."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import confluent_kafka
import pyspark
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from kbroker.client import TopicPartition
from kbroker.client.errors import BrokerError
from kbroker.client.offsets import EARLIEST, LATEST, FoundOffset
from kbroker.client.results import Results
from kbroker.errors import ErrorCode
from pyspark_kbroker import driver
from pyspark_kbroker.driver import Brokers
from pyspark_kbroker.errors import DataLossError, MissingTopicError
from pyspark_kbroker.options import read_options
from pyspark_kbroker.ranges import OffsetRange
from pyspark_kbroker.stream import StreamReader
from tests.spark.records import fill, make, numbered, patient
from tests.spark.streams import Stream
from tests.support.processes import BrokerProcess
from tests.support.waits import wait_for

# The first of them starts the JVM.
pytestmark = pytest.mark.timeout(900)
of_42 = pytest.mark.skipif(pyspark.__version__ < "4.2", reason="not for sources in Python")

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
WAYS = {
    "latest": {"startingOffsets": "latest"},
    "-1": {"startingOffsets": '{"t":{"0":-1}}'},
    "a time": {"startingTimestamp": "150", "startingOffsetsByTimestampStrategy": "latest"},
}


class Logs(Brokers):
    """Partitions of these lengths, each with its record n at n ms. firsts: where it begins."""

    def __init__(self, options: Any, ends: Mapping[TopicPartition, int]) -> None:
        super().__init__(options)
        self.ends = dict(ends)
        self.firsts: dict[TopicPartition, int] = {}

    def partitions(self, known: Any = ()) -> list[TopicPartition]:
        """Those there are now. Raises MissingTopicError as the real one."""
        topics = {where.topic for where in (*self.ends, *known)}
        for name in set(self._options.subscription.topics) - topics:
            raise MissingTopicError(name)
        return sorted(self.ends)

    def _list(self, wanted: Any) -> Results[TopicPartition, FoundOffset]:
        return Results({where: self._found(where, asked) for where, asked in wanted.items()})

    def _found(self, where: TopicPartition, asked: int) -> Any:
        if where not in self.ends:
            return BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, str(where))
        first, end = self.firsts.get(where, 0), self.ends[where]
        if asked in (EARLIEST, LATEST):
            return FoundOffset(first if asked == EARLIEST else end, -1)
        return FoundOffset(max(first, asked) if asked < end else -1, -1)


def reader(logs: Mapping[TopicPartition, int], **options: str) -> tuple[StreamReader, Logs]:
    """A reader of a run of a query, and what it is told by brokers."""
    told = {
        "kafka.bootstrap.servers": "nobody:9092", "subscribe": "t", "fetchOffset.numRetries": "0",
    }  # fmt: skip
    made = StreamReader(read_options(told | options, streaming=True))
    made._brokers = Logs(made._options, logs)
    return made, made._brokers


def read(made: StreamReader, start: Any, end: Any) -> list[OffsetRange]:
    return [one for one in made.partitions(start, end) if isinstance(one, OffsetRange)]


@pytest.mark.parametrize("way", WAYS)
def test_spark_asks_twice_while_records_come(way: str) -> None:
    """The first micro-batch has nothing, the second all that came."""
    made, logs = reader({T0: 100}, **WAYS[way])
    start = made.initialOffset()
    logs.ends[T0] = 105
    end = made.latestOffset(start)
    assert start == end == {"t": {"0": 100}}
    assert made.reportLatestOffset() == {"t": {"0": 105}}
    logs.ends |= {T0: 110, T1: 3}
    assert made.initialOffset() == start
    assert read(made, start, end) == []
    more = made.latestOffset(end)
    assert read(made, end, more) == [OffsetRange("t", 0, 100, 110), OffsetRange("t", 1, 0, 3)]


@pytest.mark.parametrize("way", WAYS)
def test_the_first_micro_batch_after_a_restart(way: str) -> None:
    """Its end is in the checkpoint, its start is not: what came since is not passed over."""
    before, _ = reader({T0: 100}, **WAYS[way])
    end = before.latestOffset(before.initialOffset())
    made, logs = reader({T0: 200} if way == "-1" else {T0: 200, T1: 7}, **WAYS[way])
    assert read(made, made.initialOffset(), end) == []
    assert read(made, made.initialOffset(), end) == []  # Spark may plan it again
    more = made.latestOffset(end)
    new = [OffsetRange("t", 1, 0, 7)] if T1 in logs.ends else []
    assert read(made, end, more) == [OffsetRange("t", 0, 100, 200), *new]


def test_a_start_that_stays_is_read_at_once() -> None:
    """And again, with a partition that is new since."""
    made, _ = reader({T0: 100}, startingOffsets="earliest")
    start = made.initialOffset()
    end = made.latestOffset(start)
    assert read(made, start, end) == [OffsetRange("t", 0, 0, 100)]
    made, _ = reader({T0: 200, T1: 7}, startingOffsets="earliest")
    assert read(made, made.initialOffset(), end) == [OffsetRange("t", 0, 0, 100)]
    more = made.latestOffset(end)
    assert read(made, end, more) == [OffsetRange("t", 0, 100, 200), OffsetRange("t", 1, 0, 7)]


def test_what_is_lost_before_the_first_micro_batch_is_read_again() -> None:
    made, logs = reader({T0: 200}, startingOffsets="earliest")
    logs.firsts[T0] = 150
    with pytest.raises(DataLossError, match="t-0 went back from 150 to 100"):
        read(made, made.initialOffset(), {"t": {"0": 100}})


def test_a_log_that_goes_back_after_the_first_micro_batch() -> None:
    """Only that one has its start from its end."""
    made, logs = reader({T0: 100}, startingOffsets="latest")
    start = made.initialOffset()
    read(made, start, made.latestOffset(start))
    logs.ends[T0] = 60
    with pytest.raises(DataLossError, match="t-0 went back from 100 to 60"):
        read(made, start, made.latestOffset(start))


@pytest.mark.parametrize("way", WAYS)
def test_available_now_ends_where_it_stood(way: str) -> None:
    made, logs = reader({T0: 100}, **WAYS[way])
    made.prepareForTriggerAvailableNow()
    logs.ends[T0] = 103
    start = made.initialOffset()
    logs.ends[T0] = 110
    end = made.latestOffset(start)
    assert made.initialOffset() == start == end == made.latestOffset(end)


def test_available_now_goes_on_without_a_deleted_topic() -> None:
    """The checkpoint knows it; a topic that was never there is an error."""
    made, _ = reader({T0: 100}, subscribe="t,u", failOnDataLoss="false")
    made.prepareForTriggerAvailableNow()
    start = {"t": {"0": 90}, "u": {"0": 5}}
    end = made.latestOffset(start)
    assert read(made, start, end) == [OffsetRange("t", 0, 90, 100)]
    made, _ = reader({T0: 100}, subscribe="t,u")
    made.prepareForTriggerAvailableNow()
    with pytest.raises(MissingTopicError, match="u"):
        made.latestOffset({"t": {"0": 90}})


def test_available_now_asks_again_for_an_end_before_the_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A broker that has just come to lead tells an old end."""
    made, logs = reader({T0: 60}, **{"fetchOffset.numRetries": "3"})
    monkeypatch.setattr(driver.time, "sleep", lambda _: logs.ends.update({T0: 100}))
    made.prepareForTriggerAvailableNow()
    start = {"t": {"0": 90}}
    assert read(made, start, made.latestOffset(start)) == [OffsetRange("t", 0, 90, 100)]


@pytest.mark.parametrize("way", WAYS)
def test_pyspark_41_asks_for_the_end_first(way: str) -> None:
    made, logs = reader({T0: 100}, **WAYS[way])
    end = made.latestOffset()
    logs.ends[T0] = 103
    assert read(made, made.initialOffset(), end) == []
    assert read(made, end, made.latestOffset()) == [OffsetRange("t", 0, 100, 103)]


def test_pyspark_41_tells_no_start_to_count_from() -> None:
    """Trigger.AvailableNow after a restart: what it asks first is all that it reads."""
    made, logs = reader({T0: 1000}, startingOffsets="earliest", maxOffsetsPerTrigger="50")
    end = made.latestOffset()
    assert end == {"t": {"0": 1000}}
    assert read(made, {"t": {"0": 700}}, end) == [OffsetRange("t", 0, 700, 1000)]
    logs.ends[T0] = 2000
    assert made.latestOffset() == {"t": {"0": 1050}}
    made, _ = reader({T0: 1000}, startingOffsets="earliest", maxOffsetsPerTrigger="50")
    assert made.latestOffset({}) == {"t": {"0": 50}}  # PySpark 4.2, of a topic that is new


@contextmanager
def written_to(bootstrap: str, topic: str) -> Iterator[None]:
    """Values are the offsets, a record a millisecond."""
    over = threading.Event()

    def write() -> None:
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 0}
        )
        number = 0
        while not over.wait(0.001):
            producer.produce(topic, b"%d" % number, partition=0)
            producer.poll(0)
            number += 1
        assert producer.flush(60) == 0

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_latest_of_a_topic_that_is_written_to(
    spark: SparkSession, target: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    """All from where it began on, once."""
    make(target.bootstrap, topic)
    stream = Stream(spark, tmp_path, target, subscribe=topic)
    with written_to(target.bootstrap, topic):
        query = stream.begun()
        try:
            wait_for("rows", lambda: sum(p["numInputRows"] for p in query.recentProgress), 240)
            assert query.exception() is None
        finally:
            query.stop()
    stream.run()
    first = stream.offsets()[0][topic]["0"]
    last = stream.offsets()[-1][topic]["0"]
    assert stream.values() == [*range(first, last)]
    assert last > first > 0


@pytest.mark.long
def test_the_first_micro_batch_fails_in_its_sink(
    spark: SparkSession, target: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    """What comes before the restart is read by it."""
    make(target.bootstrap, topic)
    fill(target.bootstrap, topic, numbered(10))
    frame = spark.readStream.format("kbroker").option("subscribe", topic)
    rows = frame.option("kafka.bootstrap.servers", target.bootstrap).load()

    def refuse(_: Any, number: int) -> None:
        raise ValueError(f"no room for micro-batch {number}")

    def fail() -> None:
        writer = rows.writeStream.foreachBatch(refuse)
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        try:
            query.awaitTermination(240)
        finally:
            query.stop()

    for step in (1, 2):
        with pytest.raises(StreamingQueryException, match="no room for micro-batch 0"):
            patient(fail)
        fill(target.bootstrap, topic, numbered(5, first=5 + 5 * step))
    stream = Stream(spark, tmp_path, target, subscribe=topic)
    assert sum(stream.run()) == 10
    assert stream.values() == [*range(10, 20)]
    assert stream.offsets()[0] == {topic: {"0": 10}}


@of_42
def test_available_now_from_a_time_or_the_end(
    spark: SparkSession, target: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    """The first micro-batch has nothing; Spark goes on to the next all the same."""
    make(target.bootstrap, topic, 2)
    fill(target.bootstrap, topic, numbered(30, start_ms=1_700_000_000_000))
    fill(target.bootstrap, topic, numbered(9, partition=1, first=100))
    stream = Stream(
        spark, tmp_path, target, subscribe=topic,
        startingOffsetsByTimestamp=json.dumps({topic: {"0": 1_700_000_010_000, "1": 2**45}}),
        startingOffsetsByTimestampStrategy="latest",
    )  # fmt: skip
    assert stream.run() == [20]
    assert stream.values() == [*range(10, 30)]
    assert stream.offsets() == [{topic: {"0": 10, "1": 9}}, {topic: {"0": 30, "1": 9}}]
