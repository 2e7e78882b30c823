"""What is wrong with the files of partitions: found by reading all of them, nothing is changed.

    TAIL     the last segment ends in bytes that are no whole batch: a crash, or a broker that is
             writing. A start after an unclean stop cuts them off
    DAMAGE   bytes in the middle that are no sound batch (cut short, overwritten, a checksum that
             is wrong)
    ORDER    an offset at or below the one before it
    INDEX    an .index or .timeindex that leads elsewhere
    LINK     a symbolic link, which a start refuses
    DERIVED  a transaction index, producer snapshot or list of leader epochs that cannot be read
    WAL      a write-ahead log of the last run that cannot be read to its end

INDEX and DERIVED lose nothing: they are made of the batches. Offsets that are missing without a
fault are those that compaction took, or a file that is gone: a note, where a log was never
compacted.
"""

from __future__ import annotations

import errno
import itertools
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import TypeVar

from kbroker.care.folders import links_of
from kbroker.care.segments import (
    Damage,
    IndexEntry,
    SegmentFile,
    TimeEntry,
    base_offset_of,
    read_index,
    read_time_index,
)
from kbroker.errors import CorruptFileError, DiskError
from kbroker.ext import journal_reader
from kbroker.ext.crc32c import checksum
from kbroker.ext.records import Batch, BatchError, records
from kbroker.files import is_locked, is_there, list_names, read_file, read_offset_checkpoint
from kbroker.metadata.directories import is_further
from kbroker.metadata.loader import load_image
from kbroker.metadata.meta_properties import META_PROPERTIES, read_meta_properties
from kbroker.storage.checkpoints import (
    CLEAN_SHUTDOWN,
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LEADER_EPOCHS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    read_leader_epochs,
)

__all__ = ["Checked", "Fault", "Kind", "check_directory", "check_partition", "sound_snapshot"]

Entry = TypeVar("Entry")

_TXN_ENTRY = struct.Struct(">hqqqq")  # version, producer id, first offset, last offset, stable
_SNAPSHOT_HEAD = struct.Struct(">hI")  # version, CRC-32C of what follows
_SNAPSHOT_VERSION = 1


class Kind(Enum):
    """See the module."""

    TAIL = "torn tail"
    DAMAGE = "damage"
    ORDER = "order"
    INDEX = "index"
    DERIVED = "derived"
    LINK = "symbolic link"
    WAL = "write-ahead log"


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault: the file, where in it, what it is and what is lost by it.

    `offset`: the first that is not sound, where the log would end if it were cut here; `end`: where
    sound batches go on, the end of the file where none do. Both are of TAIL, DAMAGE and ORDER.
    """

    kind: Kind
    path: Path
    text: str
    position: int = -1
    lost: str = ""
    offset: int = -1
    end: int = -1

    def __str__(self) -> str:
        at = f"position {self.position}: " if self.position >= 0 else ""
        return f"{self.path}: {at}{self.text}" + (f"; {self.lost}" if self.lost else "")


@dataclass(slots=True)
class Checked:
    """A segment that was read: what is in it, and what is wrong."""

    path: Path
    size: int = 0
    batches: int = 0
    records: int = 0
    next_offset: int = 0
    missing: list[str] = field(default_factory=list)
    """Suffixes of the indexes that are not there."""
    faults: list[Fault] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def check_directory(place: Path) -> Iterator[Fault]:
    """Checkpoints, meta.properties, the metadata log and the WAL of a data directory; symbolic
    links. A further log directory of a broker has no metadata log."""
    if not place.is_dir():
        yield Fault(Kind.DAMAGE, place, "is not there")
        return
    for path in links_of(place):
        yield Fault(Kind.LINK, path, "is a symbolic link", lost="no broker starts with it")
    readers: list[tuple[str, Callable[[Path], object]]] = [
        (name, read_offset_checkpoint)
        for name in (RECOVERY_POINTS, LOG_START_OFFSETS, HIGH_WATERMARKS, CLEANER_OFFSETS)
    ]
    for name, read in readers:
        try:
            read(place / name)
        except CorruptFileError as error:
            yield Fault(Kind.DERIVED, place / name, _reason(error))
    yield from _wal_faults(place)
    if not is_there(place / META_PROPERTIES):
        return
    try:
        read_meta_properties(place)
        if not is_further(place):
            load_image(place)
    except DiskError as error:
        lost = "no broker starts without it: restore a backup"
        if error.errno == errno.ENOENT:
            yield Fault(Kind.DAMAGE, Path(error.path), "is not there")
        else:
            yield Fault(Kind.DAMAGE, Path(error.path), _reason(error), lost=lost)


def _wal_faults(place: Path) -> Iterator[Fault]:
    """A broker that runs writes its WAL at this moment; a clean stop has made an older one void."""
    if is_locked(place) or read_file(place / CLEAN_SHUTDOWN) is not None:
        return
    try:
        journal_reader.keys(str(place))
    except journal_reader.WalError as error:
        lost = "acknowledged records may be nowhere else, and the next start is refused"
        for path, text in error.reasons:
            yield Fault(Kind.WAL, Path(path), text, lost=lost)


def check_partition(files: Sequence[Path], *, deep: bool = False) -> Iterator[Checked]:
    """Each segment of one folder, in the order of offsets. deep: every record is decoded."""
    following = None
    for path in files:
        last = path == files[-1]
        checked = _check_segment(path, following, deep=deep, last=last)
        if following is not None and base_offset_of(path) > following:
            checked.notes.append(f"offsets {following} to {base_offset_of(path) - 1} are not there")
        following = checked.next_offset
        if last:
            checked.faults += _derived_faults(path.parent)
        yield checked


def _check_segment(path: Path, due: int | None, *, deep: bool, last: bool) -> Checked:
    # The indexes before the log: a broker that is writing writes them after it.
    index = _read(path.with_suffix(".index"), read_index)
    time_index = _read(path.with_suffix(".timeindex"), read_time_index)
    offsets, times = _Offsets(index or []), _Times(time_index or [])
    checked = Checked(path, next_offset=max(base_offset_of(path), due or 0))
    damaged: list[Damage] = []
    with SegmentFile(path) as file:
        checked.size = file.size
        for found in file.batches():
            if isinstance(found, Damage):
                damaged.append(found)
                checked.faults.append(_damage_fault(path, found, checked.next_offset, last))
                continue
            if found.base_offset < checked.next_offset:
                checked.faults.append(_order_fault(path, found, checked.next_offset))
            if deep and (why := _undecodable(file, found)):
                checked.faults.append(_record_fault(path, found, why))
            following = found.base_offset + found.last_offset_delta + 1
            checked.next_offset = max(following, checked.next_offset)
            checked.batches += 1
            checked.records += found.count
            offsets.meet(found)
            times.meet(found)
    checked.missing = [
        name for name, at in ((".index", index), (".timeindex", time_index)) if at is None
    ]
    for suffix, faults in (
        (".index", offsets.faults(damaged)),
        (".timeindex", times.faults(damaged)),
    ):
        checked.faults += [Fault(Kind.INDEX, path.with_suffix(suffix), text) for text in faults]
    txn_index = path.with_suffix(".txnindex")
    checked.faults += [Fault(Kind.DERIVED, txn_index, text) for text in _txn_faults(txn_index)]
    return checked


def _damage_fault(path: Path, found: Damage, due: int, last: bool) -> Fault:
    if found.next_offset is None and last:
        kind = Kind.TAIL
        lost = f"{found.end - found.position} bytes from offset {due} on, the end of the log"
    elif found.next_offset is None:
        kind = Kind.DAMAGE
        lost = f"lost: offsets {due} to the end of the segment"
    else:
        kind = Kind.DAMAGE
        lost = (
            f"lost: offsets {due} to {found.next_offset - 1}; sound batches go on at position"
            f" {found.end}"
        )
    return Fault(kind, path, found.text, found.position, lost, due, found.end)


def _order_fault(path: Path, batch: Batch, due: int) -> Fault:
    return Fault(
        Kind.ORDER,
        path,
        f"offset {batch.base_offset} where {due} or more is due",
        batch.position,
        f"lost to readers: {batch.count} records",
        due,
        batch.position + batch.length,
    )


def _record_fault(path: Path, batch: Batch, why: str) -> Fault:
    end = batch.position + batch.length
    lost = f"lost: offsets {batch.base_offset} to {batch.base_offset + batch.last_offset_delta}"
    return Fault(Kind.DAMAGE, path, why, batch.position, lost, batch.base_offset, end)


def _undecodable(file: SegmentFile, batch: Batch) -> str:
    try:
        records(file.read(batch.position, batch.length))
    except BatchError as error:
        return str(error)
    return ""


def _read(path: Path, reader: Callable[[Path], list[Entry]]) -> list[Entry] | None:
    try:
        return reader(path)
    except FileNotFoundError:
        return None


class _Offsets:
    """An offset index beside the batches as they come: each entry names the position of the batch
    that holds its offset."""

    def __init__(self, index: list[IndexEntry]) -> None:
        self._found: list[str] = []
        self._left: dict[int, int] = {}
        last = -1
        for entry in index:
            if entry.offset <= last:
                self._found.append(f"offset {entry.offset} does not come after {last}")
            else:
                self._left[entry.position] = entry.offset
            last = entry.offset

    def meet(self, batch: Batch) -> None:
        """The next batch."""
        offset = self._left.pop(batch.position, None)
        if offset is not None and not 0 <= offset - batch.base_offset <= batch.last_offset_delta:
            self._found.append(f"offset {offset} is not in the batch at {batch.position}")

    def faults(self, damaged: list[Damage]) -> list[str]:
        """What is wrong, after the last batch; not what damage in the log explains."""
        return self._found + [
            f"offset {offset}: no batch begins at {position}"
            for position, offset in self._left.items()
            if not any(one.position <= position < one.end for one in damaged)
        ]


class _Times:
    """A time index likewise: timestamps and offsets ascend, each is the largest timestamp of the
    batch it names."""

    def __init__(self, index: list[TimeEntry]) -> None:
        self._found: list[str] = []
        self._index = index
        self._at = 0
        self._astray: list[str] = []
        for one, two in itertools.pairwise(index):
            if two.timestamp_ms < one.timestamp_ms or two.offset < one.offset:
                self._found.append(f"{two.timestamp_ms} at offset {two.offset} goes back")

    def meet(self, batch: Batch) -> None:
        """The next batch."""
        last = batch.base_offset + batch.last_offset_delta
        while self._at < len(self._index) and self._index[self._at].offset <= last:
            entry = self._index[self._at]
            self._at += 1
            text = f"{entry.timestamp_ms} is not what offset {entry.offset} ends at"
            if entry.offset < batch.base_offset:
                self._astray.append(text)
            elif entry.timestamp_ms != batch.max_timestamp:
                self._found.append(text)

    def faults(self, damaged: list[Damage]) -> list[str]:
        """What is wrong, after the last batch; not what damage in the log explains."""
        if damaged:
            return self._found
        left = [
            f"{entry.timestamp_ms} is not what offset {entry.offset} ends at"
            for entry in self._index[self._at :]
        ]
        return self._found + self._astray + left


def _txn_faults(path: Path) -> Iterator[str]:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return
    whole = len(data) // _TXN_ENTRY.size * _TXN_ENTRY.size
    if whole < len(data):
        yield f"{len(data) - whole} bytes behind the last whole entry"
    before = -1
    for version, _, first, last, _ in _TXN_ENTRY.iter_unpack(data[:whole]):
        if version != 0 or not first <= last or last <= before:
            yield f"the entry of offsets {first} to {last}, version {version}, cannot be"
            return
        before = last


def _derived_faults(folder: Path) -> Iterator[Fault]:
    """Producer snapshots and leader epochs of a partition."""
    for path in (folder / name for name in list_names(folder) if name.endswith(".snapshot")):
        data = read_file(path)
        if data is not None and not sound_snapshot(data):
            yield Fault(Kind.DERIVED, path, "no producer snapshot, or its checksum is wrong")
    path = folder / LEADER_EPOCHS
    try:
        epochs = read_leader_epochs(folder)
    except CorruptFileError as error:
        yield Fault(Kind.DERIVED, path, _reason(error))
        return
    for one, two in itertools.pairwise(epochs):
        if two[0] <= one[0] or two[1] < one[1]:
            yield Fault(Kind.DERIVED, path, f"epoch {two[0]} at {two[1]} behind {one[0]}")


def sound_snapshot(data: bytes) -> bool:
    """Whether a producer snapshot is whole."""
    if len(data) < _SNAPSHOT_HEAD.size:
        return False
    version, crc = _SNAPSHOT_HEAD.unpack_from(data)
    sound: bool = crc == checksum(data[_SNAPSHOT_HEAD.size :])
    return version == _SNAPSHOT_VERSION and sound


def _reason(error: DiskError) -> str:
    return str(error).removeprefix(f"{error.path}: ")
