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

import errno
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from kbroker.errors import DiskError
from kbroker.storage.checkpoints import HIGH_WATERMARKS, LOG_START_OFFSETS, RECOVERY_POINTS
from kbroker.storage.dead_folders import DeadFolders
from kbroker.storage.folder_work import Gone, Made, configure_logs, open_one, rename_gone
from kbroker.storage.folders import METADATA_FOLDER
from kbroker.storage.homes import least_used, settle, tell_offline
from kbroker.storage.log_directory import LogDirectory
from kbroker.storage.log_port import Directories, Key, LogOpener, LogPort, Opening, PartitionSpec
from kbroker.storage.manager_ports import CleanerPort, MovesPort
from kbroker.storage.opening import close_all, open_all, openings_of

__all__ = ["METADATA_FOLDER", "Key", "LogManager", "LogOpener", "LogPort", "Opening",
           "PartitionSpec"]  # fmt: skip

_LOG: Final = logging.getLogger("kbroker.storage")


def _nothing(*_: object) -> None:
    """What follows where nothing does."""


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
        self.hangs: Callable[[LogDirectory], bool] = lambda one: one.worker.late
        """Whether a directory's disk does not answer at the moment."""
        self._open_log = open_log
        self._threads = threads
        self._logs: dict[Key, LogPort] = {}
        self._coming: dict[Key, Opening] = {}  # new ones that are not made yet
        self.dead = DeadFolders()
        """Folders of deleted partitions that are still there."""
        self._complained: set[Key] = set()
        self._started = False

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
        places = [one for one in places if not self.hangs(one)] or places
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
        tell_offline(homes.offline)
        groups: list[list[Opening]] = []
        for directory in self.online:
            here = [spec for spec in listed
                    if self.homes.get((spec.topic, spec.partition)) is directory]  # fmt: skip
            do = partial(self._add_openings, directory, here, groups)
            self._guarded(directory, do)
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

    def _add_openings(
        self, directory: LogDirectory, specs: list[PartitionSpec], groups: list[list[Opening]]
    ) -> None:
        made = openings_of(directory, specs, self.found, all_clean=self.started_clean)
        if made and not directory.started_clean:
            where = f" of {directory}" if len(self.directories) > 1 else ""
            _LOG.info("recovering %d partitions%s after an unclean stop", len(made), where)
        if made:
            groups.append(made)

    def _open(self, opening: Opening) -> None:
        """Open or create one log at the start; one that the disk denies is offline."""
        self._take(opening, open_one(opening, self._open_log, fresh=False))

    def _take(self, opening: Opening, made: Made) -> None:
        spec = opening.spec
        key = (spec.topic, spec.partition)
        if isinstance(made, OSError | DiskError):
            _LOG.error("partition %s is offline: %s", spec.folder, made)
            self.offline[key] = str(made)
            if self._started:  # a start asks the disk for each of them anew
                path = opening.directory
                failed = made if isinstance(made, DiskError) else DiskError(path, made)
                self.homes[key].note(failed)
            return
        self._logs[key] = made
        if self.homes[key].online:
            self.offline.pop(key, None)
        else:  # the disk has failed meanwhile
            made.take_offline(errno.EIO)

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

    def create(
        self, specs: Iterable[PartitionSpec], then: Callable[[], object] = _nothing
    ) -> list[LogPort | None]:
        """Logs for new partitions, as they are now; None in the place of one that the disk denies,
        or lets wait. `then` follows when none waits any more.

        The folders' names are durable then; the files in them are the logs' concern.
        """
        listed = list(specs)
        homes = {one.id: one for one in self.directories}
        openings: dict[LogDirectory, list[Opening]] = {}
        for spec in listed:
            home = homes.get(spec.home, self.main)
            opening = Opening(str(home.path / spec.folder), spec, 0, 0, True)
            openings.setdefault(home, []).append(opening)
            key = (spec.topic, spec.partition)
            self.homes[key] = home
            self._coming[key] = opening
        waiting = len(openings)
        refused: list[DiskError] = []

        def made(home: LogDirectory, outcome: tuple[list[Made], DiskError | None]) -> None:
            nonlocal waiting
            waiting -= 1
            for opening, one in zip(openings[home], outcome[0], strict=True):
                self._arrived(opening, one)
            if outcome[1] is not None:
                refused.append(outcome[1])
                _LOG.error("%s", outcome[1])
            if not waiting:
                then()

        for home, some in openings.items():
            home.worker.do(partial(self._make, home, some), partial(made, home))
        if refused:
            raise refused[0]
        return [self.get(spec.topic, spec.partition) for spec in listed]

    def _make(
        self, home: LogDirectory, openings: Sequence[Opening]
    ) -> tuple[list[Made], DiskError | None]:
        """A worker's: what became of each, and of their names."""
        self._forget_namesakes(home, openings)
        made = []
        for opening in openings:
            made.append(open_one(opening, self._open_log, fresh=True))
            home.worker.steps += 1
        try:
            home.sync_names()
        except DiskError as error:
            return made, error
        return made, None

    def _arrived(self, opening: Opening, made: Made) -> None:
        key = (opening.spec.topic, opening.spec.partition)
        if self._coming.get(key) is opening:
            del self._coming[key]
            self._take(opening, made)
        elif not isinstance(made, OSError | DiskError):  # deleted meanwhile, as its folder will be
            made.mark_deleted()

    def _forget_namesakes(self, home: LogDirectory, openings: Iterable[Opening]) -> None:
        """Take offsets of deleted partitions out of the checkpoints before others have their names:
        after a crash a log start offset would cut the new log, a recovery point vouch for it."""
        keys = [(opening.spec.topic, opening.spec.partition) for opening in openings]
        for name, write in (
            (RECOVERY_POINTS, self.checkpoint_recovery_points),
            (LOG_START_OFFSETS, self.checkpoint_log_starts),
        ):
            if not home.written(name).keys().isdisjoint(keys):
                try:
                    write(home)
                except DiskError as error:
                    _LOG.error("%s", error)

    def delete(
        self,
        topic: str,
        partitions: Iterable[int],
        due_ms: int,
        then: Callable[[LogPort], object] = _nothing,
    ) -> list[LogPort]:
        """Take logs out, and call `then` with each when it is ended. Their folders are renamed at
        once, or when their disk answers, and removed after `due_ms` of the monotonic clock."""
        keys = [(topic, partition) for partition in partitions]
        gone: dict[LogDirectory, list[tuple[Path, LogPort | None]]] = {}
        for key in keys:
            if self.moves is not None:
                self.moves.cancel(key)
            self._coming.pop(key, None)
            self.offline.pop(key, None)
            log, home = self._logs.pop(key, None), self.homes.pop(key, None)
            if home is not None:
                gone.setdefault(home, []).append((home.path / f"{topic}-{key[1]}", log))
        if self.cleaner is not None:
            self.cleaner.forget(keys)

        def renamed(home: LogDirectory, outcomes: list[Gone]) -> None:
            for one in outcomes:
                self._take_gone(one, home, due_ms)
            for _, log in gone[home]:
                if log is not None:
                    then(log)

        for home, folders in gone.items():
            home.worker.do(partial(self._end, folders, home), partial(renamed, home))
        return [log for folders in gone.values() for _, log in folders if log is not None]

    def _end(
        self, folders: list[tuple[Path, LogPort | None]], home: LogDirectory
    ) -> list[Gone]:
        """A worker's."""
        gone = rename_gone(folders, home)
        if self.cleaner is not None:
            self.cleaner.write_checkpoint(home)
        return gone

    def _take_gone(self, gone: Gone, home: LogDirectory, due_ms: int) -> None:
        if gone.error is not None:
            _LOG.error("cannot rename %s: %s", gone.folder, gone.error)
            home.note(DiskError(gone.folder, gone.error))
        elif gone.aside is not None:
            self.dead.add(gone.aside, home, due_ms)

    def configure(self, configs: Mapping[Key, dict[str, int]]) -> None:
        """Give logs their settings; those of a disk that hangs have theirs when it answers."""
        by_home: dict[LogDirectory, list[tuple[LogPort, dict[str, int]]]] = {}
        for key, config in configs.items():
            log = self.get(*key)
            if log is not None:
                by_home.setdefault(self.homes[key], []).append((log, config))
        for home, some in by_home.items():
            home.worker.do(partial(configure_logs, some), _nothing)

    def moved(self, key: Key, home: LogDirectory, left: Path, due_ms: int) -> None:
        """A partition lives in another directory now; the folder that it has left is to be removed.
        """
        before, self.homes[key] = self.homes[key], home
        self.incoming.pop(key, None)
        self.dead.add(left, before, due_ms)
        for directory in (home, before):
            try:
                directory.sync_names()
            except DiskError as error:
                _LOG.error("%s", error)

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
