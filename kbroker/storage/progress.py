"""How far the opening of the logs has come, told every ten seconds: recovery reads at the speed of
the disk, and one partition may hold more than that reads in a minute."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Final, Self

_LOG: Final = logging.getLogger("kbroker.storage")
_EVERY_S: Final = 10.0
_MB: Final = 1_000_000


class Progress:
    """Tells of the folders that are opened within it, from a thread of its own."""

    def __init__(self, folders: Sequence[str]) -> None:
        self._folders = folders
        self._opened: list[str] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="recovery-progress")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join()

    def opened(self, folder: str) -> None:
        """From any thread: one more is done with, whether or not the disk let it be opened."""
        self._opened.append(folder)

    def _run(self) -> None:
        sizes: dict[str, int] = {}
        while not self._ended.wait(_EVERY_S):
            if not sizes:  # as they were when it began to take long
                sizes = {folder: _log_bytes(folder) for folder in self._folders}
            opened = list(self._opened)
            _LOG.info(
                "opened %d of %d partitions, %d of %d MB",
                len(opened),
                len(self._folders),
                sum(map(sizes.__getitem__, opened)) // _MB,
                sum(sizes.values()) // _MB,
            )


def _log_bytes(folder: str) -> int:
    """What the segments of a folder take of the disk."""
    total = 0
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(".log"):
                total += entry.stat().st_blocks * 512
    return total
