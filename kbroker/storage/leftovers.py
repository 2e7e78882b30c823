"""Folders in a log directory that no partition of the metadata owns, as a start finds them.

A crash leaves two kinds that hold nothing to be read again: folders of topics that were deleted,
which were not renamed yet, and folders that a creation made before it wrote anything. They get the
name of a deleted folder, and the broker removes them while it serves. Any other folder without an
owner keeps its records under a name that ends in -stray: metadata that is older than the folder,
or of another cluster, is no reason to delete records.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from kbroker.errors import DiskError
from kbroker.storage.checkpoints import LEADER_EPOCHS, PARTITION_METADATA, read_topic_id
from kbroker.storage.folders import DELETE_SUFFIX, STRAY_SUFFIX, aside_name, is_stray
from kbroker.storage.log_directory import LogDirectory

_LOG: Final = logging.getLogger("kbroker.storage")
_NAMED_MAX: Final = 5

_FIRST_SEGMENT: Final = f"{0:020}"
_NEW_FILES: Final = frozenset({
    PARTITION_METADATA, LEADER_EPOCHS,
    *(f"{_FIRST_SEGMENT}.{kind}" for kind in ("log", "index", "timeindex", "txnindex")),
})  # fmt: skip
"""What a log has in its folder before the first record."""


class Leftovers:
    """The folders of one log directory that are set aside. `deleted_topics` are names by id."""

    def __init__(self, directory: LogDirectory, deleted_topics: Mapping[bytes, str]) -> None:
        self.dead: list[Path] = []
        """Folders named as deleted, to be removed."""
        self.strays: list[str] = []
        """Names of the folders that are kept as stray."""
        self._directory = directory
        self._deleted_topics = deleted_topics
        self._deleted: list[str] = []
        self._unmade: list[str] = []
        self._new_strays = 0

    def set_aside(self, path: Path, folder: str, suffix: str) -> Path:
        """Rename a folder to a name that no partition has. Raises OSError."""
        target = path.with_name(aside_name(folder, suffix))
        os.rename(path, target)
        if suffix == DELETE_SUFFIX:
            self.dead.append(target)
        elif suffix == STRAY_SUFFIX:
            self.strays.append(target.name)
            self._new_strays += 1
        return target

    def set_aside_unowned(self, path: Path, folder: str = "") -> None:
        """Rename a folder that no partition owns, to be removed or to be kept; `folder` is the
        partition's where this is a copy. Raises OSError."""
        folder = folder or path.name
        try:
            topic_id = read_topic_id(path)
            is_unmade = topic_id is None and _holds_nothing(path)
        except (OSError, DiskError):  # a folder that cannot be read is kept
            topic_id, is_unmade = None, False
        if topic_id in self._deleted_topics:
            self._deleted.append(path.name)
        elif is_unmade:
            self._unmade.append(path.name)
        else:
            self.set_aside(path, folder, STRAY_SUFFIX)
            return
        self.set_aside(path, folder, DELETE_SUFFIX)

    def close(self) -> None:
        """Make the new names durable, and log what was found. Raises DiskError."""
        if self._deleted or self._unmade or self._new_strays:
            self._directory.sync_names()
        self._directory.strays = len(self.strays)
        for names, why in (
            (self._deleted, "of deleted topics"),
            (self._unmade, "that an interrupted creation left empty"),
        ):
            if names:
                _LOG.info("deleting %d folders %s in %s: %s",
                          len(names), why, self._directory, first_of(names))  # fmt: skip
        if self.strays:
            _LOG.warning(
                "%d folders in %s belong to no partition and are kept, %d of them renamed by this "
                "start: %s; `kbroker log strays` lists them, `kbroker log stray-delete` deletes "
                "them", len(self.strays), self._directory, self._new_strays,
                first_of(sorted(self.strays)),
            )  # fmt: skip


def count_strays(directory: LogDirectory) -> None:
    """Count the stray folders of a directory again. Raises DiskError."""
    if directory.online:
        try:
            names = os.listdir(directory.path)
        except OSError as error:
            raise DiskError(directory.path, error) from error
        directory.strays = sum(map(is_stray, names))


def first_of(names: Iterable[str]) -> str:
    """Join the first names, for a line of the log."""
    listed = list(names)
    more = ", ..." if len(listed) > _NAMED_MAX else ""
    return ", ".join(listed[:_NAMED_MAX]) + more


def _holds_nothing(path: Path) -> bool:
    """Return whether a folder holds no file but those of a log without records."""
    with os.scandir(path) as entries:
        for entry in entries:
            if entry.name not in _NEW_FILES or not entry.is_file(follow_symlinks=False):
                return False
            if entry.name.endswith(".log") and entry.stat(follow_symlinks=False).st_size:
                return False
    return True
