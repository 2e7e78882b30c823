"""What a directory's disk does: blocks reserved ahead, writes past the page cache, syncs."""

from __future__ import annotations

import ctypes
import mmap
import os
import statistics
import time
from pathlib import Path
from typing import NamedTuple

__all__ = ["Tried", "try_disk"]

_BLOCK = 4096
_SYNCS = 15


class Tried(NamedTuple):
    """What works, and the median time of a synced write of 4 KiB into blocks written before."""

    fallocate: bool
    direct: bool
    sync_ms: float
    syncs: int


def try_disk(folder: Path) -> Tried:
    """Writes a file in the folder and removes it. Raises OSError."""
    path = folder / f".kbroker-check.{os.getpid()}"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        fallocate = _fallocate(descriptor, _SYNCS * _BLOCK)
        os.pwrite(descriptor, bytes(_SYNCS * _BLOCK), 0)
        os.fsync(descriptor)
        direct = _direct(path)
        try:
            times = _timed(descriptor if direct is None else direct)
        finally:
            if direct is not None:
                os.close(direct)
        return Tried(fallocate, direct is not None, statistics.median(times) * 1e3, _SYNCS)
    finally:
        os.close(descriptor)
        path.unlink()


def _fallocate(descriptor: int, size: int) -> bool:
    """The system call itself: what Python offers writes the file where the call is missing."""
    call = ctypes.CDLL(None, use_errno=True).fallocate
    call.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    return int(call(descriptor, 0, 0, size)) == 0


def _direct(path: Path) -> int | None:
    try:
        return os.open(path, os.O_WRONLY | os.O_DIRECT)
    except OSError:
        return None


def _timed(descriptor: int) -> list[float]:
    times = []
    with mmap.mmap(-1, _BLOCK) as block:  # aligned, as O_DIRECT demands
        for number in range(_SYNCS):
            before = time.perf_counter()
            os.pwritev(descriptor, [block], number * _BLOCK)
            os.fdatasync(descriptor)
            times.append(time.perf_counter() - before)
    return times
