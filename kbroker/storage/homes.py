"""The log directory of each partition, which the metadata decides at every start.

A partition whose log directory is missing is offline: no copy in another directory takes its place,
and no new log is made. Where the metadata names no directory (Apache Kafka has just made the
cluster, and the broker chooses), the topic id in a folder identifies it. A folder in another
directory than the metadata says was moved by hand while no broker ran, if its directory is here and
has no such folder.

A move between directories (kbroker.storage.moves) that is cut off leaves a copy in a folder
`TOPIC-PARTITION.HEX-future`. If the metadata places the partition in that directory, the copy was
complete and becomes the partition; a shorter folder of the partition's name is set aside. Otherwise
the copy is removed, and the folder that the partition had stays. The folder that a partition has
left is removed if the log in the new place ends no earlier; otherwise it is kept as stray.

Folders that no partition owns are set aside (kbroker.storage.leftovers). The broker removes those
of deleted topics while it serves, so that thousands of them do not delay a start.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from kbroker.errors import CorruptFileError, DiskError
from kbroker.files import sync_directory
from kbroker.storage.checkpoints import HIGH_WATERMARKS, RECOVERY_POINTS, read_topic_id
from kbroker.storage.folders import (
    DELETE_SUFFIX,
    FUTURE_SUFFIX,
    META_PROPERTIES,
    METADATA_FOLDER,
    PARTITION_FOLDER,
    SET_ASIDE,
    STRAY_SUFFIX,
    belongs,
    holds,
    log_end,
    refuse_link,
)
from kbroker.storage.leftovers import Leftovers, first_of
from kbroker.storage.log_directory import LogDirectory
from kbroker.storage.log_port import Key, PartitionSpec
from kbroker.uuids import uuid_text

_LOG: Final = logging.getLogger("kbroker.storage")
_RESERVED_MAX: Final = 100


def is_reserved(directory_id: bytes | None) -> bool:
    """Whether it names no directory: unassigned, migrating, lost (KIP-858)."""
    return directory_id is None or int.from_bytes(directory_id, "big") < _RESERVED_MAX


def _report_offline(offline: Mapping[Key, str]) -> None:
    """Log a line for each reason."""
    for why in dict.fromkeys(offline.values()):
        names = [f"{key[0]}-{key[1]}" for key, reason in offline.items() if reason == why]
        _LOG.error("%d partitions are offline (%s): %s", len(names), first_of(names), why)


def least_used(
    directories: Sequence[LogDirectory], counts: dict[LogDirectory, int]
) -> LogDirectory:
    """Where there are fewest partitions, as Apache Kafka places them; the next one counts."""
    chosen = min(directories, key=lambda one: counts.get(one, 0))
    counts[chosen] = counts.get(chosen, 0) + 1
    return chosen


class Folders:
    """The folders of partitions in one directory; `leftovers` are those that are set aside."""

    def __init__(self, directory: LogDirectory, deleted_topics: Mapping[bytes, str]) -> None:
        """List the directory. Raise OSError, or OperatorError for symbolic links."""
        self.directory = directory
        self.leftovers = Leftovers(directory, deleted_topics)
        self.partitions: dict[str, Path] = {}
        self.futures: dict[str, Path] = {}
        for entry in os.scandir(directory.path):
            refuse_link(entry)
            if not entry.is_dir(follow_symlinks=False) or entry.name == METADATA_FOLDER:
                continue
            path = directory.path / entry.name
            if aside := SET_ASIDE.match(entry.name):
                if aside["suffix"] == DELETE_SUFFIX:
                    self.leftovers.dead.append(path)
                elif aside["suffix"] == STRAY_SUFFIX:
                    self.leftovers.strays.append(entry.name)
                elif aside["suffix"] == FUTURE_SUFFIX:
                    self._take_future(aside["folder"], path)
            elif PARTITION_FOLDER.match(entry.name) and not holds(path, META_PROPERTIES):
                self.partitions[entry.name] = path  # no log directory in its own right

    def _take_future(self, folder: str, path: Path) -> None:
        """Keep the longest copy of several; the others become stray."""
        other = self.futures.setdefault(folder, path)
        if other != path:
            longer, shorter = sorted((path, other), key=log_end, reverse=True)
            self.futures[folder] = longer
            self._keep_copy(shorter, folder)

    def _keep_copy(self, path: Path, folder: str) -> None:
        """Make a copy that is not the partition a stray folder."""
        target = self.leftovers.set_aside(path, folder, STRAY_SUFFIX)
        _LOG.warning("%s is not taken for the partition: renamed to %s", path, target.name)

    def has(self, spec: PartitionSpec) -> bool:
        """Whether the partition's folder is here, and its own: by its topic id."""
        return spec.folder in self.partitions and _is_of(self.partitions[spec.folder], spec)

    def has_future(self, spec: PartitionSpec) -> bool:
        """The same of a copy that was on its way here."""
        return spec.folder in self.futures and _is_of(self.futures[spec.folder], spec)

    def promote(self, spec: PartitionSpec) -> None:
        """The copy is the partition from here on."""
        target = self.directory.path / spec.folder
        _LOG.warning("%s was being moved: %s has it", spec.folder, self.directory)
        if spec.folder in self.partitions:
            self.put_aside(spec.folder, STRAY_SUFFIX)
        self.futures.pop(spec.folder).rename(target)
        sync_directory(self.directory.path)
        self.partitions[spec.folder] = target

    def put_aside(self, folder: str, suffix: str) -> Path:
        """Rename a partition's folder. Raises OSError."""
        return self.leftovers.set_aside(self.partitions.pop(folder), folder, suffix)

    def goes_farther(self, spec: PartitionSpec) -> bool:
        """Whether the copy that was on its way has more than the folder of the partition, or than
        nothing."""
        there = self.partitions.get(spec.folder)
        return there is None or log_end(self.futures[spec.folder]) > log_end(there)

    def keep_future(self, folder: str) -> None:
        """Keep a copy of unknown origin as stray."""
        self._keep_copy(self.futures.pop(folder), folder)

    def remove_future(self, folder: str) -> None:
        """Have a copy removed that an unfinished move left. It is renamed first: a half-removed
        folder must not be taken for a copy."""
        self.leftovers.set_aside(self.futures.pop(folder), folder, DELETE_SUFFIX)


class Homes(NamedTuple):
    """What `settle` found out; partitions that have no home here are offline, and why."""

    directories: dict[Key, LogDirectory]
    offline: dict[Key, str]
    unfinished: dict[Key, LogDirectory]
    """Moves that were cut off, and where they led."""
    found: dict[Key, LogDirectory | None]
    """Those that lie in another of several directories than the metadata have them, and in which;
    None where they have none."""
    dead: list[tuple[Path, LogDirectory]]
    """Folders that are to be removed."""


def settle(
    directories: Sequence[LogDirectory],
    specs: Iterable[PartitionSpec],
    deleted_topics: Mapping[bytes, str] | None = None,
) -> Homes:
    """Find the log directory of every partition, and rename folders accordingly.

    `deleted_topics` are names by id: folders of these topics are to be removed. A directory that
    fails goes offline; for the first one, DiskError or OSError is raised.
    """
    listed, deleted_topics = list(specs), deleted_topics or {}
    looked = {one: found for one in directories
              if one.online and (found := _look(one, deleted_topics))}  # fmt: skip
    homes = _placed(directories, listed, looked)
    by_folder = {spec.folder: spec for spec in listed}
    for directory, folders in looked.items():
        try:
            _take_copies(folders, homes, by_folder)
        except (OSError, DiskError) as error:
            _fail(directory, error, homes)
    for directory, folders in looked.items():
        try:
            _tidy(folders, homes, by_folder, looked)
            folders.leftovers.close()
        except (OSError, DiskError) as error:
            _fail(directory, error, homes)
        homes.dead.extend((path, directory) for path in folders.leftovers.dead)
    _report_offline(homes.offline)
    _report_missing(homes, listed, looked, frozenset(deleted_topics.values()))
    return homes


def _placed(
    directories: Sequence[LogDirectory],
    listed: Sequence[PartitionSpec],
    looked: dict[LogDirectory, Folders],
) -> Homes:
    """Find the log directory of every partition."""
    homes = Homes({}, {}, {}, {}, [])
    away = [one for one in directories if not one.online]
    counts: dict[LogDirectory, int] = {}
    unplaced = []
    for spec in listed:
        key = (spec.topic, spec.partition)
        home = _home(spec, looked, away)
        if home is None:
            unplaced.append(spec)
        elif isinstance(home, str):
            homes.offline[key] = home
        else:
            homes.directories[key] = home
            if home.id != spec.home and len(directories) > 1:
                homes.found[key] = next((one for one in looked if one.id == spec.home), None)
            counts[home] = counts.get(home, 0) + 1
    open_ones = [one for one in looked if not one.cordoned] or list(looked)
    for spec in unplaced:
        homes.directories[spec.topic, spec.partition] = least_used(open_ones, counts)
    return homes


def _look(directory: LogDirectory, deleted_topics: Mapping[bytes, str]) -> Folders | None:
    try:
        return Folders(directory, deleted_topics)
    except (OSError, DiskError) as error:
        if directory.place == 0:
            raise
        directory.failure = str(error)
        return None


def _fail(directory: LogDirectory, error: Exception, homes: Homes) -> None:
    if directory.place == 0:
        raise error
    directory.failure = str(error)
    for key in [key for key, home in homes.directories.items() if home is directory]:
        del homes.directories[key]
        homes.offline[key] = directory.failure


def _home(
    spec: PartitionSpec, looked: dict[LogDirectory, Folders], away: Sequence[LogDirectory]
) -> LogDirectory | str | None:
    """Where it lives, or why it is offline, or None: nowhere yet."""
    reserved = is_reserved(spec.home)
    if len(looked) == 1 and not away and reserved:
        return next(iter(looked))
    found = next((one for one in looked if one.id == spec.home), None)
    if found is not None and not reserved:
        folders = looked[found]
        if spec.folder in folders.partitions or folders.has_future(spec):
            return found
        if away:
            return f"it has no folder in {found}, and {away[0]} is offline"
    elif not reserved:
        only = next(iter(looked), None)
        if only is not None and only.alone and looked[only].has(spec):
            return only  # the same directory with another id
        gone = next((one for one in away if one.id == spec.home), None)
        told = str(gone) if gone is not None else uuid_text(spec.home or b"")
        return f"its log directory {told} is not here"
    elsewhere = [one for one, folders in looked.items() if folders.has(spec)]
    if len(elsewhere) > 1:
        return f"it is in {elsewhere[0]} and in {elsewhere[1]}: move one of the folders away"
    if elsewhere and found is not None:
        _LOG.warning("%s was moved by hand from %s to %s", spec.folder, found, elsewhere[0])
    if elsewhere:
        return elsewhere[0]
    if reserved and away:
        return f"it may be in {away[0]}, which is offline"
    return found


def _take_copies(folders: Folders, homes: Homes, specs: dict[str, PartitionSpec]) -> None:
    """Copies that the metadata names are the partition, unless the folder that has its name goes
    as far; others go, unless what they are of is away."""
    for name in list(folders.futures):
        spec = specs.get(name)
        key = (spec.topic, spec.partition) if spec is not None else None
        if spec is not None and not belongs(folders.futures[name], spec.topic_id):
            # of an earlier topic of this name: no move of this one
            folders.leftovers.set_aside_unowned(folders.futures.pop(name), name)
            continue
        if spec is not None and key in homes.offline:
            continue
        home = homes.directories.get(key) if key is not None else None
        if spec is not None and name in folders.partitions \
                and not belongs(folders.partitions[name], spec.topic_id):  # fmt: skip
            folders.leftovers.set_aside_unowned(folders.partitions.pop(name))
        if spec is None or home is not folders.directory:
            if home is not None and key is not None:
                homes.unfinished[key] = folders.directory
            folders.remove_future(name)
        elif folders.has_future(spec) and folders.goes_farther(spec):
            folders.promote(spec)
        else:
            folders.keep_future(name)


def _tidy(
    folders: Folders,
    homes: Homes,
    specs: dict[str, PartitionSpec],
    looked: dict[LogDirectory, Folders],
) -> None:
    """Set aside the folders that no partition owns, and those that a partition has left."""
    for name in list(folders.partitions):
        path, spec = folders.partitions[name], specs.get(name)
        if spec is None or not belongs(path, spec.topic_id):
            folders.leftovers.set_aside_unowned(folders.partitions.pop(name))
            continue
        home = homes.directories.get((spec.topic, spec.partition))
        if home is folders.directory:
            continue
        if home is None:
            _LOG.warning("%s is left as it is: the partition lives elsewhere", path)
        elif not _is_of(path, spec):  # without an id it is no copy of the partition
            folders.leftovers.set_aside_unowned(folders.partitions.pop(name))
        elif _has_all_of(folders, home, spec, looked):
            _LOG.warning("%s is removed: the partition was moved to %s", path, home)
            folders.put_aside(name, DELETE_SUFFIX)
        else:
            target = folders.put_aside(name, STRAY_SUFFIX)
            _LOG.error("%s is renamed to %s: the metadata have the partition in %s, where it does "
                       "not go as far", path, target.name, home)  # fmt: skip


def _has_all_of(
    folders: Folders,
    home: LogDirectory,
    spec: PartitionSpec,
    looked: dict[LogDirectory, Folders],
) -> bool:
    """Return whether the log in the home ends no earlier than the one in this folder."""
    path = folders.partitions[spec.folder]
    if not (home.online and looked[home].has(spec)):
        return False
    return log_end(looked[home].partitions[spec.folder]) >= log_end(path)


def _report_missing(
    homes: Homes,
    specs: Iterable[PartitionSpec],
    looked: dict[LogDirectory, Folders],
    deleted_names: frozenset[str],
) -> None:
    """Log the partitions that have no folder where the metadata places them.

    The checkpoints tell whether there was a folder: they list every log of a directory every few
    seconds. An entry of a topic name that was deleted may be of the earlier topic.
    """
    missing: dict[LogDirectory, list[PartitionSpec]] = {}
    for spec in specs:
        home = homes.directories.get((spec.topic, spec.partition))
        found = looked.get(home) if home is not None else None
        if home is not None and found is not None and not is_reserved(spec.home) \
                and spec.folder not in found.partitions:  # fmt: skip
            missing.setdefault(home, []).append(spec)
    for home, some in missing.items():
        known = home.offsets(HIGH_WATERMARKS).keys() | home.offsets(RECOVERY_POINTS).keys()
        lost, new = [], []
        for spec in some:
            key = (spec.topic, spec.partition)
            if key in known and spec.topic not in deleted_names:
                lost.append(spec.folder)
            else:
                new.append(spec.folder)
                home.renewed.add(key)
        if lost:
            _LOG.warning("%d partitions in %s have lost their folder and start empty: %s. Their "
                         "records are gone, unless the folder or a backup can be brought back",
                         len(lost), home, first_of(lost))  # fmt: skip
        if new:
            _LOG.info("creating %d partitions in %s whose creation was interrupted: %s",
                      len(new), home, first_of(new))  # fmt: skip


def _is_of(path: Path, spec: PartitionSpec) -> bool:
    """Return whether the topic id in a folder is that of a partition. Raises DiskError."""
    try:
        return read_topic_id(path) == spec.topic_id
    except CorruptFileError:
        return False
