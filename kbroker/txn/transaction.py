"""What the coordinator knows of one transactional id: a value, replaced by each step."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Final, NamedTuple

NO_PRODUCER_ID: Final = -1
NO_EPOCH: Final = -1
EPOCH_MAX: Final = (1 << 15) - 1
NO_TIMEOUT_MS: Final = (1 << 31) - 1
"""Of a transaction that another coordinator decides on (KIP-939): it does not time out."""
BUMPS_EPOCHS: Final = 2
"""The first transaction version in which every transaction has an epoch of its own (KIP-890)."""

Partition = tuple[str, int]


class State(IntEnum):
    """Numbers as records have them, labels as DescribeTransactions tells them."""

    label: str

    def __new__(cls, number: int, label: str) -> State:
        """A state of that number."""
        state = int.__new__(cls, number)
        state._value_ = number
        state.label = label
        return state

    EMPTY = 0, "Empty"
    ONGOING = 1, "Ongoing"
    PREPARE_COMMIT = 2, "PrepareCommit"
    PREPARE_ABORT = 3, "PrepareAbort"
    COMPLETE_COMMIT = 4, "CompleteCommit"
    COMPLETE_ABORT = 5, "CompleteAbort"
    DEAD = 6, "Dead"
    PREPARE_EPOCH_FENCE = 7, "PrepareEpochFence"


PREPARED: Final = frozenset({State.PREPARE_COMMIT, State.PREPARE_ABORT})
AT_REST: Final = frozenset({State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT})


class Transaction(NamedTuple):
    """Times are wall ms.

    previous_producer_id: before the last step. next_producer_id: which the producer gets when the
    transaction is complete, because its epochs are used up. last_epoch: before the current one,
    where the same producer went on; it is not in the log. version: of the protocol (0 or 2) that
    the client of the last step spoke, which decides what its marker must be like.
    """

    producer_id: int
    timeout_ms: int
    updated_ms: int
    epoch: int = NO_EPOCH
    state: State = State.EMPTY
    partitions: frozenset[Partition] = frozenset()
    started_ms: int = -1
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    last_epoch: int = NO_EPOCH
    version: int = 0

    def becomes(self, state: State, now_ms: int, **changes: Any) -> Transaction:
        """The next value."""
        return self._replace(
            state=state, updated_ms=now_ms, previous_producer_id=self.producer_id, **changes
        )

    @property
    def is_exhausted(self) -> bool:
        """Whether the producer id has no epoch left to give out; the last is kept for fencing."""
        return is_exhausted(self.epoch)


def is_exhausted(epoch: int) -> bool:
    """Whether no epoch above this one may be given to a producer."""
    return epoch >= EPOCH_MAX - 1
