"""Snapshots of the metadata log: `<20 digits of offset>-<10 digits of epoch>.checkpoint`.

The name says which part of the log the snapshot stands for: every record below the offset, the
last of them of that epoch. The file is a sequence of batches with offsets of its own from 0:

    control batch   SnapshotHeader (timestamp of the last record it stands for), and with
                    kraft.version 1: KRaftVersion, Voters
    batches         the image's metadata records
    control batch   SnapshotFooter; a file without it is not whole

It is written as `NAME.part`, synced, renamed, and the folder synced: what a crash leaves under
its own name is whole. Leftovers (`.part`, `.deleted`) are removed by the next open. The same
format, without the records of raft, is `bootstrap.checkpoint` in the log directory: the records
with which a new cluster begins.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Final, NamedTuple

from kbroker.errors import CorruptFileError, DiskError
from kbroker.files import list_names, sync_directory

from .batches import BatchError, Pair, build_batch, read_batches
from .records import raft
from .records.frame import decode_control, decode_metadata, encode_control, encode_metadata
from .records.schema import Record
from .records.wire import RecordError

BOOTSTRAP: Final = "bootstrap.checkpoint"
_NAME = re.compile(r"(\d{20})-(\d{10})\.checkpoint")
_LEFTOVER = re.compile(r"\d{20}-\d{10}.*\.checkpoint\.(part|deleted)")
_BATCH_BYTES: Final = 512 * 1024
"""Records of about this many bytes make one batch."""

Versioned = tuple[Record, int]
"""A record and the version to write it in."""


class SnapshotId(NamedTuple):
    """End offset (the first that is not in it) and epoch of the last record in it."""

    offset: int
    epoch: int

    @property
    def file_name(self) -> str:
        """The name of the file."""
        return f"{self.offset:020}-{self.epoch:010}.checkpoint"


class Snapshot(NamedTuple):
    """A snapshot as read: its size in bytes, the raft records and the metadata records."""

    size: int
    timestamp: int
    control: list[Record]
    records: list[Record]


def list_snapshots(folder: Path) -> list[SnapshotId]:
    """The snapshots of a metadata log, oldest first."""
    found = filter(None, map(_NAME.fullmatch, list_names(folder)))
    return sorted(SnapshotId(int(name[1]), int(name[2])) for name in found)


def remove_leftovers(folder: Path) -> None:
    """Remove what a crash in the middle of writing or deleting a snapshot left."""
    for name in list_names(folder):
        if _LEFTOVER.fullmatch(name) or name == f"{BOOTSTRAP}.part":
            (folder / name).unlink(missing_ok=True)


def read_snapshot(path: Path) -> Snapshot:
    """Everything in a snapshot; CorruptFileError for one that is not whole."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DiskError(path, error) from error
    control: list[Record] = []
    records: list[Record] = []
    try:
        for batch in read_batches(data):
            for key, value in batch.records:
                if not batch.control:
                    records.append(decode_metadata(value or b"")[0])
                elif (record := decode_control(key or b"", value or b"")) is not None:
                    control.append(record)
    except (BatchError, RecordError) as error:
        raise CorruptFileError(path, str(error)) from error
    if not control or not isinstance(control[-1], raft.SnapshotFooterRecord):
        raise CorruptFileError(path, "the snapshot has no footer: it is not whole")
    if not isinstance(control[0], raft.SnapshotHeaderRecord):
        raise CorruptFileError(path, "the snapshot has no header")
    return Snapshot(len(data), control[0].last_contained_log_timestamp, control[1:-1], records)


def write_snapshot(
    path: Path,
    records: Iterable[Versioned],
    *,
    epoch: int = 0,
    control: Iterable[Record] = (),
    timestamp: int = 0,
    now_ms: int,
) -> int:
    """Write a snapshot durably; its size in bytes.

    `timestamp` is that of the last record it stands for, `now_ms` that of its own records.
    """
    part = path.with_name(path.name + ".part")
    header = raft.SnapshotHeaderRecord(0, timestamp)
    offset = size = 0
    footer = raft.SnapshotFooterRecord(0)
    try:
        with open(part, "wb") as file:
            for pairs, is_control in chain(
                [(_control_pairs(header, *control), True)],
                ((chunk, False) for chunk in _chunks(records)),
                [(_control_pairs(footer), True)],
            ):
                data = build_batch(offset, epoch, now_ms, pairs, control=is_control)
                file.write(data)
                offset += len(pairs)
                size += len(data)
            file.flush()
            os.fsync(file.fileno())
        os.rename(part, path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise DiskError(path, error) from error
    sync_directory(path.parent)
    return size


def _control_pairs(*records: Record) -> list[Pair]:
    return [encode_control(record) for record in records]


def _chunks(records: Iterable[Versioned]) -> Iterator[list[Pair]]:
    """Encoded records in pieces that each make one batch."""
    chunk: list[Pair] = []
    size = 0
    for record, version in records:
        data = encode_metadata(record, version)
        chunk.append((None, data))
        size += len(data)
        if size >= _BATCH_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk
