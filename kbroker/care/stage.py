"""The folder in which a backup comes into being: `NAME.partial` beside its name.

It has a folder for each log directory, and `.lock` while it is being written, so that nobody takes
a backup in the making for what a kill left behind. `finish` syncs everything, writes the manifest
and renames it: what has the name of a backup is whole.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections import Counter
from collections.abc import Container, Iterator
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from kbroker.care.copying import COPIED, Tick, digest_of, give_tree, take
from kbroker.care.manifest import (
    BackupDirectory,
    BackupFile,
    Manifest,
    folder_name,
    write_manifest,
)
from kbroker.errors import OperatorError
from kbroker.ext.log_flush import sync_file_system
from kbroker.files import LOCK_FILE, DirectoryLock, sync_directory
from kbroker.uuids import uuid_text

__all__ = ["REUSED", "Earlier", "Stage", "StagedDirectory"]

REUSED: Final = "reused"
_SUFFIX: Final = ".partial"


class Earlier:
    """A backup that this one may take unchanged files from."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.folder = folder
        self.manifest = manifest
        self.files = {file.path: file for file in manifest.files}
        self._folders = {one.directory_id: one.folder for one in manifest.directories}

    def folder_of(self, directory_id: str, *, main: bool) -> str | None:
        """The folder of a log directory there. Inodes of another one's disk say nothing. Format 1
        has no ids, and the `main` directory alone."""
        return self._folders.get(directory_id, self._folders.get("") if main else None)


class Stage:
    """Log directories on their way into a backup; `with` removes it unless it was finished."""

    def __init__(self, target: Path, earlier: Earlier | None, tick: Tick) -> None:
        if os.path.lexists(target):  # so it has a name, which `.` and `/` have not
            raise OperatorError(f"{target} is there already: choose another name")
        self.target = target
        self.folder = target.with_name(target.name + _SUFFIX)
        self.earlier = earlier
        self.tick = tick
        self.directories: list[StagedDirectory] = []
        self._lock = DirectoryLock(self.folder)
        self._finished = False

    def __enter__(self) -> Self:
        if self.folder.exists():
            self._remove_leftover()
        self.folder.mkdir(mode=0o700, parents=True)
        self._lock.acquire()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if not self._finished:
            shutil.rmtree(self.folder, ignore_errors=True)
            self._lock.release()

    def _remove_leftover(self) -> None:
        """What a backup that was killed left; one that is being made is refused by its lock."""
        if not (self.folder / LOCK_FILE).exists():
            raise OperatorError(f"{self.folder} is no backup that was broken off: remove it first")
        with DirectoryLock(self.folder):
            shutil.rmtree(self.folder)

    def add_directory(self, source: Path, directory_id: bytes | None) -> StagedDirectory:
        """One more log directory; the first is the one with the metadata log."""
        made = StagedDirectory(self, len(self.directories), source, directory_id)
        self.directories.append(made)
        return made

    @property
    def files(self) -> list[BackupFile]:
        """All files, with their paths in the backup."""
        return [
            file._replace(path=f"{directory.folder}/{file.path}")
            for directory in self.directories
            for file in directory.files.values()
        ]

    # ---- the end

    def bytes_by_way(self) -> Counter[str]:
        """Bytes of files by how they came here: cloned, linked, copied, reused."""
        sizes: Counter[str] = Counter()
        for directory in self.directories:
            for name, how in directory.how.items():
                sizes[how] += directory.files[name].bytes
        return sizes

    def finish(self, manifest: Manifest) -> None:
        """Make it durable, and a backup. Raises DiskError."""
        sync_file_system(str(self.folder), self._lock.descriptor)
        write_manifest(self.folder, manifest)
        give_tree(self.folder, self.directories[0].source.stat())
        self._lock.release()
        (self.folder / LOCK_FILE).unlink()
        self.folder.rename(self.target)
        self._finished = True
        sync_directory(self.target.parent)


class StagedDirectory:
    """A log directory on its way into a backup; names of files are those below it."""

    def __init__(
        self, stage: Stage, number: int, source: Path, directory_id: bytes | None
    ) -> None:
        self.source = source
        self.directory_id = directory_id
        self.folder = folder_name(number)
        self.data = stage.folder / self.folder
        self.data.mkdir()
        self.files: dict[str, BackupFile] = {}
        self.how: dict[str, str] = {}
        self._earlier = stage.earlier
        self._tick = stage.tick
        self._before: str | None = None
        if self._earlier is not None:
            self._before = self._earlier.folder_of(self.id_text, main=number == 0)

    def __str__(self) -> str:
        return str(self.source)

    @property
    def id_text(self) -> str:
        """The directory.id as text; empty where meta.properties has none."""
        return "" if self.directory_id is None else uuid_text(self.directory_id)

    @property
    def entry(self) -> BackupDirectory:
        """What the manifest says of it."""
        return BackupDirectory(self.folder, str(self.source.absolute()), self.id_text)

    # ---- files in and out

    def take(self, source: Path, name: str, *, sealed: bool, size: int | None = None) -> None:
        """A file of the data directory under `name`, its first `size` bytes. What is there from an
        earlier look, or in the earlier backup, and has not changed since is not read again.

        sealed: nobody writes to it any more. Raises FileNotFoundError where it is gone by now.
        """
        descriptor = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
        try:
            status = os.fstat(descriptor)
            wanted = status.st_size if size is None else size
            identity = (status.st_ino, status.st_mtime_ns, status.st_size)
            have = self.files.get(name)
            if have is not None and have.source == identity and have.bytes == wanted:
                return
            self.remove(name)
            if self._reuse(name, identity, wanted):
                return
            target = self.data / name
            target.parent.mkdir(exist_ok=True)
            link = sealed and wanted == status.st_size
            how, digest = take(descriptor, source, target, wanted, link=link, tick=self._tick)
        finally:
            os.close(descriptor)
        self.files[name] = BackupFile(name, wanted, digest, identity)
        self.how[name] = how

    def take_if_there(self, source: Path, name: str, *, sealed: bool = False) -> None:
        """The same for a file that may be missing."""
        with contextlib.suppress(FileNotFoundError):
            self.take(source, name, sealed=sealed)

    def _reuse(self, name: str, identity: tuple[int, int, int], size: int) -> bool:
        if self._earlier is None or self._before is None:
            return False
        earlier = f"{self._before}/{name}"
        before = self._earlier.files.get(earlier)
        if before is None or before.source != identity or before.bytes != size:
            return False
        target = self.data / name
        target.parent.mkdir(exist_ok=True)
        try:
            if (self._earlier.folder / earlier).stat().st_size != size:
                return False
            os.link(self._earlier.folder / earlier, target)
        except OSError:  # another file system, or it was tampered with
            return False
        self.files[name] = before._replace(path=name)
        self.how[name] = REUSED
        return True

    def add(self, name: str) -> None:
        """A file that was written into `data` here."""
        path = self.data / name
        self.files[name] = BackupFile(name, path.stat().st_size, digest_of(path, self._tick))
        self.how[name] = COPIED

    def remove(self, name: str) -> None:
        """Forget a file."""
        if self.files.pop(name, None) is not None:
            del self.how[name]
        (self.data / name).unlink(missing_ok=True)

    def of_folder(self, folder: str) -> Iterator[str]:
        """The names taken so far in one folder."""
        return (name for name in list(self.files) if name.startswith(f"{folder}/"))

    def keep_only(self, folder: str, names: set[str]) -> None:
        """Forget what else there is of a folder; all of it where no name is given."""
        for name in self.of_folder(folder):
            if name not in names:
                self.remove(name)
        if not names:
            shutil.rmtree(self.data / folder, ignore_errors=True)

    def keep_only_folders(self, folders: Container[str]) -> None:
        """Forget all other folders."""
        for folder in {name.partition("/")[0] for name in self.files if "/" in name}:
            if folder not in folders:
                self.keep_only(folder, set())
