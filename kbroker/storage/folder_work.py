"""Steps on the folders of partitions that are created and deleted, for the worker of a log
directory (kbroker.storage.disk_worker). Nothing here touches what the control thread owns."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from kbroker.errors import DiskError
from kbroker.storage.folders import DELETE_SUFFIX, aside_name, ensure_topic_id, put_aside
from kbroker.storage.log_port import LogOpener, LogPort, Opening

Made = LogPort | DiskError | OSError
"""A log, or why the disk has denied it."""


class Gone(NamedTuple):
    """A folder that was renamed, or why it was not; neither where it was not there."""

    folder: Path
    aside: Path | None = None
    error: OSError | None = None


def open_one(opening: Opening, open_log: LogOpener, *, fresh: bool) -> Made:
    """Open or create a log; `fresh`: what is in its place is not its own."""
    path = Path(opening.directory)
    try:
        if fresh:
            put_aside(path)
        path.mkdir(exist_ok=True)
        ensure_topic_id(path, opening.spec.topic_id)
        return open_log(opening)
    except (OSError, DiskError) as error:
        return error


def rename_gone(folder: Path, log: LogPort | None) -> Gone:
    """End the log of a deleted partition, and rename its folder to that of a deleted one."""
    if log is not None:
        log.mark_deleted()
    return _rename(folder)


def _rename(folder: Path) -> Gone:
    target = folder.with_name(aside_name(folder.name, DELETE_SUFFIX))
    try:
        folder.rename(target)
    except FileNotFoundError:
        return Gone(folder)
    except OSError as error:
        return Gone(folder, error=error)
    return Gone(folder, target)
