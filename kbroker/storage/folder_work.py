"""Folders of partitions that come and go: the work of a log directory's thread
(kbroker.storage.disk_worker). Nothing here touches what the control thread owns."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
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
from kbroker.storage.log_directory import LogDirectory
from kbroker.storage.log_port import LogOpener, LogPort, Opening

PIECE: Final = 64
"""Folders per call into the data plane: 0.2 ms of the GIL, some 4 ms without it."""

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
    folder that has its name belongs to something else."""
    try:
        if fresh:
            create_folder(opening.directory)
            write_new_topic_id(opening.directory, opening.spec.topic_id)
            return open_log(opening._replace(fresh=True))
        path = Path(opening.directory)
        path.mkdir(exist_ok=True)
        ensure_topic_id(path, opening.spec.topic_id)
        return open_log(opening)
    except (OSError, DiskError) as error:
        return error


def create_logs(
    openings: Iterable[Opening], open_log: LogOpener, create: LogCreator | None
) -> Iterator[list[Made]]:
    """Create the logs of new partitions of one log directory, a piece with each step of the
    iterator; results come in the order of `openings`. The caller syncs the directory's names.

    Without `create`, and where a folder's name is taken, each log is created by `open_log`.
    """
    for piece in _pieces(openings):
        if create is None:
            yield [open_one(opening, open_log, fresh=True) for opening in piece]
        else:
            yield [
                open_one(opening, open_log, fresh=True) if isinstance(made, FileExistsError)
                else made
                for opening, made in zip(piece, create(piece), strict=True)
            ]  # fmt: skip


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


def rename_gone(folders: Iterable[tuple[Path, LogPort | None]], home: LogDirectory) -> list[Gone]:
    """End the logs of deleted partitions, and give their folders the names of deleted ones."""
    gone: list[Gone] = []
    for piece in _pieces(folders):
        gone += rename_piece(piece)
        home.worker.steps += 1
    with suppress(DiskError):  # the directory has noted it
        home.sync_names()
    return gone


def rename_piece(folders: Sequence[tuple[Path, LogPort | None]]) -> list[Gone]:
    """Do that for some folders, without the sync of the directory."""
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


def _pieces(elements: Iterable[T]) -> Iterator[list[T]]:
    rest = iter(elements)
    while piece := list(islice(rest, PIECE)):
        yield piece


def configure_logs(logs: Iterable[tuple[LogPort, dict[str, int]]]) -> None:
    """Give each log its settings. A log whose lock is held during hung I/O is waited for."""
    for log, config in logs:
        log.configure(config)
