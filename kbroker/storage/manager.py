"""The logs of the broker: which folders there are, how they are opened, kept and closed.

A partition lives in the folder `TOPIC-PARTITION` of the log directory. Other folders are: the
metadata log's (never touched here), `TOPIC-PARTITION.HEX-delete` (deleted topics, whose files go
after file.delete.delay.ms) and `TOPIC-PARTITION.HEX-stray` (folders that no topic of the metadata
owns; they are kept for the operator to look at).

What a crash may leave: a folder of a topic whose creation was not recorded (becomes stray), no
folder for a topic that was recorded (made anew, empty: nothing was acknowledged there), a folder
marked for deletion (deleted at the next start), checkpoints older than the logs (recovery scans
from them). Without the mark of a clean stop every log is recovered from its recovery point.

Calls that change the set of logs are the control thread's; the maintenance thread calls
`retain`, `flush_what_is_due`, `expire_producers` and the checkpoints, which work on a copy of the
set. A log that was deleted in the meantime answers with an error, which is passed over.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, Literal, NamedTuple, Protocol

from kbroker.errors import CorruptFileError, DiskError
from kbroker.ext.log_flush import sync_file_system
from kbroker.files import (
    read_offset_checkpoint,
    remove_folder,
    sync_directory,
    write_offset_checkpoint,
)
from kbroker.storage.checkpoints import (
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    take_clean_shutdown,
    write_clean_shutdown,
)
from kbroker.storage.folders import aside_name, belongs, ensure_topic_id
from kbroker.storage.progress import Progress

_LOG: Final = logging.getLogger("kbroker.storage")

METADATA_FOLDER: Final = "__cluster_metadata-0"
DELETE_SUFFIX: Final = "-delete"
STRAY_SUFFIX: Final = "-stray"
_SET_ASIDE: Final = re.compile(r".+\.[0-9a-f]{32}-(delete|stray|future)\Z")
_PARTITION_FOLDER: Final = re.compile(r"(?P<topic>.+)-(?P<partition>[0-9]+)\Z")


class LogPort(Protocol):
    """What the control plane asks of a log (kbroker.ext.log.Log)."""

    @property
    def log_start_offset(self) -> int: ...
    @property
    def high_watermark(self) -> int: ...
    @property
    def last_stable_offset(self) -> int: ...
    @property
    def log_end_offset(self) -> int: ...
    @property
    def recovery_point(self) -> int: ...
    @property
    def size_bytes(self) -> int: ...
    @property
    def leader_epoch(self) -> int: ...
    @property
    def offline(self) -> str | None: ...
    @property
    def offline_errno(self) -> int: ...

    def append(
        self,
        batches: bytes,
        *,
        leader_epoch: int,
        room_wait_ms: int = -1,
        transaction_version: int = 0,
    ) -> tuple[int, int]: ...
    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        up_to: Literal["high_watermark", "last_stable_offset", "log_end_offset"] = ...,
    ) -> bytes: ...
    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]: ...
    def producers(self) -> list[tuple[int, int, int, int, int, int]]: ...
    def in_transaction(self, producer_id: int, epoch: int) -> bool: ...
    def set_log_start_offset(self, offset: int) -> None: ...
    def delete_old_segments(self, now_ms: int) -> list[int]: ...
    def unlink_deleted(self, *, at_once: bool = False) -> int: ...
    def flush(self) -> int: ...
    def flush_due(self, now_ms: int, idle_ms: int) -> bool: ...
    def let_go(self, now_ms: int, idle_ms: int) -> int: ...
    def expire_producers(self, now_ms: int) -> int: ...
    def configure(self, config: dict[str, int]) -> None: ...
    def close(self, clean: bool = True, *, sync: bool = True) -> None: ...
    def mark_deleted(self) -> None: ...
    def take_offline(self, error: int) -> None: ...


class PartitionSpec(NamedTuple):
    """A partition that the metadata says is here; `config` is what its log takes."""

    topic: str
    topic_id: bytes
    partition: int
    config: dict[str, int]
    leader_epoch: int = 0

    @property
    def folder(self) -> str:
        """Name of its folder."""
        return f"{self.topic}-{self.partition}"


class Opening(NamedTuple):
    """How a log is to be opened: what the checkpoints say, and whether the last stop was clean."""

    directory: str
    spec: PartitionSpec
    log_start_offset: int
    recovery_point: int
    clean: bool


LogOpener = Callable[[Opening], LogPort]
Key = tuple[str, int]


class CleanerPort(Protocol):
    """What the log cleaner is told (kbroker.storage.cleaner); the control thread's."""

    def forget(self, keys: list[Key]) -> None: ...
    def reconfigure(self) -> None: ...


class LogManager:
    """See the module."""

    def __init__(self, directory: Path, open_log: LogOpener, threads: int = 1) -> None:
        self.directory = directory
        self.offline: dict[Key, str] = {}
        """Partitions that cannot be served, and why: logs that the disk denied when they were
        opened, all of them once it has failed."""
        self.failure: str | None = None  # why the whole directory is offline
        self.met: DiskError | None = None
        """The first error after which it has to be: see `note`."""
        self.started_clean = True
        self.expected = 0  # logs that `start` opens
        self.cleaner: CleanerPort | None = None
        self._open_log = open_log
        self._threads = threads
        self._logs: dict[Key, LogPort] = {}
        self._dying: list[tuple[int, Path]] = []
        self._complained: set[Key] = set()
        self._started = False
        self._written: dict[str, dict[Key, int]] = {}
        self._lock = threading.Lock()
        self._checkpointing = threading.Lock()

    # ---- start

    def start(self, specs: Iterable[PartitionSpec]) -> None:
        """Open every partition of the metadata, in parallel; put aside what it does not own."""
        self.started_clean = take_clean_shutdown(self.directory) is not None
        wanted = {spec.folder: spec for spec in specs}
        self._sort_folders(wanted)
        recovery_points = self._offsets(RECOVERY_POINTS)
        log_starts = self._offsets(LOG_START_OFFSETS)
        openings = [
            Opening(
                str(self.directory / spec.folder),
                spec,
                log_starts.get((spec.topic, spec.partition), 0),
                recovery_points.get((spec.topic, spec.partition), 0),
                self.started_clean,
            )
            for spec in wanted.values()
        ]
        self.expected = len(openings)
        if openings and not self.started_clean:
            _LOG.info("recovering %d partitions after an unclean stop", len(openings))
        if openings:
            self._open_all(openings)
        self._started = True

    def _offsets(self, name: str) -> dict[Key, int]:
        try:
            offsets = self._written[name] = read_offset_checkpoint(self.directory / name)
        except CorruptFileError as error:
            _LOG.warning("%s; going on without it", error)
            return {}
        return offsets

    def _sort_folders(self, wanted: Mapping[str, PartitionSpec]) -> None:
        """Delete what was marked for it, rename what no topic owns."""
        for entry in os.scandir(self.directory):
            if not entry.is_dir(follow_symlinks=False) or entry.name == METADATA_FOLDER:
                continue
            path = self.directory / entry.name
            if entry.name.endswith(DELETE_SUFFIX) and _SET_ASIDE.match(entry.name):
                remove_folder(path)
                continue
            if _SET_ASIDE.match(entry.name) or not _PARTITION_FOLDER.match(entry.name):
                continue
            spec = wanted.get(entry.name)
            if spec is None or not belongs(path, spec.topic_id):
                target = self.directory / aside_name(entry.name, STRAY_SUFFIX)
                _LOG.warning("no topic owns %s: renamed to %s", path, target.name)
                path.rename(target)

    def _open_all(self, openings: list[Opening]) -> None:
        """Open logs on several threads, and tell how far that is when it takes long."""
        with Progress([opening.directory for opening in openings]) as progress:
            self._open_on_threads(openings, progress)

    def _open_on_threads(self, openings: list[Opening], progress: Progress) -> None:
        """Each thread takes the next one that is left."""
        rest = iter(openings)
        taking = threading.Lock()

        def work() -> None:
            while True:
                with taking:
                    opening = next(rest, None)
                if opening is None:
                    return
                self._open(opening)
                progress.opened(opening.directory)

        helpers = [
            threading.Thread(target=work, name=f"recovery-{index}")
            for index in range(min(self._threads, len(openings)) - 1)
        ]
        for helper in helpers:
            helper.start()
        work()
        for helper in helpers:
            helper.join()

    def _open(self, opening: Opening) -> LogPort | None:
        """Open or create one log; one that the disk denies is offline."""
        spec = opening.spec
        key = (spec.topic, spec.partition)
        path = Path(opening.directory)
        try:
            path.mkdir(exist_ok=True)
            ensure_topic_id(path, spec.topic_id)
            log = self._open_log(opening)
        except (OSError, DiskError) as error:
            _LOG.error("partition %s is offline: %s", spec.folder, error)
            self.offline[key] = str(error)
            if self._started:  # a start asks the disk for each of them anew
                self.note(error if isinstance(error, DiskError) else DiskError(path, error))
            return None
        self.offline.pop(key, None)
        self._logs[key] = log
        return log

    # ---- the set of logs; the control thread's

    def get(self, topic: str, partition: int) -> LogPort | None:
        """The log of a partition; None where there is none or it is offline."""
        key = (topic, partition)
        return None if key in self.offline else self._logs.get(key)

    def items(self) -> Iterator[tuple[Key, LogPort]]:
        """All logs, sorted."""
        return iter(sorted(self._logs.items(), key=lambda item: item[0]))

    def __len__(self) -> int:
        return len(self._logs)

    def take_offline(self, why: str) -> list[LogPort]:
        """The disk has failed: from now on nothing is asked of a log or written here. The logs
        that this is about."""
        self.failure = why
        self.offline.update(dict.fromkeys(self._logs, why))
        return list(self._logs.values())

    def create(self, specs: Iterable[PartitionSpec]) -> list[LogPort | None]:
        """Logs for new partitions; None in the place of one that the disk denies.

        The folders' names are durable on return; the files in them are the logs' concern.
        """
        listed = list(specs)
        self._forget_namesakes([(spec.topic, spec.partition) for spec in listed])
        logs = [
            self._open(Opening(str(self.directory / spec.folder), spec, 0, 0, True))
            for spec in listed
        ]
        self._sync_names()
        return logs

    def _sync_names(self) -> None:
        with self._noting():
            sync_directory(self.directory)

    def _forget_namesakes(self, keys: Iterable[Key]) -> None:
        """Take offsets of deleted partitions out of the checkpoints before others have their names:
        after a crash a log start offset would cut the new log, a recovery point vouch for it."""
        for name, write in (
            (RECOVERY_POINTS, self.checkpoint_recovery_points),
            (LOG_START_OFFSETS, self.checkpoint_log_starts),
        ):
            written = self._written.get(name, {})
            if any(key in written for key in keys):
                try:
                    write()
                except DiskError as error:
                    _LOG.error("%s", error)

    def delete(self, topic: str, partitions: Iterable[int], due_ms: int) -> list[LogPort]:
        """Take logs out; their folders are renamed at once and removed after `due_ms`.

        `due_ms` is of the monotonic clock. Answers the logs that were taken out.
        """
        taken = []
        keys = [(topic, partition) for partition in partitions]
        for _, partition in keys:
            log = self._logs.pop((topic, partition), None)
            self.offline.pop((topic, partition), None)
            if log is not None:
                log.mark_deleted()
                taken.append(log)
            folder = self.directory / f"{topic}-{partition}"
            target = self.directory / aside_name(folder.name, DELETE_SUFFIX)
            try:
                folder.rename(target)
            except FileNotFoundError:
                continue
            except OSError as error:
                _LOG.error("cannot rename %s: %s", folder, error)
                self.note(DiskError(folder, error))
                continue
            with self._lock:
                self._dying.append((due_ms, target))
        self._sync_names()
        if self.cleaner is not None:
            self.cleaner.forget(keys)
        return taken

    # ---- any thread

    def note(self, error: DiskError) -> None:
        """An error that is passed over where it was met. The first that is final is remembered: it
        takes the directory offline (DiskWatch), as one of a log itself does."""
        if self.met is None and error.final:
            self.met = error

    @contextlib.contextmanager
    def _noting(self) -> Iterator[None]:
        try:
            yield
        except DiskError as error:
            self.note(error)
            raise

    def snapshot(self) -> list[tuple[Key, LogPort]]:
        """All logs as they are now."""
        return list(self._logs.copy().items())

    def retain(self, now_ms: int) -> int:
        """Retention of every log, then the files whose delay is over; segments retired."""
        return self._each("retention", lambda log: _retain(log, now_ms))

    def flush_what_is_due(self, now_ms: int, idle_ms: int) -> int:
        """Flush the logs that ask for it, let go of what idle ones hold; logs flushed."""
        return self._each("flush", lambda log: _flush(log, now_ms, idle_ms))

    def expire_producers(self, now_ms: int) -> int:
        """Forget producers that have been silent for producer.id.expiration.ms."""
        return self._each("producer expiry", lambda log: log.expire_producers(now_ms))

    def _each(self, what: str, do: Callable[[LogPort], int]) -> int:
        """Do something with every log; what fails is told, unless the log is gone by now."""
        total = 0
        for key, log in self.snapshot() if self.failure is None else ():
            try:
                total += do(log)
            except Exception as error:
                if self._logs.get(key) is log and key not in self._complained:
                    self._complained.add(key)
                    _LOG.error("%s of %s-%d: %s", what, *key, error)
        return total

    def dead_folders(self) -> list[Path]:
        """Folders of deleted partitions whose delay is not over yet."""
        with self._lock:
            return [path for _, path in self._dying]

    def remove_dead_folders(self, now_ms: int | None) -> None:
        """Remove the folders of deleted partitions whose delay is over; None: all of them. Nothing
        once the disk has failed: the next start sees to them."""
        if self.failure is not None:
            return
        with self._lock:
            left = [entry for entry in self._dying if now_ms is not None and entry[0] > now_ms]
            due = [path for due_ms, path in self._dying if now_ms is None or due_ms <= now_ms]
            self._dying = left
        for path in due:
            remove_folder(path)

    def checkpoint_recovery_points(self) -> None:
        """Replace the checkpoint of recovery points."""
        self._write(RECOVERY_POINTS, lambda log: log.recovery_point)

    def checkpoint_log_starts(self) -> None:
        """Replace the checkpoint of log start offsets; a log that starts at 0 is left out."""
        self._write(LOG_START_OFFSETS, lambda log: log.log_start_offset or None)

    def checkpoint_high_watermarks(self) -> None:
        """Replace the checkpoint of high watermarks."""
        self._write(HIGH_WATERMARKS, lambda log: log.high_watermark)

    def _write(self, name: str, ask: Callable[[LogPort], int | None]) -> None:
        if self.failure is not None:
            return
        with self._checkpointing:
            offsets = {key: ask(log) for key, log in self.snapshot()}
            kept = {key: offset for key, offset in offsets.items() if offset is not None}
            if self._written.get(name) != kept:
                with self._noting():
                    write_offset_checkpoint(self.directory / name, kept)
                self._written[name] = kept

    # ---- stop

    def stop(self, broker_epoch: int) -> bool:
        """Flush and close every log, write the checkpoints and the mark of a clean stop.

        False, and no mark, where the disk kept a log from being closed cleanly.
        """
        if self.failure is not None:
            return self._leave()
        failed = False
        flushed: dict[Key, tuple[int, int, int]] = {}
        for key, log in self.snapshot():
            try:
                log.close(clean=True, sync=False)
                flushed[key] = (log.log_end_offset, log.log_start_offset, log.high_watermark)
            except Exception as error:
                _LOG.error("closing %s-%d: %s", *key, error)
                failed = True
        try:
            # One sync for all of them: by themselves each would pay for several.
            sync_file_system(str(self.directory))
            for name, index in ((RECOVERY_POINTS, 0), (LOG_START_OFFSETS, 1), (HIGH_WATERMARKS, 2)):
                offsets = {key: values[index] for key, values in flushed.items()}
                if index == 1:
                    offsets = {key: offset for key, offset in offsets.items() if offset}
                write_offset_checkpoint(self.directory / name, offsets)
            if not failed:
                write_clean_shutdown(self.directory, broker_epoch)
        except DiskError as error:
            _LOG.error("no clean stop: %s", error)
            failed = True
        self._logs.clear()
        return not failed

    def _leave(self) -> bool:
        """Close every log as it is, for the next start to recover: the disk has failed."""
        for log in self._logs.values():
            log.close(clean=False)
        self._logs.clear()
        return False


def _retain(log: LogPort, now_ms: int) -> int:
    retired = len(log.delete_old_segments(now_ms))
    log.unlink_deleted()
    return retired


def _flush(log: LogPort, now_ms: int, idle_ms: int) -> int:
    due = log.flush_due(now_ms, idle_ms)
    if due:
        log.flush()
    log.let_go(now_ms, idle_ms)
    return int(due)
