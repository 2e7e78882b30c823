"""A consistent copy of all log directories of a broker, which serves them or not.

What a backup of a live directory promises, each by the order in which files are taken:

    1. Every record that was acknowledged before `create` began is in it, unless retention,
       compaction or a deletion took it meanwhile: what is acknowledged is in the segments, and
       those are read to the end that they have when they are read.
    2. A committed offset never lies beyond the end of its partition's log, unless a client
       committed such a one: `__consumer_offsets` is taken before the topics, so that whatever had
       been consumed by then is in what is read later.
    3. Leader epochs, topic ids and blocks of producer ids are not behind the records: the metadata
       log is taken last. A partition that it does not know (deleted meanwhile) is left out.
    4. A partition is taken as it was between two moments with the same segments: a cleaning that
       falls between is noticed, and the partition taken again, so that no key comes back that a
       tombstone of a later segment had deleted.

    5. A transaction is in it whole or not at all, and no log waits for one that its coordinator
       does not know (`backup_txn`): logs end before what came of transactions that were begun or
       decided after a moment behind the start of `create`. Those open then are aborted by the
       broker that is started on the restored directory, as after a crash; those decided it ends.
    6. All this holds across log directories: they are taken in one look, a topic in all of them
       before the next. A partition that is moved meanwhile is taken again, by another look.
    7. A partition that the metadata has and the backup lacks is listed in it with the reason: its
       log directory is left out (not there, unreadable, not served), or it has no folder there. So
       is one that is offline, of which the backup has what the files hold.

Partitions are not taken at the same instant. First everything that is not going to change is
brought over, without an eye to order; the second look, which counts, then only has the ends to
take, and they lie as close together as the ends are long.

An active segment is copied up to its last whole batch, and has no indexes: the directory is
restored as one after a crash, whose recovery points are where active segments begin, so the next
start reads those with all checksums, and makes what belongs to them. Directories at rest are taken
as they are, with the mark of a clean stop or the write-ahead log of a crash.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from kbroker import __version__, runfile
from kbroker.care.backup_live import LiveDirectories
from kbroker.care.backup_rest import DirectoryAtRest
from kbroker.care.copying import Tick
from kbroker.care.folders import Key
from kbroker.care.manifest import Extent, Incomplete, Manifest, read_manifest
from kbroker.care.placement import FurtherDirectories, find_further, place_partitions
from kbroker.care.stage import Earlier, Stage, StagedDirectory
from kbroker.errors import CorruptFileError, OperatorError
from kbroker.files import DirectoryInUseError, DirectoryLock, is_locked
from kbroker.metadata.loader import load_image
from kbroker.metadata.meta_properties import META_PROPERTIES, MetaProperties, read_meta_properties
from kbroker.storage.folders import METADATA_FOLDER

__all__ = ["Made", "create"]


class Made(NamedTuple):
    """A backup that was made; bytes of its files by how they came there."""

    manifest: Manifest
    bytes_by_way: dict[str, int]


def create(
    source: Path,
    target: Path,
    since: Path | None = None,
    tick: Tick = lambda _: None,
    further: Sequence[Path] = (),
) -> Made:
    """Back the log directories of a broker up as `target`, a folder that is not there yet.

    source: the one with the metadata log. further: others, besides those that the last start of the
    broker knew. since: an earlier backup of the same broker; what has not changed is linked from
    there. tick: told of bytes read. Raises OperatorError, DiskError or OSError, and leaves nothing
    then.
    """
    meta = read_meta_properties(source)
    if meta is None:
        raise OperatorError(f"{source} is no data directory: it has no {META_PROPERTIES}")
    if not (source / METADATA_FOLDER).is_dir():
        raise OperatorError(
            f"{source} has no {METADATA_FOLDER}: it is a further log directory of cluster "
            f"{meta.cluster_id}, or nothing has been stored there yet"
        )
    others = find_further(source, meta, further)
    for place in (source, *others.there):
        if target.resolve().is_relative_to(place.resolve()):
            raise OperatorError(f"{target} lies in the data directory itself: choose another place")
    began_ms = _now_ms()
    with (
        Stage(target, _earlier(since, meta), tick) as stage,
        contextlib.ExitStack() as locks,
    ):
        live = not _lock(source, others, locks)
        directories = [stage.add_directory(source, meta.directory_id)]
        directories += [stage.add_directory(path, one) for path, one in others.there.items()]
        take = _take_live if live else _take_at_rest
        extents, missing = take(directories, meta.node_id, others.left_out)
        manifest = Manifest(
            __version__,
            began_ms,
            _now_ms(),
            live,
            meta.cluster_id,
            meta.node_id,
            [directory.entry for directory in directories],
            sorted(extents),
            sorted(Incomplete(*key, reason) for key, reason in missing.items()),
            sorted(stage.files),
        )
        stage.finish(manifest)
        return Made(manifest, dict(stage.bytes_by_way()))


def _lock(source: Path, others: FurtherDirectories, locks: contextlib.ExitStack) -> bool:
    """Take the locks of all directories; False where a broker serves them. One that it does not
    serve is left out then: its write-ahead log may hold records that no segment has."""
    try:
        locks.enter_context(DirectoryLock(source))
    except DirectoryInUseError as error:
        if runfile.running(source) is None:
            raise OperatorError(
                f"{source} is in use by process {error.pid}, which is no kbroker that serves:"
                " wait until it does, or stop it"
            ) from None
        for path in list(others.there):
            if not is_locked(path):
                others.leave_out(path, "the broker does not serve it")
        return False
    for path in others.there:
        locks.enter_context(DirectoryLock(path))
    return True


def _take_live(
    directories: Sequence[StagedDirectory], node_id: int, left_out: dict[bytes, str]
) -> tuple[list[Extent], dict[Key, str]]:
    live = LiveDirectories(directories, node_id, left_out)
    return live.take(), live.missing


def _take_at_rest(
    directories: Sequence[StagedDirectory], node_id: int, left_out: dict[bytes, str]
) -> tuple[list[Extent], dict[Key, str]]:
    """Directories as they are. Of a partition that has a folder in several, the extent is that of
    the one which a start takes."""
    found: dict[Key, dict[str, Extent]] = {}
    folders: dict[Key, list[StagedDirectory]] = {}
    for directory in directories:
        for key, extent in DirectoryAtRest(directory).take().items():
            found.setdefault(key, {})[directory.folder] = extent
            folders.setdefault(key, []).append(directory)
    try:
        image = load_image(directories[0].data)
    except CorruptFileError as error:
        raise OperatorError(f"the metadata log cannot be read: {error}") from error
    placed = place_partitions(image, node_id, folders, directories, left_out)
    extents = [
        some[placed.directories[key].folder] if key in placed.directories else max(some.values())
        for key, some in found.items()
        if key not in placed.missing
    ]
    return extents, placed.missing


def _earlier(folder: Path | None, meta: MetaProperties) -> Earlier | None:
    if folder is None:
        return None
    manifest = read_manifest(folder)
    if (manifest.cluster_id, manifest.node_id) != (meta.cluster_id, meta.node_id):
        raise OperatorError(
            f"{folder} is of node {manifest.node_id} of cluster {manifest.cluster_id}, the data"
            f" directory of node {meta.node_id} of cluster {meta.cluster_id}"
        )
    return Earlier(folder, manifest)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
