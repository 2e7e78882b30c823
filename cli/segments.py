"""Segment files read off line: batches of a `.log`, entries of its indexes.

Files of kbroker or of Apache Kafka, of a broker that runs or not; nothing is written. A file that
is being appended to may end in the middle of a batch.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kbroker.ext.records import Batch, BatchError, batches

__all__ = [
    "IndexEntry",
    "SegmentDamage",
    "TimeEntry",
    "base_offset_of",
    "iterate",
    "map_file",
    "read_index",
    "read_time_index",
    "segment_files",
]

_WINDOW_BYTES = 16 << 20
_PREFIX = struct.Struct(">qi")  # base offset, length of what follows
_INDEX = struct.Struct(">ii")
_TIME_INDEX = struct.Struct(">qi")
_OFFSET_DIGITS = 20
_SEGMENT = "[0-9]" * _OFFSET_DIGITS + ".log"


@dataclass(frozen=True, slots=True)
class SegmentDamage:
    """Where the batches of a file end early; text says why."""

    position: int
    text: str


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
    """The .log files of a partition's folder, of a data directory, or the file itself."""
    if not path.is_dir():
        return [path]
    return sorted(path.glob(_SEGMENT)) or sorted(path.glob(f"*-[0-9]*/{_SEGMENT}"))


def base_offset_of(path: Path) -> int:
    """The base offset in a segment file's name; 0 for a file with another name."""
    digits = path.name.partition(".")[0]
    return int(digits) if digits.isdecimal() and len(digits) == _OFFSET_DIGITS else 0


@contextmanager
def map_file(path: Path) -> Iterator[memoryview]:
    """The bytes of a file, mapped for reading."""
    with path.open("rb") as file:
        size = path.stat().st_size
        if size == 0:
            yield memoryview(b"")
            return
        mapped = mmap.mmap(file.fileno(), size, prot=mmap.PROT_READ)
        view = memoryview(mapped)
        try:
            yield view
        finally:
            view.release()
            mapped.close()


def iterate(data: memoryview) -> Iterator[Batch | SegmentDamage]:
    """The batches of a .log, checksums checked, their positions in the file; last, the damage
    that ends them, unless they end with the file. Zeros at the end are preparation, no damage."""
    at = 0
    while at < len(data):
        window = _WINDOW_BYTES
        if len(data) - at >= _PREFIX.size:
            window = max(window, _PREFIX.unpack_from(data, at)[1] + _PREFIX.size)
        with data[at : at + window] as part:
            try:
                found = batches(part)
            except BatchError:
                found = _up_to_damage(part)
        for batch in found:
            yield batch._replace(position=at + batch.position)
        if not found:
            damage = _damage(data, at)
            if damage is not None:
                yield damage
            return
        at += found[-1].position + found[-1].length


def _up_to_damage(data: memoryview) -> list[Batch]:
    """The batches before the first damaged one."""
    found: list[Batch] = []
    at = 0
    while len(data) - at >= _PREFIX.size:
        length = _PREFIX.unpack_from(data, at)[1] + _PREFIX.size
        with data[at : at + max(length, 0)] as part:
            try:
                one = batches(part)
            except BatchError:
                break
        if not one:
            break
        found.append(one[0]._replace(position=at))
        at += one[0].length
    return found


def _damage(data: memoryview, at: int) -> SegmentDamage | None:
    with data[at:] as rest:
        try:
            batches(rest)
        except BatchError as error:
            if not any(rest):
                return None
            return SegmentDamage(at, str(error))
        if not any(rest):
            return None
        return SegmentDamage(at, f"{len(rest)} bytes are left, less than a whole batch")


def read_index(path: Path) -> list[IndexEntry]:
    """The entries of an .index; the zeros behind the last are left out."""
    base = base_offset_of(path)
    with map_file(path) as data:
        whole = len(data) // _INDEX.size * _INDEX.size
        found = [
            IndexEntry(base + offset, position)
            for offset, position in _INDEX.iter_unpack(data[:whole])
        ]
    while len(found) > 1 and found[-1] == IndexEntry(base, 0):
        found.pop()
    return [] if found == [IndexEntry(base, 0)] else found


def read_time_index(path: Path) -> list[TimeEntry]:
    """The entries of a .timeindex; the zeros behind the last are left out."""
    base = base_offset_of(path)
    with map_file(path) as data:
        whole = len(data) // _TIME_INDEX.size * _TIME_INDEX.size
        found = [
            TimeEntry(timestamp, base + offset)
            for timestamp, offset in _TIME_INDEX.iter_unpack(data[:whole])
        ]
    while found and found[-1] == TimeEntry(0, base):
        found.pop()
    return found
