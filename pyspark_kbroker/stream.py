"""Streaming reads: micro-batches between offsets.

Spark holds one reader on the driver for as long as the stream runs and asks it for ends of
micro-batches and for tasks; tasks read on executors. Admission control (a start and a limit with
the question for the latest offset) and Trigger.AvailableNow came with PySpark 4.2. PySpark 4.1
tells no start: there the reader goes by what it was asked last, so that the first micro-batch
of a run is not held to maxOffsetsPerTrigger, and wraps AvailableNow itself.

Spark does not keep where a stream begins: for its first micro-batch it asks twice, and again after
a restart before that one is committed. A reader answers twice the same. For another one, which
finds other ends, a stream that begins at ends has nothing in its first micro-batch: its end, which
the checkpoint has, is the beginning.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from kbroker.client.offsets import EARLIEST
from kbroker.client.partitions import TopicPartition
from pyspark_kbroker.driver import Brokers, report_loss
from pyspark_kbroker.errors import importing
from pyspark_kbroker.offsets import Offsets, from_json, to_json
from pyspark_kbroker.options import ReadOptions
from pyspark_kbroker.ranges import OffsetRange, limited, split

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadMaxRows,
        ReadMinRows,
        SupportsTriggerAvailableNow,
    )
except ImportError:  # PySpark 4.1, which asks for no limits

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """Nothing there."""

    class ReadAllAvailable:  # type: ignore[no-redef]
        """Never given."""


if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["StreamReader"]

Json = Mapping[str, Mapping[str, int]]
_log = logging.getLogger("pyspark_kbroker")


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets are the official connector's: {"topic": {"0": 23}}."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._brokers = Brokers(options)
        self._initial: Offsets | None = None  # where a new stream begins, once it was asked for
        self._begun = False  # whether the end of its first micro-batch is known
        self._older: Offsets | None = None  # that end, if it is older than what is in _initial
        self._asked: Offsets | None = None  # where the next micro-batch begins, if that is known
        self._last: Offsets | None = None  # the ends found last
        self._available_now = False  # the trigger is AvailableNow
        self._target: Offsets | None = None  # its end, found with the first offsets
        self._taken_s = float("-inf")  # when a micro-batch was made last, monotonic

    # ---- ends of micro-batches

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Where a new stream begins, as it was when this was asked first."""
        if self._initial is None:
            begin = self._brokers.resolve(self._options.starting, self._brokers.partitions())
            self._initial = self._asked = begin
            if self._available_now:
                self._available(begin)
        return to_json(self._initial)

    def latestOffset(  # noqa: N802
        self, start: Json | None = None, limit: Any = None
    ) -> dict[str, Any]:
        """The end of the micro-batch that begins at `start`: `start` itself where there is nothing
        to read, or not enough yet, and for the first of a stream that begins at an end."""
        begin = self._asked if start is None else from_json(start)
        known = begin or {}
        ends = self._available(known) if self._available_now else self._brokers.latest(known)
        self._last = ends
        if begin is not None and begin == self._initial and not self._begun:
            self._begun = True
            if self._options.starts_at_an_end:
                ends = begin
        if not isinstance(limit, ReadAllAvailable):
            ends = self._admitted(begin, ends)
        self._asked = ends
        return to_json(ends)

    def _available(self, known: Offsets) -> Offsets:
        """The end of all that Trigger.AvailableNow reads. It is found only when the start is known:
        a topic that the checkpoint knows may be deleted, and an end before the start is asked for
        again."""
        if self._target is None:
            self._target = self._brokers.latest(known)
        return self._target

    def _admitted(self, begin: Offsets | None, ends: Offsets) -> Offsets:
        """What minOffsetsPerTrigger and maxOffsetsPerTrigger leave: all of a micro-batch that
        begins nobody knows where, as an end by their count might lie before that."""
        least, most = self._options.min_offsets, self._options.max_offsets
        if least is None and most is None:
            return ends
        now = time.monotonic()
        if begin is None:
            self._taken_s = now
            return ends
        begins = begin | self._brokers.edges(ends.keys() - begin.keys(), EARLIEST)
        if least is not None and not self._available_now:
            new = sum(max(end - begins.get(where, end), 0) for where, end in ends.items())
            if new < least and now - self._taken_s < self._options.max_trigger_delay_s:
                return begin
            self._taken_s = now
        return ends if most is None else limited(begins, ends, most)

    def getDefaultReadLimit(self) -> Any:  # noqa: N802
        """What Spark asks for unless its trigger wants all; both limits hold all the same."""
        if self._options.max_offsets is not None:
            return ReadMaxRows(self._options.max_offsets)
        if self._options.min_offsets is not None:
            return ReadMinRows(self._options.min_offsets)
        return ReadAllAvailable()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Ends as they were found last, for lastProgress: what it tells beyond the end of the
        micro-batch is the lag."""
        return None if self._last is None else to_json(self._last)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Read what is there when Spark first asks for offsets, which is next."""
        self._available_now, self._target = True, None

    # ---- tasks

    def partitions(self, start: Json, end: Json) -> list[InputPartition]:
        """Tasks of a micro-batch. Raises DataLossError for offsets and partitions that are gone."""
        begin, ends = from_json(start), from_json(end)
        self._asked = ends
        fail = self._options.fail_on_data_loss
        if begin == self._initial:
            begin = self._begin_of_first(begin, ends)
        begin |= self._begin_of_new(ends.keys() - begin.keys())
        for where in sorted(begin.keys() - ends.keys()):
            report_loss(fail, f"{where} is gone, and was read up to {begin[where]}")
        ranges = []
        for where in sorted(ends.keys() & begin.keys()):
            if ends[where] < begin[where]:
                report_loss(fail, f"{where} went back from {begin[where]} to {ends[where]}")
            ranges.append(OffsetRange(*where, begin[where], ends[where]))
        most = self._options.max_records_per_partition
        return [*split(ranges, self._options.min_partitions, most)]

    def _begin_of_first(self, begin: Offsets, ends: Offsets) -> Offsets:
        """Where the stream began when these ends were found: in a run before this one, or by
        PySpark 4.1, which asks for ends first. Partitions came, and ends moved on since."""
        if not self._begun:
            self._begun, self._older = True, ends
        if ends != self._older:
            return begin
        found = {where: offset for where, offset in begin.items() if where in ends}
        if self._options.starts_at_an_end:
            for where, offset in found.items():
                if offset > ends[where]:
                    _log.warning("%s begins at %d, not at %d", where, ends[where], offset)
                    found[where] = ends[where]
        return found

    def _begin_of_new(self, new: set[TopicPartition]) -> Offsets:
        """New partitions are read from their beginning, which is 0 unless something was lost."""
        fail = self._options.fail_on_data_loss
        found = self._brokers.edges(new, EARLIEST)
        for where in sorted(new):
            if where not in found:
                report_loss(fail, f"{where} was new, and is gone")
            elif found[where] > 0:
                report_loss(fail, f"{where} is new, and begins at {found[where]} instead of 0")
        return found

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """On an executor."""
        with importing():
            from pyspark_kbroker.fetch import read_range

        if isinstance(partition, OffsetRange):
            yield from read_range(self._options, partition)

    def commit(self, end: Json) -> None:
        """Spark's checkpoint has it; no group does."""

    def stop(self) -> None:
        """The stream has ended."""
        self._brokers.close()
