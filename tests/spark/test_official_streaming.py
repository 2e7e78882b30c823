"""Spark's own connector, streams: kbroker gives what Apache Kafka gives. And format("kbroker")
what the connector gives, where the tests ask for both."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark import official
from tests.spark.official import TIME_MS, Row, places, write
from tests.support.processes import BrokerProcess
from tests.support.waits import wait_for

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("connector")]

PARTITIONS = 3
SLOW_S = 240.0
Load = Callable[..., "DataFrame"]


class Sink:
    """What a stream gave, batch by batch, kept in this process."""

    def __init__(self, checkpoint: Path) -> None:
        self.checkpoint = checkpoint
        self.batches: dict[int, list[Row]] = {}

    def take(self, frame: Any, number: int) -> None:
        """A micro-batch; one that is given again takes the place of the first."""
        self.batches[number] = official.rows_of(frame)

    @property
    def rows(self) -> list[Row]:
        return sorted(row for batch in self.batches.values() for row in batch)

    def start(self, frame: DataFrame, **trigger: Any) -> StreamingQuery:
        """A query of these rows with the checkpoint of this sink."""
        writer = frame.writeStream.foreachBatch(self.take)
        writer = writer.option("checkpointLocation", str(self.checkpoint))
        return (writer.trigger(**trigger) if trigger else writer).start()

    def available(self, frame: DataFrame) -> list[int]:
        """Runs with Trigger.AvailableNow to its end; sizes of the batches of this run."""
        before = set(self.batches)
        query = self.start(frame, availableNow=True)
        assert query.awaitTermination(SLOW_S), query.status
        assert query.exception() is None
        return [len(rows) for number, rows in self.batches.items() if number not in before]


@pytest.fixture
def sink(tmp_path: Path) -> Sink:
    """A sink of the test's own."""
    return Sink(tmp_path / "checkpoint")


@pytest.fixture
def source(request: pytest.FixtureRequest) -> str:
    """The format that is read: the connector's, unless the test asks for both."""
    name: str = getattr(request, "param", "kafka")
    return name


both = pytest.mark.parametrize("source", ["kafka", "kbroker"], indirect=True)


@pytest.fixture
def load(spark: SparkSession, target: BrokerProcess, source: str) -> Load:
    """A stream of that format; options by their names."""

    def load(**options: Any) -> DataFrame:
        reader = spark.readStream.format(source)
        reader = reader.option("kafka.bootstrap.servers", target.bootstrap)
        told = {"includeHeaders": "true", "startingOffsets": "earliest"} | options
        for name, value in told.items():
            text = value if isinstance(value, str) else json.dumps(value)
            reader = reader.option(name.replace("__", "."), text)
        return reader.load()

    return load


@pytest.fixture
def made(target: BrokerProcess, topic: str) -> Callable[[range], list[Row]]:
    """Writes numbered records to the test's topic, which is made first."""
    official.create_topic(target.bootstrap, topic, PARTITIONS)
    return lambda numbers: write(target.bootstrap, topic, PARTITIONS, numbers)


@both
def test_available_now(load: Load, made: Any, topic: str, sink: Sink) -> None:
    written = made(range(300))
    stream = load(subscribe=topic, maxOffsetsPerTrigger="50")
    sizes = sink.available(stream)
    assert len(sizes) >= 6
    assert max(sizes) <= 50
    assert sink.rows == written
    assert sink.available(stream) == []
    written += made(range(300, 320))
    assert sink.available(stream) == [20]
    assert sink.rows == sorted(written)


@both
def test_available_now_ends_where_it_stood(load: Load, made: Any, topic: str, sink: Sink) -> None:
    """What comes while it runs is left to the next run."""
    written = made(range(90))
    take = sink.take

    def take_and_write(frame: Any, number: int) -> None:
        take(frame, number)
        if number == 0:
            made(range(90, 120))

    sink.take = take_and_write  # type: ignore[method-assign]
    sink.available(load(subscribe=topic, maxOffsetsPerTrigger="30"))
    assert sink.rows == written


def test_going_on_from_a_checkpoint(load: Load, made: Any, topic: str, sink: Sink) -> None:
    written = made(range(100))
    stream = load(subscribe=topic)
    for step in range(1, 4):
        query = sink.start(stream)
        try:
            query.processAllAvailable()
        finally:
            query.stop()
        assert sink.rows == sorted(written)
        written += made(range(100 * step, 100 * step + 100))
    query = sink.start(stream, processingTime="100 milliseconds")
    try:
        wait_for("all rows", lambda: len(sink.rows) == len(written), SLOW_S)
        written += made(range(400, 500))
        wait_for("rows that came later", lambda: len(sink.rows) == len(written), SLOW_S)
        wait_for("progress", lambda: query.lastProgress is not None, SLOW_S)
        told = query.recentProgress[-1].sources[0]
        assert json.loads(told.startOffset or "{}").keys() == {topic}
        assert "maxOffsetsBehindLatest" in told.metrics
    finally:
        query.stop()
    assert sink.rows == sorted(written)


@both
@pytest.mark.parametrize("start", ["latest", "offsets", "timestamp", "timestamps"])
def test_starts(load: Load, made: Any, topic: str, sink: Sink, start: str) -> None:
    written = made(range(90))
    options: dict[str, Any] = {
        "latest": {"startingOffsets": "latest"},
        "offsets": {"startingOffsets": {topic: {"0": 5, "1": -1, "2": -2}}},
        "timestamp": {"startingTimestamp": str(TIME_MS + 30)},
        "timestamps": {"startingOffsetsByTimestamp": {
            topic: {"0": TIME_MS, "1": TIME_MS + 30, "2": TIME_MS + 60}}},
    }[start]  # fmt: skip
    wanted: Callable[[Row], bool] = {
        "latest": lambda row: False,
        "offsets": lambda row: (row.partition, row.offset) >= (0, 5) and row.partition != 1,
        "timestamp": lambda row: row.timestamp_ms >= TIME_MS + 30,
        "timestamps": lambda row: row.timestamp_ms >= TIME_MS + 30 * row.partition,
    }[start]
    query = sink.start(load(subscribe=topic, **options))
    try:
        query.processAllAvailable()
        expected = [row for row in written if wanted(row)]
        expected += made(range(90, 120))
        query.processAllAvailable()
    finally:
        query.stop()
    assert sink.rows == sorted(expected)


@both
def test_min_offsets(load: Load, made: Any, topic: str, sink: Sink) -> None:
    written = made(range(30))
    stream = load(subscribe=topic, minOffsetsPerTrigger="60", maxTriggerDelay="10m")
    query = sink.start(stream, processingTime="50 milliseconds")
    try:
        wait_for("the first batch", lambda: len(sink.rows) == 30, SLOW_S)  # whatever there is
        written += made(range(30, 70))
        written += made(range(70, 100))
        wait_for("the second batch", lambda: len(sink.rows) == 100, SLOW_S)
    finally:
        query.stop()
    assert len(sink.batches) == 2
    assert sink.rows == sorted(written)


def test_topics_and_partitions_that_come_later(
    load: Load, target: BrokerProcess, topic: str, sink: Sink
) -> None:
    names = [f"{topic}-{number}" for number in range(3)]
    official.create_topic(target.bootstrap, names[0], 1)
    written = write(target.bootstrap, names[0], 1, range(20))
    stream = load(subscribePattern=f"{topic}-.*", kafka__metadata__max__age__ms="500")
    query = sink.start(stream, processingTime="200 milliseconds")
    try:
        wait_for("the first topic", lambda: len(sink.rows) == 20, SLOW_S)
        for name in names[1:]:
            official.create_topic(target.bootstrap, name, 2)
            written += write(target.bootstrap, name, 2, range(20))
        wait_for("more topics", lambda: len(sink.rows) == 60, SLOW_S)
        official.add_partitions(target.bootstrap, names[0], 4)
        written += write(target.bootstrap, names[0], 4, range(20, 60))
        wait_for("more partitions", lambda: len(sink.rows) == 100, SLOW_S)
    finally:
        query.stop()
    assert sink.rows == sorted(written)


@both
def test_assign(load: Load, made: Any, topic: str, sink: Sink) -> None:
    written = made(range(60))
    sink.available(load(assign={topic: [0, 2]}))
    assert sink.rows == [row for row in written if row.partition != 1]


@both
@pytest.mark.parametrize("option", [{"minPartitions": "9"}, {"maxRecordsPerPartition": "7"}])
def test_slices(load: Load, made: Any, topic: str, sink: Sink, option: dict[str, str]) -> None:
    written = made(range(60))
    slices: list[int] = []
    take = sink.take

    def take_and_count(frame: Any, number: int) -> None:
        slices.append(frame.rdd.getNumPartitions())
        take(frame, number)

    sink.take = take_and_count  # type: ignore[method-assign]
    sink.available(load(subscribe=topic, **option))
    assert slices == [9]
    assert sink.rows == written


@both
def test_lost_records(load: Load, target: BrokerProcess, made: Any, topic: str, sink: Sink) -> None:
    written = made(range(60))
    stream = load(subscribe=topic)
    sink.available(stream)
    more = made(range(60, 120))
    official.delete_records(target.bootstrap, topic, 0, 30)
    query = sink.start(stream, availableNow=True)
    with pytest.raises(Exception, match=r"(?i)data.?loss|may have been lost"):
        query.awaitTermination(SLOW_S)
    lenient = load(subscribe=topic, failOnDataLoss="false")
    sink.available(lenient)
    rest = [row for row in more if row.partition or row.offset >= 30]
    assert sink.rows == sorted(written + rest)


def test_continuous_processing(
    load: Load, target: BrokerProcess, made: Any, topic: str, tmp_path: Path
) -> None:
    """The experimental trigger: each partition has a task that reads for ever, so there may be no
    more of them than the session has threads."""
    written = made(range(60))
    official.create_topic(target.bootstrap, f"{topic}-out", 1)
    frame = load(assign={topic: [0, 1]}, includeHeaders="false").select("key", "value")
    writer = frame.writeStream.format("kafka").option("topic", f"{topic}-out")
    writer = writer.option("kafka.bootstrap.servers", target.bootstrap)
    writer = writer.option("checkpointLocation", str(tmp_path / "continuous"))
    expected = sorted(str(row[3:5]) for row in written if row.partition < 2)

    def copied() -> bool:
        rows = official.read(target.bootstrap, f"{topic}-out", 1)
        return sorted(str(row[3:5]) for row in rows) == expected

    query = writer.trigger(continuous="1 second").start()
    try:
        wait_for("the copy", copied, SLOW_S, pause_s=1.0)
    finally:
        query.stop()


def test_a_broker_that_is_away(
    spark: SparkSession, start_target: Any, topic: str, sink: Sink
) -> None:
    """The stream goes on when a broker that was killed is there again: nothing lost or doubled,
    and the latest offset never goes back."""
    broker = start_target()
    official.create_topic(broker.bootstrap, topic, PARTITIONS)
    written = write(broker.bootstrap, topic, PARTITIONS, range(3000))
    reader = spark.readStream.format("kafka").options(**{
        "kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic, "includeHeaders": "true",
        "startingOffsets": "earliest", "maxOffsetsPerTrigger": "300",
    })  # fmt: skip
    query = sink.start(reader.load())
    try:
        for step in range(3):
            goal = 600 * (step + 1)
            wait_for("some batches", lambda goal=goal: len(sink.rows) >= goal, SLOW_S)
            broker.kill()
            broker.start()
            written += write(broker.bootstrap, topic, PARTITIONS, range(3000, 3100))
        wait_for("all rows", lambda: len(sink.rows) >= len(written), SLOW_S)
        assert query.exception() is None
    finally:
        query.stop()
    assert places(sink.rows) == places(sorted(written))
