"""Writes of a real Spark, read back by librdkafka."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tests.client.reading import read_all
from tests.spark.records import fill, make, numbered, patient
from tests.support.processes import BrokerProcess

# The first of them starts the JVM.
pytestmark = pytest.mark.timeout(900)


def save(frame: DataFrame, broker: BrokerProcess, **options: str) -> None:
    writer = frame.write.format("kbroker").mode("append")
    writer.option("kafka.bootstrap.servers", broker.bootstrap).options(**options).save()


def test_every_column(spark: SparkSession, target: BrokerProcess, topic: str) -> None:
    make(target.bootstrap, topic, 3)
    make(target.bootstrap, f"{topic}-b", 1)
    frame = spark.sql(
        f"select if(id < 6, '{topic}', '{topic}-b') topic, if(id % 2 = 0, string(id), null) key,"
        " if(id = 5, null, encode(string(id), 'utf-8')) value, id ignored,"
        " if(id < 3, int(id), if(id < 6, 2, null)) partition,"
        " if(id = 1, array(named_struct('key', 'h', 'value', encode('1', 'utf-8')),"
        " named_struct('key', 'h', 'value', null)), null) headers"
        " from range(0, 9, 1, 1)"
    )
    save(frame, target)
    told = read_all(target.bootstrap, topic, 6, 3)
    assert [(r.partition, r.key, r.value) for r in told] == [
        (0, b"0", b"0"),
        (1, None, b"1"),
        (2, b"2", b"2"),
        (2, None, b"3"),
        (2, b"4", b"4"),
        (2, None, None),
    ]
    assert told[1].headers == [("h", b"1"), ("h", None)]
    told = read_all(target.bootstrap, f"{topic}-b", 3)
    assert [r.value for r in told] == [b"6", b"7", b"8"]
    save(frame.where("id < 6").drop("partition"), target, topic=f"{topic}-b")
    assert len(read_all(target.bootstrap, f"{topic}-b", 9)) == 9


def test_wrong_writes(spark: SparkSession, target: BrokerProcess, topic: str) -> None:
    make(target.bootstrap, topic)
    rows = spark.range(3)
    with pytest.raises(PySparkException, match="no column value"):
        save(rows, target, topic=topic)
    with pytest.raises(PySparkException, match="no topic: set the option"):
        save(rows.selectExpr("string(id) value"), target)
    with pytest.raises(PySparkException, match="value is bigint, and has to be string or binary"):
        save(rows.selectExpr("id value"), target, topic=topic)
    with pytest.raises(PySparkException, match="a row has no topic"):
        save(rows.selectExpr("string(id) value", "string(null) topic"), target)
    with pytest.raises(PySparkException, match="has 1, so none 4"):
        save(rows.selectExpr("string(id) value", "int(4) partition"), target, topic=topic)


@pytest.mark.long
def test_nobody_takes_it(spark: SparkSession) -> None:
    """A task ends when its time is over, and says for whom it waited."""
    rows = spark.range(3).selectExpr("string(id) value")
    writer = rows.write.format("kbroker").mode("append").option("topic", "t")
    writer = writer.option("kafka.bootstrap.servers", "127.0.0.1:1")
    begun = time.monotonic()
    with pytest.raises(PySparkException, match=r"127\.0\.0\.1:1"):
        writer.option("kafka.max.block.ms", "3000").save()
    assert time.monotonic() - begun < 60


def test_a_stream_into_a_topic(
    spark: SparkSession, target: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    """In mode complete each micro-batch writes its whole result. Spark has no mode update for sinks
    in Python: there foreachBatch does a batch write."""
    make(target.bootstrap, topic)
    make(target.bootstrap, f"{topic}-out")
    fill(target.bootstrap, topic, numbered(30))
    frame = (
        spark.readStream.format("kbroker")
        .option("kafka.bootstrap.servers", target.bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
        .groupBy("key")
        .count()
    )
    writer = (
        frame.selectExpr("key", "string(count) value")
        .writeStream.format("kbroker")
        .outputMode("complete")
        .option("kafka.bootstrap.servers", target.bootstrap)
        .option("topic", f"{topic}-out")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
    )
    assert patient(lambda: writer.start().awaitTermination(240))
    told = read_all(target.bootstrap, f"{topic}-out", 3)
    assert sorted({(r.key, r.value) for r in told}) == [(b"k%d" % n, b"10") for n in range(3)]
