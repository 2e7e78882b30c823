"""Columns of consumed records as Arrow record batches with the official connector's columns.

What is fetched goes over as it is: keys, values and numbers are views of the fetched columns or
made of them by Arrow; no Python object stands for a record. Headers apart, nothing here gives
pyarrow a scalar or a list: the first imports pandas, a third of a second in each worker of Spark's.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kbroker.ext.client_columns import Columns

__all__ = ["Batches"]

_PLAIN = (
    ("key", pa.binary()),
    ("value", pa.binary()),
    ("topic", pa.string()),
    ("partition", pa.int32()),
    ("offset", pa.int64()),
    ("timestamp", pa.timestamp("us", tz="UTC")),
    ("timestampType", pa.int32()),
)
_STRINGS_BYTES_MAX = 2**31 - 1  # of a column of Arrow's type string
_HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])
_NAMES = ("key", "value")
_HEADERS = pa.list_(pa.field("element", _HEADER))


class Batches:
    """Makes record batches of the columns of one partition. What is the same in every row, topic
    and partition, is made once for the longest batch so far."""

    def __init__(self, topic: str, partition: int, *, include_headers: bool) -> None:
        self._topic = topic
        self._partition = partition
        self._headers = include_headers
        fields = [*_PLAIN, ("headers", _HEADERS)] if include_headers else [*_PLAIN]
        self._schema = pa.schema(fields)
        self._constant: tuple[Any, Any] = (pa.nulls(0, pa.string()), pa.nulls(0, pa.int32()))

    def make(self, columns: Columns, rows: int) -> pa.RecordBatch:
        """The first `rows` of them."""
        told = pa.record_batch(columns)
        if rows < len(columns):
            told = told.slice(0, rows)
        topics, partitions = self._constants(rows)
        types = pa.Array.from_buffers(
            pa.int32(), len(columns), [None, pa.py_buffer(columns.timestamp_types)]
        )
        arrays = [
            told["key"],
            told["value"],
            topics,
            partitions,
            told["offset"],
            told["timestamp"].cast(_PLAIN[5][1]),
            types.slice(0, rows),
        ]
        if self._headers:
            arrays.append(_headers(told["headers"]))
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _constants(self, rows: int) -> tuple[Any, Any]:
        topics, partitions = self._constant
        if len(topics) < rows:
            self._constant = _same_text(self._topic, rows), _same_number(self._partition, rows)
            topics, partitions = self._constant
        return topics.slice(0, rows), partitions.slice(0, rows)


def _same_text(text: str, rows: int) -> pa.Array:
    encoded = text.encode()
    if rows * len(encoded) > _STRINGS_BYTES_MAX:
        raise OverflowError(f"{rows} rows of one batch name the topic {text!r}")
    ends = np.arange(0, rows * len(encoded) + 1, len(encoded), dtype=np.int32)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(encoded * rows)]
    return pa.Array.from_buffers(pa.string(), rows, buffers)


def _same_number(number: int, rows: int) -> pa.Array:
    numbers = np.full(rows, number, dtype=np.int32)
    return pa.Array.from_buffers(pa.int32(), rows, [None, pa.py_buffer(numbers)])


def _headers(told: pa.Array) -> pa.Array:
    """With Spark's names of what is inside, and null where a record has none."""
    some = pc.greater(pc.list_value_length(told), 0)
    try:
        told.validate(full=True)
    except pa.ArrowInvalid:
        told = _readable(told)
    return pc.if_else(some, told.cast(_HEADERS), pa.scalar(None, _HEADERS))


def _readable(told: pa.Array) -> pa.Array:
    """Header names that are not UTF-8, with U+FFFD for what is not, as Java decodes them."""
    names, values = told.values.flatten()
    names = [name.decode("utf-8", "replace") for name in names.view(pa.binary()).to_pylist()]
    entries = pa.StructArray.from_arrays([pa.array(names, pa.string()), values], names=_NAMES)
    return pa.ListArray.from_arrays(told.offsets, entries)
