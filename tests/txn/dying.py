"""kbroker, which ends itself as kill -9 does at a step that a test names.

    KBROKER_TEST_DIE=FILE python -m tests.txn.dying start ...

FILE holds `NUMBER WHEN`. The steps of transactions since it was written are counted, their names
written to FILE.steps; at step NUMBER the process ends, WHEN is

    before      it is taken
    after       it was appended
    durable     the disk has it, and what follows from it is about to be done

With KBROKER_TEST_LAST_EPOCH, a transactional id's first producer id has one epoch left to give.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from kbroker.cli import main
from kbroker.group.appends import Appends
from kbroker.txn import steps as values
from kbroker.txn.coordinator import TransactionCoordinator
from kbroker.txn.durable import Durable
from kbroker.txn.markers import Markers
from kbroker.txn.transaction import EPOCH_MAX, Transaction
from kbroker.txn.writer import Writer

T = TypeVar("T")


class Steps:
    """Counts steps, and ends the process at one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.told, self.count = "", 0

    def _look(self) -> None:
        """What the file says now; another text begins to count anew."""
        told = self.path.read_text() if self.path.exists() else ""
        if told != self.told:
            self.told, self.count = told, 0

    def _ends(self, number: int, when: str) -> None:
        if self.told and self.told.split()[:2] == [str(number), when]:
            os.kill(os.getpid(), signal.SIGKILL)

    def around(self, name: str, take: Callable[[], T]) -> T:
        """A step is taken."""
        self._look()
        self.count += 1
        number = self.count
        if self.told:
            with self.path.with_suffix(".steps").open("a") as file:
                file.write(f"{name}\n")
        self._ends(number, "before")
        done = take()
        self._ends(number, "after")
        return done

    def then(self, do: Callable[[bool], T]) -> Callable[[bool], T]:
        """What follows from the step that was taken last."""
        number, told = self.count, self.told

        def durable(settled: bool) -> T:
            self._look()
            if told == self.told:
                self._ends(number, "durable")
            return do(settled)

        return durable


def watch(steps: Steps) -> None:
    """Every durable step of a transaction is one of `steps`."""
    append_state = Writer._append
    append_offsets = Appends.append
    begin_on, write, when = TransactionCoordinator.begin_on, Markers.write, Durable.when

    def state(self: Any, slot: Any, changes: Iterable[Any]) -> None:
        changes = list(changes)
        label = "/".join("gone" if value is None else value.state.label for _, value in changes)
        steps.around(label, lambda: append_state(self, slot, changes))

    def offsets(self: Any, slot: Any, outcome: Any) -> Any:
        if outcome.producer is None:
            return append_offsets(self, slot, outcome)
        return steps.around("offsets", lambda: append_offsets(self, slot, outcome))

    def batch(self: Any, *told: Any, then: Any, **more: Any) -> None:
        begin_on(self, *told, then=lambda refused: steps.around("go on", lambda: then(refused)),
                 **more)  # fmt: skip

    def marker(self: Any, partition: Any, *told: Any) -> Any:
        name = f"marker {partition[0]}"
        return steps.around(name, lambda: write(self, partition, *told))

    def told_marker(self: Any, partition: Any, marker: Any) -> Any:
        now_ms = self._host.clock.wall_ms()
        name = f"told marker {partition[0]}"
        return steps.around(name, lambda: write(self._markers, partition, marker, now_ms))

    def queue(self: Any, log: Any, offset: int, do: Any) -> None:
        when(self, log, offset, steps.then(do))

    for room, name, patched in (
        (Writer, "_append", state),
        (TransactionCoordinator, "begin_on", batch),
        (TransactionCoordinator, "write_marker", told_marker),
        (Appends, "append", offsets),
        (Markers, "write", marker),
        (Durable, "when", queue),
    ):
        setattr(room, name, patched)


if __name__ == "__main__":
    if "KBROKER_TEST_LAST_EPOCH" in os.environ:
        setattr(values, "Transaction", partial(Transaction, epoch=EPOCH_MAX - 2))  # noqa: B010
    watch(Steps(Path(os.environ["KBROKER_TEST_DIE"])))
    sys.exit(main())
