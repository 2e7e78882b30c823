"""The files of the metadata log `__cluster_metadata-0`: segments of batches, appended durably.

A segment is `<20 digits of its first offset>.log`; offsets run through all segments without a
gap. There is one writer, this node, and every batch is synced before the next is written or
anybody is told, so after a crash only the last batch, which nobody was told of, can be torn:
`open` cuts the log at the first batch that is not whole and sound. Where a sound one follows,
in that segment or the next, or stands in the wrong place, it is no torn tail but damage, and
refused: what stands there was acknowledged.

There are no indexes: Apache Kafka rebuilds `.index`, `.timeindex` and `.snapshot` of this log
whenever it opens it, so those that it left are removed rather than left behind the log.

A write for which there is no room is taken back and the log goes on. One that fails otherwise is
final, as a sync that fails: nobody knows what is on the disk any more, and every later append is
refused. Not thread-safe.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from kbroker.errors import BugError, CorruptFileError, DiskError
from kbroker.files import list_names, sync_directory

from .batches import Batch, BatchError, find_batch, read_batch

_SEGMENT = re.compile(r"(\d{20})\.log")
_DERIVED = re.compile(r"\d{20}\.(index|timeindex|txnindex|snapshot|\w+\.deleted)")
_log = logging.getLogger("kbroker.metadata")


class MetadataLog:
    """Segments of one folder. `open`, replay what it yields, then append."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.start_offset = 0
        self.end_offset = 0
        self.last_epoch = -1
        self.last_timestamp = 0
        self.size_bytes = 0
        """Bytes of all segments."""
        self._bases: list[int] = []
        self._descriptor = -1
        self._position = 0
        self.failure: DiskError | None = None
        """Why it takes no more, for good."""

    def open(self, from_offset: int) -> Iterator[Batch]:
        """Every batch from `from_offset` (the end of the snapshot) on; to be read to its end.

        Cuts a torn tail. A log that ends before `from_offset` has nothing that the snapshot has
        not: it begins anew there.
        """
        yield from self._read(from_offset, cut=True)
        if self.end_offset < from_offset or not self._bases:
            self._begin_at(max(from_offset, self.end_offset))
        else:
            self._open_last()
        self._remove_derived()

    def read(self, from_offset: int) -> Iterator[Batch]:
        """The same batches without changing a byte: for tools on a directory at rest."""
        yield from self._read(from_offset, cut=False)

    def _read(self, from_offset: int, *, cut: bool) -> Iterator[Batch]:
        self._bases = self._list_segments()
        if self._bases:
            self.start_offset = self.end_offset = self._bases[0]
        for base in self._bases:
            path = self._path(base)
            if base != self.end_offset:
                raise CorruptFileError(path, f"the log before it ends at {self.end_offset}")
            try:
                data = path.read_bytes()
            except OSError as error:
                raise DiskError(path, error) from error
            whole = 0
            for batch in self._sound(path, data):
                whole += batch.size
                self._take(batch)
                if batch.base_offset >= from_offset:
                    yield batch
                elif batch.last_offset >= from_offset:
                    raise CorruptFileError(path, f"offset {from_offset} lies within a batch")
            if cut and whole < len(data):
                self._cut(path, whole)
            self.size_bytes += whole
        if self._bases and self.start_offset > from_offset:
            path = self._path(self.start_offset)
            raise CorruptFileError(path, f"no snapshot holds what was before {self.start_offset}")

    def _sound(self, path: Path, data: bytes) -> Iterator[Batch]:
        """Batches up to the first that is not sound; an error unless it is the log's tail."""
        position = 0
        while position < len(data):
            try:
                batch = read_batch(data, position)
                if batch.base_offset != self.end_offset:
                    raise BatchError(f"offset {batch.base_offset}, expected {self.end_offset}")
                if batch.epoch < self.last_epoch:
                    raise BatchError(f"epoch {batch.epoch} behind {self.last_epoch}")
            except BatchError as error:
                self._refuse_damage(path, data, position, error)
                _log.warning("%s: cut at byte %d of %d: %s", path, position, len(data), error)
                return
            yield batch
            position += batch.size

    def _refuse_damage(self, path: Path, data: bytes, position: int, error: BatchError) -> None:
        """An error where a sound batch stands at `position` or behind: a torn tail has none."""
        what = f"byte {position}: {error}"
        if path != self._path(self._bases[-1]):
            raise CorruptFileError(path, what) from error
        sound = find_batch(data, position)
        if sound is not None:
            raise CorruptFileError(
                path,
                f"{what}; a sound batch stands at byte {sound}, so this is damage and no torn"
                f" tail: bring the file back from a backup, or give up all from byte {position} on"
                f" with `kbroker log repair --truncate {path}`",
            ) from error

    def _take(self, batch: Batch) -> None:
        self.end_offset = batch.last_offset + 1
        self.last_epoch = batch.epoch
        self.last_timestamp = max(self.last_timestamp, batch.timestamp)

    def append(
        self, batches: Sequence[bytes], next_offset: int, epoch: int, timestamp: int
    ) -> None:
        """Add batches behind the log, each synced before the next; `next_offset` is the end they
        make. All of them or, where one cannot be written, none."""
        if self.failure is not None:
            raise self.failure
        if self._descriptor < 0:
            raise BugError("the metadata log is not open")
        end = self._position
        for data in batches:
            self._write(data, end)
            end += len(data)
        self.size_bytes += end - self._position
        self._position = end
        self.end_offset = next_offset
        self.last_epoch = epoch
        self.last_timestamp = max(self.last_timestamp, timestamp)

    def _write(self, data: bytes, at: int) -> None:
        """One batch, durable when this returns."""
        path = self._path(self._bases[-1])
        try:
            rest = memoryview(data)
            while rest:
                written = os.pwrite(self._descriptor, rest, at)
                at += written
                rest = rest[written:]
        except OSError as error:
            failure = DiskError(path, error)
            self._take_back(path)
            if failure.final:
                self.failure = failure
            raise failure from error
        try:
            os.fdatasync(self._descriptor)
        except OSError as error:
            self.failure = DiskError(path, error)
            raise self.failure from error

    def _take_back(self, path: Path) -> None:
        """Cut what a failed write left; where that fails too, the log is done."""
        try:
            os.ftruncate(self._descriptor, self._position)
        except OSError as error:
            self.failure = DiskError(path, error)

    def roll(self) -> None:
        """Go on in a new segment; nothing where the last one is empty."""
        if self._position > 0:
            descriptor = self._create(self.end_offset)
            os.close(self._descriptor)
            self._descriptor, self._position = descriptor, 0
            self._bases.append(self.end_offset)

    def drop_before(self, offset: int) -> None:
        """Remove segments whose records all are below `offset`, the oldest first."""
        while len(self._bases) > 1 and self._bases[1] <= offset:
            path = self._path(self._bases[0])
            try:
                self.size_bytes -= path.stat().st_size
                path.unlink()
            except OSError as error:
                raise DiskError(path, error) from error
            del self._bases[0]
            self.start_offset = self._bases[0]
        sync_directory(self.folder)

    def close(self) -> None:
        """Let go of the file; everything in it has been synced."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _begin_at(self, offset: int) -> None:
        """Begin anew with a segment at `offset`, the only one."""
        self._descriptor, self._position = self._create(offset), 0
        for base in self._bases:
            if base != offset:
                self._path(base).unlink(missing_ok=True)
        self._bases = [offset]
        self.start_offset = self.end_offset = offset
        self.size_bytes = 0

    def _create(self, offset: int) -> int:
        """An empty segment file, open and durable."""
        path = self._path(offset)
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
        except OSError as error:
            raise DiskError(path, error) from error
        sync_directory(self.folder)
        return descriptor

    def _open_last(self) -> None:
        path = self._path(self._bases[-1])
        try:
            self._descriptor = os.open(path, os.O_RDWR)
            self._position = os.fstat(self._descriptor).st_size
        except OSError as error:
            raise DiskError(path, error) from error

    def _cut(self, path: Path, size: int) -> None:
        try:
            descriptor = os.open(path, os.O_RDWR)
            try:
                os.ftruncate(descriptor, size)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise DiskError(path, error) from error

    def _remove_derived(self) -> None:
        for name in list_names(self.folder):
            if _DERIVED.fullmatch(name):
                (self.folder / name).unlink(missing_ok=True)

    def _list_segments(self) -> list[int]:
        found = filter(None, map(_SEGMENT.fullmatch, list_names(self.folder)))
        return sorted(int(name[1]) for name in found)

    def _path(self, base: int) -> Path:
        return self.folder / f"{base:020}.log"
