"""Logs are opened on several threads at the start, each directory's on its own, and closed in good
order at the end."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Final

from kbroker.errors import DiskError
from kbroker.storage.checkpoints import (
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    write_clean_shutdown,
)
from kbroker.storage.log_directory import LogDirectory
from kbroker.storage.log_port import Key, LogPort, Opening, PartitionSpec
from kbroker.storage.progress import Progress

_LOG: Final = logging.getLogger("kbroker.storage")


def openings_of(
    directory: LogDirectory,
    specs: Iterable[PartitionSpec],
    found: Mapping[Key, LogDirectory | None],
    *,
    all_clean: bool,
) -> list[Opening]:
    """What is to be opened in a directory at the start. `found` are those that the metadata had
    elsewhere; `all_clean`: every directory was stopped in good order."""
    recovery_points = directory.offsets(RECOVERY_POINTS)
    log_starts = directory.offsets(LOG_START_OFFSETS)
    openings = []
    for spec in specs:
        key = (spec.topic, spec.partition)
        point, clean = recovery_points.get(key, 0), directory.started_clean
        start = log_starts.get(key, 0)
        before = found.get(key)
        if before is not None or (key in found and not all_clean):
            point, clean = 0, False  # moved by hand: no checkpoint here speaks of it
        if before is not None:
            told = before.written(LOG_START_OFFSETS) or before.offsets(LOG_START_OFFSETS)
            start = max(start, told.get(key, 0))
        openings.append(Opening(str(directory.path / spec.folder), spec, start, point, clean))
    return openings


def open_all(
    groups: Sequence[Sequence[Opening]], do: Callable[[Opening], object], threads: int
) -> None:
    """Open every group on so many threads, and tell how far that is when it takes long."""
    if not groups:
        return
    with Progress([opening.directory for opening in chain(*groups)]) as progress:
        works = [_work(group, do, progress) for group in groups]
        helpers = [
            threading.Thread(target=work, name=f"recovery-{place}-{index}")
            for place, (group, work) in enumerate(zip(groups, works, strict=True))
            for index in range(min(threads, len(group)) - (place == 0))
        ]
        for helper in helpers:
            helper.start()
        works[0]()
        for helper in helpers:
            helper.join()


def _work(
    group: Sequence[Opening], do: Callable[[Opening], object], progress: Progress
) -> Callable[[], None]:
    """What each thread of a group does: it takes the next one that is left."""
    rest = iter(group)
    taking = threading.Lock()

    def work() -> None:
        while True:
            with taking:
                opening = next(rest, None)
            if opening is None:
                return
            do(opening)
            progress.opened(opening.directory)

    return work


def close_all(
    directory: LogDirectory, logs: Sequence[tuple[Key, LogPort]], broker_epoch: int
) -> bool:
    """Close a directory's logs in good order; whether that went well."""
    failed = False
    flushed: dict[Key, tuple[int, int, int]] = {}
    for key, log in logs:
        try:
            log.close(clean=True, sync=False)
            flushed[key] = (log.log_end_offset, log.log_start_offset, log.high_watermark)
        except Exception as error:
            _LOG.error("closing %s-%d: %s", *key, error)
            failed = True
    try:
        # One sync for all of them: by themselves each would pay for several.
        directory.sync()
        for name, index in ((RECOVERY_POINTS, 0), (LOG_START_OFFSETS, 1), (HIGH_WATERMARKS, 2)):
            offsets = {key: values[index] for key, values in flushed.items()}
            if index == 1:
                offsets = {key: offset for key, offset in offsets.items() if offset}
            directory.write_offsets(name, offsets, anew=True)
        if not failed:
            write_clean_shutdown(directory.path, broker_epoch)
    except DiskError as error:
        _LOG.error("no clean stop: %s", error)
        failed = True
    return not failed
