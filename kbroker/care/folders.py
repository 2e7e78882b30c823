"""What there is in a data directory and in a partition's folder, for those who copy it."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from kbroker.care.segments import SegmentFile, read_index
from kbroker.errors import OperatorError
from kbroker.storage.folders import PARTITION_FOLDER, SET_ASIDE, refuse_link
from kbroker.storage.manager import METADATA_FOLDER

__all__ = [
    "ChangedError",
    "Key",
    "Listing",
    "end_of",
    "links_of",
    "list_folder",
    "order_of",
    "partitions_of",
    "refuse_other_kinds",
]

_PARTITION: Final = re.compile(r"(?P<topic>.+)-(?P<partition>[0-9]+)\Z")
_SEGMENT: Final = re.compile(r"([0-9]{20})\.log\Z")
_SNAPSHOT: Final = re.compile(r"([0-9]{20})\.snapshot\Z")
_ORDER: Final = {"__transaction_state": -2, "__consumer_offsets": -1}
_HINTS: Final = 8

Key = tuple[str, int]


class ChangedError(Exception):
    """What was being read is not what it was when that began."""


class Listing(NamedTuple):
    """A partition's folder: inodes of segments by base offset, ascending, and the offsets of
    producer snapshots."""

    segments: dict[int, int]
    snapshots: list[int]

    def left_of(self, before: Listing) -> set[int]:
        """The segments that are as they were `before`, where but the oldest may have gone. Raises
        ChangedError where others did, or were replaced."""
        same = [base for base, inode in before.segments.items() if self.segments.get(base) == inode]
        if (
            not same
            or same != list(before.segments)[-len(same) :]
            or same[0] != next(iter(self.segments))
        ):
            raise ChangedError("segments were replaced")
        return set(same)


def partitions_of(source: Path) -> dict[str, Key]:
    """The folders of partitions by name, in the order in which a backup takes them. Raise
    OperatorError for symbolic links."""
    found = {}
    for entry in os.scandir(source):
        refuse_link(entry)
        match = _PARTITION.match(entry.name)
        if match and entry.name != METADATA_FOLDER and entry.is_dir(follow_symlinks=False):
            found[entry.name] = (match["topic"], int(match["partition"]))
    return dict(sorted(found.items(), key=lambda item: order_of(item[1])))


def order_of(key: Key) -> tuple[int, Key]:
    """The place of a partition in the order in which a backup takes them."""
    return _ORDER.get(key[0], 0), key


def links_of(source: Path) -> Iterator[Path]:
    """Yield the symbolic links in the place of partitions' folders and of files in them: a start
    and a backup refuse both. Raise OSError."""
    for entry in sorted(os.scandir(source), key=lambda entry: entry.name):
        if not (PARTITION_FOLDER.match(entry.name) or SET_ASIDE.match(entry.name)):
            continue
        if entry.is_symlink():
            yield Path(entry.path)
        elif entry.is_dir():
            yield from (Path(one.path) for one in os.scandir(entry.path) if one.is_symlink())


def refuse_other_kinds(entry: os.DirEntry[str]) -> None:
    """Raise OperatorError for an entry of a partition's folder that is not a regular file: a
    symbolic link, a folder. A backup would leave it out."""
    try:
        if entry.is_file(follow_symlinks=False):
            return
        status = entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return
    kind = "a symbolic link" if stat.S_ISLNK(status.st_mode) else "no regular file"
    raise OperatorError(
        f"{entry.path} is {kind}, which no broker makes and no backup takes: replace it by the "
        "file that belongs there, or move it away"
    )


def list_folder(path: Path) -> Listing | None:
    """The folder as two looks in a row found it; None where it is gone. A log that was never
    appended to has no segments. Raise ChangedError while a cleaning puts its segments in place, or
    the looks differ; OperatorError for what is neither file nor folder of the broker."""
    first, second = _look(path), _look(path)
    if first is None or second is None:
        return None
    if first != second:
        raise ChangedError("files come and go")
    return first


def _look(path: Path) -> Listing | None:
    segments: dict[int, int] = {}
    snapshots = []
    try:
        for entry in os.scandir(path):
            refuse_other_kinds(entry)
            if entry.name.endswith(".swap"):
                raise ChangedError("a cleaning is being put in place")
            if match := _SEGMENT.match(entry.name):
                segments[int(match[1])] = entry.inode()
            elif match := _SNAPSHOT.match(entry.name):
                snapshots.append(int(match[1]))
    except FileNotFoundError:
        return None
    return Listing(dict(sorted(segments.items())), sorted(snapshots))


def end_of(log: Path) -> tuple[int, int]:
    """Position behind the last whole batch of a segment, and the offset behind it."""
    with SegmentFile(log) as file:
        try:
            index = read_index(log.with_suffix(".index"))[-_HINTS:]
        except FileNotFoundError:
            index = []
        return file.end(entry.position for entry in index if 0 <= entry.position < file.size)
