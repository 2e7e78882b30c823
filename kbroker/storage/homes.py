"""In which log directory each partition lives: what the metadata says decides, at every start.

A partition whose directory is not here is offline: no copy that lies elsewhere is taken for it, and
none is made. Where the metadata does not say it (a cluster that Apache Kafka has just made: the
broker chooses), the folder is looked for, by its topic id. A folder that lies in another directory
than the metadata says was moved by hand while nobody served, if the directory where it should be is
here and has none.

A move between directories (kbroker.storage.moves) leaves, if it is cut off, a copy in a folder
`TOPIC-PARTITION.HEX-future`. Where the metadata says that the partition lives in that directory the
copy was complete and is taken (what has the partition's name there and goes less far is put
aside); else it is removed, and the folder that the partition had stays. The folder that a partition
has left is removed once it is seen in its new place, where it goes as far at least; else it is kept
as stray.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from kbroker.errors import CorruptFileError, DiskError
from kbroker.files import remove_folder, sync_directory
from kbroker.storage.checkpoints import read_topic_id
from kbroker.storage.folders import (
    DELETE_SUFFIX,
    FUTURE_SUFFIX,
    META_PROPERTIES,
    METADATA_FOLDER,
    PARTITION_FOLDER,
    SET_ASIDE,
    STRAY_SUFFIX,
    aside_name,
    belongs,
    holds,
    log_end,
)
from kbroker.storage.log_directory import LogDirectory
from kbroker.storage.log_port import Key, PartitionSpec
from kbroker.uuids import uuid_text

_LOG: Final = logging.getLogger("kbroker.storage")
_RESERVED_MAX: Final = 100
_NAMED_MAX: Final = 5  # partitions in a line of the log


def is_reserved(directory_id: bytes | None) -> bool:
    """Whether it names no directory: unassigned, migrating, lost (KIP-858)."""
    return directory_id is None or int.from_bytes(directory_id, "big") < _RESERVED_MAX


def tell_offline(offline: Mapping[Key, str]) -> None:
    """In a line of the log for each reason."""
    for why in dict.fromkeys(offline.values()):
        about = [f"{key[0]}-{key[1]}" for key, told in offline.items() if told == why]
        more = ", ..." if len(about) > _NAMED_MAX else ""
        _LOG.error("%d partitions are offline (%s%s): %s", len(about),
                   ", ".join(about[:_NAMED_MAX]), more, why)  # fmt: skip


def least_used(
    directories: Sequence[LogDirectory], counts: dict[LogDirectory, int]
) -> LogDirectory:
    """Where there are fewest partitions, as Apache Kafka places them; the next one counts."""
    chosen = min(directories, key=lambda one: counts.get(one, 0))
    counts[chosen] = counts.get(chosen, 0) + 1
    return chosen


class Folders:
    """The folders of partitions in one directory."""

    def __init__(self, directory: LogDirectory) -> None:
        """Looks, and removes what was marked for deletion."""
        self.directory = directory
        self.partitions: dict[str, Path] = {}
        self.futures: dict[str, Path] = {}
        for entry in os.scandir(directory.path):
            if not entry.is_dir(follow_symlinks=False) or entry.name == METADATA_FOLDER:
                continue
            path = directory.path / entry.name
            if holds(path, META_PROPERTIES):
                continue  # a log directory in its own right
            if aside := SET_ASIDE.match(entry.name):
                if aside["suffix"] == DELETE_SUFFIX:
                    remove_folder(path)
                elif aside["suffix"] == FUTURE_SUFFIX:
                    self._take_future(aside["folder"], path)
            elif PARTITION_FOLDER.match(entry.name):
                self.partitions[entry.name] = path

    def _take_future(self, folder: str, path: Path) -> None:
        """Of several the one that goes farther; the others are kept as stray."""
        other = self.futures.setdefault(folder, path)
        if other != path:
            longer, shorter = sorted((path, other), key=log_end, reverse=True)
            self.futures[folder] = longer
            _put_aside(shorter, folder)

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
        """Rename a partition's folder."""
        path = self.partitions.pop(folder)
        target = path.with_name(aside_name(folder, suffix))
        path.rename(target)
        return target

    def goes_farther(self, spec: PartitionSpec) -> bool:
        """Whether the copy that was on its way has more than the folder of the partition, or than
        nothing."""
        there = self.partitions.get(spec.folder)
        return there is None or log_end(self.futures[spec.folder]) > log_end(there)

    def keep_future(self, folder: str) -> None:
        """As stray: nobody knows what it is."""
        _put_aside(self.futures.pop(folder), folder)

    def remove_future(self, folder: str) -> None:
        """What is left of a move that did not come to its end."""
        path = self.futures.pop(folder)
        target = path.with_name(aside_name(folder, DELETE_SUFFIX))
        path.rename(target)  # a half-removed one must not be taken for a copy
        remove_folder(target)


class Homes(NamedTuple):
    """What `settle` found out; partitions that have no home here are offline, and why."""

    directories: dict[Key, LogDirectory]
    offline: dict[Key, str]
    unfinished: dict[Key, LogDirectory]
    """Moves that were cut off, and where they led."""
    found: dict[Key, LogDirectory | None]
    """Those that lie in another of several directories than the metadata have them, and in which;
    None where they have none."""


def settle(directories: Sequence[LogDirectory], specs: Iterable[PartitionSpec]) -> Homes:
    """Find every partition's home, and bring the folders in line. A directory other than the first
    that denies it is offline from here on; of the first that is a DiskError or OSError."""
    listed = list(specs)
    looked = {one: found for one in directories if one.online and (found := _look(one))}
    homes = Homes({}, {}, {}, {})
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
    by_folder = {spec.folder: spec for spec in listed}
    for directory, folders in looked.items():
        try:
            _take_copies(folders, homes, by_folder)
        except (OSError, DiskError) as error:
            _fail(directory, error, homes)
    for directory, folders in looked.items():
        try:
            _tidy(folders, homes, by_folder, looked)
        except (OSError, DiskError) as error:
            _fail(directory, error, homes)
    _tell_what_is_made_anew(homes, listed, looked)
    return homes


def _look(directory: LogDirectory) -> Folders | None:
    try:
        return Folders(directory)
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
        if spec is not None and key in homes.offline:
            continue
        home = homes.directories.get(key) if key is not None else None
        if spec is not None and name in folders.partitions \
                and not belongs(folders.partitions[name], spec.topic_id):  # fmt: skip
            folders.put_aside(name, STRAY_SUFFIX)
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
    """Put aside what no topic owns, remove what a partition has left; what the home does not have
    as far is kept."""
    for name in list(folders.partitions):
        path, spec = folders.partitions[name], specs.get(name)
        if spec is not None and belongs(path, spec.topic_id):
            home = homes.directories.get((spec.topic, spec.partition))
            if home is folders.directory:
                continue
            if home is None:
                _LOG.warning("%s is left as it is: the partition lives elsewhere", path)
                continue
            if _has_all_of(folders, home, spec, looked):
                _LOG.warning("%s is removed: the partition was moved to %s", path, home)
                remove_folder(folders.put_aside(name, DELETE_SUFFIX))
                continue
            target = folders.put_aside(name, STRAY_SUFFIX)
            _LOG.error("%s is renamed to %s: the metadata have the partition in %s, where it does "
                       "not go as far", path, target.name, home)  # fmt: skip
            continue
        target = folders.put_aside(name, STRAY_SUFFIX)
        _LOG.warning("no topic owns %s: renamed to %s", path, target.name)


def _has_all_of(
    folders: Folders,
    home: LogDirectory,
    spec: PartitionSpec,
    looked: dict[LogDirectory, Folders],
) -> bool:
    """Whether the home has the partition, as far as this folder has it at least: after a move."""
    path = folders.partitions[spec.folder]
    if not (_is_of(path, spec) and home.online and looked[home].has(spec)):
        return False
    return log_end(looked[home].partitions[spec.folder]) >= log_end(path)


def _tell_what_is_made_anew(
    homes: Homes, specs: Iterable[PartitionSpec], looked: dict[LogDirectory, Folders]
) -> None:
    """What the metadata have somewhere is not there; after a crash when a topic was made, or when
    its folder was lost."""
    anew = []
    for spec in specs:
        home = homes.directories.get((spec.topic, spec.partition))
        found = looked.get(home) if home is not None else None
        if found is not None and not is_reserved(spec.home) \
                and spec.folder not in found.partitions:  # fmt: skip
            anew.append(f"{spec.folder} in {home}")
    if anew:
        more = ", ..." if len(anew) > _NAMED_MAX else ""
        _LOG.warning("%d partitions have no folder and are made anew, empty: %s%s",
                     len(anew), ", ".join(anew[:_NAMED_MAX]), more)  # fmt: skip


def _put_aside(path: Path, folder: str) -> None:
    """A copy that is not taken, and not to be lost."""
    target = path.with_name(aside_name(folder, STRAY_SUFFIX))
    path.rename(target)
    _LOG.warning("%s is not taken for the partition: renamed to %s", path, target.name)


def _is_of(path: Path, spec: PartitionSpec) -> bool:
    """Whether the folder says that it is of the topic."""
    try:
        return read_topic_id(path) == spec.topic_id
    except (CorruptFileError, DiskError):
        return False
