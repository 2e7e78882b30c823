"""A backup back into log directories, and whether a backup is what it was.

A restore copies (or clones) every file and compares its checksum on the way; it never links, for
the broker will write to what it finds. `meta.properties` comes last, that of the directory with the
metadata log behind the others: until it is there, kbroker and Apache Kafka refuse the directory.
The locks of the directories are held meanwhile. What root restores belongs to the user of the
directory that was there, else to that of the backup.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from kbroker.care.copying import Tick, digest_of, give_tree, take
from kbroker.care.manifest import DATA, BackupFile, Manifest, read_manifest
from kbroker.errors import DiskError, OperatorError
from kbroker.ext.log_flush import sync_file_system
from kbroker.files import DirectoryLock, sync_directory
from kbroker.metadata.directories import write_listed_directories
from kbroker.metadata.meta_properties import META_PROPERTIES
from kbroker.uuids import parse_uuid

__all__ = ["restore", "verify"]

_NOTHING: Final = frozenset({"lost+found"})


def restore(
    backup: Path, targets: Path | Sequence[Path], tick: Tick = lambda _: None
) -> Manifest:
    """Bring a backup back as `targets`, folders that are empty or not there yet: one for each log
    directory, in the order of the manifest.

    Raises OperatorError, DiskError or OSError; the folders are as they were then.
    """
    manifest = read_manifest(backup)
    places = [targets] if isinstance(targets, Path) else list(targets)
    _check_targets(backup, manifest, places)
    owners = []
    descriptors: dict[Path, int] = {}  # opened before the writes: see sync_file_system
    with contextlib.ExitStack() as locks, contextlib.ExitStack() as undo:
        for target in places:
            there = os.path.lexists(target)
            target.mkdir(mode=0o700, parents=True, exist_ok=True)
            owners.append(target.stat() if there else backup.stat())
            descriptors[target] = locks.enter_context(DirectoryLock(target)).descriptor
            undo.callback(_clear, target, whole=not there)
        folders = [one.folder for one in manifest.directories]
        _bring_back(
            backup, dict(zip(folders, places, strict=True)), manifest, descriptors, tick
        )
        for target, owner in zip(places, owners, strict=True):
            give_tree(target, owner)
        undo.pop_all()
    return manifest


def _check_targets(backup: Path, manifest: Manifest, targets: Sequence[Path]) -> None:
    """Raise OperatorError where these directories cannot take the backup."""
    paths = {file.path for file in manifest.files}
    for one in manifest.directories:
        if f"{one.folder}/{META_PROPERTIES}" not in paths:
            name = f"{backup / one.folder}"
            raise OperatorError(f"{name} has no {META_PROPERTIES}: it is no backup of a broker")
    if len(targets) != len(manifest.directories):
        sources = ", ".join(one.source for one in manifest.directories)
        raise OperatorError(
            f"{backup} has {len(manifest.directories)} log directories, and {len(targets)} are"
            f" named: name one for each of {sources}, in this order"
        )
    resolved = [target.resolve() for target in targets]
    for number, target in enumerate(targets):
        others = resolved[:number] + resolved[number + 1 :]
        if any(resolved[number].is_relative_to(one) for one in others):
            raise OperatorError(f"{target} is named twice, or lies in another log directory")
        if os.path.lexists(target) and (
            not target.is_dir() or set(os.listdir(target)) - _NOTHING
        ):
            raise OperatorError(
                f"{target} is not empty: restore into a new directory. One without"
                f" {META_PROPERTIES} is what a restore that was broken off has left: remove it"
            )


def _bring_back(
    backup: Path,
    targets: Mapping[str, Path],
    manifest: Manifest,
    descriptors: Mapping[Path, int],
    tick: Tick,
) -> None:
    """Bring the files of all directories, then their meta.properties, that of the first last."""
    by_folder: dict[str, list[BackupFile]] = {folder: [] for folder in targets}
    last: list[BackupFile] = []
    for file in manifest.files:
        folder, _, name = file.path.partition("/")
        (last if name == META_PROPERTIES else by_folder[folder]).append(file)
    for folder, target in targets.items():
        for parent in {Path(file.path).parent.relative_to(folder) for file in by_folder[folder]}:
            (target / parent).mkdir(exist_ok=True)
        for file in by_folder[folder]:
            _bring_file(backup, targets, file, tick)
    _write_list(targets, manifest)
    for target in targets.values():
        sync_file_system(str(target), descriptors[target])
    for file in sorted(last, key=lambda file: list(targets).index(_folder_of(file)), reverse=True):
        _bring_file(backup, targets, file, tick)
        target = targets[_folder_of(file)]
        sync_file_system(str(target), descriptors[target])
        sync_directory(target.absolute().parent)


def _write_list(targets: Mapping[str, Path], manifest: Manifest) -> None:
    """The list of log directories that a start keeps, so that commands find all of them before."""
    main, *further = manifest.directories
    if further:
        ids = {targets[one.folder].absolute(): parse_uuid(one.directory_id) for one in further}
        write_listed_directories(targets[main.folder], ids)


def _folder_of(file: BackupFile) -> str:
    return file.path.partition("/")[0]


def _bring_file(
    backup: Path, targets: Mapping[str, Path], file: BackupFile, tick: Tick
) -> None:
    folder, _, name = file.path.partition("/")
    source, target = backup / file.path, targets[folder] / name
    trouble = _wrong_size(source, file)
    if trouble is None:
        descriptor = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
        try:
            _, digest = take(descriptor, source, target, file.bytes, link=False, tick=tick)
        finally:
            os.close(descriptor)
        if digest == file.sha256:
            return
        trouble = "its checksum is not that of the manifest"
    raise DiskError(source, f"{trouble}; the backup is damaged, nothing was restored")


def _clear(target: Path, *, whole: bool) -> None:
    """Take away what was brought so far."""
    if whole:
        shutil.rmtree(target, ignore_errors=True)
        return
    for entry in list(os.scandir(target)):
        if entry.name in _NOTHING:
            continue
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path, ignore_errors=True)
        else:
            Path(entry.path).unlink(missing_ok=True)


def verify(backup: Path, tick: Tick = lambda _: None) -> Iterator[str]:
    """What is wrong with a backup, a line for each file, and for each partition that is not whole
    in it; nothing where it is whole. Raises OperatorError where there is no manifest to compare
    with."""
    manifest = read_manifest(backup)
    for file in manifest.files:
        path = backup / file.path
        trouble = _wrong_size(path, file)
        if trouble is None and digest_of(path, tick) != file.sha256:
            trouble = "its checksum is not that of the manifest"
        if trouble is not None:
            yield f"{path}: {trouble}"
    known = {file.path for file in manifest.files}
    for path in sorted(backup.glob(f"{DATA}*/**/*")):
        if path.is_file() and str(path.relative_to(backup)) not in known:
            yield f"{path}: is not in the manifest"
    yield from map(str, manifest.incomplete)


def _wrong_size(path: Path, file: BackupFile) -> str | None:
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        return "is missing"
    return None if size == file.bytes else f"has {size} bytes instead of {file.bytes}"
