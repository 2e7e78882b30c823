"""A file system of a log directory that is full, without a limit of ours or in spite of one.

Nothing is refused ahead: each append tries, and fails where there is no room. This remembers that
it did, so that it can be told, until there is room again: what is free has grown, or as much was
taken as is meant by that (under a quota of the file system what is free says nothing).

Not thread-safe: DiskGuard's thread's.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import Final

from kbroker.ext.log_append import appends_without_room
from kbroker.storage.log_directory import LogDirectory

_LOG: Final = logging.getLogger("kbroker.storage")

FULL: Final = "the size of the file system"  # told as the names of the limits are
_RESUME_BYTES: Final = 1 << 20


class FullDisk:
    """See the module. `taken` tells how many bytes the logs take."""

    def __init__(self, directory: LogDirectory, taken: Callable[[], int]) -> None:
        self.is_full = False
        self._directory = directory
        self._taken = taken
        self._seen = appends_without_room(directory.place)
        self._resume_free = 0
        self._resume_taken = 0

    def look(self) -> None:
        """Whether appends have failed since the last look; tells when it begins and ends."""
        count = appends_without_room(self._directory.place)
        if count != self._seen:
            self._seen = count
            self._resume_taken = self._taken() + _RESUME_BYTES
            if not self.is_full:
                self.is_full = True
                self._resume_free = self._free() + _RESUME_BYTES
                _LOG.error(
                    "the file system of %s is full: what it has no room for is refused with "
                    "KAFKA_STORAGE_ERROR until there is some; fetch goes on", self._directory,
                )  # fmt: skip
        elif self.is_full and (
            self._free() >= self._resume_free or self._taken() >= self._resume_taken
        ):
            self.is_full = False
            _LOG.warning("there is room on the file system of %s again", self._directory)

    def _free(self) -> int:
        """With what is kept for root: what counts is that it grows."""
        try:
            disk = os.statvfs(self._directory.path)
        except OSError:  # DiskWatch tells of it
            return 0
        return disk.f_bfree * disk.f_frsize
