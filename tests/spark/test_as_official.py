"""format("kbroker") beside format("kafka") on the same topics: the same rows, and an error where
there is one."""

from __future__ import annotations

import json
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.spark import official
from tests.spark.official import TIME_MS, Row, rows_of
from tests.support.processes import BrokerProcess

pytestmark = [
    pytest.mark.long, pytest.mark.usefixtures("connector"), pytest.mark.timeout(1800)
]  # fmt: skip

PARTITIONS = 3
ERROR = "an error"


@pytest.fixture(scope="module")
def filled(target: BrokerProcess) -> tuple[str, str]:
    """Two topics; of the first the oldest records of partition 0 are gone."""
    names = ("as-official-one", "as-official-two")
    for name in names:
        official.create_topic(target.bootstrap, name, PARTITIONS)
        official.write(target.bootstrap, name, PARTITIONS, range(300))
    official.delete_records(target.bootstrap, names[0], 0, 40)
    return names


def offsets(first: int, second: int, third: int) -> dict[str, dict[str, int]]:
    return {"as-official-one": {"0": first, "1": second, "2": third}}


ONE = {"subscribe": "as-official-one"}
LATEST = {"startingOffsetsByTimestampStrategy": "latest"}
CASES: dict[str, dict[str, Any]] = {
    "all": ONE,
    "two": {"subscribe": " as-official-one , as-official-two,"},
    "pattern of the whole name": {"subscribePattern": "as-official-.*"},
    "pattern within the name": {"subscribePattern": "official-t"},
    "pattern of none": {"subscribePattern": "as-official-three"},
    "assign": {"assign": {"as-official-two": [0, 2]}},
    "no headers": {**ONE, "includeHeaders": "false"},
    "offsets": {**ONE, "startingOffsets": offsets(50, 10, -2), "endingOffsets": offsets(60, -1, 9)},
    "the same twice": {**ONE, "startingOffsets": offsets(50, 5, 7),
                       "endingOffsets": offsets(50, 5, 7)},
    "spaces and cases": {**ONE, "STARTINGoffsets": " earliest ", "endingoffsets": "LATEST"},
    "a time": {**ONE, "startingTimestamp": f" {TIME_MS + 150} "},
    "between times": {**ONE, "startingTimestamp": TIME_MS + 150, "endingTimestamp": TIME_MS + 200},
    "time before all": {**ONE, "startingTimestamp": 0, "endingTimestamp": 1},
    "time before offsets": {**ONE, "startingTimestamp": TIME_MS + 150, "startingOffsets": "latest",
                            "startingOffsetsByTimestamp": offsets(0, 0, 0)},
    "times": {**ONE, "startingOffsetsByTimestamp": offsets(TIME_MS + 140, 0, TIME_MS + 200)},
    "ending times": {**ONE, "endingOffsetsByTimestamp": offsets(TIME_MS + 140, 0, 2**50)},
    "late, from the end": {**ONE, **LATEST, "startingTimestamp": TIME_MS + 9000},
    "not lost": {**ONE, "startingOffsets": offsets(40, 0, 0)},
    "lost, and so be it": {**ONE, "startingOffsets": offsets(3, 0, 0), "failOnDataLoss": "false"},
    "tasks": {**ONE, "minPartitions": "11"},
    "small tasks": {**ONE, "maxRecordsPerPartition": "7"},
    "both": {**ONE, "minPartitions": "5", "maxRecordsPerPartition": "60"},
    "of a stream": {**ONE, "maxOffsetsPerTrigger": "10", "maxTriggerDelay": "5m"},
    "groups": {**ONE, "groupIdPrefix": "x", "kafka.group.id": "g-PORT", "kafka.client.id": "c"},
    "settings": {**ONE, "kafka.fetch.max.bytes": "1000", "kafka.max.partition.fetch.bytes": "500",
                 "kafka.receive.buffer.bytes": "65536", "kafka.max.poll.records": "3"},
}  # fmt: skip
WRONG: dict[str, dict[str, Any]] = {
    "nothing to read": {},
    "two ways": {**ONE, "subscribePattern": "x"},
    "no topics": {"subscribe": " , "},
    "no pattern": {"subscribePattern": " "},
    "no JSON": {"assign": "as-official-one"},
    "offsets of some": {**ONE, "startingOffsets": {"as-official-one": {"0": 40, "1": 0}}},
    "offsets of more": {**ONE, "startingOffsets": offsets(40, 0, 0) | {"other": {"0": 0}}},
    "latest at the start": {**ONE, "startingOffsets": "latest"},
    "earliest at the end": {**ONE, "endingOffsets": "earliest"},
    "latest of one": {**ONE, "startingOffsets": offsets(40, 0, -1)},
    "earliest of one": {**ONE, "endingOffsets": offsets(50, -2, 5)},
    "end before start": {**ONE, "startingOffsets": offsets(60, 5, 5),
                         "endingOffsets": offsets(50, 6, 6)},
    "late": {**ONE, "startingTimestamp": TIME_MS + 9000},
    "lost": {**ONE, "startingOffsets": offsets(3, 0, 0)},
    "times end before start": {**ONE, "startingOffsetsByTimestamp": offsets(9, 9, 9),
                               "endingOffsetsByTimestamp": offsets(8, 9, 9)},
    "no tasks": {**ONE, "minPartitions": "0"},
    "no records": {**ONE, "maxRecordsPerPartition": "0"},
    "reset": {**ONE, "kafka.auto.offset.reset": "latest"},
    "deserializer": {**ONE, "kafka.key.deserializer": "x"},
    "commits": {**ONE, "kafka.enable.auto.commit": "true"},
}  # fmt: skip


def read(
    spark: SparkSession, name: str, bootstrap: str, options: dict[str, Any]
) -> tuple[list[str], list[Row]] | str:
    reader = spark.read.format(name).option("kafka.bootstrap.servers", bootstrap)
    port = bootstrap.rpartition(":")[2]  # Spark's consumers are cached by group and partition
    for key, value in {"includeHeaders": "true", **options}.items():
        text = json.dumps(value) if isinstance(value, dict) else str(value)
        reader = reader.option(key, text.replace("PORT", port))
    try:
        frame = reader.load()
        if "headers" not in frame.columns:
            return frame.columns, rows_of(frame.selectExpr("*", "null headers"))
        return frame.columns, rows_of(frame)
    except (PySparkException, Py4JJavaError):
        return ERROR


@pytest.mark.parametrize("case", CASES)
def test_the_same_rows(spark: SparkSession, target: BrokerProcess, filled: Any, case: str) -> None:
    told = read(spark, "kafka", target.bootstrap, CASES[case])
    assert told != ERROR
    assert read(spark, "kbroker", target.bootstrap, CASES[case]) == told


@pytest.mark.parametrize("case", WRONG)
def test_the_same_errors(
    spark: SparkSession, target: BrokerProcess, filled: Any, case: str
) -> None:
    assert read(spark, "kafka", target.bootstrap, WRONG[case]) == ERROR
    assert read(spark, "kbroker", target.bootstrap, WRONG[case]) == ERROR


def tasks(spark: SparkSession, name: str, target: BrokerProcess, case: str) -> int:
    reader = spark.read.format(name).options(**CASES[case])
    frame = reader.option("kafka.bootstrap.servers", target.bootstrap).load()
    return frame.rdd.getNumPartitions()


def test_the_same_tasks(spark: SparkSession, target: BrokerProcess, filled: Any) -> None:
    """minPartitions and maxRecordsPerPartition make as many tasks; but in a batch the connector
    does not look at the latter, which its documentation promises, without the former."""
    for case in ("all", "tasks", "both"):
        assert tasks(spark, "kbroker", target, case) == tasks(spark, "kafka", target, case), case
    assert tasks(spark, "kafka", target, "small tasks") == PARTITIONS
    assert tasks(spark, "kbroker", target, "small tasks") == 9 + 15 + 15
