"""Folders of partitions: names of those that are set aside, and which topic one is of."""

from __future__ import annotations

import errno
import logging
import os
import re
from pathlib import Path
from typing import Final

from kbroker.errors import CorruptFileError, DiskError, OperatorError
from kbroker.files import is_there, list_names
from kbroker.limits import FILE_NAME_LENGTH_MAX_BYTES
from kbroker.storage.checkpoints import PARTITION_METADATA, read_topic_id
from kbroker.uuids import random_uuid, uuid_text

_LOG: Final = logging.getLogger("kbroker.storage")

META_PROPERTIES: Final = "meta.properties"
METADATA_FOLDER: Final = "__cluster_metadata-0"
DELETE_SUFFIX: Final = "-delete"
STRAY_SUFFIX: Final = "-stray"
FUTURE_SUFFIX: Final = "-future"
SET_ASIDE: Final = re.compile(r"(?P<folder>.+)\.[0-9a-f]{32}(?P<suffix>-(delete|stray|future))\Z")
_SEGMENT: Final = re.compile(r"[0-9]{20}\.log")
PARTITION_FOLDER: Final = re.compile(r"(?P<topic>.+)-(?P<partition>[0-9]+)\Z")


def is_stray(name: str) -> bool:
    """Return whether a folder's name says that it is kept as stray."""
    aside = SET_ASIDE.match(name) if name.endswith(STRAY_SUFFIX) else None
    return aside is not None and aside["suffix"] == STRAY_SUFFIX


def refuse_link(entry: os.DirEntry[str]) -> None:
    """Raise OperatorError for a symbolic link that has the name of a partition's folder or of the
    metadata log's.

    A renamed or removed link leaves the folder behind it, and a sync, a limit or the free space of
    the log directory is not that of the disk behind it.
    """
    if entry.is_symlink() and (PARTITION_FOLDER.match(entry.name) or SET_ASIDE.match(entry.name)):
        raise OperatorError(
            f"{entry.path} is a symbolic link to {os.path.realpath(entry.path)}, and folders of "
            "partitions must not be links: move the folder back in its place, or name a directory "
            "of the other disk in log.dirs and move the folder there"
        )


def holds(folder: Path, name: str) -> bool:
    """Whether a folder has a file of this name. One that may not be searched, as the lost+found of
    a file system, is not kbroker's. Raises DiskError."""
    try:
        return is_there(folder / name)
    except DiskError as error:
        if error.errno == errno.EACCES:
            return False
        raise


def aside_name(folder: str, suffix: str) -> str:
    """A name that no partition has, cut so that the file system takes it."""
    tail = f".{random_uuid().hex()}{suffix}"
    return folder[: FILE_NAME_LENGTH_MAX_BYTES - len(tail)] + tail


def create_folder(path: str, topic_id: bytes) -> bool:
    """Create the folder of a new partition; False where an earlier try has created it. What else
    has its name is renamed to a stray. Raises OSError."""
    try:
        os.mkdir(path)
    except FileExistsError:
        if _is_of_earlier_try(Path(path), topic_id):
            return False
        put_aside(Path(path))
        os.mkdir(path)
    return True


def _is_of_earlier_try(path: Path, topic_id: bytes) -> bool:
    """Whether a folder has the id of the topic already, or is empty."""
    if not path.is_dir() or path.is_symlink():
        return False
    try:
        found = read_topic_id(path)
    except CorruptFileError:
        return False
    return found == topic_id if found is not None else not any(path.iterdir())


def put_aside(folder: Path) -> bool:
    """Rename whatever is in the place of a partition's new folder to a stray; False where nothing
    is. Raises OSError."""
    target = folder.with_name(aside_name(folder.name, STRAY_SUFFIX))
    try:
        folder.rename(target)
    except FileNotFoundError:
        return False
    _LOG.warning("%s is in the way of a partition: renamed to %s", folder, target.name)
    return True


def log_end(folder: Path) -> tuple[int, int]:
    """Return the end of a copy of a log, to compare it with another copy: the first offset of its
    last segment and that segment's bytes. A log without segments was never appended to."""
    bases = [int(name[:-4]) for name in list_names(folder) if _SEGMENT.fullmatch(name)]
    if not bases:
        return 0, 0
    return max(bases), (folder / f"{max(bases):020}.log").stat().st_size


def belongs(path: Path, topic_id: bytes) -> bool:
    """Whether the folder is of this topic and not of an earlier one of the same name. A crash may
    leave partition.metadata missing or empty: the folder is then taken for the topic's."""
    try:
        found = read_topic_id(path)
    except CorruptFileError as error:
        _LOG.warning("%s; it is written anew", error)
        return True
    return found is None or found == topic_id


def topic_id_text(topic_id: bytes) -> bytes:
    """The contents of partition.metadata."""
    return f"version: 0\ntopic_id: {uuid_text(topic_id)}".encode()


def write_new_topic_id(folder: str, topic_id: bytes) -> None:
    """Write partition.metadata into a folder that was created just now; see ensure_topic_id."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    descriptor = os.open(f"{folder}/{PARTITION_METADATA}", flags, 0o644)
    try:
        os.write(descriptor, topic_id_text(topic_id))
    finally:
        os.close(descriptor)


def ensure_topic_id(path: Path, topic_id: bytes) -> None:
    """Write partition.metadata where it is missing or broken.

    It is not synced: the metadata log knows the id, and a file that a crash left empty is
    written again here. Folders of one topic may share the file (kbroker.ext.log_folders), whose
    text is the same in all of them.
    """
    target = path / PARTITION_METADATA
    try:
        if is_there(target) and read_topic_id(path) == topic_id:
            return
    except CorruptFileError:
        pass
    target.write_bytes(topic_id_text(topic_id))
