"""Writes, batch and streaming: columns of Arrow as they come from Spark into a producer.

Columns are the official connector's: value, and key, headers, topic, partition where they are
there; others are left out. The option `topic` is for all rows, whatever their column says. Each
task has a producer of its own, idempotent unless told otherwise, and ends when all its records are
acknowledged. A task that Spark runs again, and a micro-batch after a restart, writes its rows
again: at-least-once, as the official connector; streams with kbroker.exactlyOnce write once (see
epochs).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructType,
)

from kbroker.client.producer import Producer
from pyspark_kbroker import epochs
from pyspark_kbroker.errors import OptionError, nearest
from pyspark_kbroker.options import WriteOptions, client_settings
from pyspark_kbroker.sending import send_all

__all__ = ["BatchWriter", "StreamWriter", "check_columns"]

_BYTES = (StringType, BinaryType)
_TYPES: dict[str, tuple[type[DataType], ...]] = {
    "topic": (StringType,),
    "key": _BYTES,
    "value": _BYTES,
    "headers": (ArrayType,),
    "partition": (IntegerType,),
}


def check_columns(schema: StructType, options: WriteOptions) -> None:
    """Raises OptionError for columns that cannot be written."""
    types = {column.name: column.dataType for column in schema.fields}
    if "value" not in types:
        near = nearest("value", types)
        raise OptionError(f"there is no column value; there are {', '.join(types)}{near}")
    if "topic" not in types and options.topic is None:
        raise OptionError("no topic: set the option topic, or add a column topic")
    for name, allowed in _TYPES.items():
        if name in types and not isinstance(types[name], allowed):
            wanted = " or ".join(one().simpleString() for one in allowed if one is not ArrayType)
            wanted = wanted or "array<struct<key:string,value:binary>>"
            raise OptionError(
                f"column {name} is {types[name].simpleString()}, and has to be {wanted}"
            )
    headers = types.get("headers")
    if isinstance(headers, ArrayType):
        inner = headers.elementType
        told = [(f.name, type(f.dataType)) for f in inner] if isinstance(inner, StructType) else []
        if told != [("key", StringType), ("value", BinaryType)]:
            raise OptionError(
                f"column headers is {headers.simpleString()}, and has to be"
                " array<struct<key:string,value:binary>>"
            )


def _write(options: WriteOptions, batches: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
    with Producer(client_settings(options.kafka, "producer")) as producer:
        return send_all(producer, options.topic, batches)


class BatchWriter(DataSourceArrowWriter):
    """Of a batch write."""

    def __init__(self, options: WriteOptions) -> None:
        if options.exactly_once:
            raise OptionError(
                "kbroker.exactlyOnce is for streams: a batch write has no epoch that tells whether"
                " it is repeated"
            )
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """On an executor: what one task writes."""
        return _write(self._options, iterator)


class StreamWriter(DataSourceStreamArrowWriter):
    """Of a streaming write."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """On an executor: what one task of a micro-batch writes."""
        if self._options.exactly_once:
            return epochs.write(self._options, epochs.this_task(), iterator)
        return _write(self._options, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """On the driver, when every task has written."""
        if self._options.exactly_once:
            epochs.commit(self._options, messages, batchId)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """On the driver, when a task or the commit has failed."""
        del batchId
        if self._options.exactly_once:
            epochs.abort(self._options, messages)
