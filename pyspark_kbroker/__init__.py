"""The Spark data source `kbroker`: topics of Apache Kafka or of kbroker as PySpark DataFrames.

PySpark finds it by its name (modules `pyspark_*` with a `DefaultSource`), so that
`spark.read.format("kbroker")` works wherever this is installed, on the driver and on executors.
Options and columns are those of Spark's own connector, format("kafka").
"""

try:
    from pyspark_kbroker.progress import behind_latest
    from pyspark_kbroker.source import DefaultSource
except ModuleNotFoundError as error:
    if error.name not in ("pyspark", "pyarrow", "pandas"):
        raise
    raise ImportError(f"{error.name} is missing: pip install 'kbroker[spark]'") from None

__all__ = ["DefaultSource", "behind_latest"]
