"""Rows of one task into a producer, topic by topic, and what came of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import WriterCommitMessage

from kbroker.client.admin_transactions import OpenTransaction
from kbroker.client.errors import BrokerError
from kbroker.client.producer import BatchDelivery, Producer
from kbroker.errors import ErrorCode
from pyspark_kbroker.errors import MissingTopicError, OptionError

__all__ = ["Written", "send_all"]

_PENDING_MAX = 64  # batches of Arrow that wait for their acknowledgements

_SENT = ("value", "key", "headers", "partition")


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """What a task wrote. topic: of its first row. transaction: which the driver has to end."""

    records: int
    topic: str | None = None
    transaction: OpenTransaction | None = None


def send_all(producer: Producer, topic: str | None, batches: Iterator[pa.RecordBatch]) -> Written:
    """All rows, to `topic` or to that of each row; acknowledged when this returns."""
    records = 0
    first = topic
    pending: deque[BatchDelivery] = deque()
    for batch in batches:
        for name, rows in _by_topic(batch, topic):
            first = first or name
            pending.append(_send(producer, name, rows))
            records += rows.num_rows
        while len(pending) > _PENDING_MAX or (pending and pending[0].done()):
            pending.popleft().result()
    producer.flush()
    for delivery in pending:
        delivery.result()
    return Written(records, first)


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
