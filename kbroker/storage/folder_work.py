"""Steps on the folders of partitions that are created and deleted, for the worker of a log
directory (kbroker.storage.disk_worker). Nothing here touches what the control thread owns."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from kbroker.errors import DiskError
from kbroker.ext import log_folders
from kbroker.ext.log import Log
from kbroker.storage.folders import (
    DELETE_SUFFIX,
    aside_name,
    create_folder,
    ensure_topic_id,
    topic_id_text,
    write_new_topic_id,
)
from kbroker.storage.log_port import LogOpener, LogPort, Opening

PIECE: Final = 16
"""Folders per call into the data plane: some 50 us of the GIL, 1 ms without it. A stop waits for
one call, which on a disk of 200 ms a call is seconds."""

Made = LogPort | DiskError | OSError
"""A log, or the error that the disk gave instead."""
LogCreator = Callable[[Sequence[Opening]], Sequence[Made]]
"""Creates the folders and the logs of new partitions of one log directory; FileExistsError for a
folder whose name is taken."""
T = TypeVar("T")


class Gone(NamedTuple):
    """A deleted partition's folder with its new name, or with the error of the rename; with neither
    where it did not exist."""

    folder: Path
    aside: str | None = None
    error: OSError | None = None


def open_one(opening: Opening, open_log: LogOpener, *, fresh: bool) -> Made:
    """Open a log, creating its folder where that is missing. `fresh`: the partition is new, and a
    folder that has its name is of an earlier try, or belongs to something else."""
    try:
        topic_id = opening.spec.topic_id
        if fresh and create_folder(opening.directory, topic_id):
            write_new_topic_id(opening.directory, topic_id)
            return open_log(opening._replace(fresh=True))
        path = Path(opening.directory)
        path.mkdir(exist_ok=True)
        ensure_topic_id(path, topic_id)
        return open_log(opening._replace(clean=False) if fresh else opening)
    except (OSError, DiskError) as error:
        return error


def create_piece(
    openings: Sequence[Opening], open_log: LogOpener, create: LogCreator | None
) -> list[Made]:
    """Create the logs of new partitions of one log directory, at most PIECE of them; the caller
    syncs the directory's names. Without `create`, and where a folder's name is taken, each log is
    created by `open_log`."""
    if create is None:
        return [open_one(opening, open_log, fresh=True) for opening in openings]
    return [
        open_one(opening, open_log, fresh=True) if isinstance(made, FileExistsError) else made
        for opening, made in zip(openings, create(openings), strict=True)
    ]


def create_in_folders(openings: Sequence[Opening]) -> list[Log | OSError]:
    """Create folders and logs in one call without the GIL; partitions of a topic are neighbours."""
    wanted = []
    topic_id, text = b"", b""
    for opening in openings:
        spec = opening.spec
        if spec.topic_id != topic_id:
            topic_id, text = spec.topic_id, topic_id_text(spec.topic_id)
        wanted.append((opening.directory, spec.topic, topic_id, spec.partition, spec.config,
                       spec.leader_epoch, text))  # fmt: skip
    return log_folders.create_logs(wanted)


def rename_piece(folders: Sequence[tuple[Path, LogPort | None]]) -> list[Gone]:
    """End the logs of deleted partitions, at most PIECE of them, and give their folders the names
    of deleted ones; the caller syncs the directory's names."""
    wanted: list[tuple[Log | None, str, str]] = []
    for folder, log in folders:
        if log is not None and not isinstance(log, Log):
            log.mark_deleted()
        path = str(folder)
        parent, _, name = path.rpartition("/")
        target = f"{parent}/{aside_name(name, DELETE_SUFFIX)}"
        wanted.append((log if isinstance(log, Log) else None, path, target))
    errors = log_folders.end_logs(wanted)
    return [
        _gone(folder, target, error)
        for (folder, _), (_, _, target), error in zip(folders, wanted, errors, strict=True)
    ]


def _gone(folder: Path, target: str, code: int) -> Gone:
    if not code:
        return Gone(folder, target)
    error = OSError(code, os.strerror(code), str(folder))
    return Gone(folder) if isinstance(error, FileNotFoundError) else Gone(folder, error=error)
