"""The log directories that a broker serves, on their way into a backup. `kbroker.care.backup` says
what this promises, and why."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from kbroker.care.backup_txn import OFFSETS, STATE, Decided, Place, beyond, later, tail
from kbroker.care.faults import sound_snapshot
from kbroker.care.folders import (
    ChangedError,
    Key,
    Listing,
    end_of,
    list_folder,
    order_of,
    partitions_of,
    refuse_other_kinds,
)
from kbroker.care.manifest import Extent
from kbroker.care.placement import place_partitions, topic_id_of
from kbroker.care.stage import StagedDirectory
from kbroker.errors import CorruptFileError, DiskError, OperatorError
from kbroker.files import read_file, read_offset_checkpoint, write_offset_checkpoint
from kbroker.metadata.directories import home_of
from kbroker.metadata.image import NO_LEADER, Image
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
)
from kbroker.storage.homes import is_reserved
from kbroker.storage.manager import METADATA_FOLDER

__all__ = ["LiveDirectories"]

T = TypeVar("T")
Chooser = Callable[[Key, Iterable[Place]], Place | None]
"""Of the batches that a partition got meanwhile the first that has no place in a backup."""

_INDEXES: Final = (".index", ".timeindex", ".txnindex")
_METADATA_LOG: Final = re.compile(r"[0-9]{20}\.log\Z")
_METADATA_SNAPSHOT: Final = re.compile(r"[0-9]{20}-[0-9]{10}\.checkpoint\Z")
_LOOKS: Final = 20  # moves of many small partitions change some at each
_TRIES: Final = 12
_PAUSE_S: Final = 0.01
_TICK_S: Final = 0.001
_PAUSE_DOUBLES_MAX: Final = 7
_CREATION_S: Final = 2.0
_UNREADABLE: Final = frozenset({
    errno.EIO, errno.ENXIO, errno.ENODEV, errno.ESHUTDOWN, errno.ESTALE, errno.EUCLEAN,
    errno.EREMOTEIO,
})  # fmt: skip


class _Folder(NamedTuple):
    """The folder of a partition, and the log directory that it is in."""

    directory: StagedDirectory
    name: str

    @property
    def path(self) -> Path:
        return self.directory.source / self.name


class UnsettledError(OperatorError):
    """A folder that changes faster than it can be read, or cannot be read."""


class LiveDirectories:
    """Takes them into a stage."""

    def __init__(
        self,
        directories: Sequence[StagedDirectory],
        node_id: int,
        left_out: Mapping[bytes, str],
    ) -> None:
        self.directories = directories
        self.node_id = node_id
        self.left_out = left_out
        self.missing: dict[Key, str] = {}
        """The partitions of the node that are not whole in the stage, and why."""
        self._active: dict[Key, int] = {}
        """Base offset of the last segment of each partition that was taken."""
        self._began: dict[Key, int] = {}
        """Where each log ended before the moment whose transactions are taken."""
        self._cut: set[Key] = set()
        self._unread: dict[Key, Exception] = {}
        """What could not be read: by an error of the disk, or of a partition that is offline."""

    @property
    def main(self) -> StagedDirectory:
        """The one with the metadata log."""
        return self.directories[0]

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
        raise OperatorError(f"{self.main} changes faster than it can be read: {last}")

    def _take_sealed(self) -> None:
        """Bring over what is not going to change, which is most of it; in no order that counts."""
        for directory in self.directories:
            for name in partitions_of(directory.source):
                folder = _Folder(directory, name)
                changed = contextlib.suppress(ChangedError, FileNotFoundError, CorruptFileError)
                with changed, _readable({}, ("", 0)):
                    found = list_folder(folder.path)
                    for base in list(found.segments)[:-1] if found else ():
                        self._sealed(folder, base)

    def _look(self) -> list[Extent]:
        """The look that counts, in the order that the promises need."""
        folders = self._folders()
        ids = {key: topic_id_of(folder.path) for key, folder in folders.items()}
        names = (LOG_START_OFFSETS, HIGH_WATERMARKS, CLEANER_OFFSETS)
        marks = [
            {name: _checkpoint(directory.source / name) for name in names}
            for directory in self.directories
        ]
        self._active.clear()
        self._unread.clear()
        extents = self._partitions(folders)
        image = _settled(METADATA_FOLDER, self._metadata)
        self._agree(image, folders, ids, extents)
        self.missing = self._missing(image, folders, extents)
        for directory, offsets in zip(self.directories, marks, strict=True):
            directory.take(directory.source / META_PROPERTIES, META_PROPERTIES, sealed=False)
            kept = {key: one for key, one in extents.items() if folders[key].directory is directory}
            directory.keep_only_folders({METADATA_FOLDER, *(folders[key].name for key in kept)})
            self._write_checkpoints(directory, offsets, kept)
        self.main.take_if_there(self.main.source / BOOTSTRAP, BOOTSTRAP)
        return list(extents.values())

    def _folders(self) -> dict[Key, _Folder]:
        """The folder of every partition, in the order in which a backup takes them.

        A partition that moves to another log directory may be missed by one listing of all, but not
        by two in a row. One that has a folder in several is the one of the metadata.
        """
        found: dict[Key, dict[str, StagedDirectory]] = {}
        for _ in range(min(len(self.directories), 2)):
            for directory in self.directories:
                for key in partitions_of(directory.source).values():
                    found.setdefault(key, {})[directory.folder] = directory
        several = {key: list(some.values()) for key, some in found.items() if len(some) > 1}
        homes: Mapping[Key, StagedDirectory] = {}
        if several:
            image = _settled(METADATA_FOLDER, self._metadata)
            homes = place_partitions(
                image, self.node_id, several, self.directories, self.left_out
            ).directories
        chosen = {key: homes.get(key) or next(iter(found[key].values())) for key in found}
        return {
            key: _Folder(chosen[key], f"{key[0]}-{key[1]}") for key in sorted(found, key=order_of)
        }

    # ---- partitions

    def _partitions(self, folders: Mapping[Key, _Folder]) -> dict[Key, Extent]:
        """All of them, with the transactions of one moment (see backup_txn). Where that has cut a
        topic, committed offsets may be behind its end: those are taken again, without them."""
        self._cut.clear()
        for key, folder in folders.items():
            self._began[key] = 0
            with _readable(self._unread, key):
                self._began[key] = _settled(str(folder.path), functools.partial(_end, folder))
        moment_ms = _moment_ms()
        decided = Decided([directory.data for directory in self.directories])
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

        def take(key: Key, folder: _Folder) -> None:
            extents.pop(key, None)
            look = functools.partial(self._partition, folder, key, first_left_out)
            with _readable(self._unread, key):
                extent = _settled(str(folder.path), look)
                if extent is not None:
                    extents[key] = extent

        for key, folder in folders.items():
            if key not in self._unread:
                take(key, folder)
        if any(topic != STATE for topic, _ in self._cut):
            ends |= {key: extent.end for key, extent in extents.items()}
            for key, folder in folders.items():
                if key[0] == OFFSETS and key not in self._unread:
                    take(key, folder)
        return extents

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

    def _partition(self, folder: _Folder, key: Key, first_left_out: Chooser) -> Extent | None:
        """The partition as it stands; None where it has been deleted."""
        path, staged = folder.path, folder.directory
        before = list_folder(path)
        if before is None:
            staged.keep_only(folder.name, set())
            return None
        if not before.segments:
            return self._unwritten(folder, key)
        active, size, end = self._last(key, path, before, first_left_out)
        sealed = [base for base in before.segments if base < active]
        names = {base: self._sealed(folder, base) for base in sealed}
        log = _name(active, ".log")
        staged.take(path / log, f"{folder.name}/{log}", sealed=False, size=size)
        others = [LEADER_EPOCHS, PARTITION_METADATA]
        others += self._snapshots(path, before.snapshots, active)
        for name in others:
            staged.take_if_there(path / name, f"{folder.name}/{name}")
        if sealed:  # a roll makes the new file before it completes the old one's indexes
            names[sealed[-1]] = self._sealed(folder, sealed[-1])
        after = list_folder(path)
        if after is None:
            raise ChangedError("it was deleted")
        left = {base for base in after.left_of(before) if base <= active}
        if active not in left:
            raise ChangedError("all of it was deleted")
        kept = {f"{folder.name}/{name}" for name in (log, *others)}
        for base in left - {active}:
            kept |= names[base]
        staged.keep_only(folder.name, kept)
        self._active[key] = active
        return Extent(*key, min(left), end)

    def _unwritten(self, folder: _Folder, key: Key) -> Extent:
        """A partition that was never appended to."""
        name = f"{folder.name}/{PARTITION_METADATA}"
        folder.directory.take_if_there(folder.directory.source / name, name)
        folder.directory.keep_only(folder.name, {name})
        self._active[key] = 0
        return Extent(*key, 0, 0)

    @staticmethod
    def _snapshots(path: Path, offsets: list[int], active: int) -> list[str]:
        """The producer snapshots up to an active segment, without one that is being written: then
        the one before it serves."""
        names = [_name(at, ".snapshot") for at in offsets if at <= active]
        return [name for name in names if sound_snapshot(read_file(path / name) or b"")]

    @staticmethod
    def _sealed(folder: _Folder, base: int) -> set[str]:
        """A segment that takes no more batches, with its indexes; the names in the stage."""
        path, staged, log = folder.path, folder.directory, _name(base, ".log")
        staged.take(path / log, f"{folder.name}/{log}", sealed=True)
        indexes = [_name(base, suffix) for suffix in _INDEXES]
        for name in indexes:
            staged.take_if_there(path / name, f"{folder.name}/{name}")
        return {f"{folder.name}/{name}" for name in (log, *indexes)}

    # ---- the metadata log

    def _metadata(self) -> Image:
        """The metadata log as it stands, and the image of it. CorruptFileError where a snapshot
        came in between."""
        path = self.main.source / METADATA_FOLDER
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
            self.main.take(path / name, f"{METADATA_FOLDER}/{name}", sealed=False, size=size)
        self.main.keep_only(METADATA_FOLDER, {f"{METADATA_FOLDER}/{name}" for name in names})
        return load_image(self.main.data)

    def _agree(
        self,
        image: Image,
        folders: Mapping[Key, _Folder],
        ids: Mapping[Key, bytes | None],
        extents: dict[Key, Extent],
    ) -> None:
        """Leave out what the metadata does not know. ChangedError where a topic was deleted and
        made again meanwhile: offsets that were committed for the one are none of the other."""
        for key, folder in folders.items():
            topic = image.topics.get(key[0])
            if topic is None or key[1] not in topic.partitions:
                extents.pop(key, None)
                continue
            if ids[key] not in (None, topic.id):
                raise ChangedError(f"topic {key[0]} was deleted and made again")
            unread = self._unread.get(key)
            if unread is not None:
                if isinstance(unread, UnsettledError) and not _is_offline(image, key):
                    raise unread
                extents.pop(key, None)
            elif key not in extents:
                raise ChangedError(f"{folder.name} went and came back")

    def _missing(
        self, image: Image, folders: dict[Key, _Folder], extents: dict[Key, Extent]
    ) -> dict[Key, str]:
        """The partitions that are not whole in the stage, and why. One that was created meanwhile
        is taken as an empty one. ChangedError where one has moved."""
        taken = {key: [folders[key].directory] for key in extents}
        placed = place_partitions(
            image, self.node_id, taken, self.directories, self.left_out, ids_checked=True
        )
        reasons = dict(placed.missing)
        for key, folder in folders.items():
            if key in extents and self._has_moved(image, key, folder):
                raise ChangedError(f"{folder.name} was moved to another log directory")
            if key in reasons and key in extents:  # a folder that is not the partition's
                del extents[key]
        until = time.monotonic() + _CREATION_S
        for key in [key for key in reasons if key not in folders]:
            created = self._await_folder(image, key, until)
            if created is not None:
                folders[key] = created
                extents[key] = self._unwritten(created, key)
                del reasons[key]
        for name, topic in image.topics.items():
            for index, partition in topic.partitions.items():
                key = (name, index)
                if key in self._unread:
                    reasons[key] = f"it cannot be read: {self._unread[key]}"
                elif _is_offline(image, key) and self.node_id in partition.replicas:
                    reasons.setdefault(key, "it is offline, and its files may not be whole")
        return reasons

    def _has_moved(self, image: Image, key: Key, folder: _Folder) -> bool:
        """Whether the metadata has a partition in another directory by now, and it is there."""
        home = home_of(image.topics[key[0]].partitions[key[1]], self.node_id)
        return any(
            one.directory_id == home and one is not folder.directory
            and (one.source / folder.name).is_dir()
            for one in self.directories
        )  # fmt: skip

    def _await_folder(self, image: Image, key: Key, until: float) -> _Folder | None:
        """The folder of a partition that had none in the listing: it is being created."""
        home = home_of(image.topics[key[0]].partitions[key[1]], self.node_id)
        places = [one for one in self.directories if one.directory_id == home]
        if home is None or is_reserved(home):
            places = list(self.directories)
        name = f"{key[0]}-{key[1]}"
        while places and not _is_offline(image, key):
            for one in places:
                if (one.source / name).is_dir():
                    return _Folder(one, name)
            if time.monotonic() > until:
                break
            time.sleep(_PAUSE_S)
        return None

    def _write_checkpoints(
        self,
        directory: StagedDirectory,
        marks: Mapping[str, Mapping[Key, int]],
        extents: Mapping[Key, Extent],
    ) -> None:
        """Checkpoints of what was taken: none beyond the end of a log; recovery begins where
        active segments do."""
        checkpoints = {
            name: {
                key: min(offset, extents[key].end)
                for key, offset in offsets.items()
                if key in extents
            }
            for name, offsets in marks.items()
        }
        checkpoints[RECOVERY_POINTS] = {key: self._active[key] for key in extents}
        for name, offsets in checkpoints.items():
            directory.remove(name)
            write_offset_checkpoint(directory.data / name, offsets)
            directory.add(name)


def _is_offline(image: Image, key: Key) -> bool:
    return image.topics[key[0]].partitions[key[1]].leader == NO_LEADER


def _checkpoint(path: Path) -> dict[Key, int]:
    try:
        return read_offset_checkpoint(path)
    except CorruptFileError:
        return {}


def _end(folder: _Folder) -> int:
    """The offset at which a partition ends now; 0 where it is gone."""
    found = list_folder(folder.path)
    if found is None or not found.segments:
        return 0
    return end_of(folder.path / _name(max(found.segments), ".log"))[1]


@contextlib.contextmanager
def _readable(unread: dict[Key, Exception], key: Key) -> Iterator[None]:
    """Note an error of a disk that fails, or of a log that cannot be read; raise others."""
    try:
        yield
    except UnsettledError as error:
        unread[key] = error
    except (OSError, DiskError) as error:
        if error.errno not in _UNREADABLE:
            raise
        unread[key] = error


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
    raise UnsettledError(f"{what} cannot be taken: {last}")
