"""What the coordinators of groups are built on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from kbroker.clock import Clock
from kbroker.ext.pulses import Pulses
from kbroker.group.loading import Load
from kbroker.group.settings import GroupSettings
from kbroker.group.topics import Topics
from kbroker.storage.manager import LogPort


class Host(Protocol):
    """What the coordinators are built on; the wiring provides it."""

    @property
    def clock(self) -> Clock: ...
    @property
    def topics(self) -> Topics: ...
    @property
    def pulses(self) -> Pulses: ...
    def settings(self) -> GroupSettings: ...
    def partitions(self) -> int:
        """How many partitions `__consumer_offsets` has; 0 where it is not there."""

    def log(self, partition: int) -> LogPort | None:
        """The log of a partition of it, None where it is not made yet or is offline."""

    def is_offline(self, partition: int) -> bool:
        """Whether the disk denies it."""

    def load(self, log: LogPort, *, strict: bool) -> Load:
        """See kbroker.group.slot_loads.Host."""

    def batch_bytes_max(self) -> int:
        """max.message.bytes of it."""

    def codec(self) -> str:
        """How its batches are compressed, as kbroker.ext.records.build takes it."""

    def post(self, do: Callable[[], None]) -> None:
        """From any thread: have it done on the control thread, soon."""
