"""Partition lifecycle: from the record of the metadata to a log, and from its deletion to an empty
disk.

A partition that the metadata has is creating, ready or offline (State). Creation and deletion are
steps of the disk worker of its log directory: whoever reads the metadata meets partitions whose log
is not made yet. Nothing here waits for a disk; what is done is known by a Completion.

Owned by the control thread; a worker's thread reads what is being created.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from kbroker.errors import DiskError
from kbroker.operations import Completion, joined
from kbroker.storage.checkpoints import LOG_START_OFFSETS, RECOVERY_POINTS
from kbroker.storage.dead_folders import DeadFolders
from kbroker.storage.disk_worker import Step
from kbroker.storage.folder_work import (
    PIECE,
    Gone,
    LogCreator,
    Made,
    create_piece,
    rename_piece,
)
from kbroker.storage.homes import least_used
from kbroker.storage.log_directory import LogDirectory
from kbroker.storage.log_port import Key, LogOpener, LogPort, Opening, PartitionSpec
from kbroker.storage.manager_ports import CleanerPort, MovesPort

T = TypeVar("T")
_LOG: Final = logging.getLogger("kbroker.storage")
_JOB_STEPS: Final = 256
"""Folders of one job of a disk worker: their results are taken in at once, in about a ms."""
_REFUSED: Final = frozenset({errno.EBUSY, errno.EACCES, errno.EPERM})
"""Errors of a rename that are about one folder (a mount point, its rights), not its disk."""


class State(Enum):
    """What a partition of the metadata is on this disk."""

    CREATING = "creating"
    """Its log is being made, or is about to be."""
    READY = "ready"
    OFFLINE = "offline"
    """Its disk denies it, or its log directory has failed."""


def _nothing(*_: object) -> None:
    """Do nothing."""


class PartitionLifecycle:
    """The partitions of the log directories and their logs."""

    def __init__(
        self,
        directories: Sequence[LogDirectory],
        open_log: LogOpener,
        create_logs: LogCreator | None,
    ) -> None:
        self._create_logs = create_logs
        self.directories = tuple(directories)
        self.homes: dict[Key, LogDirectory] = {}
        """The log directory of each partition; those whose directory is not here are missing."""
        self.offline: dict[Key, str] = {}
        """Partitions that cannot be served, and why: logs that the disk denied when they were
        opened, all of a directory once it has failed."""
        self.incoming: dict[Key, tuple[LogDirectory, dict[str, int]]] = {}
        """What the checkpoints of a directory are to say of a partition that is about to live
        there."""
        self.dead = DeadFolders()
        """Folders of deleted partitions that are still there."""
        self.cleaner: CleanerPort | None = None
        self.moves: MovesPort | None = None
        self.hangs: Callable[[LogDirectory], bool] = lambda directory: directory.worker.hung
        """Whether a directory's disk does not answer at the moment."""
        self.denied: dict[Key, PartitionSpec] = {}
        """Of the offline partitions the new ones whose log the disk denied for a reason that may
        pass (it was full, descriptors had run out): `create` may be asked for them again."""
        self.unrenamed: dict[Key, Unrenamed] = {}
        """Deleted partitions whose folder still has its name, as its rename was refused."""
        self._open_log = open_log
        self._logs: dict[Key, LogPort] = {}
        self._creating: dict[Key, Opening] = {}  # new partitions whose log is not made yet
        self._started = False

    @property
    def main(self) -> LogDirectory:
        """The first log directory, which holds the metadata log."""
        return self.directories[0]

    @property
    def online(self) -> list[LogDirectory]:
        """The log directories that are served."""
        return [each for each in self.directories if each.online]

    def write_checkpoint(self, name: str, directory: LogDirectory) -> None:
        """Replace a checkpoint of a directory by what holds now."""
        raise NotImplementedError

    def get(self, topic: str, partition: int) -> LogPort | None:
        """The log of a partition; None where there is none or it is offline."""
        key = (topic, partition)
        return None if key in self.offline else self._logs.get(key)

    def state(self, topic: str, partition: int) -> State:
        """What a partition that the metadata has is here: the one place that knows. A partition is
        in none of the tables for a moment after its record: it is being created."""
        key = (topic, partition)
        if key in self.offline:
            return State.OFFLINE
        return State.READY if key in self._logs else State.CREATING

    def place(self, count: int, among: dict[LogDirectory, int] | None = None) -> list[LogDirectory]:
        """Choose log directories for new partitions: where there are fewest, not in one that is
        offline or cordoned. `among` counts partitions by directory: empty at the first call for a
        request, which fills it, and kept up to date by each."""
        places = [each for each in self.online if not each.cordoned] or [self.main]
        places = [each for each in places if not self.hangs(each)] or places
        if len(places) == 1:
            return places * count
        counts = {} if among is None else among
        if not counts:
            for home in self.homes.copy().values():
                counts[home] = counts.get(home, 0) + 1
        return [least_used(places, counts) for _ in range(count)]

    def create(self, specs: Iterable[PartitionSpec]) -> Completion[None]:
        """Make the logs of new partitions. The completion is set when each is ready or offline and
        the names of their folders are durable; its error is that of the names' sync. Partitions
        that have a log, or whose log is being made, are passed over: their folder is theirs."""
        homes = {each.id: each for each in self.directories}
        openings: dict[LogDirectory, list[Opening]] = {}
        for spec in specs:
            key = (spec.topic, spec.partition)
            if key in self._logs or key in self._creating:
                continue
            if key in self.unrenamed:  # the worker of the directory does that before
                self._rename_again(key)
            home = homes.get(spec.home, self.main)
            opening = Opening(str(home.path / spec.folder), spec, 0, 0, True)
            openings.setdefault(home, []).append(opening)
            self.denied.pop(key, None)
            self.homes[key] = home
            self._creating[key] = opening
        jobs = [
            self._create_in(home, listed[start : start + _JOB_STEPS])
            for home, listed in openings.items()
            for start in range(0, len(listed), _JOB_STEPS)
        ]
        return joined(jobs)

    def _create_in(self, home: LogDirectory, openings: Sequence[Opening]) -> Completion[None]:
        created: Completion[None] = Completion()
        job = home.worker.run_steps(
            [
                Step([each.spec.folder for each in piece], partial(self._create_piece, piece))
                for piece in _pieces(openings)
            ],
            first=partial(self._forget_namesakes, home, openings),
            last=partial(_with_durable_names, home),
            dropped=partial(self._take_created, openings),
        )

        def on_done(job: Completion[tuple[list[list[Made | None]], DiskError | None]]) -> None:
            if job.error is not None:
                created.fail(job.error)
                return
            made, error = job.result()
            self._take_created(openings, made)
            if error is None:
                created.resolve(None)
            else:
                created.fail(error)

        job.on_done(on_done)
        return created

    def _create_piece(self, openings: Sequence[Opening]) -> list[Made | None]:
        """Make some logs, on the worker's thread; None for a partition that was deleted
        meanwhile."""
        wanted = [
            each for each in openings
            if self._creating.get((each.spec.topic, each.spec.partition)) is each
        ]  # fmt: skip
        if not wanted:
            return [None] * len(openings)
        made = iter(create_piece(wanted, self._open_log, self._create_logs))
        skipped = {id(each) for each in openings} - {id(each) for each in wanted}
        return [None if id(each) in skipped else next(made) for each in openings]

    def _take_created(
        self, openings: Sequence[Opening], made: Iterable[Sequence[Made | None] | None]
    ) -> None:
        """Take in what the pieces of a job have made; None for a piece that a stop dropped."""
        for piece, results in zip(_pieces(openings), made, strict=True):
            for opening, each in zip(piece, results or (), strict=False):
                if each is not None:
                    self._arrived(opening, each)

    def _arrived(self, opening: Opening, made: Made) -> None:
        key = (opening.spec.topic, opening.spec.partition)
        if self._creating.get(key) is opening:
            del self._creating[key]
            self._take(opening, made)
        elif not isinstance(made, OSError | DiskError):  # deleted meanwhile, as its folder will be
            made.mark_deleted()

    def _forget_namesakes(self, home: LogDirectory, openings: Iterable[Opening]) -> None:
        """Take offsets of deleted partitions out of the checkpoints before others have their names:
        after a crash a log start offset would cut the new log, a recovery point vouch for it."""
        keys = [(opening.spec.topic, opening.spec.partition) for opening in openings]
        for name in (RECOVERY_POINTS, LOG_START_OFFSETS):
            if not home.written(name).keys().isdisjoint(keys):
                try:
                    self.write_checkpoint(name, home)
                except DiskError as error:
                    _LOG.error("%s", error)

    def delete(
        self,
        gone: Iterable[tuple[str, Iterable[int], int]],
        then: Callable[[LogPort], object] = _nothing,
    ) -> Completion[None]:
        """Take the logs of deleted topics out: (topic, its partitions, when its files are due on
        the monotonic clock, in ms). `then` is called with each log that has ended. The
        completion is set when their folders are renamed, durably; it fails where a folder keeps its
        name, or may have it again after a crash. The files go when they are due. A refused rename
        is tried again by `rename_again`."""
        removals: dict[LogDirectory, list[_Removal]] = {}
        keys = []
        away: list[Completion[None]] = []
        for topic, partitions, due_ms in gone:
            for partition in partitions:
                key = (topic, partition)
                keys.append(key)
                if self.moves is not None:
                    self.moves.cancel(key)
                self._creating.pop(key, None)
                self.offline.pop(key, None)
                self.denied.pop(key, None)
                log, home = self._logs.pop(key, None), self.homes.pop(key, None)
                if home is None:
                    away.append(Completion())
                    away[-1].fail(DiskError(f"{topic}-{partition}", "its log directory is missing"))
                else:
                    folder = home.path / f"{topic}-{partition}"
                    removal = _Removal(key, folder, log, due_ms)
                    removals.setdefault(home, []).append(removal)
        if self.cleaner is not None:
            self.cleaner.forget(keys)
        jobs = [
            self._delete_in(home, listed[start : start + _JOB_STEPS], then)
            for home, listed in removals.items()
            for start in range(0, len(listed), _JOB_STEPS)
        ]
        return joined([*jobs, *away])

    def _delete_in(
        self,
        home: LogDirectory,
        removals: Sequence[_Removal],
        then: Callable[[LogPort], object],
    ) -> Completion[None]:
        deleted: Completion[None] = Completion()
        job = home.worker.run_steps(
            [
                Step(
                    [each.folder.name for each in piece],
                    partial(rename_piece, [(each.folder, each.log) for each in piece]),
                )
                for piece in _pieces(removals)
            ],
            last=partial(self._deleted_in, home),
        )

        def on_done(job: Completion[tuple[list[Gone], DiskError | None]]) -> None:
            if job.error is not None:
                deleted.fail(job.error)
                return
            outcomes, error = job.result()
            for removal, outcome in zip(removals, outcomes, strict=True):
                error = self._take_gone(outcome, home, removal) or error
                if removal.log is not None:
                    then(removal.log)
            if error is None and not home.online:
                error = DiskError(home.path, "the log directory is offline")
            if error is None:
                deleted.resolve(None)
            else:
                deleted.fail(error)

        job.on_done(on_done)
        return deleted

    def _deleted_in(
        self, home: LogDirectory, gone: list[list[Gone]]
    ) -> tuple[list[Gone], DiskError | None]:
        """Make the new names of folders durable, on the worker's thread."""
        failed = None
        try:
            home.sync_names()
        except DiskError as error:
            failed = error
        if self.cleaner is not None:
            self.cleaner.write_checkpoint(home)
        return [each for piece in gone for each in piece], failed

    def _take_gone(
        self, gone: Gone, home: LogDirectory, removal: _Removal
    ) -> DiskError | None:
        if gone.error is None:
            if gone.aside is not None:
                self.dead.add(gone.aside, home, removal.due_ms)
            return None
        error = DiskError(gone.folder, gone.error)
        if error.final and error.errno not in _REFUSED:
            _LOG.error("cannot rename %s: %s", gone.folder, gone.error)
            home.note(error)
            return error
        if not removal.again:
            _LOG.error("cannot rename the folder of a deleted partition: %s; it is tried again",
                       error)  # fmt: skip
        self.unrenamed[removal.key] = Unrenamed(home, removal._replace(log=None, again=True))
        return error

    def rename_again(self) -> Completion[None]:
        """Try the refused renames again. The completion is set when each was tried."""
        return joined([self._rename_again(key) for key in list(self.unrenamed)])

    def _rename_again(self, key: Key) -> Completion[None]:
        tried: Completion[None] = Completion()
        home, removal = self.unrenamed[key]
        if not home.online or key in self._creating:  # the folder may become the new partition's
            tried.resolve(None)
            return tried
        del self.unrenamed[key]
        if key in self._logs and self.homes[key] is home:
            tried.resolve(None)  # its creation has put the old folder aside
            return tried

        def on_done(done: Completion[None]) -> None:
            if done.error is None:
                _LOG.info("renamed the folder of a deleted partition: %s", removal.folder)
            tried.resolve(None)

        self._delete_in(home, [removal], _nothing).on_done(on_done)
        return tried

    def configure(self, configs: Mapping[Key, dict[str, int]]) -> Completion[None]:
        """Give logs their settings; those of a disk that hangs have theirs when it answers."""
        steps: dict[LogDirectory, list[Step]] = {}
        for key, config in configs.items():
            log = self.get(*key)
            if log is not None:
                step = Step([f"{key[0]}-{key[1]}"], partial(log.configure, config))
                steps.setdefault(self.homes[key], []).append(step)
        return joined(
            home.worker.run_steps(some, last=_nothing) for home, some in steps.items()
        )

    def moved(self, key: Key, home: LogDirectory, left: Path, due_ms: int) -> Completion[None]:
        """Note that a partition lives in another directory now; the folder that it has left is to
        be removed. The completion is set when the names of both folders are durable."""
        before, self.homes[key] = self.homes[key], home
        self.incoming.pop(key, None)
        self.dead.add(left, before, due_ms)
        return joined(each.worker.run(partial(_sync_names, each)) for each in (home, before))

    def _take(self, opening: Opening, made: Made) -> None:
        spec = opening.spec
        key = (spec.topic, spec.partition)
        if isinstance(made, OSError | DiskError):
            self._deny(opening, made)
            return
        if self._started and key in self.offline:
            _LOG.info("partition %s could be created now", spec.folder)
        self._logs[key] = made
        if self.homes[key].online:
            self.offline.pop(key, None)
        else:  # the disk has failed meanwhile
            made.take_offline(errno.EIO)


    def _deny(self, opening: Opening, error: OSError | DiskError) -> None:
        """Take a partition offline whose log the disk denied."""
        spec = opening.spec
        key = (spec.topic, spec.partition)
        known = self.offline.get(key)
        self.offline[key] = str(error)
        if known != self.offline[key]:
            _LOG.error("partition %s is offline: %s", spec.folder, error)
        if self._started:  # a start asks the disk for each of them anew
            failed = error if isinstance(error, DiskError) else DiskError(opening.directory, error)
            if key not in self.unrenamed:  # else a folder is in the way
                self.homes[key].note(failed)
            if not failed.final or key in self.unrenamed:
                self.denied[key] = spec


class _Removal(NamedTuple):
    """The folder of a deleted partition, its log, and when its files are due (monotonic ms)."""

    key: Key
    folder: Path
    log: LogPort | None
    due_ms: int
    again: bool = False
    """Whether its rename was refused before."""


class Unrenamed(NamedTuple):
    """A folder whose rename was refused, and its log directory."""

    home: LogDirectory
    removal: _Removal


def _pieces(elements: Sequence[T]) -> list[Sequence[T]]:
    return [elements[start : start + PIECE] for start in range(0, len(elements), PIECE)]


def _with_durable_names(
    home: LogDirectory, made: list[list[Made | None]]
) -> tuple[list[list[Made | None]], DiskError | None]:
    """Sync the names of new folders, on the worker's thread."""
    try:
        home.sync_names()
    except DiskError as error:
        return made, error
    return made, None


def _sync_names(home: LogDirectory) -> None:
    try:
        home.sync_names()
    except DiskError as error:
        _LOG.error("%s", error)
