"""One Spark session for all tests of Spark."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from examples.pipeline.connector import NoMavenError, jars
from tests.support.needs import missing, need_command
from tests.support.processes import BrokerProcess
from tests.support.tree import ROOT


@pytest.fixture(scope="session", params=["kbroker", pytest.param("kafka", marks=pytest.mark.kafka)])
def target(request: pytest.FixtureRequest) -> BrokerProcess:
    """Each of the session's brokers in turn; starts of Spark's Python processes take long, so
    Apache Kafka has its turn in `make test-kafka`."""
    broker: BrokerProcess = request.getfixturevalue(request.param)
    return broker


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """PySpark on two threads. It finds the data source as its users' does: by looking for modules
    named pyspark_*, of which an editable install does not tell (hence the path)."""
    need_command("java", "openjdk-17-jre-headless")
    from pyspark.sql import SparkSession

    home = tmp_path_factory.mktemp("spark")
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.ui.enabled": "false",
        "spark.local.dir": str(home / "local"),
        "spark.sql.warehouse.dir": str(home / "warehouse"),
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.streaming.stopTimeout": "120s",
    }
    with contextlib.suppress(NoMavenError):  # of which the tests that need them tell
        settings["spark.jars"] = ",".join(map(str, jars()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)
        patch.setenv("PYSPARK_PYTHON", sys.executable)  # else whichever python3 PATH has
        builder = SparkSession.builder.master("local[2]").appName("kbroker tests")
        session = builder.config(map=settings).getOrCreate()
        session.sparkContext.setLogLevel("ERROR")
        try:
            yield session
        finally:
            _end(session)


def _end(session: Any) -> None:
    """stop() leaves the JVM to the exit of this process; a test session ends what it began."""
    process = session.sparkContext._gateway.proc
    session.stop()
    process.stdin.close()  # the JVM waits for that, but a child that was forked may have it too
    process.terminate()
    process.wait(60)


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    """A place for a stream's checkpoint."""
    return str(tmp_path / "checkpoint")


@pytest.fixture
def connector() -> None:
    """For tests that use Spark's own connector for Kafka: not without its jars."""
    try:
        jars()
    except NoMavenError:
        missing("the program mvn", "maven")
