"""Stray folders of a data directory: what they hold, and their deletion.

A start keeps a folder that belongs to no partition under a name that ends in -stray
(kbroker.storage.leftovers). No broker opens such a folder, so these functions do not need the
directory's lock.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from kbroker.errors import DiskError
from kbroker.files import remove_folder
from kbroker.storage.checkpoints import read_topic_id
from kbroker.storage.folders import DELETE_SUFFIX, SET_ASIDE, aside_name, is_stray

__all__ = ["Stray", "delete_stray", "describe_stray", "find_strays"]


@dataclass(frozen=True, slots=True)
class Stray:
    """A stray folder. `partition` is its name before; long names are cut. `changed_s` is the time
    of its last change since 1970."""

    path: Path
    partition: str
    topic_id: bytes | None
    segments: int
    bytes: int
    changed_s: float


def find_strays(directories: Iterable[Path]) -> list[Path]:
    """List the stray folders in the log directories of a broker that are there, by name. Raise
    OSError."""
    return sorted(
        place / name
        for place in filter(Path.is_dir, directories)
        for name in os.listdir(place)
        if is_stray(name) and (place / name).is_dir()
    )


def describe_stray(path: Path) -> Stray:
    """Look into a stray folder. Raises OSError."""
    aside = SET_ASIDE.match(path.name)
    segments = size = 0
    changed_s = path.stat().st_mtime
    for entry in _files(path):
        status = entry.stat(follow_symlinks=False)
        segments += entry.name.endswith(".log")
        size += status.st_size
        changed_s = max(changed_s, status.st_mtime)
    partition = aside["folder"] if aside is not None else path.name
    return Stray(path, partition, _topic_id(path), segments, size, changed_s)


def delete_stray(path: Path) -> None:
    """Delete a stray folder for good. Raises OSError, DiskError where something is left."""
    partition = describe_stray(path).partition
    target = path.with_name(aside_name(partition, DELETE_SUFFIX))
    path.rename(target)  # the next start removes what is left
    remove_folder(target)
    if target.exists():
        raise DiskError(target, "could not be removed whole; the next start of the broker tries it")


def _files(folder: Path) -> Iterator[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_file(follow_symlinks=False):
                yield entry


def _topic_id(path: Path) -> bytes | None:
    try:
        return read_topic_id(path)
    except DiskError:
        return None
