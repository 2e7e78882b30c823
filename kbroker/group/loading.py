"""Loading partitions of `__consumer_offsets` on a thread of its own; kbroker.txn.loading has those
of `__transaction_state` loaded by it, too.

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

from kbroker.ext.engine import name_thread
from kbroker.storage.manager import LogPort

_LOG: Final = logging.getLogger("kbroker.group")

_PIECES_AHEAD: Final = 4
_ROWS: Final = 1_000
_STOP_S: Final = 5.0

Other = tuple[int, bytes, bytes | None]
Commit = tuple[str, str, int, bytes]
Pending = tuple[int, bool, str, str, int, bytes]


class Load(Protocol):
    """A partition that is being read (kbroker.ext.offsets_load.OffsetsLoad)."""

    @property
    def done(self) -> bool: ...
    @property
    def problem_count(self) -> int: ...
    @property
    def problems(self) -> Sequence[tuple[int, str]]: ...
    def step(self) -> list[Other]: ...
    def packed(self, most: int = ...) -> list[Commit]: ...
    def pending(self) -> list[Pending]: ...


class Piece(NamedTuple):
    """What is to be folded in: records other than commits of offsets as (offset, key, value);
    commits as (group, topic, partition, packed); commits of transactions that are open, with
    producer id and whether none that stands behind overrules them; how often something could not be
    read, and (offset, why) of the first of those."""

    others: Sequence[Other] = ()
    commits: Sequence[Commit] = ()
    pending: Sequence[Pending] = ()
    problem_count: int = 0
    problems: Sequence[tuple[int, str]] = ()


class Loading(NamedTuple):
    """A partition to be loaded; `take` and `done` are called on the control thread, `open` on the
    loader's."""

    name: str
    log: LogPort
    open: Callable[[LogPort], Load]
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
        """Have a partition loaded; an empty log is at once."""
        if job.log.log_end_offset == job.log.log_start_offset:
            job.done(None)
            return
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
            self._thread.join(_STOP_S)  # no longer: a disk that hangs must not keep a broker

    def _run(self) -> None:
        name_thread("kbroker-load")
        while (job := self._jobs.get()) is not None and not self._stopping:
            error: Exception | None = None
            try:
                self._read(job)
            except Exception as found:
                error = found
            if not self._stopping:  # what was read until then is not all
                self._post(lambda job=job, error=error: job.done(error))  # type: ignore[misc]

    def _read(self, job: Loading) -> None:
        load = job.open(job.log)
        while not load.done:
            others = load.step()
            if others:
                self._pass_on(job, Piece(others))
            if self._stopping:
                return
        if load.problem_count:
            _tell(job.name, load)
            self._pass_on(job, Piece(problem_count=load.problem_count, problems=load.problems))
        while rows := load.packed(_ROWS):
            self._pass_on(job, Piece(commits=rows))
        pending = load.pending()
        if pending:
            self._pass_on(job, Piece(pending=pending))

    def _pass_on(self, job: Loading, piece: Piece) -> None:
        if self._stopping:
            return
        self._ahead.acquire()
        if not self._stopping:
            self._post(lambda: self._taken(job, piece))

    def _taken(self, job: Loading, piece: Piece) -> None:
        self._ahead.release()
        job.take(piece)


def _tell(name: str, load: Load) -> None:
    """What was passed over because it could not be read."""
    _LOG.warning("passing over %d damaged records of %s", load.problem_count, name)
    for offset, reason in load.problems:
        _LOG.warning("%s at offset %d: %s", name, offset, reason)

