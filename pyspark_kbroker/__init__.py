"""The Spark data source `kbroker`: topics of Apache Kafka or of kbroker as PySpark DataFrames.

PySpark finds it by its name (modules `pyspark_*` with a `DefaultSource`), so that
`spark.read.format("kbroker")` works wherever this is installed, on the driver and on executors.
Options and columns are those of Spark's own connector, format("kafka").
"""

from pyspark_kbroker.errors import importing

with importing():
    from pyspark_kbroker.progress import behind_latest
    from pyspark_kbroker.source import DefaultSource

__all__ = ["DefaultSource", "behind_latest"]
