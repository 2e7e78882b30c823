"""Spark's own connector, batch reads: kbroker gives what Apache Kafka gives."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark import official
from tests.spark.official import TIME_MS, places, rows_of, write
from tests.support.processes import BrokerProcess

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("connector")]

PARTITIONS = 3
Read = Callable[..., "DataFrame"]


@pytest.fixture
def load(spark: SparkSession, target: BrokerProcess) -> Read:
    """Reads with the connector; options by their names, values as text or as JSON."""

    def load(**options: Any) -> DataFrame:
        reader = spark.read.format("kafka").option("kafka.bootstrap.servers", target.bootstrap)
        for name, value in ({"includeHeaders": "true"} | options).items():
            text = value if isinstance(value, str) else json.dumps(value)
            reader = reader.option(name.replace("__", "."), text)
        return reader.load()

    return load


@pytest.fixture
def written(target: BrokerProcess, topic: str) -> list[official.Row]:
    """300 records in three partitions of the topic."""
    official.create_topic(target.bootstrap, topic, PARTITIONS)
    return write(target.bootstrap, topic, PARTITIONS, range(300))


def test_columns(load: Read, topic: str, written: list[official.Row]) -> None:
    frame = load(subscribe=topic)
    told = [(field.name, field.dataType.simpleString()) for field in frame.schema]
    assert told == [
        ("key", "binary"), ("value", "binary"), ("topic", "string"), ("partition", "int"),
        ("offset", "bigint"), ("timestamp", "timestamp"), ("timestampType", "int"),
        ("headers", "array<struct<key:string,value:binary>>"),
    ]  # fmt: skip
    assert rows_of(frame) == written
    assert {row.timestampType for row in frame.collect()} == {0}
    assert "headers" not in load(subscribe=topic, includeHeaders="false").columns


def test_log_append_time(load: Read, target: BrokerProcess, topic: str) -> None:
    kind = {"message_timestamp_type": "LogAppendTime"}
    official.create_topic(target.bootstrap, topic, 1, **kind)
    write(target.bootstrap, topic, 1, range(20))
    expected = official.read(target.bootstrap, topic, 1)
    frame = load(subscribe=topic)
    assert rows_of(frame) == expected
    assert {row.timestampType for row in frame.collect()} == {1}


def test_choosing_topics(load: Read, target: BrokerProcess, topic: str) -> None:
    names = [f"{topic}-{letter}" for letter in "abx"]
    by_name = {}
    for name in names:
        official.create_topic(target.bootstrap, name, PARTITIONS)
        by_name[name] = write(target.bootstrap, name, PARTITIONS, range(30))
    both = sorted(by_name[names[0]] + by_name[names[1]])
    assert rows_of(load(subscribePattern=f"{topic}-[ab]")) == both
    assert rows_of(load(subscribe=f"{names[0]},{names[1]}")) == both
    chosen = {names[0]: [0, 2], names[2]: [1]}
    expected = sorted(row for name in names for row in by_name[name]
                      if row.partition in chosen.get(name, ()))  # fmt: skip
    assert rows_of(load(assign=chosen)) == expected


def test_offsets(load: Read, topic: str, written: list[official.Row]) -> None:
    bounds = {0: (10, 20), 1: (0, 95), 2: (99, 100)}
    told = {
        "startingOffsets": {topic: {"0": 10, "1": -2, "2": 99}},
        "endingOffsets": {topic: {"0": 20, "1": 95, "2": -1}},
    }
    expected = [row for row in written
                if bounds[row.partition][0] <= row.offset < bounds[row.partition][1]]  # fmt: skip
    assert rows_of(load(subscribe=topic, **told)) == expected
    assert rows_of(load(assign={topic: [0, 1, 2]}, **told)) == expected


def test_times(load: Read, topic: str, written: list[official.Row]) -> None:
    """Records carry TIME_MS + their number: 100 of them are a range of 100 ms."""

    def between(low: int, high: int) -> list[official.Row]:
        return [row for row in written if low <= row.timestamp_ms - TIME_MS < high]

    start, end = str(TIME_MS + 100), str(TIME_MS + 200)
    assert rows_of(load(subscribe=topic, startingTimestamp=start)) == between(100, 300)
    assert rows_of(load(subscribe=topic, endingTimestamp=end)) == between(0, 200)
    both = load(subscribe=topic, startingTimestamp=start, endingTimestamp=end)
    assert rows_of(both) == between(100, 200)
    each = {topic: {str(index): TIME_MS + 100 + index for index in range(PARTITIONS)}}
    got = rows_of(load(subscribe=topic, startingOffsetsByTimestamp=each))
    assert got == [row for row in written
                   if row.timestamp_ms - TIME_MS >= 100 + row.partition]  # fmt: skip
    got = rows_of(load(subscribe=topic, endingOffsetsByTimestamp=each))
    assert got == [row for row in written
                   if row.timestamp_ms - TIME_MS < 100 + row.partition]  # fmt: skip


def test_a_time_behind_the_end(load: Read, topic: str, written: list[official.Row]) -> None:
    late = str(TIME_MS + 1000)
    with pytest.raises(Exception, match=r"(?i)no offset matched|timestamp") as raised:
        load(subscribe=topic, startingTimestamp=late).collect()
    assert topic in str(raised.value)
    how = {"startingOffsetsByTimestampStrategy": "latest"}
    assert rows_of(load(subscribe=topic, startingTimestamp=late, **how)) == []
    assert rows_of(load(subscribe=topic, endingTimestamp=late)) == written


def test_slices(load: Read, topic: str, written: list[official.Row]) -> None:
    whole = load(subscribe=topic)
    assert whole.rdd.getNumPartitions() == PARTITIONS
    many = load(subscribe=topic, minPartitions="12")
    assert many.rdd.getNumPartitions() >= 12
    assert rows_of(many) == written


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_codecs(load: Read, target: BrokerProcess, topic: str, codec: str) -> None:
    official.create_topic(target.bootstrap, topic, PARTITIONS)
    written = write(target.bootstrap, topic, PARTITIONS, range(900), **{"compression.type": codec})
    slices = load(subscribe=topic, minPartitions="9")  # begin in the middle of batches
    assert rows_of(slices) == written


def test_empty(load: Read, target: BrokerProcess, topic: str) -> None:
    official.create_topic(target.bootstrap, topic, PARTITIONS)
    assert load(subscribe=topic).count() == 0
    assert load(subscribe=topic, startingOffsets="earliest", endingOffsets="latest").count() == 0
    assert load(subscribePattern=f"nothing-like-{topic}.*").count() == 0


def test_a_topic_that_is_not_there(load: Read, topic: str) -> None:
    with pytest.raises(Exception, match=r"(?i)unknown|does not host|not exist"):
        load(subscribe=f"{topic}-missing", kafka__default__api__timeout__ms="5000").collect()


def test_isolation_and_groups(load: Read, topic: str, written: list[official.Row]) -> None:
    for level in ("read_committed", "read_uncommitted"):
        assert rows_of(load(subscribe=topic, kafka__isolation__level=level)) == written
    assert rows_of(load(subscribe=topic, kafka__group__id="mine")) == written
    assert rows_of(load(subscribe=topic, groupIdPrefix="prefix")) == written


def test_small_fetches(load: Read, topic: str, written: list[official.Row]) -> None:
    small = {"kafka__max__partition__fetch__bytes": "200", "kafka__max__poll__records": "7"}
    assert rows_of(load(subscribe=topic, **small)) == written


def test_records_that_went(
    load: Read, target: BrokerProcess, topic: str, written: list[official.Row]
) -> None:
    official.delete_records(target.bootstrap, topic, 0, 40)
    rest = [row for row in written if row.partition or row.offset >= 40]
    assert rows_of(load(subscribe=topic)) == rest
    early = {topic: {"0": 0, "1": 0, "2": 0}}
    lenient = load(subscribe=topic, startingOffsets=early, failOnDataLoss="false")
    assert rows_of(lenient) == rest
    with pytest.raises(Exception, match=r"(?i)data.?loss|out of range|may have been lost"):
        load(subscribe=topic, startingOffsets=early).collect()


def test_many_partitions(load: Read, target: BrokerProcess, topic: str) -> None:
    official.create_topic(target.bootstrap, topic, 40)
    written = write(target.bootstrap, topic, 40, range(4000))
    frame = load(subscribe=topic)
    assert places(rows_of(frame)) == places(written)
    counted = frame.groupBy("partition").count().collect()
    assert {row["partition"]: row["count"] for row in counted} == dict.fromkeys(range(40), 100)
