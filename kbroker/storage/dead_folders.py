"""Folders of deleted partitions until file.delete.delay.ms is over, and those of earlier runs."""

from __future__ import annotations

import contextlib
import math
import os
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from kbroker.ext.log_folders import remove_folders
from kbroker.files import remove_folder
from kbroker.storage.log_directory import LogDirectory

_AT_ONCE: Final = 32  # folders per call that removes them
_FREE_LOW_BYTES: Final = 1 << 30
"""A start on less free space removes the folders before it opens logs and journals."""


class _Dead:
    """A folder that is to be removed after a moment of the monotonic clock."""

    __slots__ = ("_bytes", "due_ms", "home", "path")

    def __init__(self, path: str, home: LogDirectory, due_ms: int) -> None:
        self.path = path
        self.home = home
        self.due_ms = due_ms
        self._bytes: int | None = None

    @property
    def bytes(self) -> int:
        """Bytes of its files, which nobody writes to any more: counted once."""
        if self._bytes is None:
            self._bytes = folder_bytes(self.path)
        return self._bytes


class DeadFolders:
    """The folders of all log directories. Thread-safe."""

    def __init__(self) -> None:
        self._folders: list[_Dead] = []
        self._lock = threading.Lock()

    def add(self, folder: Path | str, home: LogDirectory, due_ms: int) -> None:
        """Have a folder of a log directory removed after a moment of the monotonic clock."""
        with self._lock:
            self._folders.append(_Dead(str(folder), home, due_ms))

    def add_found(self, folders: Iterable[tuple[Path, LogDirectory]]) -> None:
        """Have folders removed that a start has found: while the broker serves, or at once where
        the start may need their space."""
        homes = set()
        for folder, home in folders:
            self.add(folder, home, 0)
            homes.add(home)
        for home in homes:
            if home.free_bytes() < _FREE_LOW_BYTES:
                self.remove(None, home)

    def paths(self, directory: LogDirectory | None = None) -> list[Path]:
        """Those whose delay is not over yet; of one directory, or all."""
        return [Path(one.path) for one in self._of(directory)]

    def bytes(self, directory: LogDirectory) -> int:
        """Bytes of the files in those of a directory."""
        return sum(one.bytes for one in self._of(directory))

    def _of(self, directory: LogDirectory | None) -> list[_Dead]:
        with self._lock:
            return [one for one in self._folders if directory in (None, one.home)]

    def remove(
        self,
        now_ms: int | None,
        directory: LogDirectory | None = None,
        limit_s: float = math.inf,
    ) -> bool:
        """Remove the folders whose delay is over, or all where `now_ms` is None. Return whether
        some are left because `limit_s` was over. Folders of a failed directory stay for the next
        start."""
        due = self._take(
            lambda one: (now_ms is None or one.due_ms <= now_ms)
            and one.home.online
            and directory in (None, one.home)
        )
        ends_s = time.monotonic() + limit_s
        at_once = _AT_ONCE if limit_s == math.inf else 1
        for first in range(0, len(due), at_once):
            paths = [one.path for one in due[first : first + at_once]]
            for path, error in zip(paths, remove_folders(paths), strict=True):
                if error:  # there is a folder within
                    remove_folder(Path(path))
            left = due[first + at_once :]
            if left and time.monotonic() >= ends_s:
                with self._lock:
                    self._folders[:0] = left
                return True
        return False

    def _take(self, wanted: Callable[[_Dead], bool]) -> list[_Dead]:
        taken: list[_Dead] = []
        left: list[_Dead] = []
        with self._lock:
            for one in self._folders:
                (taken if wanted(one) else left).append(one)
            if taken:
                self._folders = left
        return taken


def folder_bytes(folder: Path | str) -> int:
    """Bytes of the files in a folder; a file or folder that goes meanwhile counts as empty."""
    total = 0
    with contextlib.suppress(FileNotFoundError):
        for entry in os.scandir(folder):
            with contextlib.suppress(FileNotFoundError):
                total += entry.stat(follow_symlinks=False).st_size
    return total
