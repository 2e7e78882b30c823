"""Folders of partitions that come and go: what a log directory's worker does to them
(kbroker.storage.disk_worker). Nothing here touches what the control thread owns."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from kbroker.errors import DiskError
from kbroker.storage.folders import DELETE_SUFFIX, aside_name, ensure_topic_id, put_aside
from kbroker.storage.log_directory import LogDirectory
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


def rename_gone(folders: Iterable[tuple[Path, LogPort | None]], home: LogDirectory) -> list[Gone]:
    """End the logs of deleted partitions, and give their folders the names of such."""
    gone = []
    for folder, log in folders:
        if log is not None:
            log.mark_deleted()
        gone.append(_rename(folder))
        home.worker.steps += 1
    with suppress(DiskError):  # the directory has noted it
        home.sync_names()
    return gone


def _rename(folder: Path) -> Gone:
    target = folder.with_name(aside_name(folder.name, DELETE_SUFFIX))
    try:
        folder.rename(target)
    except FileNotFoundError:
        return Gone(folder)
    except OSError as error:
        return Gone(folder, error=error)
    return Gone(folder, target)


def configure_logs(logs: Iterable[tuple[LogPort, dict[str, int]]]) -> None:
    """Give each its settings; one that somebody holds who stands in the disk is waited for."""
    for log, config in logs:
        log.configure(config)
