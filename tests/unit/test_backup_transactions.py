"""Which batches of a live directory a backup takes, by what was decided at its moment."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbroker.care.backup_txn import Decided, Place
from kbroker.ext.records import Batch
from kbroker.txn.transaction import State, Transaction

KEY = ("t", 0)
PRODUCER, EPOCH = 7, 5
MOMENT_MS = 1_000


def place(offset: int, epoch: int, *, marker: bool = False, at_ms: int = MOMENT_MS) -> Place:
    batch = Batch(
        position=0, length=0, base_offset=offset, last_offset_delta=0, leader_epoch=0, magic=2,
        crc=0, attributes=0, base_timestamp=at_ms, max_timestamp=at_ms, producer_id=PRODUCER,
        producer_epoch=epoch, base_sequence=0, count=1, compression=0, transactional=True,
        control=marker, log_append_time=False,
    )  # fmt: skip
    return Place(0, Path("log"), batch)


def cut(state: State, version: int, places: list[Place]) -> int | None:
    """The offset at which the log is cut."""
    now = Transaction(
        producer_id=PRODUCER, timeout_ms=60_000, updated_ms=MOMENT_MS, epoch=EPOCH, state=state,
        partitions=frozenset({KEY}), started_ms=MOMENT_MS - 10, previous_producer_id=PRODUCER,
        next_producer_id=-1, last_epoch=-1, version=version,
    )  # fmt: skip
    decided = Decided([Path("nowhere")])
    decided._known = {PRODUCER: now}
    found = decided.undecided(KEY, places)
    return None if found is None else found.batch.base_offset


@pytest.mark.parametrize("seen", [True, False], ids=["marker", "marker-before"])
def test_what_follows_a_prepared_transaction_of_version_2_is_new(seen: bool) -> None:
    """It has the epoch that the prepared one was given with its decision."""
    marker = [place(2, EPOCH, marker=True, at_ms=MOMENT_MS + 1)] if seen else []
    own = [place(1, EPOCH - 1)] if seen else []
    assert cut(State.PREPARE_COMMIT, 2, [*own, *marker]) is None
    assert cut(State.PREPARE_COMMIT, 2, [*own, *marker, place(3, EPOCH)]) == 3


def test_what_follows_a_prepared_transaction_of_version_1_is_new() -> None:
    """It has the same epoch; the marker of what was prepared stands between."""
    before = [place(0, EPOCH, marker=True, at_ms=MOMENT_MS - 20), place(1, EPOCH)]
    marker = place(2, EPOCH, marker=True, at_ms=MOMENT_MS + 1)
    assert cut(State.PREPARE_COMMIT, 0, [*before, marker]) is None
    later = [place(3, EPOCH), place(4, EPOCH, marker=True, at_ms=MOMENT_MS + 5)]
    assert cut(State.PREPARE_COMMIT, 0, [*before, marker, *later]) == 3


def test_what_is_open_stays() -> None:
    assert cut(State.ONGOING, 2, [place(1, EPOCH)]) is None
    assert cut(State.ONGOING, 2, [place(1, EPOCH), place(2, EPOCH + 1, marker=True)]) == 2
