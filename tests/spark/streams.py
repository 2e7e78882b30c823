"""A stream of the data source that tests look into."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from tests.spark.records import patient
from tests.support.processes import BrokerProcess
from tests.support.waits import wait_for


class Stream:
    """A stream into rows of Parquet, which Spark writes exactly once for a checkpoint."""

    def __init__(self, spark: SparkSession, home: Path, broker: BrokerProcess, **options: Any):
        self.home = home
        self._spark = spark
        self._options = {"kafka.bootstrap.servers": broker.bootstrap, **options}
        self.progress: list[Any] = []

    def start(self, *, to_the_end: bool = False) -> Any:
        frame = self._spark.readStream.format("kbroker").options(**self._options).load()
        writer = frame.selectExpr("partition", "offset", "cast(value as string) value").writeStream
        if to_the_end:
            writer = writer.trigger(availableNow=True)
        return (
            writer.format("parquet")
            .option("checkpointLocation", str(self.home / "checkpoint"))
            .option("path", str(self.home / "rows"))
            .start()
        )

    def run(self) -> list[int]:
        """Trigger.AvailableNow to its end: rows of each micro-batch that had any."""
        query = patient(lambda: self._ended(self.start(to_the_end=True)))
        self.progress = [told for told in query.recentProgress if told["numInputRows"]]
        return [told["numInputRows"] for told in self.progress]

    @staticmethod
    def _ended(query: Any) -> Any:
        assert query.awaitTermination(240)
        return query

    def begun(self) -> Any:
        """A stream that has read something."""

        def begin() -> Any:
            query = self.start()
            wait_for("a micro-batch", lambda: query.lastProgress or query.exception(), 240)
            if query.exception():
                raise query.exception()
            return query

        return patient(begin)

    def values(self) -> list[int]:
        rows = self._spark.read.parquet(str(self.home / "rows")).select("value").collect()
        return sorted(int(row.value) for row in rows)

    def offsets(self) -> list[Any]:
        """What the checkpoint has, in order of the micro-batches."""
        files = (self.home / "checkpoint" / "offsets").glob("[0-9]*")
        return [
            json.loads(path.read_text().splitlines()[-1])
            for path in sorted(files, key=lambda path: int(path.name))
        ]
