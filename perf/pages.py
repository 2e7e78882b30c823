"""A page cache full of pages that have been used.

On a virtual machine the first touch of a page of memory costs some 12 us: the host has to find one.
A run that touches fresh pages measures the host. So one big file is written once and read before
each series: then what is measured takes its pages from the cache, where all have been used. Before
each row it is looked at again: what nobody has touched for a while a guest may give back (DAMON).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from perf.native import BUILD

SHARE_OF_MEMORY = 0.85
KEEP_FREE_BYTES = 2 << 30
ROOM_FOR_DATA_BYTES = 24 << 30
CHUNK = 8 << 20
LOOK_BYTES = 256 << 10


def memory(field: str) -> int:
    """A line of /proc/meminfo, in bytes."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        name, value = line.split(":")
        if name == field:
            return int(value.split()[0]) * 1024
    raise KeyError(field)


def wanted_bytes() -> int:
    """About 85% of the memory, but no more than is to be had."""
    available = memory("MemAvailable") - KEEP_FREE_BYTES
    return max(0, min(int(memory("MemTotal") * SHARE_OF_MEMORY), available))


class UsedPages:
    """The file; `refresh` before a series, `keep` before a row."""

    def __init__(self, path: Path | None) -> None:
        self.path = path

    def refresh(self) -> None:
        """Reads the file: pages that a finished series gave back come from it again."""
        if self.path is None:
            return
        buffer = bytearray(CHUNK)
        with self.path.open("rb", buffering=0) as file:
            while file.readinto(buffer):
                pass

    def keep(self) -> None:
        """Touches what is there of the file, and reads of the rest what free memory takes.

        Nothing is evicted for it: what earlier rows have written is there to be read.
        """
        if self.path is None:
            return
        buffer = bytearray(LOOK_BYTES)
        with self.path.open("rb", buffering=0) as file:
            for offset in range(0, self.path.stat().st_size, LOOK_BYTES):
                try:
                    os.preadv(file.fileno(), [buffer], offset, os.RWF_NOWAIT)
                except BlockingIOError:
                    if memory("MemFree") > KEEP_FREE_BYTES:
                        os.preadv(file.fileno(), [buffer], offset)


@contextmanager
def used_pages(enabled: bool) -> Iterator[UsedPages]:
    """Writes the file, and removes it at the end. Refuses where the disk has no room."""
    if not enabled:
        yield UsedPages(None)
        return
    BUILD.mkdir(parents=True, exist_ok=True)
    path = BUILD / "used-pages"
    path.unlink(missing_ok=True)  # of a run that was killed
    size = wanted_bytes()
    free = shutil.disk_usage(BUILD).free
    if free < size + ROOM_FOR_DATA_BYTES:
        needed = (size + ROOM_FOR_DATA_BYTES) >> 30
        raise SystemExit(f"{free >> 30} GiB of disk are free, {needed} are needed; --quick skips")
    try:
        write(path, size)
        yield UsedPages(path)
    finally:
        path.unlink(missing_ok=True)


def write(path: Path, size: int) -> None:
    chunk = os.urandom(CHUNK)
    with path.open("wb", buffering=0) as file:
        for _ in range(size // CHUNK):
            file.write(chunk)
        os.fsync(file.fileno())
