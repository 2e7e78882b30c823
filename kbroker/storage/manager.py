"""The logs of the broker: which folders there are, how they are opened, kept and closed.

A partition lives in the folder `TOPIC-PARTITION` of one of the log directories, its home; the
metadata says which (kbroker.storage.homes). Other folders are: the metadata log's (never touched
here), `TOPIC-PARTITION.HEX-delete` (deleted topics, whose files go after file.delete.delay.ms),
`TOPIC-PARTITION.HEX-future` (copies on their way to another directory) and
`TOPIC-PARTITION.HEX-stray` (folders that no topic of the metadata owns; they are kept for the
operator to look at).

What a crash may leave: a folder of a topic whose creation was not recorded (becomes stray), no
folder for a topic that was recorded (made anew, empty: nothing was acknowledged there), a folder
marked for deletion (deleted at the next start), checkpoints older than the logs (recovery scans
from them). Without the mark of a clean stop every log of a directory is recovered from its recovery
point.

Calls that change the set of logs are the control thread's; the maintenance thread calls
`retain`, `flush_what_is_due`, `expire_producers` and the checkpoints, which work on a copy of the
set. A log that was deleted in the meantime answers with an error, which is passed over.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final, Protocol

from kbroker.errors import DiskError
from kbroker.files import remove_folder
from kbroker.storage.checkpoints import HIGH_WATERMARKS, LOG_START_OFFSETS, RECOVERY_POINTS
from kbroker.storage.folders import (
    DELETE_SUFFIX,
    METADATA_FOLDER,
    aside_name,
    ensure_topic_id,
    put_aside,
)
from kbroker.storage.homes import least_used, settle
from kbroker.storage.log_directory import LogDirectory
from kbroker.storage.log_port import Directories, Key, LogOpener, LogPort, Opening, PartitionSpec
from kbroker.storage.opening import close_all, open_all

__all__ = ["METADATA_FOLDER", "CleanerPort", "Key", "LogManager", "LogOpener", "LogPort", "Opening",
           "PartitionSpec"]  # fmt: skip

_LOG: Final = logging.getLogger("kbroker.storage")
_NAMED_MAX: Final = 5  # partitions in a line of the log


class CleanerPort(Protocol):
    """What the log cleaner is told (kbroker.storage.cleaner); the control thread's."""

    def forget(self, keys: list[Key]) -> None: ...
    def reconfigure(self) -> None: ...


class MovesPort(Protocol):
    """The moves between directories (kbroker.storage.moves)."""

    def cancel(self, key: Key) -> None: ...
    def arriving_bytes(self, directory: LogDirectory) -> int: ...


class LogManager:
    """See the module."""

    def __init__(
        self, directories: Path | Sequence[LogDirectory], open_log: LogOpener, threads: int = 1
    ) -> None:
        """`directories`: those of log.dirs, first that of the metadata log; a path is the only
        one. `threads` open the logs of each."""
        if isinstance(directories, Path):
            directories = [LogDirectory(directories)]
        self.directories = tuple(directories)
        self.homes: dict[Key, LogDirectory] = {}
        """Where each partition lives; those whose directory is not here are missing."""
        self.offline: dict[Key, str] = {}
        """Partitions that cannot be served, and why: logs that the disk denied when they were
        opened, all of a directory once it has failed."""
        self.unfinished: dict[Key, LogDirectory] = {}
        """Moves that the last stop cut off, and where they led."""
        self.found: dict[Key, LogDirectory | None] = {}
        """Partitions that lie elsewhere than the metadata had them: kbroker.storage.homes."""
        self.expected = 0  # logs that `start` opens
        self.cleaner: CleanerPort | None = None
        self.moves: MovesPort | None = None
        self.incoming: dict[Key, tuple[LogDirectory, dict[str, int]]] = {}
        """What the checkpoints of a directory are to say of a partition that is about to live
        there."""
        self._open_log = open_log
        self._threads = threads
        self._logs: dict[Key, LogPort] = {}
        self._dying: list[tuple[int, Path, LogDirectory]] = []
        self._complained: set[Key] = set()
        self._started = False
        self._lock = threading.Lock()

    # ---- the directories

    @property
    def main(self) -> LogDirectory:
        """The first, which holds the metadata log."""
        return self.directories[0]

    @property
    def directory(self) -> Path:
        """Its path."""
        return self.main.path

    @property
    def failure(self) -> str | None:
        """Why all is offline: the first directory is."""
        return self.main.failure

    @property
    def online(self) -> list[LogDirectory]:
        """Those that are served."""
        return [one for one in self.directories if one.online]

    @property
    def started_clean(self) -> bool:
        """Whether all that are here were stopped in good order."""
        return all(one.started_clean for one in self.online)

    def of(self, directory: LogDirectory) -> list[tuple[Key, LogPort]]:
        """The logs that live in a directory, as they are now."""
        return [item for item in self.snapshot() if self.homes.get(item[0]) is directory]

    def ids(self) -> Directories:
        """What a registration says of them."""
        online = [one for one in self.online if one.id is not None]
        return Directories(
            [one.id for one in online if one.id],
            [one.id for one in online if one.id and one.cordoned],
        )

    def home_ids(self) -> dict[Key, bytes]:
        """By partition, the id of the directory in which it is."""
        return {key: home.id for key, home in self.homes.items() if home.id is not None}

    def lost(self) -> set[Key]:
        """Partitions that are offline because their directory is."""
        return {key for key in self.offline if (home := self.homes.get(key)) is None
                or not home.online}  # fmt: skip

    def place(self, count: int, among: dict[LogDirectory, int] | None = None) -> list[LogDirectory]:
        """Homes for new partitions: where there are fewest, not in what is offline or cordoned.
        `among` has what the caller has placed before and not made yet, and is added to."""
        places = [one for one in self.online if not one.cordoned] or [self.main]
        if len(places) == 1:
            return places * count
        planned = {} if among is None else among
        counts = dict(planned)
        for home in self.homes.copy().values():
            counts[home] = counts.get(home, 0) + 1
        chosen = [least_used(places, counts) for _ in range(count)]
        for home in chosen:
            planned[home] = planned.get(home, 0) + 1
        return chosen

    def fail(self, directory: LogDirectory, why: str) -> list[LogPort]:
        """A disk has failed: from now on nothing is asked of its logs or written there; where it is
        the first's, of none. The logs that this is about."""
        failed = self.directories if directory is self.main else (directory,)
        taken = []
        for one in failed:
            one.failure = one.failure or why
            for key, home in self.homes.items():
                if home is one:
                    self.offline[key] = one.failure
            taken += [log for _, log in self.of(one)]
        return taken

    # ---- start

    def start(self, specs: Iterable[PartitionSpec]) -> None:
        """Open every partition of the metadata, in parallel; put aside what it does not own."""
        listed = list(specs)
        for directory in self.online:
            self._guarded(directory, directory.take_mark)
        homes = settle(self.directories, listed)
        self.homes, self.unfinished = homes.directories, homes.unfinished
        self.found = homes.found
        self.offline.update(homes.offline)
        for why in dict.fromkeys(homes.offline.values()):
            about = [f"{key[0]}-{key[1]}" for key, told in homes.offline.items() if told == why]
            more = ", ..." if len(about) > _NAMED_MAX else ""
            _LOG.error("%d partitions are offline (%s%s): %s", len(about),
                       ", ".join(about[:_NAMED_MAX]), more, why)  # fmt: skip
        groups: list[list[Opening]] = []
        for directory in self.online:
            self._guarded(directory, partial(self._openings, directory, listed, groups))
        self.expected = sum(map(len, groups))
        open_all(groups, self._open, self._threads)
        for directory in self.online:
            directory.opened = True
        self._started = True

    def _guarded(self, directory: LogDirectory, do: Callable[[], object]) -> None:
        """What a directory other than the first denies at the start takes it offline alone."""
        try:
            do()
        except (OSError, DiskError) as error:
            if directory is self.main:
                raise
            self.deny(directory, str(error))

    def deny(self, directory: LogDirectory, why: str) -> None:
        """Before anything is served: the directory is not to be had. What is open of it is closed
        as a crash would leave it, and nothing of it is changed."""
        _LOG.error("the log directory %s is offline: %s", directory, why)
        for log in self.fail(directory, why):
            log.close(clean=False)
        for key, _ in self.of(directory):
            del self._logs[key]
        directory.opened = False

    def _openings(
        self,
        directory: LogDirectory,
        specs: Iterable[PartitionSpec],
        groups: list[list[Opening]],
    ) -> None:
        """Add what is to be opened in a directory."""
        recovery_points = directory.offsets(RECOVERY_POINTS)
        log_starts = directory.offsets(LOG_START_OFFSETS)
        openings = []
        for spec in specs:
            key = (spec.topic, spec.partition)
            if self.homes.get(key) is not directory:
                continue
            point, clean = recovery_points.get(key, 0), directory.started_clean
            start = log_starts.get(key, 0)
            before = self.found.get(key)
            if before is not None or (key in self.found and not self.started_clean):
                point, clean = 0, False  # moved by hand: no checkpoint here speaks of it
            if before is not None:
                told = before.written(LOG_START_OFFSETS) or before.offsets(LOG_START_OFFSETS)
                start = max(start, told.get(key, 0))
            folder = str(directory.path / spec.folder)
            openings.append(Opening(folder, spec, start, point, clean))
        if openings and not directory.started_clean:
            where = f" of {directory}" if len(self.directories) > 1 else ""
            _LOG.info("recovering %d partitions%s after an unclean stop", len(openings), where)
        if openings:
            groups.append(openings)

    def _open(self, opening: Opening) -> LogPort | None:
        """Open or create one log; one that the disk denies is offline."""
        spec = opening.spec
        key = (spec.topic, spec.partition)
        path = Path(opening.directory)
        try:
            if self._started:  # of a topic that was there while it was away
                put_aside(path)
            path.mkdir(exist_ok=True)
            ensure_topic_id(path, spec.topic_id)
            log = self._open_log(opening)
        except (OSError, DiskError) as error:
            _LOG.error("partition %s is offline: %s", spec.folder, error)
            self.offline[key] = str(error)
            if self._started:  # a start asks the disk for each of them anew
                failed = error if isinstance(error, DiskError) else DiskError(path, error)
                self.homes[key].note(failed)
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

    def create(self, specs: Iterable[PartitionSpec]) -> list[LogPort | None]:
        """Logs for new partitions; None in the place of one that the disk denies.

        The folders' names are durable on return; the files in them are the logs' concern.
        """
        listed = list(specs)
        homes = {one.id: one for one in self.directories}
        made = {
            (spec.topic, spec.partition): homes.get(spec.home, self.main) for spec in listed
        }
        self.homes.update(made)
        self._forget_namesakes(made)
        logs = [
            self._open(Opening(str(home.path / spec.folder), spec, 0, 0, True))
            for spec, home in zip(listed, made.values(), strict=True)
        ]
        self._sync_names(made.values())
        return logs

    def _sync_names(self, directories: Iterable[LogDirectory]) -> None:
        for directory in dict.fromkeys(directories):
            if directory.online or directory is self.main:
                directory.sync_names()

    def _forget_namesakes(self, made: Mapping[Key, LogDirectory]) -> None:
        """Take offsets of deleted partitions out of the checkpoints before others have their names:
        after a crash a log start offset would cut the new log, a recovery point vouch for it."""
        for name, write in (
            (RECOVERY_POINTS, self.checkpoint_recovery_points),
            (LOG_START_OFFSETS, self.checkpoint_log_starts),
        ):
            for directory in {home for key, home in made.items() if key in home.written(name)}:
                try:
                    write(directory)
                except DiskError as error:
                    _LOG.error("%s", error)

    def delete(self, topic: str, partitions: Iterable[int], due_ms: int) -> list[LogPort]:
        """Take logs out; their folders are renamed at once and removed after `due_ms`.

        `due_ms` is of the monotonic clock. Answers the logs that were taken out.
        """
        taken = []
        keys = [(topic, partition) for partition in partitions]
        touched = []
        for key in keys:
            if self.moves is not None:
                self.moves.cancel(key)
            log = self._logs.pop(key, None)
            home = self.homes.pop(key, None)
            self.offline.pop(key, None)
            if log is not None:
                log.mark_deleted()
                taken.append(log)
            if home is not None:
                touched.append(home)
                self._let_die(home.path / f"{topic}-{key[1]}", home, due_ms)
        self._sync_names(touched)
        if self.cleaner is not None:
            self.cleaner.forget(keys)
        return taken

    def moved(self, key: Key, home: LogDirectory, left: Path, due_ms: int) -> None:
        """A partition lives in another directory now; the folder that it has left is to be removed.
        """
        before, self.homes[key] = self.homes[key], home
        self.incoming.pop(key, None)
        self.dies(left, before, due_ms)
        for directory in (home, before):
            try:
                directory.sync_names()
            except DiskError as error:
                _LOG.error("%s", error)

    def _let_die(self, folder: Path, home: LogDirectory, due_ms: int) -> None:
        target = folder.with_name(aside_name(folder.name, DELETE_SUFFIX))
        try:
            folder.rename(target)
        except FileNotFoundError:
            return
        except OSError as error:
            _LOG.error("cannot rename %s: %s", folder, error)
            home.note(DiskError(folder, error))
            return
        self.dies(target, home, due_ms)

    def dies(self, folder: Path, home: LogDirectory, due_ms: int) -> None:
        """A folder of a directory that is to be removed after a moment of the monotonic clock."""
        with self._lock:
            self._dying.append((due_ms, folder, home))

    # ---- any thread

    def snapshot(self) -> list[tuple[Key, LogPort]]:
        """All logs as they are now."""
        return list(self._logs.copy().items())

    def retain(self, now_ms: int, directory: LogDirectory | None = None) -> int:
        """Retention of every log, then the files whose delay is over; segments retired."""
        return self._each("retention", lambda log: _retain(log, now_ms), directory)

    def flush_what_is_due(
        self, now_ms: int, idle_ms: int, directory: LogDirectory | None = None
    ) -> int:
        """Flush the logs that ask for it, let go of what idle ones hold; logs flushed."""
        return self._each("flush", lambda log: _flush(log, now_ms, idle_ms), directory)

    def expire_producers(self, now_ms: int, directory: LogDirectory | None = None) -> int:
        """Forget producers that have been silent for producer.id.expiration.ms."""
        return self._each(
            "producer expiry", lambda log: log.expire_producers(now_ms), directory
        )

    def _each(
        self, what: str, do: Callable[[LogPort], int], directory: LogDirectory | None
    ) -> int:
        """Do something with every log, of a directory or of all; what fails is told, unless the log
        is gone by now."""
        total = 0
        for key, log in self.snapshot():
            home = self.homes.get(key)
            if home is None or not home.online or directory not in (None, home):
                continue
            try:
                total += do(log)
            except Exception as error:
                if self._logs.get(key) is log and key not in self._complained:
                    self._complained.add(key)
                    _LOG.error("%s of %s-%d: %s", what, *key, error)
        return total

    def dead_folders(self, directory: LogDirectory | None = None) -> list[Path]:
        """Folders of deleted partitions whose delay is not over yet; of one directory, or all."""
        with self._lock:
            return [path for _, path, home in self._dying if directory in (None, home)]

    def remove_dead_folders(
        self, now_ms: int | None, directory: LogDirectory | None = None
    ) -> None:
        """Remove the folders of deleted partitions whose delay is over; None: all of them. Nothing
        of a disk that has failed: the next start sees to them."""
        due: list[tuple[int, Path, LogDirectory]] = []
        left: list[tuple[int, Path, LogDirectory]] = []
        with self._lock:
            for entry in self._dying:
                over = now_ms is None or entry[0] <= now_ms
                wanted = entry[2].online and directory in (None, entry[2])
                (due if over and wanted else left).append(entry)
            self._dying = left
        for _, path, _ in due:
            remove_folder(path)

    def checkpoint_recovery_points(self, directory: LogDirectory | None = None) -> None:
        """Replace the checkpoints of recovery points."""
        self._write(RECOVERY_POINTS, lambda log: log.recovery_point, directory)

    def checkpoint_log_starts(self, directory: LogDirectory | None = None) -> None:
        """Replace the checkpoints of log start offsets; a log that starts at 0 is left out."""
        self._write(LOG_START_OFFSETS, lambda log: log.log_start_offset or None, directory)

    def checkpoint_high_watermarks(self, directory: LogDirectory | None = None) -> None:
        """Replace the checkpoints of high watermarks."""
        self._write(HIGH_WATERMARKS, lambda log: log.high_watermark, directory)

    def _write(
        self, name: str, ask: Callable[[LogPort], int | None], only: LogDirectory | None
    ) -> None:
        """In a directory, or in each; one that refuses does not keep the others from theirs."""
        refused: DiskError | None = None
        for directory in self.online if only is None else [only] if only.online else ():
            with directory.checkpointing:
                incoming = self.incoming.copy()  # before what is here: nothing is in neither
                offsets = {key: ask(log) for key, log in self.of(directory)}
                kept = {key: offset for key, offset in offsets.items() if offset is not None}
                for key, (target, told) in incoming.items():
                    if target is directory and told.get(name):
                        kept.setdefault(key, told[name])
                try:
                    directory.write_offsets(name, kept)
                except DiskError as error:
                    refused = error
        if refused is not None:
            raise refused

    # ---- stop

    def stop(self, broker_epoch: int) -> bool:
        """Flush and close every log, write the checkpoints and the marks of a clean stop.

        False where a disk kept a log from being closed cleanly: its directory has no mark then.
        """
        for directory in self.directories:
            logs = self.of(directory)
            if directory.online:
                directory.stopped_clean = close_all(directory, logs, broker_epoch)
            else:
                for _, log in logs:
                    log.close(clean=False)  # as it is, for the next start to recover
        self._logs.clear()
        return all(one.stopped_clean for one in self.directories if one.opened)


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
