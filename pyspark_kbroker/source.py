"""DefaultSource: what PySpark makes of format("kbroker").

Spark imports this module in each of the many short-lived Python processes that it plans with. Those
that only look for the source, or make it, need neither Arrow nor a client, which together take
longer to import than all else; hence the imports in methods here and in the readers.
"""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from pyspark_kbroker.errors import OptionError, importing
from pyspark_kbroker.options import WriteOptions, read_options, write_options
from pyspark_kbroker.schema import spark_schema

__all__ = ["DefaultSource"]


class DefaultSource(DataSource):
    """Options are checked when a reader or a writer is made."""

    @classmethod
    def name(cls) -> str:
        """As in format("kbroker")."""
        return "kbroker"

    def schema(self) -> StructType:
        """The columns of a read: fixed, but for the headers."""
        return spark_schema(self.options.get("includeHeaders", "").strip().lower() == "true")

    def reader(self, schema: StructType) -> DataSourceReader:
        """Of a batch read."""
        with importing():
            from pyspark_kbroker.batch import BatchReader

        options = read_options(self.options, streaming=False)
        _check_schema(schema, options.include_headers)
        return BatchReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Of a streaming read."""
        with importing():
            from pyspark_kbroker.stream import StreamReader

        options = read_options(self.options, streaming=True)
        _check_schema(schema, options.include_headers)
        return StreamReader(options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Of a batch write."""
        with importing():
            from pyspark_kbroker.write import BatchWriter

        if overwrite:
            raise OptionError("a topic cannot be overwritten; write with mode append")
        return BatchWriter(self._write_options(schema))

    def streamWriter(  # noqa: N802
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        """Of a streaming write. In output mode complete, which is what overwrite tells here, each
        micro-batch writes its whole result behind what is there, as the official connector does."""
        with importing():
            from pyspark_kbroker.write import StreamWriter

        return StreamWriter(self._write_options(schema))

    def _write_options(self, schema: StructType) -> WriteOptions:
        with importing():
            from pyspark_kbroker.write import check_columns

        options = write_options(self.options)
        check_columns(schema, options)
        return options


def _check_schema(schema: StructType, include_headers: bool) -> None:
    wanted = spark_schema(include_headers)
    if schema.simpleString() != wanted.simpleString():
        raise OptionError(
            f"the columns of a topic are {wanted.simpleString()}; leave schema() out, and cast or"
            " parse them afterwards"
        )
