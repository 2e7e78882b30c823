"""A log as the control plane sees it, and what is said of one that is to be opened."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, Protocol

Key = tuple[str, int]
"""Topic and number of a partition."""


class Directories(NamedTuple):
    """Ids of a broker's log directories: those that it serves from, and which of them take no new
    partitions."""

    online: Sequence[bytes]
    cordoned: Sequence[bytes] = ()


class LogPort(Protocol):
    """What the control plane asks of a log (kbroker.ext.log.Log)."""

    @property
    def log_start_offset(self) -> int: ...
    @property
    def high_watermark(self) -> int: ...
    @property
    def last_stable_offset(self) -> int: ...
    @property
    def log_end_offset(self) -> int: ...
    @property
    def recovery_point(self) -> int: ...
    @property
    def size_bytes(self) -> int: ...
    @property
    def leader_epoch(self) -> int: ...
    @property
    def offline(self) -> str | None: ...
    @property
    def offline_errno(self) -> int: ...
    @property
    def directory(self) -> int:
        """The place of its directory among log.dirs: the logs of one are durable in the order of
        their appends, those of two are not."""

    def append(
        self,
        batches: bytes,
        *,
        leader_epoch: int,
        room_wait_ms: int = -1,
        transaction_version: int = 0,
    ) -> tuple[int, int]: ...
    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        up_to: Literal["high_watermark", "last_stable_offset", "log_end_offset"] = ...,
    ) -> bytes: ...
    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]: ...
    def producers(self) -> list[tuple[int, int, int, int, int, int]]: ...
    def in_transaction(self, producer_id: int, epoch: int) -> bool: ...
    def set_log_start_offset(self, offset: int) -> None: ...
    def delete_old_segments(self, now_ms: int) -> list[int]: ...
    def unlink_deleted(self, *, at_once: bool = False) -> int: ...
    def flush(self) -> int: ...
    def flush_due(self, now_ms: int, idle_ms: int) -> bool: ...
    def let_go(self, now_ms: int, idle_ms: int) -> int: ...
    def expire_producers(self, now_ms: int) -> int: ...
    def configure(self, config: dict[str, int]) -> None: ...
    def close(self, clean: bool = True, *, sync: bool = True) -> None: ...
    def mark_deleted(self) -> None: ...
    def take_offline(self, error: int) -> None: ...


class PartitionSpec(NamedTuple):
    """A partition that the metadata says is here; `config` is what its log takes."""

    topic: str
    topic_id: bytes
    partition: int
    config: dict[str, int]
    leader_epoch: int = 0
    home: bytes | None = None
    """Id of the log directory that the metadata says; None where it knows of none."""

    @property
    def folder(self) -> str:
        """Name of its folder."""
        return f"{self.topic}-{self.partition}"


class Opening(NamedTuple):
    """How a log is to be opened: what the checkpoints say, and whether the last stop was clean."""

    directory: str
    spec: PartitionSpec
    log_start_offset: int
    recovery_point: int
    clean: bool
    fresh: bool = False
    """The folder was created just now: nothing in it is looked for."""


LogOpener = Callable[[Opening], LogPort]
