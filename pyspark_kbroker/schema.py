"""The columns of a read: the official connector's."""

from __future__ import annotations

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

__all__ = ["spark_schema"]


def spark_schema(include_headers: bool) -> StructType:
    """The columns of a read."""
    header = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
    headers = [StructField("headers", ArrayType(header))] if include_headers else []
    return StructType(
        [
            StructField("key", BinaryType()),
            StructField("value", BinaryType()),
            StructField("topic", StringType()),
            StructField("partition", IntegerType()),
            StructField("offset", LongType()),
            StructField("timestamp", TimestampType()),
            StructField("timestampType", IntegerType()),
            *headers,
        ]
    )
