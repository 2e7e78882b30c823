"""What becomes of ids in doubt: those whose last record stands before damage of the log.

Records may be lost, and with them epochs that were given out and ends that were decided. So their
next producer gets another producer id, with which nothing it writes passes for something that is
there; and of a transaction only that is done which no lost record makes wrong:

- one that is open is aborted, and so is one that was to be. Where a partition of it shows a later
  epoch its end was decided and the decision is lost: what is left of it stays as it is;
- a commit goes on in version 2 of the protocol, where a marker ends the transaction of its own
  epoch and no later one. Below, one epoch has many transactions, and the one that is open by now
  may be another, which nobody has committed: it stays as it is.

`kbroker txn find-hanging` shows what stays open. All of it is in a record of each id before the
slot answers anybody, so that it holds at the next start, with the damage or without.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from kbroker.txn.steps import NewId, fence
from kbroker.txn.transaction import (
    AT_REST,
    BUMPS_EPOCHS,
    EPOCH_MAX,
    NO_EPOCH,
    NO_PRODUCER_ID,
    PREPARED,
    State,
    Transaction,
)

_LOG: Final = logging.getLogger("kbroker.txn")


class Doubt:
    """Settles it. `has_later_epoch`: whether a partition of the transaction shows an epoch of its
    producer behind the one that is known."""

    def __init__(self, has_later_epoch: Callable[[Transaction], bool], new_id: NewId) -> None:
        self._has_later_epoch = has_later_epoch
        self._new_id = new_id

    def settle(
        self, name: str, now: Transaction, server_version: int, now_ms: int
    ) -> Transaction:
        """The value that an id in doubt goes on from."""
        if now.state in PREPARED and min(now.version, server_version) >= BUMPS_EPOCHS:
            return now.becomes(now.state, now_ms, next_producer_id=self._new_id())
        if now.state in (State.ONGOING, State.PREPARE_ABORT) and not self._has_later_epoch(now):
            return self._abort(now, server_version, now_ms)
        if now.state not in AT_REST:
            _LOG.warning("transaction %s was %s, and what came of it is lost: it gets no markers;"
                         " `kbroker txn find-hanging` shows what it left open",
                         name, now.state.label)  # fmt: skip
        return now.becomes(
            State.EMPTY,
            now_ms,
            producer_id=self._new_id(),
            epoch=0,
            last_epoch=NO_EPOCH,
            next_producer_id=NO_PRODUCER_ID,
            partitions=frozenset(),
            started_ms=-1,
        )

    def _abort(self, now: Transaction, server_version: int, now_ms: int) -> Transaction:
        fenced = fence(now, server_version, self._new_id, now_ms)
        if fenced.version < BUMPS_EPOCHS:
            # There it completes under the same id, of which no epoch is left then.
            return fenced._replace(epoch=EPOCH_MAX)
        if fenced.next_producer_id == NO_PRODUCER_ID:
            return fenced._replace(next_producer_id=self._new_id())
        return fenced
