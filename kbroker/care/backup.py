"""A consistent copy of a data directory, of a broker that serves it or at rest.

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

Partitions are not taken at the same instant. First everything that is not going to change is
brought over, without an eye to order; the second look, which counts, then only has the ends to
take, and they lie as close together as the ends are long.

An active segment is copied up to its last whole batch, and has no indexes: the directory is
restored as one after a crash, whose recovery points are where active segments begin, so the next
start reads those with all checksums, and makes what belongs to them. A directory at rest is taken
as it is, with the mark of a clean stop or the journal of a crash.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import NamedTuple

from kbroker import __version__, runfile
from kbroker.care.backup_live import LiveDirectory
from kbroker.care.backup_rest import DirectoryAtRest
from kbroker.care.copying import Tick
from kbroker.care.manifest import Manifest, read_manifest
from kbroker.care.stage import Earlier, Stage
from kbroker.errors import OperatorError
from kbroker.files import DirectoryInUseError, DirectoryLock
from kbroker.metadata.directories import further, homes_of
from kbroker.metadata.loader import load_image
from kbroker.metadata.meta_properties import META_PROPERTIES, MetaProperties, read_meta_properties
from kbroker.storage.folders import METADATA_FOLDER

__all__ = ["Made", "create"]


class Made(NamedTuple):
    """A backup that was made; bytes of its files by how they came there."""

    manifest: Manifest
    bytes_by_way: dict[str, int]


def create(
    source: Path, target: Path, since: Path | None = None, tick: Tick = lambda _: None
) -> Made:
    """Back a data directory up as `target`, a folder that is not there yet.

    since: an earlier backup of the same directory; what has not changed is linked from there. tick:
    told of bytes read. Raises OperatorError, DiskError or OSError, and leaves nothing then.
    """
    meta = read_meta_properties(source)
    if meta is None:
        raise OperatorError(f"{source} is no data directory: it has no {META_PROPERTIES}")
    _refuse_several(source, meta)
    if target.resolve().is_relative_to(source.resolve()):
        raise OperatorError(f"{target} lies in the data directory itself: choose another place")
    with Stage(source, target, _earlier(since, meta), tick) as stage:
        lock = DirectoryLock(source)
        try:
            lock.acquire()
        except DirectoryInUseError as error:
            if runfile.running(source) is None:
                raise OperatorError(
                    f"{source} is in use by process {error.pid}, which is no kbroker that serves:"
                    " wait until it does, or stop it"
                ) from None
            return _create(LiveDirectory(source, stage), meta)
        try:
            return _create(DirectoryAtRest(source, stage), meta)
        finally:
            lock.release()


def _refuse_several(source: Path, meta: MetaProperties) -> None:
    """What is promised above holds of one directory: several would have to be taken at once."""
    if not (source / METADATA_FOLDER).is_dir():
        raise OperatorError(
            f"{source} has no {METADATA_FOLDER}: it is a further log directory of cluster "
            f"{meta.cluster_id}, or nothing has been stored there yet"
        )
    others = further(source)
    if others:
        raise OperatorError(
            f"{source} is one of several log directories, with {', '.join(map(str, others))}, and "
            "a backup is of one alone: stop the broker and copy all of them, or move their "
            "partitions to one with kafka-reassign-partitions"
        )


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


def _create(way: LiveDirectory | DirectoryAtRest, meta: MetaProperties) -> Made:
    began_ms = _now_ms()
    extents = way.take()
    if homes_of(load_image(way.stage.data), meta.node_id) - {meta.directory_id}:
        raise OperatorError(
            f"partitions of {way.source} live in other log directories, and a backup is of one "
            "alone: copy all of them"
        )
    manifest = Manifest(
        __version__,
        began_ms,
        _now_ms(),
        str(way.source.absolute()),
        isinstance(way, LiveDirectory),
        meta.cluster_id,
        meta.node_id,
        sorted(extents),
        sorted(way.stage.files.values()),
    )
    way.stage.finish(manifest)
    return Made(manifest, dict(way.stage.bytes_by_way()))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
