"""What LogManager asks of those beside it."""

from __future__ import annotations

from typing import Protocol

from kbroker.storage.log_directory import LogDirectory
from kbroker.storage.log_port import Key


class CleanerPort(Protocol):
    """What the log cleaner is told (kbroker.storage.cleaner); the control thread's."""

    def forget(self, keys: list[Key]) -> None: ...
    def write_checkpoint(self, directory: LogDirectory) -> None: ...  # any thread
    def reconfigure(self) -> None: ...


class MovesPort(Protocol):
    """The moves between directories (kbroker.storage.moves)."""

    def cancel(self, key: Key) -> None: ...
    def arriving_bytes(self, directory: LogDirectory) -> int: ...
