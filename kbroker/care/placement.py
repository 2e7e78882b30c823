"""The log directories of a broker that a backup takes, and the one that each partition lives in.

A further directory that is not there, cannot be read or is not served is left out. Its partitions
are listed in the backup, as are those that have no folder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from kbroker.care.folders import Key
from kbroker.care.stage import StagedDirectory
from kbroker.errors import CorruptFileError, DiskError, OperatorError
from kbroker.files import list_names
from kbroker.metadata.directories import home_of, listed_directories
from kbroker.metadata.image import Image, Topic
from kbroker.metadata.meta_properties import META_PROPERTIES, MetaProperties, read_meta_properties
from kbroker.storage.checkpoints import read_topic_id
from kbroker.storage.homes import is_reserved
from kbroker.uuids import uuid_text

__all__ = ["FurtherDirectories", "Placement", "find_further", "place_partitions", "topic_id_of"]


class FurtherDirectories(NamedTuple):
    """The log directories besides the one with the metadata log: those that are there, with their
    ids, and the reasons why others are left out, by id."""

    there: dict[Path, bytes]
    left_out: dict[bytes, str]

    def leave_out(self, path: Path, reason: str) -> None:
        """Take one out of those that are there."""
        self.left_out[self.there.pop(path)] = _left_out(path, reason)


def find_further(main: Path, meta: MetaProperties, named: Sequence[Path]) -> FurtherDirectories:
    """Find the further log directories: those `named`, and those of the broker's last start. Raise
    OperatorError where one belongs to another broker, or two are copies."""
    known = {path.resolve(): one for path, one in listed_directories(main).items()}
    paths: dict[Path, Path] = {}
    for path in (*named, *listed_directories(main)):
        paths.setdefault(path.resolve(), path)
    found = FurtherDirectories({}, {})
    seen = {meta.directory_id: main}
    for resolved, path in paths.items():
        if resolved == main.resolve():
            continue
        directory_id = known.get(resolved)
        reason = f"it has no {META_PROPERTIES}"
        try:
            there = _id_of(path, meta)
            list_names(path)
        except (OSError, DiskError) as error:
            there, reason = None, str(error)
        if there is None:  # without an id no broker has started with it, and it has no partition
            if directory_id is not None:
                found.left_out[directory_id] = _left_out(path, reason)
            continue
        if there in seen:
            raise OperatorError(
                f"{seen[there]} and {path} have the same directory.id: one is a copy of the other, "
                "and a broker has only one of them"
            )
        seen[there] = path
        found.there[path] = there
    return found


def _left_out(path: Path, reason: str) -> str:
    return f"its log directory {path} is left out: {reason}"


def _id_of(path: Path, meta: MetaProperties) -> bytes | None:
    """The directory.id; None where there is none. Raise OperatorError, DiskError."""
    found = read_meta_properties(path)
    if found is None:
        return None
    if (found.cluster_id, found.node_id) != (meta.cluster_id, meta.node_id):
        raise OperatorError(
            f"{path} is of node {found.node_id} of cluster {found.cluster_id}, the metadata log of "
            f"node {meta.node_id} of cluster {meta.cluster_id}: take it out of log.dirs"
        )
    return found.directory_id


class Placement(NamedTuple):
    """The directory of each partition of a node, and the reasons why others have none."""

    directories: dict[Key, StagedDirectory]
    missing: dict[Key, str]


class _Places:
    def __init__(
        self,
        directories: Sequence[StagedDirectory],
        left_out: Mapping[bytes, str],
    ) -> None:
        self._by_id = {one.directory_id: one for one in directories}
        self._alone = directories[0] if len(directories) == 1 and not left_out else None
        self._left_out = left_out

    def place(
        self, home: bytes | None, here: Sequence[StagedDirectory]
    ) -> StagedDirectory | str:
        """The directory of a partition that has a folder in some, or why it has none."""
        if home is None or is_reserved(home):
            return _only(here) or "it has no folder yet"
        if home in self._by_id:
            named = self._by_id[home]
            if named in here:
                return named
            return _only(here) or f"it has no folder in {named}"
        if self._alone in here:  # the same directory with another id
            return here[0]
        return self._left_out.get(home, f"its log directory {uuid_text(home)} is not there")


def _only(here: Sequence[StagedDirectory]) -> StagedDirectory | str | None:
    """The one directory; one that the metadata does not name was moved by hand."""
    if len(here) > 1:
        return f"it is in {here[0]} and in {here[1]}: move one of the folders away"
    return here[0] if here else None


def place_partitions(
    image: Image,
    node_id: int,
    folders: Mapping[Key, Sequence[StagedDirectory]],
    directories: Sequence[StagedDirectory],
    left_out: Mapping[bytes, str],
    *,
    ids_checked: bool = False,
) -> Placement:
    """Find the directory of every partition of the node, as a start of the broker would
    (kbroker.storage.homes). `folders` are the directories in which each has a folder; those of
    another topic id count for nothing, unless the ids were checked before."""
    places = _Places(directories, left_out)
    found = Placement({}, {})
    for topic in image.topics.values():
        for index, state in topic.partitions.items():
            if node_id not in state.replicas:
                continue
            key = (topic.name, index)
            here = list(folders.get(key, ()))
            if not ids_checked:
                here = [one for one in here if _is_of(one, key, topic)]
            place = places.place(home_of(state, node_id), here)
            if isinstance(place, str):
                found.missing[key] = place
            else:
                found.directories[key] = place
    return found


def _is_of(directory: StagedDirectory, key: Key, topic: Topic) -> bool:
    return topic_id_of(directory.source / f"{key[0]}-{key[1]}") in (None, topic.id)


def topic_id_of(folder: Path) -> bytes | None:
    """The topic id in a partition's folder; None where a crash has left none, or the folder is
    gone."""
    try:
        return read_topic_id(folder)
    except CorruptFileError:
        return None
