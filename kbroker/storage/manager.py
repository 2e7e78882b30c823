"""The logs of the broker: which folders there are, how they are opened, kept and closed.

A partition lives in the folder `TOPIC-PARTITION` of one of the log directories, its home; the
metadata says which (kbroker.storage.homes). Other folders are: the metadata log's (never touched
here), `TOPIC-PARTITION.HEX-delete` (deleted topics, whose files go after file.delete.delay.ms),
`TOPIC-PARTITION.HEX-future` (copies on their way to another directory) and
`TOPIC-PARTITION.HEX-stray` (folders that no topic of the metadata owns; they are kept for the
operator to look at).

A crash may leave partitions without a folder (created empty), folders of deleted topics (removed,
see kbroker.storage.leftovers) and checkpoints older than the logs (recovery scans from them).
Without the mark of a clean stop every log is recovered from its recovery point.

Calls that change the set of logs are the control thread's; the maintenance thread calls
`retain`, `flush_what_is_due`, `expire_producers` and the checkpoints, which work on a copy of the
set. A log that was deleted in the meantime answers with an error, which is passed over.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from kbroker.errors import DiskError
from kbroker.storage.checkpoints import HIGH_WATERMARKS, LOG_START_OFFSETS, RECOVERY_POINTS
from kbroker.storage.folder_work import LogCreator, open_one
from kbroker.storage.folders import METADATA_FOLDER
from kbroker.storage.homes import settle
from kbroker.storage.log_directory import LogDirectory
from kbroker.storage.log_port import Directories, Key, LogOpener, LogPort, Opening, PartitionSpec
from kbroker.storage.opening import close_all, open_all, openings_of
from kbroker.storage.partition_lifecycle import PartitionLifecycle, State

__all__ = ["METADATA_FOLDER", "Key", "LogManager", "LogOpener", "LogPort", "Opening",
           "PartitionSpec", "State"]  # fmt: skip

_LOG: Final = logging.getLogger("kbroker.storage")


class LogManager(PartitionLifecycle):
    """See the module."""

    def __init__(
        self,
        directories: Path | Sequence[LogDirectory],
        open_log: LogOpener,
        threads: int = 1,
        create_logs: LogCreator | None = None,
    ) -> None:
        """`directories`: those of log.dirs, first that of the metadata log; a path is the only
        one. `threads` open the logs of each. `create_logs` creates many new logs in one call."""
        if isinstance(directories, Path):
            directories = [LogDirectory(directories)]
        super().__init__(directories, open_log, create_logs)
        self.unfinished: dict[Key, LogDirectory] = {}
        """Moves that the last stop cut off, and where they led."""
        self.found: dict[Key, LogDirectory | None] = {}
        """Partitions that lie elsewhere than the metadata had them: kbroker.storage.homes."""
        self.expected = 0  # logs that `start` opens
        self._threads = threads
        self._complained: set[Key] = set()

    # ---- the directories

    @property
    def directory(self) -> Path:
        """Its path."""
        return self.main.path

    @property
    def failure(self) -> str | None:
        """Why all is offline: the first directory is."""
        return self.main.failure

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

    def start(
        self, specs: Iterable[PartitionSpec], deleted_topics: Mapping[bytes, str] | None = None
    ) -> None:
        """Open every partition of the metadata, in parallel; set aside folders without an owner.
        `deleted_topics`: see kbroker.storage.homes.settle."""
        listed = list(specs)
        for directory in self.online:
            self._guarded(directory, directory.take_mark)
        homes = settle(self.directories, listed, deleted_topics)
        self.homes, self.unfinished, self.found = homes.directories, homes.unfinished, homes.found
        self.dead.add_found(homes.dead)
        self.offline.update(homes.offline)
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
        """Take a directory other than the first offline that fails at the start."""
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

    # ---- the set of logs; the control thread's

    def items(self) -> Iterator[tuple[Key, LogPort]]:
        """All logs, sorted."""
        return iter(sorted(self._logs.items(), key=lambda item: item[0]))

    def __len__(self) -> int:
        return len(self._logs)

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
        return self._each("producer expiry", lambda log: log.expire_producers(now_ms), directory)

    def _each(self, what: str, do: Callable[[LogPort], int], directory: LogDirectory | None) -> int:
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

    def write_checkpoint(self, name: str, directory: LogDirectory) -> None:
        """Replace a checkpoint of a directory by what holds now."""
        if name == RECOVERY_POINTS:
            self.checkpoint_recovery_points(directory)
        else:
            self.checkpoint_log_starts(directory)

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
