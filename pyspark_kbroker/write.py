"""Writes, batch and streaming: columns of Arrow as they come from Spark into a producer.

Columns are the official connector's: value, and key, headers, topic, partition where they are
there; others are left out. The option `topic` is for all rows, whatever their column says. Each
task has a producer of its own, idempotent unless told otherwise, and ends when all its records are
acknowledged. A task that Spark runs again, and a micro-batch after a restart, writes its rows
again: at-least-once, as the official connector.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
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

from kbroker.client.errors import BrokerError
from kbroker.client.producer import BatchDelivery, Producer
from kbroker.errors import ErrorCode
from pyspark_kbroker.errors import MissingTopicError, OptionError, nearest
from pyspark_kbroker.options import WriteOptions, client_settings

__all__ = ["BatchWriter", "StreamWriter", "check_columns"]

_PENDING_MAX = 64  # batches of Arrow that wait for their acknowledgements

_SENT = ("value", "key", "headers", "partition")
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


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """What a task wrote."""

    records: int


def _write(options: WriteOptions, batches: Iterator[pa.RecordBatch]) -> Written:
    records = 0
    pending: deque[BatchDelivery] = deque()
    with Producer(client_settings(options.kafka, "producer")) as producer:
        for batch in batches:
            for topic, rows in _by_topic(batch, options.topic):
                pending.append(_send(producer, topic, rows))
                records += rows.num_rows
            while len(pending) > _PENDING_MAX or (pending and pending[0].done()):
                pending.popleft().result()
        producer.flush()
        for delivery in pending:
            delivery.result()
    return Written(records)


def _by_topic(batch: pa.RecordBatch, topic: str | None) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Rows of each topic, in their order."""
    if topic is not None:
        yield topic, batch
        return
    topics = batch["topic"]
    if topics.null_count:
        raise OptionError("a row has no topic; set the option topic for all of them")
    names = topics.unique().to_pylist()
    for name in names:
        yield name, batch if len(names) == 1 else batch.filter(pc.equal(topics, name))


def _send(producer: Producer, topic: str, rows: pa.RecordBatch) -> BatchDelivery:
    columns = [name for name in _SENT if name in rows.schema.names]
    try:
        return producer.send_batch(topic, rows.select(columns))
    except BrokerError as error:
        if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        raise MissingTopicError(f"there is no topic {topic!r} to write to: {error}") from error


class BatchWriter(DataSourceArrowWriter):
    """Of a batch write."""

    def __init__(self, options: WriteOptions) -> None:
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
        return _write(self._options, iterator)
