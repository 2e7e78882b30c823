"""Folders of deleted partitions, until file.delete.delay.ms is over."""

from __future__ import annotations

import threading
from pathlib import Path

from kbroker.files import remove_folder
from kbroker.storage.log_directory import LogDirectory


class DeadFolders:
    """Those of all log directories; for any thread."""

    def __init__(self) -> None:
        self._folders: list[tuple[int, Path, LogDirectory]] = []
        self._lock = threading.Lock()

    def add(self, folder: Path, home: LogDirectory, due_ms: int) -> None:
        """A folder of a directory that is to be removed after a moment of the monotonic clock."""
        with self._lock:
            self._folders.append((due_ms, folder, home))

    def paths(self, directory: LogDirectory | None = None) -> list[Path]:
        """Those whose delay is not over yet; of one directory, or all."""
        with self._lock:
            return [path for _, path, home in self._folders if directory in (None, home)]

    def remove(self, now_ms: int | None, directory: LogDirectory | None = None) -> None:
        """Remove those whose delay is over; None: all of them. Nothing of a disk that has failed:
        the next start sees to them."""
        due: list[tuple[int, Path, LogDirectory]] = []
        left: list[tuple[int, Path, LogDirectory]] = []
        with self._lock:
            for entry in self._folders:
                over = now_ms is None or entry[0] <= now_ms
                wanted = entry[2].online and directory in (None, entry[2])
                (due if over and wanted else left).append(entry)
            self._folders = left
        for _, path, _ in due:
            remove_folder(path)
