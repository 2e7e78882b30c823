"""A backup back into a data directory, and whether a backup is what it was.

A restore copies (or clones) every file and compares its checksum on the way; it never links, for
the broker will write to what it finds. `meta.properties` comes last: until it is there, kbroker and
Apache Kafka refuse the directory. The lock of the directory is held meanwhile. What root restores
belongs to the user of the directory that was there, else to that of the backup.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kbroker.care.copying import Tick, digest_of, give_tree, take
from kbroker.care.manifest import DATA, BackupFile, Manifest, read_manifest
from kbroker.errors import DiskError, OperatorError
from kbroker.ext.log_flush import sync_file_system
from kbroker.files import DirectoryLock, sync_directory
from kbroker.metadata.meta_properties import META_PROPERTIES

__all__ = ["restore", "verify"]

_NOTHING: Final = frozenset({"lost+found"})


def restore(backup: Path, target: Path, tick: Tick = lambda _: None) -> Manifest:
    """Bring a backup back as `target`, a folder that is empty or not there yet.

    Raises OperatorError, DiskError or OSError; the folder is as it was then.
    """
    manifest = read_manifest(backup)
    if META_PROPERTIES not in {file.path for file in manifest.files}:
        raise OperatorError(f"{backup} has no {META_PROPERTIES}: it is no backup of a broker")
    there = os.path.lexists(target)
    if there and (not target.is_dir() or set(os.listdir(target)) - _NOTHING):
        raise OperatorError(
            f"{target} is not empty: restore into a new directory. One without {META_PROPERTIES} is"
            " what a restore that was broken off has left: remove it"
        )
    target.mkdir(mode=0o700, parents=True, exist_ok=True)
    owner = target.stat() if there else backup.stat()
    try:
        with DirectoryLock(target):
            _bring_back(backup / DATA, target, manifest, tick)
            give_tree(target, owner)
    except BaseException:
        _clear(target, whole=not there)
        raise
    return manifest


def _bring_back(data: Path, target: Path, manifest: Manifest, tick: Tick) -> None:
    files = sorted(manifest.files, key=lambda file: file.path == META_PROPERTIES)
    for folder in {Path(file.path).parent for file in files}:
        (target / folder).mkdir(exist_ok=True)
    for file in files:
        if file.path == META_PROPERTIES:
            sync_file_system(str(target))
        _bring_file(data / file.path, target / file.path, file, tick)
    sync_file_system(str(target))
    sync_directory(target.absolute().parent)


def _bring_file(source: Path, target: Path, file: BackupFile, tick: Tick) -> None:
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
    """What is wrong with a backup, a line for each file; nothing where it is whole. Raises
    OperatorError where there is no manifest to compare with."""
    manifest = read_manifest(backup)
    data = backup / DATA
    for file in manifest.files:
        trouble = _wrong_size(data / file.path, file)
        if trouble is None and digest_of(data / file.path, tick) != file.sha256:
            trouble = "its checksum is not that of the manifest"
        if trouble is not None:
            yield f"{data / file.path}: {trouble}"
    known = {file.path for file in manifest.files}
    for path in sorted(data.rglob("*")):
        if path.is_file() and str(path.relative_to(data)) not in known:
            yield f"{path}: is not in the manifest"


def _wrong_size(path: Path, file: BackupFile) -> str | None:
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        return "is missing"
    return None if size == file.bytes else f"has {size} bytes instead of {file.bytes}"
