"""Batch reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from kbroker.client.offsets import EARLIEST, LATEST
from kbroker.client.partitions import TopicPartition
from pyspark_kbroker.driver import Brokers, report_loss
from pyspark_kbroker.errors import OptionError, importing
from pyspark_kbroker.filters import Pushed
from pyspark_kbroker.offsets import Offsets
from pyspark_kbroker.options import ReadOptions
from pyspark_kbroker.ranges import OffsetRange, split

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["BatchReader"]


class _PushFilters:
    """`pushFilters` of a reader.

    With spark.sql.python.filterPushdown.enabled=false, which is the default, Spark refuses a reader
    that overrides that method instead of not calling it, and tells by `__func__`. Filters save work
    here and nothing is wrong without, so that it is shown the base's.
    """

    def __init__(self, pushed: Pushed) -> None:
        self.__func__ = DataSourceReader.pushFilters  # of the class it would be bound
        self._pushed = pushed

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        return self._pushed.push(filters)


class BatchReader(DataSourceReader):
    """Plans on the driver, once; reads on executors."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._pushed = Pushed()
        self.pushFilters: Any = _PushFilters(self._pushed)

    def partitions(self) -> list[InputPartition]:
        """Tasks: what offsets, times and filters leave of each partition."""
        brokers = Brokers(self._options)
        try:
            ranges = self._ranges(brokers)
        finally:
            brokers.close()
        return [
            *split(ranges, self._options.min_partitions, self._options.max_records_per_partition)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """On an executor. Spark makes up a partition where there is none."""
        with importing():
            from pyspark_kbroker.fetch import read_range

        if isinstance(partition, OffsetRange):
            times = self._pushed.times_us
            yield from read_range(self._options, partition, times if times else None)

    def _ranges(self, brokers: Brokers) -> list[OffsetRange]:
        assert self._options.ending is not None
        every = brokers.partitions()
        starts = brokers.resolve(self._options.starting, every)
        ends = brokers.resolve(self._options.ending, every)
        kept = [where for where in every if self._pushed.keeps(where)]
        for where in kept:
            if where not in starts or where not in ends:
                report_loss(self._options.fail_on_data_loss, f"{where} went away meanwhile")
        kept = [where for where in kept if where in starts and where in ends]
        self._check(brokers, kept, starts, ends)
        first, last = self._pushed.offsets.first, self._pushed.offsets.last
        since_us = self._pushed.times_us.first
        if since_us is not None and since_us > 0:
            # The record before an offset found by a time is older; one behind it may be, too.
            since = brokers.at_times(dict.fromkeys(kept, since_us // 1000))
            starts |= {where: max(starts[where], since[where]) for where in kept}
        return [
            OffsetRange(
                where.topic,
                where.partition,
                starts[where] if first is None else max(starts[where], first),
                ends[where] if last is None else min(ends[where], last + 1),
            )
            for where in kept
        ]

    def _check(
        self, brokers: Brokers, kept: list[TopicPartition], starts: Offsets, ends: Offsets
    ) -> None:
        """Offsets that the user named may be none of the log's; then they are lost, and with
        failOnDataLoss=false what there is is read. What would begin behind its end is a mistake."""
        fail = self._options.fail_on_data_loss
        starting, ending = self._options.starting, self._options.ending
        assert ending is not None
        if starting.offsets is not None:
            for where, least in brokers.edges(kept, EARLIEST).items():
                if starts[where] < least:
                    report_loss(fail, f"{where} begins at {least}, not at {starts[where]}")
                    starts[where] = least
        if ending.offsets is not None or starting.offsets is not None:
            for where, most in brokers.edges(kept, LATEST).items():
                for bounds, begins in ((starts, "to begin"), (ends, "to end")):
                    if bounds[where] > most:
                        told = f"{where} ends at {most}, and was {begins} at {bounds[where]}"
                        report_loss(fail, told)
                        bounds[where] = most
        for where in kept:
            begin, end = starts[where], ends[where]
            if begin > end and starting.edge is not None:
                report_loss(fail, f"{where} begins at {begin}, after what was to be the end, {end}")
            elif begin > end and fail:
                raise OptionError(
                    f"{where} would be read from {begin} ({starting.option}) to before {end}"
                    f" ({ending.option})"
                )
