"""The log cleaner: which compacted log is cleaned next, by whom, and how far each one is clean.

`log.cleaner.threads` threads look for the log with the largest share of dirty bytes among those
that are due: beyond min.cleanable.dirty.ratio, or with records that max.compaction.lag.ms has
caught up with. The bytes are kbroker.ext.cleaner's. A thread that finds nothing sleeps for
`log.cleaner.backoff.ms`.

`cleaner-offset-checkpoint` of each directory holds the first offset of each of its logs that no
cleaning has seen. It is written after every cleaning there, and when a topic is deleted, lest one
of the same name inherits it. A crash may leave one that is older than the logs: what was cleaned is
cleaned again.

A log that the disk has no room for is told once and tried again later, ever more seldom; one that
holds what cannot be read is told once and left alone until the next start.

Concurrency. `_lock` guards all state; nothing that may wait for a disk holds it: no look at a log,
no cleaning, no checkpoint. Who writes a directory's checkpoint holds its `checkpointing` and looks
at the state under `_lock` only then, so that no older state is written over a newer one. At most
one thread is at a partition, also across a deletion and a new topic of the name: the files of the
old one have the same names. Logs of a directory whose disk hangs are left alone.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final, NamedTuple

from kbroker.clock import Clock
from kbroker.config import BrokerConfig
from kbroker.errors import DiskError
from kbroker.ext.cleaner import (
    Cleanable,
    Cleaned,
    Cleaner,
    CleaningInterruptedError,
    Throttle,
    UncleanableError,
    compacted,
    survey,
)
from kbroker.ext.engine import name_thread
from kbroker.ext.log import Log
from kbroker.storage.checkpoints import CLEANER_OFFSETS
from kbroker.storage.log_directory import LogDirectory
from kbroker.storage.log_port import Key
from kbroker.storage.manager import LogManager

_LOG: Final = logging.getLogger("kbroker.cleaner")

_MAP_BYTES_MAX: Final = 2**31 - 1
_RETRY_MIN_MS: Final = 1_000
_RETRY_MAX_MS: Final = 300_000
_PAUSE_S: Final = 0.02


class CleanerSettings(NamedTuple):
    """log.cleaner.* as they hold now; all can change while the broker runs."""

    threads: int
    map_bytes: int
    load_factor: float
    io_bytes: int
    bytes_per_second: float
    backoff_ms: int

    @classmethod
    def of(cls, config: BrokerConfig) -> CleanerSettings:
        """What the configuration says."""
        return cls(
            max(config.integer("log.cleaner.threads"), 1),
            config.integer("log.cleaner.dedupe.buffer.size"),
            float(str(config.value("log.cleaner.io.buffer.load.factor"))),
            config.integer("log.cleaner.io.buffer.size"),
            float(str(config.value("log.cleaner.io.max.bytes.per.second"))),
            config.integer("log.cleaner.backoff.ms"),
        )


class Work(NamedTuple):
    """A log to be cleaned, which is marked as being so."""

    key: Key
    log: Log
    cleanable: Cleanable


class Cleanings(NamedTuple):
    """Sums over the cleanings that ended well since the start."""

    runs: int = 0
    ms: int = 0
    read_bytes: int = 0
    written_bytes: int = 0


class LogCleaner:
    """See the module."""

    def __init__(
        self,
        config: BrokerConfig,
        logs: LogManager,
        clock: Clock,
        room: Callable[[int, int], object] | None = None,
    ) -> None:
        """`room` is called with the bytes of each group of segments before it is written anew, and
        the place of the directory; it may wait until there is room on the disk."""
        self._room = room
        self._at_work = threading.local()  # the place of the directory of the log at hand
        self._config = config
        self._logs = logs
        self._clock = clock
        self._settings = CleanerSettings.of(config)
        self._throttle = Throttle(self._settings.bytes_per_second)
        self._lock = threading.Lock()
        self._checkpoint: dict[Key, int] = {}
        self._busy: set[Key] = set()
        self._paused: set[Key] = set()
        self._brought: dict[Key, LogDirectory] = {}
        self._uncleanable: dict[Key, Log] = {}
        self._retries: dict[Key, tuple[int, int]] = {}
        self._workers: list[_Worker] = []
        self._running = False
        self._cleanings = Cleanings()

    @property
    def cleanings(self) -> Cleanings:
        """What has been cleaned, by all threads."""
        return self._cleanings

    def counts(self) -> tuple[int, int]:
        """Partitions that are being cleaned now, and those that hold what cannot be read."""
        with self._lock:
            return len(self._busy), len(self._uncleanable)

    # ---- start, stop, settings: one thread at a time (the broker's, then the control thread)

    def start(self) -> None:
        """Read the checkpoint and begin; nothing where log.cleaner.enable is false."""
        for directory in self._logs.online:
            found: dict[Key, int] = {}
            with directory.apart():
                found = directory.offsets(CLEANER_OFFSETS)
            self._checkpoint.update(
                (key, at) for key, at in found.items() if self._logs.homes.get(key) is directory
            )
        if not self._config.flag("log.cleaner.enable"):
            _LOG.warning("log.cleaner.enable=false: compacted topics grow for ever")
            return
        self._running = True
        self._start_workers()

    def _start_workers(self) -> None:
        if self._config.integer("log.cleaner.threads") < 1:
            _LOG.warning(
                "log.cleaner.threads=0, which an earlier version stored, is taken as 1; set it to "
                "1 or delete it"
            )
        try:
            hands = [self.new_cleaner() for _ in range(self._settings.threads)]
        except ValueError as error:
            _LOG.error("no compaction: %s; raise log.cleaner.dedupe.buffer.size", error)
            return
        for index, cleaner in enumerate(hands):
            worker = _Worker(self, cleaner, self._settings.backoff_ms, index)
            self._workers.append(worker)
            worker.start()

    def new_cleaner(self) -> Cleaner:
        """The hands of one thread, with its share of the memory."""
        settings = self._settings
        return Cleaner(
            self._throttle,
            map_bytes=min(settings.map_bytes // settings.threads, _MAP_BYTES_MAX),
            load_factor=settings.load_factor,
            io_bytes=settings.io_bytes // settings.threads // 2,
            room=None if self._room is None else self._await_room,
        )

    def _await_room(self, size: int) -> None:
        assert self._room is not None
        self._room(size, self._at_work.place)

    def reconfigure(self) -> None:
        """Settings may have changed: other threads take over, those at work stop as they are."""
        before, self._settings = self._settings, CleanerSettings.of(self._config)
        self._throttle.set_rate(self._settings.bytes_per_second)
        rate = self._settings.bytes_per_second
        if self._running and self._settings != before._replace(bytes_per_second=rate):
            for worker in self._workers:
                worker.stop()
            self._workers = [worker for worker in self._workers if worker.is_alive()]
            self._start_workers()

    def stop(self) -> None:
        """End; a cleaning at hand is given up."""
        self._running = False
        for worker in self._workers:
            worker.stop()
        for worker in self._workers:
            worker.join()
        self._workers.clear()

    # ---- the checkpoint

    def forget(self, keys: list[Key]) -> None:
        """These partitions were deleted; `write_checkpoint` of their homes is to follow. Of the
        control thread."""
        with self._lock:
            for key in keys:
                self._checkpoint.pop(key, None)
                self._uncleanable.pop(key, None)
                self._retries.pop(key, None)

    def write_checkpoint(self, directory: LogDirectory) -> None:
        """Where it is not what the directory has. When it returns, what the caller changed is
        written, by it or by one behind it."""
        if not directory.online:
            return
        with directory.checkpointing:
            with self._lock:
                known, brought = list(self._checkpoint.items()), dict(self._brought)
            kept = {
                key: at for key, at in known if self._logs.get(*key) is not None
                and directory in (self._logs.homes.get(key), brought.get(key))
            }  # fmt: skip
            try:
                directory.write_offsets(CLEANER_OFFSETS, kept)
            except DiskError as error:
                _LOG.error("%s; after a restart cleaned logs are cleaned again", error)

    # ---- moves between directories; any thread

    def pause(self, key: Key, check: Callable[[], object]) -> None:
        """Leave a partition alone; waits for a cleaning that is at it, or until `check` raises."""
        waiting = threading.Event()
        while True:
            with self._lock:
                self._paused.add(key)
                if key not in self._busy:
                    return
            check()
            waiting.wait(_PAUSE_S)

    def resume(self, key: Key) -> None:
        """It may be cleaned again."""
        with self._lock:
            self._paused.discard(key)
            self._brought.pop(key, None)

    def bring(self, key: Key, directory: LogDirectory) -> None:
        """How far a paused partition is clean is to be known in a directory, too, where it is about
        to live: before it does, for the journal there takes holes that are not known for lost
        records."""
        with self._lock:
            self._brought[key] = directory
        self.write_checkpoint(directory)

    # ---- which log is next

    def _due(self, key: Key, log: Log) -> Cleanable | None:
        """What of it is to be cleaned now."""
        known = self._checkpoint.get(key)
        found = survey(log, known, self._clock.wall_ms())
        if found is None:
            return None
        if found.reset and known is not None:
            if not found.deletes or found.first_dirty > known:
                _LOG.info("%s-%d: %s; beginning at %d", *key, found.reset, found.first_dirty)
            with self._lock:
                if self._checkpoint.get(key) == known:
                    self._checkpoint[key] = found.first_dirty
        if not found.cleanable_bytes:
            return None
        if found.overdue_ms > 0 or dirty_ratio(found) > found.min_ratio:
            return found
        return None

    def take(self) -> Work | None:
        """The dirtiest log that is due; it is nobody else's until `clean` is done with it."""
        due = []
        for key, log in self._candidates():
            found = self._due(key, log)
            if found is not None:
                due.append(Work(key, log, found))
        with self._lock:  # others may have looked as well
            free = [work for work in due if self._is_free(work.key, work.log)]
            best = max(free, key=lambda work: dirty_ratio(work.cleanable), default=None)
            if best is not None:
                self._busy.add(best.key)
        return best

    def _candidates(self) -> list[tuple[Key, Log]]:
        hanging = {one for one in self._logs.online if self._logs.hangs(one)}
        with self._lock:
            return [
                (key, log) for key, log in self._logs.snapshot() if isinstance(log, Log)
                and self._is_free(key, log) and self._logs.homes.get(key) not in hanging
            ]  # fmt: skip

    def _is_free(self, key: Key, log: Log) -> bool:
        """Whether a thread may be at it. Under `_lock`."""
        if log.offline or key in self._busy or key in self._paused:
            return False
        retry_ms, _ = self._retries.get(key, (0, 0))
        return self._uncleanable.get(key) is not log and (
            retry_ms <= self._clock.monotonic_ms() and self._logs.get(*key) is log
        )

    # ---- cleaning

    def clean(self, cleaner: Cleaner, work: Work) -> bool:
        """Clean what was taken: whether that went well. What went wrong is told."""
        began_ms = self._clock.monotonic_ms()
        done: Cleaned | None = None
        self._at_work.place = work.log.directory
        try:
            done = cleaner.clean(work.log, work.cleanable, self._clock.wall_ms())
            took_ms = self._clock.monotonic_ms() - began_ms
            self._count(done, took_ms)
            _tell(work.key, done, took_ms)
        except CleaningInterruptedError:
            pass
        except (DiskError, MemoryError) as error:
            self._try_later(work, error)
        except UncleanableError as error:
            self._leave_alone(work, error)
        except Exception as error:
            _LOG.exception("cleaning %s-%d", *work.key)
            self._leave_alone(work, error)
        finally:
            self._done(work, done)
        return done is not None

    def _count(self, done: Cleaned, took_ms: int) -> None:
        with self._lock:
            runs, ms, read, written = self._cleanings
            self._cleanings = Cleanings(
                runs + 1, ms + took_ms, read + done.read_bytes, written + done.written_bytes
            )

    def _done(self, work: Work, done: Cleaned | None) -> None:
        with self._lock:
            self._busy.discard(work.key)
            counts = done is not None and self._logs.get(*work.key) is work.log
            if done is not None and counts:
                self._retries.pop(work.key, None)
                self._checkpoint[work.key] = done.end_offset
        home = self._logs.homes.get(work.key)
        if counts and home is not None:
            self.write_checkpoint(home)

    def _try_later(self, work: Work, error: Exception) -> None:
        with self._lock:
            _, waited = self._retries.get(work.key, (0, 0))
            wait_ms = min(max(2 * waited, self._settings.backoff_ms, _RETRY_MIN_MS), _RETRY_MAX_MS)
            self._retries[work.key] = (self._clock.monotonic_ms() + wait_ms, wait_ms)
        if not waited:
            _LOG.error("cleaning %s-%d: %s; it is tried again later", *work.key, error)

    def _leave_alone(self, work: Work, error: Exception) -> None:
        with self._lock:
            self._uncleanable[work.key] = work.log
        _LOG.error("%s-%d is not compacted any more: %s", *work.key, error)

    def retain(self) -> None:
        """Retention of compacted logs, and the files that their cleaning left."""
        now_ms = self._clock.wall_ms()
        for key, log in self._logs.snapshot():
            home = self._logs.homes.get(key)
            if home is None or self._logs.hangs(home):
                continue
            with self._lock:
                if not isinstance(log, Log) or log.offline or not compacted(log):
                    continue
                if key in self._busy:
                    continue
            try:
                log.delete_old_segments(now_ms)
                log.unlink_deleted()
            except DiskError as error:
                if self._logs.get(*key) is log:
                    _LOG.error("retention of %s-%d: %s", *key, error)

    def run_once(self, cleaner: Cleaner) -> bool:
        """Clean the log that is next: whether there was one, and it went well."""
        work = self.take()
        cleaned = work is not None and self.clean(cleaner, work)
        self.retain()
        return cleaned


class _Worker(threading.Thread):
    """One cleaner thread."""

    def __init__(self, owner: LogCleaner, cleaner: Cleaner, backoff_ms: int, index: int) -> None:
        super().__init__(name=f"cleaner-{index}", daemon=True)
        self._owner = owner
        self._cleaner = cleaner
        self._backoff_ms = backoff_ms
        self._stopping = threading.Event()

    def stop(self) -> None:
        """End soon; does not wait."""
        self._stopping.set()
        self._cleaner.stop()

    def run(self) -> None:
        """Until stopped."""
        name_thread("kbroker-clean")
        while not self._stopping.is_set():
            try:
                cleaned = self._owner.run_once(self._cleaner)
            except Exception:
                _LOG.exception("the log cleaner")
                cleaned = False
            if not cleaned:
                self._stopping.wait(max(self._backoff_ms, 1) / 1000)


def dirty_ratio(found: Cleanable) -> float:
    """Share of the bytes that no cleaning has seen."""
    total = found.clean_bytes + found.cleanable_bytes
    return found.cleanable_bytes / total if total else 0.0


def _tell(key: Key, done: Cleaned, took_ms: int) -> None:
    _LOG.info(
        "cleaned %s-%d up to offset %d: %d of %d records and %d of %d bytes stay, in %d segments "
        "for %d, after %d ms",
        *key, done.end_offset, done.written_records, done.read_records, done.written_bytes,
        done.read_bytes, done.segments_after, done.segments_before, took_ms,
    )  # fmt: skip
    if done.keyless_records:
        _LOG.warning("%s-%d: %d records without a key removed", *key, done.keyless_records)
