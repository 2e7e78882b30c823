"""What an executor does: reads one range of a partition into record batches."""

from __future__ import annotations

import gc
import time
from bisect import bisect_left
from collections.abc import Iterator
from functools import cache

import pyarrow as pa
import pyarrow.compute as pc

from kbroker.client.consumer import Consumer
from kbroker.client.errors import BrokerError, KafkaError, LogTruncationError, NoOffsetError
from kbroker.errors import ErrorCode
from pyspark_kbroker.columns import Batches
from pyspark_kbroker.driver import report_loss
from pyspark_kbroker.errors import FetchTimeoutError
from pyspark_kbroker.filters import Span
from pyspark_kbroker.options import ReadOptions, client_settings
from pyspark_kbroker.ranges import OffsetRange

__all__ = ["read_range"]

_WAIT_S = 1.0
_PROBE_S = 5.0
_GONE = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


def read_range(
    options: ReadOptions, wanted: OffsetRange, times_us: Span | None = None
) -> Iterator[pa.RecordBatch]:
    """All records of the range there are, in order; times_us: only those of these times.

    Offsets without a record (compaction, transactions' markers, aborted transactions) are passed
    over. Raises DataLossError for those that are gone from the log, or goes on behind them
    (failOnDataLoss), and FetchTimeoutError when nothing of the log comes for
    kafkaConsumer.pollTimeoutMs.
    """
    if not len(wanted):
        return
    batches = Batches(wanted.topic, wanted.partition, include_headers=options.include_headers)
    with Consumer(client_settings(options.kafka, "consumer")) as consumer:
        for batch in _Range(consumer, options, wanted).batches(batches):
            _spare_the_collector()
            kept = batch if times_us is None else _within(batch, times_us)
            if kept.num_rows:
                yield kept


@cache
def _spare_the_collector() -> None:
    """A worker of Spark collects garbage after every task (pyspark/daemon.py), and looks through
    all modules each time, for tens of milliseconds: what there is by now, when all has been
    imported that a batch needs, is left out of that."""
    gc.freeze()


def _within(batch: pa.RecordBatch, times_us: Span) -> pa.RecordBatch:
    times = batch["timestamp"].view(pa.int64())
    for bound, keeps in ((times_us.first, pc.greater_equal), (times_us.last, pc.less_equal)):
        if bound is not None:
            mask = keeps(times, bound)
            batch, times = batch.filter(mask), times.filter(mask)
    return batch


class _Range:
    """A consumer on its way through a range. position: the next offset to be read."""

    def __init__(self, consumer: Consumer, options: ReadOptions, wanted: OffsetRange) -> None:
        self._consumer = consumer
        self._options = options
        self._wanted = wanted
        self._fail = options.fail_on_data_loss
        self._position = wanted.start
        consumer.assign([wanted.where])
        consumer.seek(wanted.where, wanted.start)
        consumer.stop_at(wanted.where, wanted.end)

    def batches(self, make: Batches) -> Iterator[pa.RecordBatch]:
        """In order, until the range is read."""
        where, end = self._wanted.where, self._wanted.end
        due = time.monotonic() + self._options.poll_timeout_s
        while self._position < end:
            left_s = due - time.monotonic()
            if left_s <= 0:
                self._nothing_came()
                return
            try:
                columns = self._consumer.poll_batch(timeout_s=min(left_s, _WAIT_S))
                rows = bisect_left(columns.offsets, end)
                position = end if rows < len(columns) else self._consumer.position(where)
            except (NoOffsetError, LogTruncationError):
                self._lost()
                continue
            except BrokerError as error:
                if error.code not in _GONE:
                    raise
                report_loss(self._fail, f"{where} is gone; {self._rest()} cannot be read")
                return
            if rows:
                yield make.make(columns, rows)
            if position > self._position:
                self._position = position
                due = time.monotonic() + self._options.poll_timeout_s

    def _rest(self) -> str:
        return f"[{self._position}, {self._wanted.end})"

    def _lost(self) -> None:
        """The log does not have the position any more, ends before it, or is another one than that
        which was read so far; what it has from there on is read."""
        where, end = self._wanted.where, self._wanted.end
        first = self._consumer.beginning_offsets([where])[where]
        last = self._log_end()
        report_loss(
            self._fail,
            f"{where}: {self._rest()} was to be read, and the log has [{first}, {last}) now",
        )
        self._position = end if self._position >= last else min(max(first, self._position), end)
        if self._position < end:
            self._consumer.seek(where, self._position)

    def _nothing_came(self) -> None:
        """For so long: the rest is lost where the log ends before it, and late elsewhere."""
        where, limit_ms = self._wanted.where, self._options.poll_timeout_s * 1000
        text = f"nothing of {where} came within {limit_ms:g} ms, from offset {self._position} on"
        text += " (kafkaConsumer.pollTimeoutMs)"
        try:
            last = self._log_end(_PROBE_S)
        except KafkaError as error:
            raise FetchTimeoutError(f"{text}: {error}") from error
        if last > self._position:
            raise FetchTimeoutError(f"{text}: the log ends at {last}")
        told = f"{where}: {self._rest()} was to be read, and the log ends at {last} now"
        report_loss(self._fail, told)

    def _log_end(self, timeout_s: float | None = None) -> int:
        """Also of what a transaction that is still open holds back, which is not lost."""
        settings = client_settings(self._options.kafka, "consumer")
        with Consumer(settings | {"isolation.level": "read_uncommitted"}) as other:
            return other.end_offsets([self._wanted.where], timeout_s)[self._wanted.where]
