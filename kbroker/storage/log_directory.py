"""One of `log.dirs`: what it is called in the metadata, how it does, its checkpoints and its mark.

Each has its own meta.properties, lock, checkpoints, mark of a clean stop and journal. The first
holds the metadata log as well: where that one fails, all is offline. Another one that fails takes
its own partitions offline and no others, until a later start finds it well.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from kbroker.errors import CorruptFileError, DiskError
from kbroker.ext import journal_reader
from kbroker.ext.log_flush import sync_file_system
from kbroker.files import DirectoryLock, is_there, read_offset_checkpoint, sync_directory
from kbroker.files import write_offset_checkpoint as write_offsets
from kbroker.storage.checkpoints import CLEAN_SHUTDOWN, take_clean_shutdown
from kbroker.storage.disk_worker import DiskWorker
from kbroker.storage.log_port import Key

_LOG: Final = logging.getLogger("kbroker.storage")


class LogDirectory:
    """See the module. `place` is its number among log.dirs, the first's 0."""

    def __init__(self, path: Path, place: int = 0, directory_id: bytes | None = None) -> None:
        self.path = path
        self.place = place
        self.id = directory_id
        """As meta.properties has it; None where that could not be read."""
        self.failure: str | None = None
        """Why it is offline. Final: only the next start asks the disk again."""
        self.met: DiskError | None = None
        """The first error after which it has to be: see `note`."""
        self.lock = DirectoryLock(path)
        self.worker = DiskWorker(str(path))
        self.opened = False  # by this start
        self.fresh = False  # formatted by this start
        self.alone = False  # there is no other one, and was none at the last start
        self.cordoned = False  # by cordoned.log.dirs: no new partitions come here
        self.started_clean = True
        self.stopped_clean = False
        self.strays = 0
        """Folders that no partition owns and that are kept, as they were last counted."""
        self.checkpointing = threading.Lock()
        self.renewed: set[Key] = set()
        """Partitions without a log whose entries in the checkpoints are of a deleted topic."""
        self._written: dict[str, dict[Key, int]] = {}

    def __str__(self) -> str:
        return str(self.path)

    @property
    def online(self) -> bool:
        """Whether its partitions are served."""
        return self.failure is None

    def note(self, error: DiskError) -> None:
        """An error that is passed over where it was met. The first that is final is remembered: it
        takes the directory offline (DiskWatch), as one of a log itself does."""
        if self.met is None and error.final:
            self.met = error

    @contextlib.contextmanager
    def noting(self) -> Iterator[None]:
        """Remember the error that comes out."""
        try:
            yield
        except DiskError as error:
            self.note(error)
            raise

    @contextlib.contextmanager
    def apart(self) -> Iterator[None]:
        """An error of any directory but the first is remembered, and keeps the others from
        nothing."""
        try:
            yield
        except DiskError as error:
            if self.place == 0:
                raise
            self.note(error)
            _LOG.error("%s", error)

    def free_bytes(self) -> int:
        """Room that is left on its file system; -1 where that cannot be told."""
        try:
            found = os.statvfs(self.path)
        except OSError:
            return -1
        return found.f_bavail * found.f_frsize

    def take_mark(self) -> None:
        """Note whether the last stop was clean, and remove the mark.

        A write-ahead log beside the mark is void: it is of a crash before that stop. It goes before
        the mark does, as the start after a crash would replay it.
        """
        if is_there(self.path / CLEAN_SHUTDOWN) and journal_reader.files(str(self.path)):
            _LOG.warning("removing a write-ahead log made void by a later clean stop: %s", self)
            journal_reader.remove(str(self.path))
        self.started_clean = take_clean_shutdown(self.path) is not None or self.fresh

    def sync_names(self) -> None:
        """Make the names of folders durable."""
        with self.noting():
            sync_directory(self.path)

    def sync(self) -> None:
        """Make all of its file system durable, and raise DiskError for what failed since the start:
        a descriptor that is opened now may miss errors of writeback from before."""
        sync_file_system(str(self), self.lock.descriptor)

    # ---- checkpoints

    def offsets(self, name: str) -> dict[Key, int]:
        """Return the entries of a checkpoint; none where it is damaged."""
        try:
            found = self._written[name] = read_offset_checkpoint(self.path / name)
        except CorruptFileError as error:
            _LOG.warning("%s; going on without it", error)
            return {}
        return {key: offset for key, offset in found.items() if key not in self.renewed}

    def written(self, name: str) -> Mapping[Key, int]:
        """What was last read or written."""
        return self._written.get(name, {})

    def write_offsets(self, name: str, offsets: dict[Key, int], *, anew: bool = False) -> None:
        """Replace a checkpoint, unless it says just that and need not be written anew."""
        if anew or self._written.get(name) != offsets:
            with self.noting():
                write_offsets(self.path / name, offsets)
            self._written[name] = offsets
