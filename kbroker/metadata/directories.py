"""Which directory each of log.dirs is: by its meta.properties, and by what the metadata knows.

All belong to one cluster and one node, and each has an id of its own, by which the metadata names
it (KIP-858). One that is new is formatted: meta.properties written. But an empty directory may as
well be the place where a disk is not mounted. So none is formatted while the metadata, or the list
of the last start (`.kbroker-log-dirs.json` beside the metadata log: ids by path), knows an id that
no directory has; it is offline then. So is one that cannot be read. The first one, which has the
metadata log, is kbroker.metadata.store's, and without it there is no start.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from kbroker.errors import CorruptFileError, DiskError, OperatorError
from kbroker.files import is_there, list_names, read_file, write_atomically
from kbroker.storage.checkpoints import PARTITION_METADATA
from kbroker.storage.folders import METADATA_FOLDER, holds
from kbroker.storage.homes import is_reserved
from kbroker.storage.log_directory import LogDirectory
from kbroker.uuids import parse_uuid, random_uuid, uuid_text

from .features import has_directories
from .image import Image, Partition
from .meta_properties import (
    META_PROPERTIES,
    MetaProperties,
    read_meta_properties,
    write_meta_properties,
)
from .snapshot import BOOTSTRAP

LIST: Final = ".kbroker-log-dirs.json"
_LOG: Final = logging.getLogger("kbroker.metadata")


def check_first(directories: Sequence[LogDirectory]) -> None:
    """Before the metadata log is opened: no cluster begins in the first directory where there is
    one already whose metadata log is elsewhere. Raises OperatorError."""
    first, *others = directories
    if is_there(first.path / META_PROPERTIES):
        _check_begun(first.path, alone=not others)
        return
    for one in others:
        if is_formatted(one.path):
            raise OperatorError(
                f"{first} has no {META_PROPERTIES}, but {one} has and belongs to a cluster: "
                f"is the disk of {first} mounted? The directory with the metadata log is the first "
                "of log.dirs, or metadata.log.dir"
            )


def is_formatted(path: Path) -> bool:
    """Whether a broker has been started on it, or Apache Kafka's format tool was there."""
    return holds(path, META_PROPERTIES)


def is_further(path: Path) -> bool:
    """Whether it belongs to a cluster whose metadata log is in another directory: it has none, nor
    what a directory with one is given at its first start."""
    kept = (METADATA_FOLDER, BOOTSTRAP, LIST)
    return is_formatted(path) and not any(holds(path, name) for name in kept)


def _check_begun(first: Path, *, alone: bool) -> None:
    """Formatted, and without a metadata log: that has not begun where Apache Kafka's format tool
    was the last, or a first start got no farther. Else this is a further directory, and its
    cluster's metadata log is in another."""
    if is_there(first / METADATA_FOLDER):
        return
    names = list_names(first)
    used = any(name.endswith("-checkpoint") or holds(first / name, PARTITION_METADATA)
               for name in names)  # fmt: skip
    if used or not (alone or BOOTSTRAP in names):
        raise OperatorError(
            f"{first} belongs to a cluster, by its {META_PROPERTIES}, and has no "
            f"{METADATA_FOLDER}: the directory with the metadata log has to be the first of "
            "log.dirs, or metadata.log.dir"
        )


def identify(directories: Sequence[LogDirectory], meta: MetaProperties, image: Image) -> None:
    """Give each its id, with its lock held; one that is not to be had is offline. Raises
    OperatorError where they are not of one kind."""
    first, *others = directories
    first.id = meta.directory_id
    if not others:
        first.alone = _is_alone(first, image, meta.node_id)
        return
    if not has_directories(image.metadata_version):
        raise OperatorError(
            "several log.dirs need metadata.version 3.7-IV2 or later: raise it with one of them"
        )
    unformatted = [one for one in others if not _read(one, meta) and one.online]
    _check_different(directories)
    listed = _listed(first.path)
    missing = _missing(directories, listed, image, meta.node_id)
    for one in unformatted:
        _format(one, meta, missing)
    for one in others:
        if not one.online:
            _LOG.error("the log directory %s is offline: %s", one, one.failure)
    _write_list(directories, listed)


def _is_alone(first: LogDirectory, image: Image, node_id: int) -> bool:
    """Whether it has no others, nor had at the last start. The list goes once none of those that it
    has is needed."""
    listed = _listed(first.path)
    if listed and not homes_of(image, node_id).isdisjoint(listed.values()):
        return False
    try:
        (first.path / LIST).unlink(missing_ok=True)
    except OSError as error:
        _LOG.warning("%s: %s", first.path / LIST, error)
    return not listed


def _read(one: LogDirectory, meta: MetaProperties) -> bool:
    """Whether it has meta.properties; its id and lock are taken then."""
    try:
        found = read_meta_properties(one.path)
        if found is None:
            return False
        if (found.cluster_id, found.node_id) != (meta.cluster_id, meta.node_id):
            raise OperatorError(
                f"{one} belongs to node {found.node_id} of cluster {found.cluster_id}, and the "
                f"metadata log is that of node {meta.node_id} of cluster {meta.cluster_id}: take "
                "it out of log.dirs"
            )
        one.lock.acquire()
        if found.directory_id is None:
            found = found._replace(directory_id=random_uuid())
            write_meta_properties(one.path, found)
        one.id = found.directory_id
    except (CorruptFileError, DiskError) as error:
        one.failure = str(error)
    return True


def _check_different(directories: Iterable[LogDirectory]) -> None:
    seen: dict[bytes, LogDirectory] = {}
    for one in directories:
        if one.id is not None and one.id in seen:
            raise OperatorError(
                f"{seen[one.id]} and {one} have the same directory.id: one is a copy of the other; "
                "take it out of log.dirs"
            )
        if one.id is not None:
            seen[one.id] = one


def _missing(
    directories: Iterable[LogDirectory], listed: dict[str, bytes], image: Image, node_id: int
) -> set[bytes]:
    """Ids that are known and that no directory has. One whose path is not in log.dirs any more
    counts only while a partition lives there."""
    named = {str(one) for one in directories}
    dropped = {found for path, found in listed.items() if path not in named}
    broker = image.brokers.get(node_id)
    registered = set(broker.log_dirs) if broker is not None else set()
    known = homes_of(image, node_id) | (registered.union(listed.values()) - dropped)
    return known - {one.id for one in directories if one.id is not None}


def home_of(partition: Partition, node_id: int) -> bytes | None:
    """The directory that the metadata names of a node's replica; None where it names none."""
    homes = dict(zip(partition.replicas, partition.directories or (), strict=False))
    return homes.get(node_id)


def homes_of(image: Image, node_id: int) -> set[bytes]:
    """The ids of the directories in which the node's partitions live."""
    found = (
        home_of(state, node_id)
        for topic in image.topics.values()
        for state in topic.partitions.values()
    )
    return {one for one in found if one is not None and not is_reserved(one)}


def _format(one: LogDirectory, meta: MetaProperties, missing: set[bytes]) -> None:
    if missing:
        ids = ", ".join(sorted(map(uuid_text, missing)))
        one.failure = (
            f"it has no {META_PROPERTIES}, and the metadata knows a directory that is not here "
            f"({ids}): is its disk mounted? Where it is a new disk, write a {META_PROPERTIES} of "
            f"three lines there: version=1, cluster.id={meta.cluster_id}, node.id={meta.node_id}"
        )
        return
    try:
        one.path.mkdir(0o700, parents=True, exist_ok=True)
        held = [name for name in list_names(one.path) if holds(one.path / name, PARTITION_METADATA)]
        if held:
            one.failure = f"it has no {META_PROPERTIES}, but holds {held[0]}"
            return
        one.lock.acquire()
        one.id = random_uuid()
        write_meta_properties(one.path, meta._replace(directory_id=one.id))
    except (OSError, DiskError) as error:
        one.failure = str(error)
        return
    one.fresh = True
    _LOG.info("formatted %s: directory %s of cluster %s", one, uuid_text(one.id), meta.cluster_id)


def _listed(first: Path) -> dict[str, bytes]:
    """Ids by path, of the last start that had several. Raises DiskError."""
    data = read_file(first / LIST)
    try:
        return {path: parse_uuid(text) for path, text in json.loads(data or b"{}").items()}
    except (ValueError, AttributeError) as error:
        _LOG.warning("%s: %s; going on without it", first / LIST, error)
        return {}


def further(first: Path) -> list[Path]:
    """The other log directories of a data directory, as the last start knew them: for tools."""
    return list(listed_directories(first))


def listed_directories(first: Path) -> dict[Path, bytes]:
    """The same with their ids."""
    return {Path(path): found for path, found in _listed(first).items()}


def write_listed_directories(first: Path, directories: Mapping[Path, bytes]) -> None:
    """Write the list before any start, for directories that were restored. Raises DiskError."""
    names = {str(path): uuid_text(found) for path, found in directories.items()}
    write_atomically(first / LIST, json.dumps(names).encode())


def _write_list(directories: Iterable[LogDirectory], before: dict[str, bytes]) -> None:
    """Those of now; one that is offline stays as it was."""
    first, *others = directories
    kept = {str(one): one.id or before.get(str(one)) for one in others}
    fresh = {path: found for path, found in kept.items() if found is not None}
    if fresh != before:
        try:
            write_listed_directories(first.path, {Path(p): found for p, found in fresh.items()})
        except DiskError as error:
            _LOG.warning("%s", error)
