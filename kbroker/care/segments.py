"""Segment files read off line: batches of a `.log`, entries of its indexes.

Files of kbroker or of Apache Kafka, of a broker that runs or not; nothing is written. They are
read, not mapped: a broker cuts files off (indexes when a segment rolls, a batch that found no
room), and touching a mapped page that is gone would end the process. A file that is being appended
to may end in the middle of a batch.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from kbroker.errors import CorruptFileError
from kbroker.ext.records import Batch, BatchError, batches
from kbroker.files import is_there, list_names
from kbroker.storage.folders import PARTITION_FOLDER

__all__ = [
    "Damage",
    "IndexEntry",
    "SegmentFile",
    "TimeEntry",
    "base_offset_of",
    "is_unwritten",
    "partition_folders",
    "read_index",
    "read_time_index",
    "segment_files",
]

_WINDOW_BYTES: Final = 4 << 20
_OFFSET_DIGITS: Final = 20
_SEGMENT: Final = "[0-9]" * _OFFSET_DIGITS + ".log"

# The header of a batch: base offset, length of what follows these two, leader epoch, magic, CRC,
# attributes, last offset delta, two timestamps, producer id, epoch, sequence, number of records.
_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_PREFIX_BYTES: Final = 12
_MAGIC_AT: Final = 16
_MAGIC: Final = 2
_ATTRIBUTES_MAX: Final = 0x7F
_OFFSETS_MAX: Final = 1 << 31  # of one segment

_INDEX: Final = struct.Struct(">ii")
_TIME_INDEX: Final = struct.Struct(">qi")


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes of a .log that are no whole, sound batch; text says why.

    `next_offset`: base offset of the batch at `end`, where batches go on; None: there are none
    behind it.
    """

    position: int
    end: int
    text: str
    next_offset: int | None = None


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """An offset and the position of the batch that holds it."""

    offset: int
    position: int


@dataclass(frozen=True, slots=True)
class TimeEntry:
    """The largest timestamp so far and the offset of a record that has it."""

    timestamp_ms: int
    offset: int


def segment_files(path: Path) -> list[Path]:
    """List the .log files of a partition's folder, of a data directory without folders that are
    set aside, or the file itself."""
    if not path.is_dir():
        return [path]
    names = list_names(path)
    found = [path / name for name in names if fnmatchcase(name, _SEGMENT)]
    if found:
        return found
    folders = [path / name for name in names if PARTITION_FOLDER.match(name)]
    return [
        folder / name
        for folder in folders
        if folder.is_dir()
        for name in list_names(folder)
        if fnmatchcase(name, _SEGMENT)
    ]


def is_unwritten(path: Path) -> bool:
    """Return whether a folder without segments is a partition that was never appended to, or a data
    directory of such partitions."""
    name = "partition.metadata"
    return is_there(path / name) or any(
        is_there(path / folder / name)
        for folder in list_names(path)
        if PARTITION_FOLDER.match(folder)
    )


def partition_folders(paths: Iterable[Path]) -> dict[Path, list[Path]]:
    """Segment files by their folder, each in the order of offsets."""
    found: dict[Path, list[Path]] = {}
    for path in paths:
        found.setdefault(path.parent, []).append(path)
    return found


def base_offset_of(path: Path) -> int:
    """The base offset in a segment file's name; 0 for a file with another name."""
    digits = path.name.partition(".")[0]
    return int(digits) if digits.isdecimal() and len(digits) == _OFFSET_DIGITS else 0


class SegmentFile:
    """A `.log` open for reading, up to the size that it had when it was opened."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self.size = os.fstat(self._descriptor).st_size

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        os.close(self._descriptor)

    def read(self, position: int, length: int) -> bytes:
        """Bytes of the file; fewer where it ends."""
        parts = []
        end = min(position + length, self.size)
        while position < end:
            part = os.pread(self._descriptor, end - position, position)
            if not part:
                break
            parts.append(part)
            position += len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def batches(self, at: int = 0, *, beyond: bool = True) -> Iterator[Batch | Damage]:
        """The batches from position `at` on, checksums checked, and what lies between them.

        Not `beyond`: the first damage is the last that is told. Zeros at the end are preparation,
        no damage.
        """
        following = base_offset_of(self.path)
        while at < self.size:
            found = self._whole_batches(at)
            for batch in found:
                yield batch._replace(position=at + batch.position)
            if found:
                at += found[-1].position + found[-1].length
                following = found[-1].base_offset + found[-1].last_offset_delta + 1
                continue
            if self._zeros_from(at):
                return
            damage = self._damage(at, following, beyond)
            yield damage
            if damage.next_offset is None:
                return
            at = damage.end

    def end(self, hints: Iterable[int] = ()) -> tuple[int, int]:
        """Position behind the last whole batch, and the offset behind it.

        hints: positions of batches, as an index has them, the later the better: what lies before
        the last that leads to a batch is not looked at. CorruptFileError where sound batches follow
        damage: that is not the end.
        """
        for start in (*sorted(hints, reverse=True), 0):
            position, following = start, None
            for batch in self.batches(start, beyond=False):
                if isinstance(batch, Damage):
                    if following is not None:
                        self._check_end(batch.position, following)
                    break
                position = batch.position + batch.length
                following = batch.base_offset + batch.last_offset_delta + 1
            if following is not None:
                return position, following
        return 0, base_offset_of(self.path)

    def _check_end(self, at: int, following: int) -> None:
        damage = self._damage(at, following, True)
        if damage.next_offset is not None:
            raise CorruptFileError(
                self.path,
                f"position {at}: {damage.text}, and sound batches go on at position {damage.end}: "
                "see `kbroker log verify`",
            )

    def _whole_batches(self, at: int) -> list[Batch]:
        """Those from `at` on, up to the end of a window or the first that is not sound."""
        window = self.read(at, max(_WINDOW_BYTES, self._length_at(at)))
        try:
            return batches(window)
        except BatchError:
            return _up_to_damage(window)

    def _length_at(self, at: int) -> int:
        """What the batch at `at` says to be long; 0 where that cannot be."""
        header = self.read(at, _HEADER.size)
        if len(header) < _HEADER.size or header[_MAGIC_AT] != _MAGIC:
            return 0
        length: int = _HEADER.unpack(header)[1] + _PREFIX_BYTES
        return length if _HEADER.size <= length <= self.size - at else 0

    def _zeros_from(self, at: int) -> bool:
        while at < self.size:
            part = self.read(at, _WINDOW_BYTES)
            if not part:
                return True
            if any(part):
                return False
            at += len(part)
        return True

    def _damage(self, at: int, following: int, beyond: bool) -> Damage:
        length = self._length_at(at)
        try:
            batches(self.read(at, length or _HEADER.size))
            text = f"{self.size - at} bytes are left, less than a whole batch"
        except BatchError as error:
            text = str(error)
        good = self._next_batch(at, following) if beyond else None
        if good is None:
            return Damage(at, self.size, text)
        return Damage(at, good.position, text, good.base_offset)

    def _next_batch(self, at: int, following: int) -> Batch | None:
        """The first sound batch behind `at` whose offsets could be due."""
        for place in self._candidates(at, following):
            try:
                found = batches(self.read(place, self._length_at(place)))
            except BatchError:
                continue
            if found:
                return found[0]._replace(position=place)
        return None

    def _candidates(self, at: int, following: int) -> Iterator[int]:
        """Positions behind `at` with a header that could be one: first where the batch at `at` says
        to end, then wherever the magic byte is."""
        length = self._length_at(at)
        if length and self._could_begin(at + length, following):
            yield at + length
        start = at + 1
        while start < self.size:
            window = self.read(start, _WINDOW_BYTES)
            found = window.find(_MAGIC, _MAGIC_AT)
            while found >= 0:
                if self._could_begin(start + found - _MAGIC_AT, following):
                    yield start + found - _MAGIC_AT
                found = window.find(_MAGIC, found + 1)
            start += max(len(window) - _MAGIC_AT, 1)

    def _could_begin(self, place: int, following: int) -> bool:
        header = self.read(place, _HEADER.size)
        if len(header) < _HEADER.size:
            return False
        base, length, epoch, magic, _, attributes, delta, *_, count = _HEADER.unpack(header)
        return bool(
            magic == _MAGIC
            and following <= base < following + _OFFSETS_MAX
            and _HEADER.size - _PREFIX_BYTES <= length <= self.size - place - _PREFIX_BYTES
            and epoch >= -1
            and 0 <= attributes <= _ATTRIBUTES_MAX
            and 0 <= count <= delta + 1
        )


def _up_to_damage(window: bytes) -> list[Batch]:
    """The batches before the first damaged one."""
    found: list[Batch] = []
    at = 0
    with memoryview(window) as view:
        while len(window) - at >= _PREFIX_BYTES:
            length = int.from_bytes(view[at + 8 : at + 12], signed=True) + _PREFIX_BYTES
            try:
                one = batches(view[at : at + max(length, _PREFIX_BYTES)])
            except BatchError:
                break
            if not one:
                break
            found.append(one[0]._replace(position=at))
            at += one[0].length
    return found


def read_index(path: Path) -> list[IndexEntry]:
    """The entries of an .index; the zeros behind the last are left out."""
    base = base_offset_of(path)
    found = [IndexEntry(base + offset, position) for offset, position in _entries(path, _INDEX)]
    while len(found) > 1 and found[-1] == IndexEntry(base, 0):
        found.pop()
    return [] if found == [IndexEntry(base, 0)] else found


def read_time_index(path: Path) -> list[TimeEntry]:
    """The entries of a .timeindex; the zeros behind the last are left out."""
    base = base_offset_of(path)
    found = [TimeEntry(time_ms, base + offset) for time_ms, offset in _entries(path, _TIME_INDEX)]
    while found and found[-1] == TimeEntry(0, base):
        found.pop()
    return found


def _entries(path: Path, entry: struct.Struct) -> Iterator[tuple[int, int]]:
    data = path.read_bytes()
    return entry.iter_unpack(data[: len(data) // entry.size * entry.size])
