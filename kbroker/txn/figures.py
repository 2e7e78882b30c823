"""Transactions in numbers, for metrics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kbroker.group.slot_loads import LoadFigures, load_figures
from kbroker.txn.slot import Slot
from kbroker.txn.transaction import State


class Counts:
    """What has happened since the start; the control thread writes it."""

    def __init__(self) -> None:
        self.committed = 0
        self.aborted = 0
        self.timed_out = 0  # of those aborted

    def ended(self, prepared: State) -> None:
        """A transaction is complete that was in this state before."""
        if prepared is State.PREPARE_COMMIT:
            self.committed += 1
        else:
            self.aborted += 1


class Figures(NamedTuple):
    """How it is now. oldest_ms: since when the transaction that is open longest is, 0 for none;
    unmarked: partitions that wait for the marker of a transaction that ends; loads: of
    `__transaction_state`."""

    by_state: dict[str, int]
    oldest_ms: int
    unmarked: int
    loads: LoadFigures


def figures_of(slots: Sequence[Slot], now_ms: int) -> Figures:
    """Read on any thread beside the control thread, which owns the slots: what changes meanwhile
    may be missed."""
    by_state: dict[str, int] = {}
    started_ms = now_ms
    unmarked = 0
    for slot in slots:
        for state, count in slot.by_state.items():
            if count:
                by_state[state.label] = by_state.get(state.label, 0) + count
        for name in list(slot.ongoing):
            found = slot.transactions.get(name)
            if found is not None and found.started_ms >= 0:
                started_ms = min(started_ms, found.started_ms)
        unmarked += sum(map(len, list(slot.unmarked.values())))
    return Figures(by_state, now_ms - started_ms, unmarked, load_figures(slots))
