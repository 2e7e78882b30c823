"""Folders of partitions: names of those that are set aside, and which topic one is of."""

from __future__ import annotations

import logging
import os
import re
from pathlib import Path
from typing import Final

from kbroker.errors import CorruptFileError
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
PARTITION_FOLDER: Final = re.compile(r"(?P<topic>.+)-(?P<partition>[0-9]+)\Z")


def holds(folder: Path, name: str) -> bool:
    """Whether a folder has a file of this name. One that may not be looked into, as the lost+found
    of a file system, is nothing of ours."""
    return os.path.exists(folder / name)


def aside_name(folder: str, suffix: str) -> str:
    """A name that no partition has, cut so that the file system takes it."""
    tail = f".{random_uuid().hex()}{suffix}"
    return folder[: FILE_NAME_LENGTH_MAX_BYTES - len(tail)] + tail


def put_aside(folder: Path) -> bool:
    """What lies where another partition's folder is to be, if anything does: it is kept as stray.
    Whether anything did. Raises OSError."""
    target = folder.with_name(aside_name(folder.name, STRAY_SUFFIX))
    try:
        folder.rename(target)
    except FileNotFoundError:
        return False
    _LOG.warning("%s is in the way of a partition: renamed to %s", folder, target.name)
    return True


def log_end(folder: Path) -> tuple[int, int]:
    """How far a copy of a log goes, to compare it with another of the same log: the first offset of
    its last segment and that segment's bytes."""
    segments = [path for path in folder.glob("*.log") if path.stem.isdigit()]
    if not segments:
        return -1, 0
    last = max(segments, key=lambda path: int(path.stem))
    return int(last.stem), last.stat().st_size


def belongs(path: Path, topic_id: bytes) -> bool:
    """Whether the folder is of this topic and not of an earlier one of the same name."""
    try:
        found = read_topic_id(path)
    except CorruptFileError as error:
        _LOG.warning("%s; it is written anew", error)
        return True
    return found is None or found == topic_id


def ensure_topic_id(path: Path, topic_id: bytes) -> None:
    """Write partition.metadata where it is missing or broken.

    It is not synced: the metadata log knows the id, and a file that a crash left empty is
    written again here.
    """
    target = path / PARTITION_METADATA
    try:
        if target.exists() and read_topic_id(path) == topic_id:
            return
    except CorruptFileError:
        pass
    target.write_text(f"version: 0\ntopic_id: {uuid_text(topic_id)}")
