"""Chunks of records to a topic through one producer, and what became of them.

Failures are counted by their text and told once. Not thread-safe.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter, deque
from typing import TYPE_CHECKING, Any

import click

from kbroker.cli.output import Output
from kbroker.cli.progress import Progress, rates
from kbroker.cli.records_in import Chunk, Headers
from kbroker.cli.stopping import Stop

if TYPE_CHECKING:
    from kbroker.client import BatchDelivery, Producer
    from kbroker.ext.client_delivery import OffsetRange

__all__ = ["Sending", "count_of"]

_STEP_RECORDS = 65_536  # at once, so that progress and outcomes are seen between
_TURNS_S = 10  # so often a second records go out with --rate
_LONG_S = 1.0  # from here on the summary tells how fast it was


def _place(told: OffsetRange) -> str:
    """`% t [0]: offsets 5 to 9`; without offsets where none were answered."""
    where = f"% {told.topic} [{told.partition}]: "
    if told.offset < 0:
        return where + count_of(told.records)
    end = f"s {told.offset} to {told.offset + told.records - 1}" if told.records > 1 else ""
    return f"{where}offset{end or f' {told.offset}'}"


def count_of(number: int, what: str = "record") -> str:
    """`1 record`, `2 records`."""
    return f"{number} {what}{'' if number == 1 else 's'}"


class Sending:
    """Sends to one topic.

    partition: for all records, or None. headers: of every record. rate: records a second, None for
    as fast as it goes. tee: where records are printed once they are taken, with a line's end.
    places: where records went is told as they are acknowledged.
    """

    def __init__(
        self,
        producer: Producer,
        topic: str,
        stop: Stop,
        progress: Progress,
        *,
        partition: int | None = None,
        headers: Headers | None = None,
        rate: int | None = None,
        tee: tuple[Output, bytes] | None = None,
        places: bool = False,
    ) -> None:
        self.taken = 0
        self.acked = 0
        self.bytes = 0
        self.failed: Counter[str] = Counter()
        self.partitions: set[int] = set()
        self._producer = producer
        self._topic = topic
        self._stop = stop
        self._progress = progress
        self._partition = partition
        self._headers = headers or []
        self._rate = rate
        self._tee = tee
        self._places = places
        self._began = time.monotonic()
        self._under_way: deque[BatchDelivery] = deque()

    def send(self, chunk: Chunk) -> None:
        """Takes a chunk; waits where the producer's memory is full, and for --rate.

        Raises StoppedError between records with --rate; those taken before are on their way.
        """
        step = _STEP_RECORDS if self._rate is None else max(1, self._rate // _TURNS_S)
        for start in range(0, len(chunk), step):
            part = chunk.part(start, start + step)
            if self._rate is not None:
                self._hold_back(self._rate)
            self._send(part)
            if self._tee is not None:
                out, between = self._tee
                out.put(part.raw or [], between)
            self._reap()
            self._progress.tick(self.taken, self.bytes)

    def refuse(self, wrong: str | None = None) -> None:
        """Counts a record that was not even kept, for its size, or told at once: it is none."""
        most = self._producer.config.max_request_size
        self.taken += 1
        if wrong is None:
            self.failed[f"{self._topic}: a record is larger than max.request.size ({most})"] += 1
        else:
            self._tell(f"kbroker: {wrong}")
            self.failed["not in the form of --json"] += 1

    def finish(self) -> None:
        """Waits until it is known what became of each record."""
        while self._under_way:
            with contextlib.suppress(TimeoutError):
                self._under_way[0].wait(0.25)
            self._reap()
            waiting = sum(map(len, self._under_way))
            self._progress.tick(self.taken, self.bytes, f", {waiting} not acknowledged yet")
        self._progress.clear()

    def _hold_back(self, rate: int) -> None:
        with self._stop.interruptible():
            pause_s = self._began + self.taken / rate - time.monotonic()
            if pause_s > 0:
                time.sleep(pause_s)

    def _send(self, chunk: Chunk) -> None:
        from kbroker.client.errors import RecordTooLargeError

        self.bytes += sum(map(len, filter(None, chunk.values)))
        self.bytes += sum(map(len, filter(None, chunk.keys or ())))
        start = 0
        while start < len(chunk):
            part = chunk.part(start, len(chunk))
            try:
                self._sent(self._producer.send_batch(self._topic, **self._columns(part)))
                return
            except RecordTooLargeError as error:
                delivery: BatchDelivery = error.delivery  # type: ignore[attr-defined]
                self._sent(delivery)
                self.failed[str(error)] += 1
                self.taken += 1
                start += len(delivery) + 1

    def _sent(self, delivery: BatchDelivery) -> None:
        self.taken += len(delivery)
        if len(delivery):
            self._under_way.append(delivery)

    def _columns(self, chunk: Chunk) -> dict[str, Any]:
        columns: dict[str, Any] = {"values": chunk.values, "keys": chunk.keys}
        if chunk.headers is not None:
            columns["headers"] = [own + self._headers for own in chunk.headers]
        elif self._headers:
            columns["headers"] = [self._headers] * len(chunk)
        if chunk.timestamps_ms is not None and any(at is not None for at in chunk.timestamps_ms):
            now = int(time.time() * 1000)
            columns["timestamps_ms"] = [now if at is None else at for at in chunk.timestamps_ms]
        if self._partition is not None:
            columns["partition"] = self._partition
        elif chunk.partitions is not None and any(at is not None for at in chunk.partitions):
            columns["partition"] = chunk.partitions
        return columns

    def _reap(self) -> None:
        while self._under_way and self._under_way[0].done():
            delivery = self._under_way.popleft()
            found, errors = delivery.wait(0)
            acked = sum(place.records for place in found)
            self.acked += acked
            self.partitions.update(place.partition for place in found)
            for place in found if self._places else ():
                self._tell(_place(place))
            if errors:
                text = "; ".join(dict.fromkeys(map(str, errors)))
                self.failed[text] += len(delivery) - acked

    # ---- what is told

    def _tell(self, line: str) -> None:
        self._progress.clear()
        click.echo(line, err=True)

    def summary(self, *, answered: bool) -> str:
        """`3 records acknowledged to t partitions 0, 1`."""
        if not self.acked:
            return f"nothing sent to {self._topic}"
        told = "acknowledged" if answered else "sent, not acknowledged,"
        numbers = ", ".join(map(str, sorted(self.partitions)))
        plural = "s" if len(self.partitions) > 1 else ""
        text = f"{count_of(self.acked)} {told} to {self._topic} partition{plural} {numbers}"
        took_s = time.monotonic() - self._began
        if took_s < _LONG_S:
            return text
        return f"{text} in {took_s:.1f} s ({rates(self.acked, self.bytes, took_s)})"

    def failures(self) -> str:
        """What failed, by reason; empty where nothing did."""
        return "\n".join(
            f"{count_of(number)} failed: {text}" for text, number in self.failed.most_common()
        )
