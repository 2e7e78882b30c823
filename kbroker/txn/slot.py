"""One partition of `__transaction_state`: its log and the transactions that it holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kbroker.errors import ClientError, ErrorCode
from kbroker.group.loading import Piece
from kbroker.storage.manager import LogPort
from kbroker.txn.records import Records
from kbroker.txn.transaction import Partition, State, Transaction

LOADING, ACTIVE, FAILED = "loading", "active", "failed"
_RETRY_AFTER: Final = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


class Slot:
    """Owned by the control thread."""

    def __init__(self, partition: int, log: LogPort | None) -> None:
        self.partition = partition
        self.log = log
        self.state = LOADING
        self.transactions: dict[str, Transaction] = {}
        self.ongoing: set[str] = set()
        self.by_state = dict.fromkeys(State, 0)
        self.unmarked: dict[str, set[Partition]] = {}
        """Of transactions that end: partitions that have no marker yet."""
        self.marked: dict[str, list[tuple[LogPort, int]]] = {}
        """... the logs that got a marker, and where each ended then."""
        self.waiting: dict[str, list[Callable[[], None]]] = {}
        """What is tried again when a transaction has ended."""
        self._records = Records(partition)

    def active_log(self) -> LogPort:
        """The log. Raises ClientError while the slot cannot answer."""
        if self.state == LOADING:
            raise ClientError(_RETRY_AFTER)
        if self.state == FAILED or self.log is None:
            raise ClientError(ErrorCode.NOT_COORDINATOR)
        return self.log

    def replay(self, transactional_id: str, value: Transaction | None) -> None:
        """Fold a record in; no value forgets the id."""
        self.ongoing.discard(transactional_id)
        before = self.transactions.get(transactional_id)
        if before is not None:
            self.by_state[before.state] -= 1
        if value is None:
            self.transactions.pop(transactional_id, None)
            return
        self.transactions[transactional_id] = value
        self.by_state[value.state] += 1
        if value.state is State.ONGOING:
            self.ongoing.add(transactional_id)

    def take(self, piece: Piece) -> None:
        """Fold a piece of the partition in."""
        if self.state != LOADING:
            return
        for offset, key, value in piece.others:
            found = self._records.decode(offset, key, value)
            if found is not None:
                self.replay(*found)
