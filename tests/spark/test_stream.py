"""Streaming reads of a real Spark, from a real broker."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pyspark
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from kbroker.client import Admin
from pyspark_kbroker import behind_latest
from tests.spark.records import fill, make, numbered
from tests.spark.streams import Stream
from tests.support.fixtures import BrokerFactory
from tests.support.processes import BrokerProcess
from tests.support.waits import wait_for

# The first of them starts the JVM.
pytestmark = pytest.mark.timeout(900)


@pytest.mark.skipif(pyspark.__version__ < "4.2", reason="not for sources in Python")
def test_available_now(
    spark: SparkSession, target: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    """In micro-batches of a limit, to an end that is fixed at the start; on from a checkpoint with
    a partition that is new."""
    make(target.bootstrap, topic, 2)
    fill(target.bootstrap, topic, numbered(60))
    fill(target.bootstrap, topic, numbered(40, partition=1, first=60))
    stream = Stream(
        spark, tmp_path, target,
        subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="50",
    )  # fmt: skip
    assert stream.run() == [50, 50]
    assert stream.values() == [*range(100)]
    assert stream.offsets() == [{topic: {"0": 30, "1": 20}}, {topic: {"0": 60, "1": 40}}]
    lags = [behind_latest(told["sources"][0]) for told in stream.progress]
    assert lags == [{topic: {"0": 30, "1": 20}}, {topic: {"0": 0, "1": 0}}]
    with Admin(bootstrap_servers=target.bootstrap) as admin:
        admin.create_partitions({topic: 3})
        wait_for("the new partition", lambda: _leads(admin, topic, 2), 60)
    fill(target.bootstrap, topic, numbered(20, partition=2, first=100))
    assert stream.run() == [20]
    assert stream.values() == [*range(120)]
    assert stream.offsets()[-1] == {topic: {"0": 60, "1": 40, "2": 20}}


def _leads(admin: Admin, topic: str, partition: int) -> bool:
    parts = admin.describe_topics([topic])[topic].partitions
    return len(parts) > partition and parts[partition].leader >= 0


def test_progress_and_lost_data(
    spark: SparkSession, target: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    make(target.bootstrap, topic)
    fill(target.bootstrap, topic, numbered(30))
    stream = Stream(
        spark, tmp_path, target,
        subscribe=topic, startingOffsets=json.dumps({topic: {"0": 10}}),
    )  # fmt: skip
    query = stream.begun()
    try:
        source = next(p for p in query.recentProgress if p["numInputRows"])["sources"][0]
        assert source["numInputRows"] == 20
        for name in ("endOffset", "latestOffset"):
            told = {"latestOffset": source[name], "endOffset": None}
            assert behind_latest(told) == {topic: {"0": 30}}, source
    finally:
        query.stop()
    fill(target.bootstrap, topic, numbered(30, first=30))
    with Admin(bootstrap_servers=target.bootstrap) as admin:
        admin.delete_records({(topic, 0): 45})
    with pytest.raises(StreamingQueryException, match=r"log has \[45, 60\)"):
        stream.run()
    stream = Stream(spark, tmp_path, target, subscribe=topic, failOnDataLoss="false")
    stream.run()
    assert stream.values() == [*range(10, 30), *range(45, 60)]


@pytest.mark.long
def test_new_topics_and_small_batches(
    spark: SparkSession, target: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    """A pattern's new topics; minOffsetsPerTrigger waits for so many, or for maxTriggerDelay."""
    make(target.bootstrap, f"{topic}-a")
    fill(target.bootstrap, f"{topic}-a", numbered(5))
    stream = Stream(
        spark, tmp_path, target, subscribePattern=f"{re.escape(topic)}-.*",
        startingOffsets="earliest", minOffsetsPerTrigger="100", maxTriggerDelay="8s",
    )  # fmt: skip
    query = stream.begun()

    def rows() -> list[int]:
        return [p["numInputRows"] for p in query.recentProgress if p["numInputRows"]]

    try:
        wait_for("the first micro-batch, which does not wait", rows, 120)
        make(target.bootstrap, f"{topic}-b")
        fill(target.bootstrap, f"{topic}-b", numbered(7, first=5))
        wait_for("what is less than a hundred", lambda: len(rows()) == 2, 120)
        fill(target.bootstrap, f"{topic}-b", numbered(150, first=12))
        wait_for("what is enough", lambda: sum(rows()) == 162, 120)
    finally:
        query.stop()
    assert rows()[:2] == [5, 7]
    assert stream.values() == [*range(162)]


@pytest.mark.long
def test_a_broker_that_is_away(
    spark: SparkSession, start_target: BrokerFactory, topic: str, tmp_path: Path
) -> None:
    """The stream waits for a broker that was killed: nothing is lost or doubled."""
    broker = start_target()
    make(broker.bootstrap, topic, 2)
    fill(broker.bootstrap, topic, numbered(3000))
    stream = Stream(
        spark, tmp_path, broker,
        subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="300",
    )  # fmt: skip
    query = stream.begun()
    try:
        for step in range(3):
            goal = 900 * (step + 1)
            wait_for("some rows", lambda goal=goal: len(stream.values()) >= goal, 240)
            broker.kill()
            broker.start()
            fill(broker.bootstrap, topic, numbered(100, partition=1, first=3000 + 100 * step))
        wait_for("all rows", lambda: len(stream.values()) >= 3300, 240)
        assert query.exception() is None
    finally:
        query.stop()
    assert stream.values() == [*range(3300)]
