"""Reading partitions of `__consumer_offsets` on a thread of its own.

The thread reads and cuts batches into records; the control thread, to which pieces are posted,
folds them into the state. It is no more than a few pieces behind, so that a large partition does
not pile up in memory and requests get their turn between two pieces.
"""

from __future__ import annotations

import logging
import queue
import struct
import threading
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from kbroker.ext.records import Batch, BatchError, batches
from kbroker.ext.records import records as records_of
from kbroker.storage.manager import LogPort

_LOG: Final = logging.getLogger("kbroker.group")

_READ_BYTES: Final = 4 << 20
_PIECE_RECORDS: Final = 2_000
_PIECES_AHEAD: Final = 4
_CONTROL_KEY: Final = struct.Struct(">hh")
_ABORT, _COMMIT = 0, 1


class Loaded(NamedTuple):
    """A record as it was read; `producer_id` is -1 outside of a transaction."""

    offset: int
    key: bytes | None
    value: bytes | None
    producer_id: int


class Chunk(NamedTuple):
    """Records in their order, then transactions that end behind them: (producer id, committed)."""

    records: list[Loaded]
    ended: list[tuple[int, bool]]


Take = Callable[[Chunk], None]
Done = Callable[[Exception | None], None]


class Loader:
    """Loads partitions one after the other; what it calls runs on the control thread."""

    def __init__(self, post: Callable[[Callable[[], None]], None]) -> None:
        self._post = post
        self._jobs: queue.SimpleQueue[tuple[LogPort, Take, Done] | None] = queue.SimpleQueue()
        self._ahead = threading.Semaphore(_PIECES_AHEAD)
        self._thread: threading.Thread | None = None
        self._stopping = False

    def load(self, log: LogPort, take: Take, done: Done) -> None:
        """Read a log from its start to its end of now."""
        self._jobs.put((log, take, done))
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="group-loader", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """End after the piece at hand; nothing more is posted."""
        self._stopping = True
        self._jobs.put(None)
        self._ahead.release()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None and not self._stopping:
            log, take, done = job
            error: Exception | None = None
            try:
                self._read(log, take)
            except Exception as found:
                error = found
            self._post(lambda done=done, error=error: done(error))  # type: ignore[misc]

    def _read(self, log: LogPort, take: Take) -> None:
        for chunk in _chunks(log):
            self._ahead.acquire()
            if self._stopping:
                return
            self._post(lambda chunk=chunk: self._taken(take, chunk))  # type: ignore[misc]

    def _taken(self, take: Take, chunk: Chunk) -> None:
        self._ahead.release()
        take(chunk)


def _chunks(log: LogPort) -> Iterator[Chunk]:
    offset, end = log.log_start_offset, log.log_end_offset
    records: list[Loaded] = []
    while offset < end:
        data = log.read(offset, _READ_BYTES, up_to="log_end_offset")
        found = batches(data, False)
        if not found:
            raise ValueError(f"nothing to read at offset {offset} of {end}")
        for batch in found:
            ended = _batch(data, batch, records)
            if ended or len(records) >= _PIECE_RECORDS:
                yield Chunk(records, ended)
                records = []
        offset = found[-1].base_offset + found[-1].last_offset_delta + 1
    yield Chunk(records, [])


def _batch(data: bytes, batch: Batch, out: list[Loaded]) -> list[tuple[int, bool]]:
    """Add the records of a batch; the transactions that it ends."""
    try:
        found = records_of(data, batch.position)
    except BatchError as error:
        _LOG.warning("passing over a damaged batch of __consumer_offsets at offset %d: %s",
                     batch.base_offset, error)  # fmt: skip
        return []
    if not batch.control:
        producer_id = batch.producer_id if batch.transactional else -1
        out += [Loaded(one.offset, one.key, one.value, producer_id) for one in found]
        return []
    kinds = [_CONTROL_KEY.unpack_from(one.key)[1] for one in found if one.key is not None]
    return [(batch.producer_id, kind == _COMMIT) for kind in kinds if kind in (_ABORT, _COMMIT)]
