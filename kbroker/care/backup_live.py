"""A data directory that a broker serves, on its way into a backup. What this promises, and why,
is said in `kbroker.care.backup`."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final, TypeVar

from kbroker.care.backup_txn import OFFSETS, STATE, Decided, Place, beyond, later, tail
from kbroker.care.faults import sound_snapshot
from kbroker.care.folders import (
    ChangedError,
    Key,
    Listing,
    end_of,
    list_folder,
    partitions_of,
    refuse_other_kinds,
)
from kbroker.care.manifest import Extent
from kbroker.care.stage import Stage
from kbroker.errors import CorruptFileError, OperatorError
from kbroker.files import read_file, read_offset_checkpoint, write_offset_checkpoint
from kbroker.metadata.image import Image
from kbroker.metadata.loader import load_image
from kbroker.metadata.meta_properties import META_PROPERTIES
from kbroker.metadata.quorum import QUORUM_STATE
from kbroker.metadata.snapshot import BOOTSTRAP
from kbroker.storage.checkpoints import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LEADER_EPOCHS,
    LOG_START_OFFSETS,
    PARTITION_METADATA,
    RECOVERY_POINTS,
    read_topic_id,
)
from kbroker.storage.manager import METADATA_FOLDER

__all__ = ["LiveDirectory"]

T = TypeVar("T")
Chooser = Callable[[Key, Iterable[Place]], Place | None]
"""Of the batches that a partition got meanwhile the first that has no place in a backup."""

_INDEXES: Final = (".index", ".timeindex", ".txnindex")
_METADATA_LOG: Final = re.compile(r"[0-9]{20}\.log\Z")
_METADATA_SNAPSHOT: Final = re.compile(r"[0-9]{20}-[0-9]{10}\.checkpoint\Z")
_LOOKS: Final = 3
_TRIES: Final = 12
_PAUSE_S: Final = 0.01
_TICK_S: Final = 0.001
_PAUSE_DOUBLES_MAX: Final = 7


class LiveDirectory:
    """Takes it into a stage."""

    def __init__(self, source: Path, stage: Stage) -> None:
        self.source = source
        self.stage = stage
        self._active: dict[Key, int] = {}
        """Base offset of the last segment of each partition that was taken."""
        self._began: dict[Key, int] = {}
        """Where each log ended before the moment whose transactions are taken."""
        self._cut: set[Key] = set()

    def take(self) -> list[Extent]:
        """Everything; the offsets of each partition. Raises OperatorError where it does not hold
        still."""
        self._take_sealed()
        last: Exception | None = None
        for _ in range(_LOOKS):
            try:
                return self._look()
            except ChangedError as error:
                last = error
        raise OperatorError(f"{self.source} changes faster than it can be read: {last}")

    def _take_sealed(self) -> None:
        """Bring over what is not going to change, which is most of it; in no order that counts."""
        for folder in partitions_of(self.source):
            with contextlib.suppress(ChangedError, FileNotFoundError):
                found = list_folder(self.source / folder)
                for base in list(found.segments)[:-1] if found else ():
                    self._sealed(folder, base)

    def _look(self) -> list[Extent]:
        """The look that counts, in the order that the promises need."""
        folders = partitions_of(self.source)
        ids = {folder: self._topic_id(folder) for folder in folders}
        marks = {
            name: self._checkpoint(name)
            for name in (LOG_START_OFFSETS, HIGH_WATERMARKS, CLEANER_OFFSETS)
        }
        self._active.clear()
        extents = self._partitions(folders)
        image = _settled(METADATA_FOLDER, self._metadata)
        self._agree(image, folders, ids, extents)
        self.stage.take(self.source / META_PROPERTIES, META_PROPERTIES, sealed=False)
        self.stage.take_if_there(self.source / BOOTSTRAP, BOOTSTRAP)
        self._write_checkpoints(marks, extents)
        return list(extents.values())

    def _topic_id(self, folder: str) -> bytes | None:
        try:
            return read_topic_id(self.source / folder)
        except CorruptFileError:
            return None

    def _checkpoint(self, name: str) -> dict[Key, int]:
        try:
            return read_offset_checkpoint(self.source / name)
        except CorruptFileError:
            return {}

    # ---- partitions

    def _partitions(self, folders: Mapping[str, Key]) -> dict[Key, Extent]:
        """All of them, with the transactions of one moment (see backup_txn). Where that has cut a
        topic, committed offsets may be behind its end: those are taken again, without them."""
        self._cut.clear()
        for folder, key in folders.items():
            self._began[key] = _settled(folder, functools.partial(self._end, folder))
        moment_ms, decided = _moment_ms(), Decided(self.stage.data)
        extents: dict[Key, Extent] = {}
        ends: dict[Key, int] = {}

        def first_left_out(key: Key, batches: Iterable[Place]) -> Place | None:
            if key[0] == STATE:
                return later(batches, moment_ms)
            told = list(batches)
            found = [decided.undecided(key, told)]
            if key[0] == OFFSETS and ends:
                found.append(beyond(told, ends))
            return min((one for one in found if one), default=None, key=_offset_of)

        def take(folder: str, key: Key) -> None:
            look = functools.partial(self._partition, folder, key, first_left_out)
            extent = _settled(folder, look)
            extents.pop(key, None)
            if extent is not None:
                extents[key] = extent

        for folder, key in folders.items():
            take(folder, key)
        if any(topic != STATE for topic, _ in self._cut):
            ends |= {key: extent.end for key, extent in extents.items()}
            for folder, key in folders.items():
                if key[0] == OFFSETS:
                    take(folder, key)
        return extents

    def _end(self, folder: str) -> int:
        """The offset at which the partition ends now; 0 where it is gone."""
        found = list_folder(self.source / folder)
        if found is None or not found.segments:
            return 0
        return end_of(self.source / folder / _name(max(found.segments), ".log"))[1]

    def _last(
        self, key: Key, path: Path, found: Listing, first_left_out: Chooser
    ) -> tuple[int, int, int]:
        """The last segment that is taken, how much of it, and the offset behind that."""
        active = max(found.segments)
        size, end = end_of(path / _name(active, ".log"))
        cut = first_left_out(key, tail(path, list(found.segments), self._began[key], end))
        if cut is None:
            return active, size, end
        self._cut.add(key)
        return cut.base, cut.batch.position, cut.batch.base_offset

    def _partition(self, folder: str, key: Key, first_left_out: Chooser) -> Extent | None:
        """The partition as it stands; None where it has been deleted."""
        path, stage = self.source / folder, self.stage
        before = list_folder(path)
        if before is None:
            stage.keep_only(folder, set())
            return None
        if not before.segments:
            return self._unwritten(folder, key)
        active, size, end = self._last(key, path, before, first_left_out)
        sealed = [base for base in before.segments if base < active]
        names = {base: self._sealed(folder, base) for base in sealed}
        log = _name(active, ".log")
        stage.take(path / log, f"{folder}/{log}", sealed=False, size=size)
        others = [LEADER_EPOCHS, PARTITION_METADATA]
        others += self._snapshots(path, before.snapshots, active)
        for name in others:
            stage.take_if_there(path / name, f"{folder}/{name}")
        if sealed:  # a roll makes the new file before it completes the old one's indexes
            names[sealed[-1]] = self._sealed(folder, sealed[-1])
        after = list_folder(path)
        if after is None:
            raise ChangedError("it was deleted")
        left = {base for base in after.left_of(before) if base <= active}
        if active not in left:
            raise ChangedError("all of it was deleted")
        kept = {f"{folder}/{name}" for name in (log, *others)}
        for base in left - {active}:
            kept |= names[base]
        stage.keep_only(folder, kept)
        self._active[key] = active
        return Extent(*key, min(left), end)

    def _unwritten(self, folder: str, key: Key) -> Extent:
        """A partition that was never appended to."""
        name = f"{folder}/{PARTITION_METADATA}"
        self.stage.take_if_there(self.source / name, name)
        self.stage.keep_only(folder, {name})
        self._active[key] = 0
        return Extent(*key, 0, 0)

    @staticmethod
    def _snapshots(path: Path, offsets: list[int], active: int) -> list[str]:
        """The producer snapshots up to an active segment, without one that is being written: then
        the one before it serves."""
        names = [_name(at, ".snapshot") for at in offsets if at <= active]
        return [name for name in names if sound_snapshot(read_file(path / name) or b"")]

    def _sealed(self, folder: str, base: int) -> set[str]:
        """A segment that takes no more batches, with its indexes; the names in the stage."""
        path, log = self.source / folder, _name(base, ".log")
        self.stage.take(path / log, f"{folder}/{log}", sealed=True)
        indexes = [_name(base, suffix) for suffix in _INDEXES]
        for name in indexes:
            self.stage.take_if_there(path / name, f"{folder}/{name}")
        return {f"{folder}/{name}" for name in (log, *indexes)}

    # ---- the metadata log

    def _metadata(self) -> Image:
        """The metadata log as it stands, and the image of it. CorruptFileError where a snapshot
        came in between."""
        path = self.source / METADATA_FOLDER
        with os.scandir(path) as entries:
            listed = list(entries)
        for entry in listed:
            refuse_other_kinds(entry)
        there = sorted(entry.name for entry in listed)
        logs = [name for name in there if _METADATA_LOG.match(name)]
        names = [name for name in there if _METADATA_SNAPSHOT.match(name)] + logs
        names += [QUORUM_STATE, LEADER_EPOCHS, PARTITION_METADATA]
        for name in names:
            size = end_of(path / name)[0] if name == logs[-1] else None
            self.stage.take(path / name, f"{METADATA_FOLDER}/{name}", sealed=False, size=size)
        self.stage.keep_only(METADATA_FOLDER, {f"{METADATA_FOLDER}/{name}" for name in names})
        return load_image(self.stage.data)

    def _agree(
        self,
        image: Image,
        folders: Mapping[str, Key],
        ids: Mapping[str, bytes | None],
        extents: dict[Key, Extent],
    ) -> None:
        """Leave out what the metadata does not know. ChangedError where a topic was deleted and
        made again meanwhile: offsets that were committed for the one are none of the other."""
        for folder, key in folders.items():
            topic = image.topics.get(key[0])
            if topic is None or key[1] not in topic.partitions:
                extents.pop(key, None)
            elif ids[folder] not in (None, topic.id):
                raise ChangedError(f"topic {key[0]} was deleted and made again")
            elif key not in extents:
                raise ChangedError(f"{folder} went and came back")
        kept = {f"{topic}-{partition}" for topic, partition in extents}
        self.stage.keep_only_folders({METADATA_FOLDER, *kept})

    def _write_checkpoints(
        self, marks: Mapping[str, Mapping[Key, int]], extents: Mapping[Key, Extent]
    ) -> None:
        """Checkpoints of what was taken: none beyond the end of a log; recovery begins where
        active segments do."""
        told = {
            name: {
                key: min(offset, extents[key].end)
                for key, offset in offsets.items()
                if key in extents
            }
            for name, offsets in marks.items()
        }
        told[RECOVERY_POINTS] = {key: self._active[key] for key in extents}
        for name, offsets in told.items():
            self.stage.remove(name)
            write_offset_checkpoint(self.stage.data / name, offsets)
            self.stage.add(name)


def _name(base: int, suffix: str) -> str:
    return f"{base:020}{suffix}"


def _moment_ms() -> int:
    """A wall time that is over: what happens from now on has a later one."""
    moment_ms = time.time_ns() // 1_000_000
    while time.time_ns() // 1_000_000 <= moment_ms:
        time.sleep(_TICK_S)
    return moment_ms


def _offset_of(place: Place) -> int:
    return place.batch.base_offset


def _settled(what: str, look: Callable[[], T]) -> T:
    """What a look gives, as soon as nothing changes under it."""
    last: Exception | None = None
    for number in range(_TRIES):
        try:
            return look()
        except (ChangedError, FileNotFoundError, CorruptFileError) as error:
            last = error
            time.sleep(_PAUSE_S * (1 << min(number, _PAUSE_DOUBLES_MAX)))
    raise OperatorError(f"{what} cannot be taken: {last}")
