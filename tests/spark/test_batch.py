"""Batch reads of a real Spark, from a real broker."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col

from kbroker.client import Admin
from tests.spark.records import Sent, fill, make, numbered
from tests.support.processes import BrokerProcess

# The first of them starts the JVM.
pytestmark = pytest.mark.timeout(900)

START_MS = 1_700_000_000_000


def load(spark: SparkSession, broker: BrokerProcess, **options: Any) -> DataFrame:
    reader = spark.read.format("kbroker").option("kafka.bootstrap.servers", broker.bootstrap)
    return reader.options(**options).load()


def values(frame: DataFrame) -> list[int]:
    return sorted(int(row.value) for row in frame.select("value").collect())


def test_columns(spark: SparkSession, target: BrokerProcess, topic: str) -> None:
    """By the official connector's names and types."""
    make(target.bootstrap, topic, 2)
    headers = [("h", b"1"), ("h", None)]
    sent = [
        Sent(b"a", b"k", 0, START_MS + 1, headers),
        Sent(None, b"", 1, START_MS + 2),
        Sent(b"\x00\xff", None, 1, START_MS + 3),
    ]
    fill(target.bootstrap, topic, sent)
    plain = load(spark, target, subscribe=topic)
    assert plain.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,"
        "timestamp:timestamp,timestampType:int>"
    )
    told = load(spark, target, subscribe=topic, includeHeaders="true")
    assert told.schema["headers"].dataType.simpleString() == (
        "array<struct<key:string,value:binary>>"
    )
    rows = told.selectExpr("*", "unix_millis(timestamp) ms").orderBy("ms").collect()
    assert [(r.key, r.value, r.topic, r.partition, r.offset, r.ms) for r in rows] == [
        (b"k", b"a", topic, 0, 0, START_MS + 1),
        (b"", None, topic, 1, 0, START_MS + 2),
        (None, b"\x00\xff", topic, 1, 1, START_MS + 3),
    ]
    assert [r.timestampType for r in rows] == [0, 0, 0]
    assert [(h.key, h.value) for h in rows[0].headers] == headers
    assert rows[1].headers is None


def test_from_where_to_where(spark: SparkSession, target: BrokerProcess, topic: str) -> None:
    make(target.bootstrap, topic, 2)
    fill(target.bootstrap, topic, numbered(100, start_ms=START_MS))
    fill(target.bootstrap, topic, numbered(50, partition=1, first=100, start_ms=START_MS))
    every = load(spark, target, subscribe=topic)
    assert values(every) == [*range(150)]
    assert every.rdd.getNumPartitions() == 2
    told = load(
        spark,
        target,
        subscribePattern=f"{topic[:-1]}[{topic[-1]}]",
        startingOffsets=json.dumps({topic: {"0": 90, "1": -2}}),
        endingOffsets=json.dumps({topic: {"0": -1, "1": 3}}),
        minPartitions="5",
    )
    assert values(told) == [*range(90, 103)]
    assert told.rdd.getNumPartitions() >= 5
    told = load(
        spark,
        target,
        assign=json.dumps({topic: [1]}),
        startingTimestamp=START_MS + 110_000,
        endingTimestamp=START_MS + 120_500,
        maxRecordsPerPartition="4",
    )
    assert values(told) == [*range(110, 121)]
    assert told.rdd.getNumPartitions() == 3
    times = {
        "startingOffsetsByTimestamp": json.dumps({topic: {"0": START_MS + 5000, "1": 2**45}}),
        "endingOffsetsByTimestamp": json.dumps({topic: {"0": START_MS + 9000, "1": 2**45}}),
    }
    with pytest.raises(PySparkException, match=f"{topic}-1 has no record at or after"):
        values(load(spark, target, subscribe=topic, **times))
    late = {**times, "startingOffsetsByTimestampStrategy": "latest"}
    assert values(load(spark, target, subscribe=topic, **late)) == [*range(5, 9)]


def test_filters_are_pushed_down(spark: SparkSession, target: BrokerProcess, topic: str) -> None:
    """With Spark's switch on less is fetched; with it off, which is the default, nothing fails."""
    make(target.bootstrap, topic, 2)
    fill(target.bootstrap, topic, numbered(100, start_ms=START_MS))
    fill(target.bootstrap, topic, numbered(100, partition=1, first=100, start_ms=START_MS))

    def some() -> DataFrame:
        since = col("timestamp") >= "2023-11-14 22:14:20"  # START_MS and 60 s
        return load(spark, target, subscribe=topic).where(
            since & (col("partition") == 0) & (col("offset") < 70) & (col("value") != b"65")
        )

    wanted = [n for n in range(60, 70) if n != 65]
    assert values(some()) == wanted
    switch = "spark.sql.python.filterPushdown.enabled"
    spark.conf.set(switch, "true")
    try:
        pushed = some()
        assert values(pushed) == wanted
        assert pushed.rdd.getNumPartitions() == 1
    finally:
        spark.conf.unset(switch)


def test_errors_reach_the_user(spark: SparkSession, target: BrokerProcess, topic: str) -> None:
    make(target.bootstrap, topic)
    fill(target.bootstrap, topic, numbered(10))
    with pytest.raises(PySparkException, match="did you mean includeHeaders"):
        load(spark, target, subscribe=topic, includeHeader="true").count()
    with pytest.raises(PySparkException, match=f"no topic '{topic}x'; did you mean {topic}"):
        load(spark, target, subscribe=f"{topic}x").count()
    with pytest.raises(PySparkException, match="has no partition 7; it has 1"):
        load(spark, target, assign=json.dumps({topic: [0, 7]})).count()
    with pytest.raises(PySparkException, match="nothing is said of"):
        load(spark, target, subscribe=topic, startingOffsets='{"other":{"0":1}}').count()
    with Admin(bootstrap_servers=target.bootstrap) as admin:
        admin.delete_records({(topic, 0): 5})
    lost = {"subscribe": topic, "startingOffsets": json.dumps({topic: {"0": 2}})}
    with pytest.raises(PySparkException, match=f"{topic}-0 begins at 5, not at 2"):
        load(spark, target, **lost).count()
    assert values(load(spark, target, failOnDataLoss="false", **lost)) == [*range(5, 10)]


@pytest.mark.long
def test_nobody_answers(spark: SparkSession) -> None:
    from pyspark_kbroker import DefaultSource

    assert DefaultSource.name() == "kbroker"
    frame = spark.read.format("kbroker").option("kafka.bootstrap.servers", "127.0.0.1:1")
    frame = frame.option("kafka.default.api.timeout.ms", "3000").option("subscribe", "t")
    begun = time.monotonic()
    with pytest.raises(PySparkException, match=r"127\.0\.0\.1:1"):
        frame.option("fetchOffset.retryIntervalMs", "60000").load().count()
    assert time.monotonic() - begun < 60
