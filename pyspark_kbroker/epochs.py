"""Streaming writes with kbroker.exactlyOnce=true.

**What is promised.** For readers with isolation.level=read_committed each row of the stream is in
its topic once, whatever is killed (driver, executors, Python's workers, broker) and however often
Spark runs a task or an epoch (micro-batch) again, if the query goes on from its checkpoint. A
worker whose executor was killed may go on writing for a while: it is another attempt of the task.

**How.** Task T of an epoch writes in a transaction of the transactional id `kbroker-spark-QUERY-T`,
QUERY being the id that the checkpoint holds, and leaves it open. In it stands the number of the
epoch plus one as an offset of the group of that name, with what the rows add up to as its metadata.
When all tasks have written, the driver looks whether all transactions are open, notes in the group
`kbroker-spark-QUERY` how many tasks the epoch has, and commits one transaction after the other. So
the coordinator decides each once: it is committed with its number, or nothing of it is seen. A task
that begins takes the transactional id, by which another attempt is fenced and what that left open
is aborted; then it looks at the number. If that is of its epoch, the rows are there, and it writes
nothing.

**When readers see a part of an epoch.** Nothing of it is seen until all of it is written. It is
committed task by task: who reads in between, or after a driver or broker was killed in between,
sees a part; the restarted query writes what is missing, and only that.

**What it needs.** An epoch's rows are split into the same tasks when it is written again, as by
sources with offsets and by shuffles of the same settings. Where a committed task's rows add up to
something else, or the tasks are not as many as when the commit began, the query ends with an
EpochError, and nothing of what it has just written is seen. From its first record to its commit an
epoch takes at most kafka.transaction.timeout.ms (15 minutes unless told): later its transactions
are aborted, the query fails, and its restart writes the epoch again. A query that died in the
middle of a commit is started again within offsets.retention.minutes (7 days), or the numbers are
forgotten. With spark.speculation a second attempt fences the first: restarts, but no row lost.

**After an EpochError** that comes again: who deletes the groups whose names begin with
`kbroker-spark-QUERY` gives the promise up for one epoch, whose committed tasks are written twice.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from kbroker.client.admin_client import Admin
from kbroker.client.admin_transactions import OpenTransaction
from kbroker.client.errors import InvalidTransactionTimeoutError, KafkaError
from kbroker.client.partitions import OffsetAndMetadata
from kbroker.client.producer import Producer
from pyspark_kbroker.errors import EpochError, OptionError
from pyspark_kbroker.options import WriteOptions, client_settings, transactional_settings
from pyspark_kbroker.sending import Written, send_all

__all__ = ["Task", "abort", "commit", "this_task", "write"]

_log = logging.getLogger("pyspark_kbroker")

# What a streaming query tells its tasks.
_QUERY, _EPOCH = "sql.streaming.queryId", "streaming.sql.batchId"
_PREFIX = "kbroker-spark-"
_ABORT_S = 10.0
_ONGOING = "Ongoing"


class Task(NamedTuple):
    """A part of an epoch."""

    query: str
    epoch: int
    number: int

    @property
    def name(self) -> str:
        """Its transactional id, and its group."""
        return f"{_PREFIX}{self.query}-{self.number}"

    @property
    def mark(self) -> int:
        """The offset that says that it is done."""
        return self.epoch + 1


def this_task() -> Task:
    """Of this process. RuntimeError where there is no streaming query."""
    context = TaskContext.get()
    query, epoch = (context.getLocalProperty(key) if context else None for key in (_QUERY, _EPOCH))
    if context is None or query is None or epoch is None:
        raise RuntimeError("kbroker.exactlyOnce: Spark tells no query and no epoch here")
    return Task(query, int(epoch), context.partitionId())


class Sums:
    """What rows add up to, in whatever order and batches they come."""

    def __init__(self) -> None:
        self._rows = 0
        self._sums = dict.fromkeys(("key", "value"), (0, 0))

    def watch(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The same batches, counted as they go by."""
        for batch in batches:
            self._rows += batch.num_rows
            for name in self._sums.keys() & set(batch.schema.names):
                found = _bytes_of(batch[name])
                length, total = self._sums[name]
                self._sums[name] = length + len(found), total + (pc.sum(found).as_py() or 0)
            yield batch

    def __str__(self) -> str:
        """Rows; bytes of keys and their sum; the same of values."""
        told = [number for pair in self._sums.values() for number in pair]
        return " ".join(map(str, (self._rows, *told)))


def _bytes_of(column: Any) -> Any:
    """All bytes of a column of strings or bytes, without a copy."""
    is_large = pa.types.is_large_string(column.type) or pa.types.is_large_binary(column.type)
    _, offsets, data = column.buffers()
    if data is None or not len(column):
        return pa.array([], pa.uint8())
    kind = pa.int64() if is_large else pa.int32()
    at = pa.Array.from_buffers(kind, len(column) + 1, [None, offsets], offset=column.offset)
    first, last = at[0].as_py(), at[len(column)].as_py()
    return pa.Array.from_buffers(pa.uint8(), last - first, [None, data.slice(first, last - first)])


# ---- executors


def write(options: WriteOptions, task: Task, batches: Iterator[pa.RecordBatch]) -> Written:
    """The rows of a task, in a transaction that is left open; nothing where they are there."""
    sums = Sums()
    with Producer(transactional_settings(options.kafka, task.name)) as producer:
        limit_s = producer.config.max_block_ms / 1000
        try:
            producer.init_transactions(limit_s)
        except InvalidTransactionTimeoutError as error:
            raise OptionError(
                "kafka.transaction.timeout.ms, 15 minutes unless told, is above what the brokers"
                " grant: set it to their transaction.max.timeout.ms or less"
            ) from error
        with Admin(client_settings(options.kafka, "admin")) as admin:
            there = _sums_of(admin, task)
        if there is not None:
            return _again(task, there, sums, batches)
        producer.begin()
        try:
            written = send_all(producer, options.topic, sums.watch(batches))
            if written.topic is None or not written.records:
                producer.abort(_ABORT_S)
                return written
            mark = OffsetAndMetadata(task.mark, str(sums))
            offsets = {(written.topic, 0): mark}
            producer.send_offsets_to_transaction(offsets, task.name, limit_s)
            return Written(written.records, written.topic, producer.leave_open())
        except BaseException:
            _abort_quietly(producer)
            raise


def _sums_of(admin: Admin, task: Task) -> str | None:
    """What the rows of this epoch added up to, where they are committed."""
    marks = admin.list_group_offsets([task.name], stable=True)[task.name].values()
    last = max(marks, key=lambda mark: mark.offset, default=None)
    if last is None or last.offset < task.mark:
        return None
    if last.offset > task.mark:
        raise EpochError(
            f"epoch {task.epoch} is to be written, and {last.offset - 1} is committed already"
            f" (group {task.name!r}): the checkpoint is an old one"
        )
    return last.metadata


def _again(task: Task, there: str, sums: Sums, batches: Iterator[pa.RecordBatch]) -> Written:
    """The task was committed, and the driver was killed before it could say so to Spark."""
    for _ in sums.watch(batches):
        pass
    if str(sums) != there:
        raise EpochError(
            f"task {task.number} of epoch {task.epoch} was committed with other rows: they were"
            f" {there}, and are {sums} (rows; bytes and sum of keys; of values). Start the query"
            " with the settings that it had"
        )
    _log.info("task %d of epoch %d is committed already", task.number, task.epoch)
    return Written(0)


def _abort_quietly(producer: Producer) -> None:
    """Another error is on its way; who comes next aborts it as well."""
    try:
        producer.abort(_ABORT_S)
    except (KafkaError, TimeoutError) as error:
        _log.warning("the transaction was not aborted: %s", error)


# ---- the driver


def commit(options: WriteOptions, messages: Sequence[Any], epoch: int) -> None:
    """All transactions of an epoch. Raises where one of them is open no more; Spark then calls
    abort(), and the query ends: started again it writes what is missing."""
    left = _open(messages)
    if not left:
        return
    with Admin(client_settings(options.kafka, "admin")) as admin:
        _check_open(admin, left, epoch)
        query = left[0].transactional_id.removeprefix(_PREFIX).rpartition("-")[0]
        _check_count(admin, messages, query, epoch)
        for transaction in left:
            admin.end_transaction(transaction, commit=True)


def abort(options: WriteOptions, messages: Sequence[Any]) -> None:
    """What tasks left open; what is committed by then stays so."""
    left = _open(messages)
    if not left:
        return
    with Admin(client_settings(options.kafka, "admin")) as admin:
        for transaction in left:
            try:
                admin.end_transaction(transaction, commit=False)
            except (KafkaError, TimeoutError) as error:
                _log.info("%s: not aborted: %s", transaction.transactional_id, error)


def _open(messages: Sequence[Any]) -> list[OpenTransaction]:
    """None stands for a task that failed."""
    return [
        message.transaction
        for message in messages
        if isinstance(message, Written) and message.transaction is not None
    ]


def _check_open(admin: Admin, left: Sequence[OpenTransaction], epoch: int) -> None:
    told = admin.describe_transactions([one.transactional_id for one in left])
    for one in left:
        found = told[one.transactional_id]
        is_its = (found.producer_id, found.producer_epoch) == (one.producer_id, one.producer_epoch)
        if found.state != _ONGOING or not is_its:
            raise EpochError(
                f"{one.transactional_id}: its transaction in epoch {epoch} was ended before all"
                f" tasks had written ({found.state}): it took longer than"
                " kafka.transaction.timeout.ms, or another attempt of the task took its place"
            )


def _check_count(admin: Admin, messages: Sequence[Any], query: str, epoch: int) -> None:
    """Notes in how many tasks an epoch is committed: in as many as when that began before."""
    topics = [one.topic for one in messages if isinstance(one, Written) and one.topic is not None]
    group, mark, tasks = f"{_PREFIX}{query}", epoch + 1, str(len(messages))
    for noted in admin.list_group_offsets([group])[group].values():
        if noted.offset == mark and noted.metadata != tasks:
            raise EpochError(
                f"epoch {epoch} is written in {tasks} tasks, and was to be committed in"
                f" {noted.metadata}, some of which may be. Start the query with the settings that"
                " it had"
            )
    admin.alter_group_offsets(group, {(topics[0], 0): mark}, metadata=tasks)
