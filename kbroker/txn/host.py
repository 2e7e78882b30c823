"""What the coordinator of transactions is built on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from kbroker.clock import Clock
from kbroker.group.loading import Load
from kbroker.storage.manager import LogPort
from kbroker.txn.markers import Groups, Partitions
from kbroker.txn.settings import TransactionSettings


class Host(Partitions, Protocol):
    """The wiring provides it."""

    @property
    def clock(self) -> Clock: ...
    @property
    def groups(self) -> Groups: ...
    def settings(self) -> TransactionSettings: ...
    def partitions(self) -> int:
        """How many partitions `__transaction_state` has; 0 where it is not there."""

    def state_log(self, partition: int) -> LogPort | None:
        """The log of a partition of it, None where it is not made yet or is offline."""

    def is_offline(self, partition: int) -> bool:
        """Whether the disk denies it."""

    def load(self, log: LogPort, *, strict: bool) -> Load:
        """See kbroker.group.slot_loads.Host."""

    def new_producer_id(self) -> int: ...
    def tell(self, log: LogPort, offset: int) -> bool:
        """See kbroker.txn.durable.Tell."""

    def post(self, do: Callable[[], None]) -> None:
        """From any thread: have it done on the control thread, soon."""
