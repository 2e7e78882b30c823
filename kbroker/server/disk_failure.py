"""A disk has failed: its log directory goes offline, whatever met the error first.

A log takes itself offline where it meets an error (ext/log_state.pxd), journals and the metadata
log end, LogDirectory remembers what checkpoints, names of folders and new logs have met. After a
failed sync the kernel may have dropped what was written to any file, so no other log of that disk
is trusted either, as Apache Kafka does it. There is no way back but a start, which reads again what
is really there. The other directories serve on, unless it is the first, which has the metadata log.
A flush that found no file descriptor is none of that, and told by FlushesPutOff.
"""

from __future__ import annotations

import errno
import logging
import os
from typing import TYPE_CHECKING, Final

from kbroker.changes import Changes
from kbroker.errors import DiskError
from kbroker.ext.log_flush import flushes_put_off
from kbroker.ext.log_state import logs_taken_offline
from kbroker.metadata.builders import change_directories
from kbroker.operations import Completion, Steps

if TYPE_CHECKING:
    from collections.abc import Callable

    from kbroker.api.context import DataPlanePort
    from kbroker.clock import Clock
    from kbroker.metadata.store import MetadataStore
    from kbroker.storage.log_directory import LogDirectory
    from kbroker.storage.manager import LogManager

_LOG: Final = logging.getLogger("kbroker.server")

_PUT_OFF_TOLD_EVERY_MS: Final = 60_000


def hangs(hanging: Callable[[], list[int]], store: MetadataStore, one: LogDirectory) -> bool:
    """Whether a directory's disk does not answer somebody at the moment; `hanging` is the data
    plane's."""
    hung = one.worker.hung or (one.place == 0 and store.worker.hung)
    return hung or one.place in hanging()


class DiskWatch:
    """The control thread's, which looks before each request: a look costs a few loads until a disk
    fails. Metadata and all else that asks LogManager is right from the first answer on."""

    def __init__(
        self,
        store: MetadataStore,
        logs: LogManager,
        data_plane: DataPlanePort,
        node_id: int,
        changes: Changes,
    ) -> None:
        self._changes = changes
        self._store = store
        self._logs = logs
        self._data_plane = data_plane
        self._node_id = node_id
        self._seen = 0

    def look(self) -> None:
        """Take a directory offline once anything of it is, and tell why; with the first one all.
        That is final."""
        if self._logs.failure is not None:
            return
        gone = logs_taken_offline()
        if gone == self._seen and self._store.failure is None and not any(map(
            self._has_failed, self._logs.directories
        )):  # fmt: skip
            return
        self._seen = gone
        for directory in self._logs.online:
            found = self._failed(directory)
            if found is not None:
                self._take_offline(directory, *found)

    def _has_failed(self, directory: LogDirectory) -> bool:
        return directory.online and (
            directory.met is not None or self._data_plane.journal_error(directory.place) != 0
        )

    def _failed(self, directory: LogDirectory) -> tuple[str, int] | None:
        """What failed, and the errno. None: nothing, or only a log that is deleted by now."""
        error = self._data_plane.journal_error(directory.place)
        if error:
            return "the journal", error
        if directory.place == 0 and self._store.failure is not None:
            return "the metadata log", self._store.failure.errno or errno.EIO
        for (topic, partition), log in self._logs.of(directory):
            if log.offline_errno:
                return f"partition {topic}-{partition}", log.offline_errno
        met = directory.met
        return None if met is None else (met.path, met.errno or errno.EIO)

    def _take_offline(self, directory: LogDirectory, what: str, error: int) -> None:
        why = f"{what} cannot be written: {os.strerror(error)} (errno {error})"
        _LOG.critical(
            "%s; the log directory %s is offline: producing and fetching fail until the disk is "
            "seen to and the broker started again",
            why, directory,
        )  # fmt: skip
        if directory is self._logs.main:
            self._store.fail(DiskError(directory.path, why))
        for log in self._logs.fail(directory, why):
            log.take_offline(error)
            self._data_plane.wake(log)
        for one in self._logs.directories:
            if not one.online:  # who waits for room there is told
                self._data_plane.set_disk_room(None, False, one.place)
        if directory is not self._logs.main:
            self._tell_metadata()

    def _tell_metadata(self) -> None:
        """Record what Apache Kafka's controller does: the partitions of the directory have no
        leader."""
        self._changes.run(self._record()).on_done(self._recorded)

    def _record(self) -> Steps[None]:
        ids, lost = self._logs.ids(), self._logs.lost()
        records = change_directories(self._store.image, self._node_id, ids, lost)
        yield self._store.append(records)

    def _recorded(self, done: Completion[None]) -> None:
        if done.error is not None:
            _LOG.error("the metadata does not have that a log directory is offline: %s", done.error)


class FlushesPutOff:
    """Tells why what waits for a flush has no answer yet: at once, then once a minute at most."""

    def __init__(self, logs: LogManager, clock: Clock) -> None:
        self._logs = logs
        self._clock = clock
        self._told, _ = flushes_put_off()
        self._next_ms = clock.monotonic_ms()

    def tick(self) -> None:
        """To be called about once a second."""
        count, error = flushes_put_off()
        if count == self._told or self._clock.monotonic_ms() < self._next_ms:
            return
        _LOG.warning(
            "%d flushes of logs in %s put off: %s (errno %d); they are tried again, and whoever "
            "waits for one is not answered before: raise the limit of open files and of memory",
            count - self._told, self._logs.directory, os.strerror(error), error,
        )  # fmt: skip
        self._told = count
        self._next_ms = self._clock.monotonic_ms() + _PUT_OFF_TOLD_EVERY_MS
