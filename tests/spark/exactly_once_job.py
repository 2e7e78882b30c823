"""A stream from a topic to another with kbroker.exactlyOnce, to be killed at any moment:

    python -m tests.spark.exactly_once_job BOOTSTRAP SOURCE SINK HOME

HOME is a folder that is there; checkpoint and all temporary files go into it. Two executors of a
core each run the tasks, JVMs of their own with Python's workers under them, as in a cluster; the
master that starts others for those that end is in the driver's JVM.
"""

from __future__ import annotations

import sys
from pathlib import Path

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

_MASTER = "local-cluster[2,1,1024]"
_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.executor.memory": "512m",
    "spark.ui.enabled": "false",
    "spark.task.maxFailures": "4",
}


def main(bootstrap: str, source: str, sink: str, home: str) -> None:
    """Until it is killed; what fails is started again, as a user would. Spark tells of a killed
    worker in many ways, some of them before the query runs."""
    java = f"{_JAVA} -Djava.io.tmpdir={home}"
    places = {
        "spark.driver.extraJavaOptions": java,
        "spark.executor.extraJavaOptions": java,
        "spark.local.dir": home,
    }
    spark = SparkSession.builder.master(_MASTER).config(map=_SETTINGS | places).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    while True:
        try:
            run(spark, bootstrap, source, sink, str(Path(home) / "checkpoint"))
        except (PySparkException, Py4JJavaError) as error:
            print(f"again: {str(error)[:2000]}", file=sys.stderr, flush=True)


def run(spark: SparkSession, bootstrap: str, source: str, sink: str, checkpoint: str) -> None:
    """The query, from its checkpoint on."""
    frame = (
        spark.readStream.format("kbroker")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "100")
        .load()
    )
    query = (
        frame.select("key", "value")
        .writeStream.format("kbroker")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", sink)
        .option("kbroker.exactlyOnce", "true")
        .option("checkpointLocation", checkpoint)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
