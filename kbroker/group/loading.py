"""Loading partitions of `__consumer_offsets` on a thread of its own.

The thread has kbroker.ext.offsets_load read a log and fold its commits of offsets, without the GIL;
the control thread, to which pieces are posted, folds in the other records as they come and the
commits at the end. The thread is no more than a few pieces ahead, so that a large partition does
not pile up in memory and requests get their turn between two pieces.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

from kbroker.group.committed import NO_TOPIC_ID, Committed, pack
from kbroker.group.pending import Key

_LOG: Final = logging.getLogger("kbroker.group")

_PIECES_AHEAD: Final = 4
_ROWS: Final = 1_000

Other = tuple[int, bytes, bytes | None]
Row = tuple[str, str, int, int, int, str, int, int, bytes | None, int]


class Load(Protocol):
    """A partition that is being read (kbroker.ext.offsets_load.OffsetsLoad)."""

    @property
    def done(self) -> bool: ...
    @property
    def problem_count(self) -> int: ...
    @property
    def problems(self) -> list[tuple[int, str]]: ...
    def step(self) -> list[Other]: ...
    def rows(self, most: int = ...) -> list[Row]: ...
    def pending(self, most: int = ...) -> list[tuple[int, Row]]: ...


class PendingCommit(NamedTuple):
    """A commit of a transaction that is open; `effective` unless a later one overrules it."""

    producer_id: int
    key: Key
    data: bytes
    effective: bool


class Piece(NamedTuple):
    """What is to be folded in: records other than commits of offsets as (offset, key, value), then
    commits by key, packed."""

    others: Sequence[Other] = ()
    commits: Sequence[tuple[Key, bytes]] = ()
    pending: Sequence[PendingCommit] = ()


class Loading(NamedTuple):
    """A partition to be loaded; both functions are called on the control thread."""

    partition: int
    open: Callable[[], Load]
    take: Callable[[Piece], None]
    done: Callable[[Exception | None], None]


class Loader:
    """Loads partitions one after the other."""

    def __init__(self, post: Callable[[Callable[[], None]], None]) -> None:
        self._post = post
        self._jobs: queue.SimpleQueue[Loading | None] = queue.SimpleQueue()
        self._ahead = threading.Semaphore(_PIECES_AHEAD)
        self._thread: threading.Thread | None = None
        self._stopping = False

    def load(self, job: Loading) -> None:
        """Have a partition loaded."""
        self._jobs.put(job)
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
            error: Exception | None = None
            try:
                self._read(job)
            except Exception as found:
                error = found
            self._post(lambda job=job, error=error: job.done(error))  # type: ignore[misc]

    def _read(self, job: Loading) -> None:
        load = job.open()
        while not load.done:
            others = load.step()
            if others:
                self._pass_on(job, Piece(others))
            if self._stopping:
                return
        _tell(job.partition, load)
        pending = _all_pending(load)
        behind = {_key(row): -1 for _, row in pending}
        while rows := load.rows(_ROWS):
            for row in rows if behind else ():
                if _key(row) in behind:
                    behind[_key(row)] = row[-1]
            self._pass_on(job, Piece(commits=[(_key(row), _packed(row)) for row in rows]))
        if pending:
            self._pass_on(
                job,
                Piece(
                    pending=[
                        PendingCommit(
                            producer_id, _key(row), _packed(row), row[-1] > behind[_key(row)]
                        )
                        for producer_id, row in pending
                    ]
                ),
            )

    def _pass_on(self, job: Loading, piece: Piece) -> None:
        self._ahead.acquire()
        if not self._stopping:
            self._post(lambda: self._taken(job, piece))

    def _taken(self, job: Loading, piece: Piece) -> None:
        self._ahead.release()
        job.take(piece)


def _tell(partition: int, load: Load) -> None:
    """What was passed over because it could not be read."""
    if load.problem_count:
        _LOG.warning(
            "passing over %d damaged records of __consumer_offsets-%d",
            load.problem_count, partition,
        )  # fmt: skip
    for offset, reason in load.problems:
        _LOG.warning("__consumer_offsets-%d at offset %d: %s", partition, offset, reason)


def _all_pending(load: Load) -> list[tuple[int, Row]]:
    """Commits of open transactions in the order of the log."""
    found = []
    while part := load.pending(_ROWS):
        found += part
    return sorted(found, key=lambda one: one[1][-1])


def _key(row: Row) -> Key:
    return row[:3]


def _packed(row: Row) -> bytes:
    _, _, _, offset, epoch, metadata, commit_ms, expire_ms, topic_id, _ = row
    return pack(Committed(offset, epoch, metadata, commit_ms, expire_ms, topic_id or NO_TOPIC_ID))
