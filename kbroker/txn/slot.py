"""One partition of `__transaction_state`: its log and the transactions that it holds."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from kbroker.errors import ClientError, ErrorCode
from kbroker.group.loading import Piece
from kbroker.group.slot_loads import FAILED, LOADING
from kbroker.operations import Completion
from kbroker.storage.manager import LogPort
from kbroker.txn.records import Records
from kbroker.txn.transaction import Partition, State, Transaction

_RETRY_AFTER: Final = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


class Slot:
    """Owned by the control thread."""

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.name = f"__transaction_state-{partition}"
        self.log: LogPort | None = None
        """None until it is made."""
        self.paused = False
        """Its last append is under way on a slow disk (kbroker.group.pauses)."""
        self.resumed: Completion[None] = Completion.of(None)
        self.begin()

    def begin(self) -> None:
        """Nothing is known of it: it is to be loaded, for the first time or once more."""
        self.state = LOADING
        self.transactions: dict[str, Transaction] = {}
        self.ongoing: set[str] = set()
        self.by_state = dict.fromkeys(State, 0)
        self.unmarked: dict[str, list[Partition]] = {}
        """Of transactions that end: partitions that have no marker yet."""
        self.marked: dict[str, list[tuple[LogPort, int]]] = {}
        """... the logs that got a marker, and where each ended then."""
        self.waiting: dict[str, list[Callable[[], None]]] = {}
        """What is tried again when a transaction has ended."""
        self.passed_over = 0
        """What of the log could not be read."""
        self.in_doubt: set[str] = set()
        """Ids of which a later record may have been passed over; to be settled (kbroker.txn.doubt)
        before the slot answers anybody."""
        self._offsets: dict[str, int] = {}
        self._problems: list[int] = []
        self._records = Records(self.partition)

    def active_log(self) -> LogPort:
        """The log. Raises ClientError while the slot cannot answer."""
        if self.state == LOADING:
            raise ClientError(_RETRY_AFTER)
        if self.state == FAILED or self.log is None:
            raise ClientError(ErrorCode.NOT_COORDINATOR)
        if self.paused:
            raise ClientError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
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

    def forget(self, transactional_ids: Iterable[str]) -> None:
        """Fold their tombstones in."""
        for name in transactional_ids:
            self.replay(name, None)

    def take(self, piece: Piece) -> None:
        """Fold a piece of the partition in."""
        if self.state != LOADING:
            return
        for offset, key, value in piece.others:
            found = self._records.decode(offset, key, value)
            if found is None:
                self.passed_over += 1
                continue
            self.replay(*found)
            self._offsets[found[0]] = offset
        self.passed_over += piece.problem_count
        self._problems += [offset for offset, _ in piece.problems]
        if piece.problem_count > len(piece.problems):  # where the others are was not kept
            assert self.log is not None
            self._problems.append(self.log.log_end_offset)

    def loaded(self) -> str:
        """All was taken: what stands before the last damage is in doubt."""
        damage = max(self._problems, default=0)
        self.in_doubt = {
            name for name in self.transactions if self._offsets.get(name, damage) < damage
        }
        self._offsets = {}
        return (
            f"{len(self.in_doubt)} transactional ids may have been further than is known: their"
            f" producers have to begin anew, and {len(self.in_doubt & self.ongoing)} transactions"
            " of them end without a commit; others may be missing (kbroker txn find-hanging finds"
            " what they left open)"
        )
