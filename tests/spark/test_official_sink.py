"""Spark's own connector as a sink: what it writes to kbroker, other clients read."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark import official
from tests.support.processes import BrokerProcess

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# The first test that starts Spark waits for it, and for Maven.
pytestmark = [pytest.mark.usefixtures("connector"), pytest.mark.timeout(600)]

SLOW_S = 240.0
PARTITIONS = 3
SCHEMA = (
    "topic string, partition int, key binary, value binary,"
    " headers array<struct<key:string,value:binary>>"
)


def sent(frame: DataFrame, target: BrokerProcess, **options: str) -> None:
    """Writes a frame as a batch."""
    writer = frame.write.format("kafka").option("kafka.bootstrap.servers", target.bootstrap)
    writer.options(**{name.replace("__", "."): value for name, value in options.items()}).save()


@pytest.mark.long
def test_every_column(spark: SparkSession, target: BrokerProcess, topic: str) -> None:
    topics = [f"{topic}-a", f"{topic}-b"]
    for name in topics:
        official.create_topic(target.bootstrap, name, PARTITIONS)
    rows = [
        (topics[number % 2], number % PARTITIONS, None if number % 5 == 0 else b"k%d" % number,
         None if number % 7 == 0 else b"v%d" % number,
         [("n", b"%d" % number), ("null", None)] if number % 3 else None)
        for number in range(300)
    ]  # fmt: skip
    sent(spark.createDataFrame(rows, SCHEMA), target)
    for name in topics:
        found = official.read(target.bootstrap, name, PARTITIONS)
        told = Counter((row.topic, row.partition, row.key, row.value, row.headers) for row in found)
        assert told == Counter(
            (*row[:4], tuple(row[4] or ())) for row in rows if row[0] == name
        )  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_settings_of_the_producer(
    spark: SparkSession, target: BrokerProcess, topic: str, codec: str
) -> None:
    official.create_topic(target.bootstrap, topic, PARTITIONS)
    frame = spark.range(5000).selectExpr("cast(id as string) key", "cast(id * 7 as string) value")
    settings = {"kafka__compression__type": codec, "kafka__linger__ms": "5", "kafka__acks": "all"}
    sent(frame, target, topic=topic, **settings)
    found = official.read(target.bootstrap, topic, PARTITIONS)
    assert sorted(int(row.key or b"") for row in found) == list(range(5000))
    assert all(int(row.value or b"") == 7 * int(row.key or b"") for row in found)


@pytest.mark.long
def test_the_option_wins_over_the_column(
    spark: SparkSession, target: BrokerProcess, topic: str
) -> None:
    official.create_topic(target.bootstrap, topic, 1)
    frame = spark.createDataFrame([("elsewhere", b"v")], "topic string, value binary")
    sent(frame, target, topic=topic)
    assert [row.value for row in official.read(target.bootstrap, topic, 1)] == [b"v"]


@pytest.mark.long
def test_wrong_partition(spark: SparkSession, target: BrokerProcess, topic: str) -> None:
    official.create_topic(target.bootstrap, topic, 1)
    frame = spark.createDataFrame([(7, b"v")], "partition int, value binary")
    with pytest.raises(Exception, match=r"(?i)partition"):
        sent(frame, target, topic=topic, kafka__max__block__ms="3000")


def copy(spark: SparkSession, target: BrokerProcess, names: tuple[str, str], folder: Path) -> Any:
    """A stream from one topic to another with all that is written so far."""
    reader = spark.readStream.format("kafka").options(**{
        "kafka.bootstrap.servers": target.bootstrap, "subscribe": names[0],
        "startingOffsets": "earliest", "includeHeaders": "true", "maxOffsetsPerTrigger": "100",
    })  # fmt: skip
    frame = reader.load().select("key", "value", "headers", "partition")
    writer = frame.writeStream.format("kafka").options(**{
        "kafka.bootstrap.servers": target.bootstrap, "topic": names[1],
        "checkpointLocation": str(folder),
    })  # fmt: skip
    return writer.trigger(availableNow=True).start()


def test_a_stream_from_topic_to_topic(
    spark: SparkSession, target: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    """The short test of the connector: a stream in and out, and a batch by time."""
    names = (f"{topic}-in", f"{topic}-out")
    for name in names:
        official.create_topic(target.bootstrap, name, PARTITIONS)
    written = official.write(target.bootstrap, names[0], PARTITIONS, range(150))
    for numbers in (None, range(150, 200)):
        if numbers is not None:
            written += official.write(target.bootstrap, names[0], PARTITIONS, numbers)
        query = copy(spark, target, names, tmp_path / "checkpoint")
        assert query.awaitTermination(SLOW_S), query.status
        found = official.read(target.bootstrap, names[1], PARTITIONS)
        told = Counter((row.partition, row.key, row.value, row.headers) for row in found)
        assert told == Counter((row.partition, row.key, row.value, row.headers) for row in written)
    reader = spark.read.format("kafka").options(**{
        "kafka.bootstrap.servers": target.bootstrap, "subscribePattern": f"{topic}-i.",
        "startingTimestamp": str(official.TIME_MS + 20), "includeHeaders": "true",
        "endingTimestamp": str(official.TIME_MS + 120),
    })  # fmt: skip
    expected = [row for row in written if 20 <= row.timestamp_ms - official.TIME_MS < 120]
    assert official.rows_of(reader.load()) == sorted(expected)
