"""Damage of `__transaction_state`, which a repair must not take away too early.

A start that meets damage doubts every transactional id whose last record stands before it, as a
later one may be lost, and settles the id by a record behind the damage (kbroker.txn.doubt). A log
without the damage gives no cause to doubt: epochs would be given out twice, and transactions
committed without the partitions that are lost. So bytes are dropped when each id that is known has
a record behind the last damage, and the log is never cut, as behind the cut those records are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from kbroker.care.backup_txn import STATE
from kbroker.care.faults import Checked, Fault
from kbroker.care.segments import Damage, SegmentFile
from kbroker.errors import OperatorError
from kbroker.ext.records import BatchError, Record, records
from kbroker.txn.records import Records

__all__ = ["check_droppable", "is_state", "refuse_cut"]

_ELSE: Final = (
    "start the broker first: it passes over the damage, settles that by records of its own and goes"
    " on, with the damage or without. Then stop it and --drop; or restore a backup"
)


def is_state(folder: Path) -> bool:
    """Whether it is a partition of `__transaction_state`."""
    return folder.name.rpartition("-")[0] == STATE


def refuse_cut(folder: Path) -> OperatorError:
    """What is said to who wants its log cut."""
    return OperatorError(
        f"{folder}: a log of transactions is not cut, as what is behind the damage is the later"
        " state of them: --drop takes out the damage alone"
    )


def check_droppable(checked: Sequence[Checked], broken: Sequence[Fault]) -> None:
    """Raises OperatorError while an id is in doubt by one of these faults."""
    folder = checked[0].path.parent
    damage = max(fault.offset for fault in broken)
    unread = {(fault.path, fault.position) for fault in broken}
    decode = Records(int(folder.name.rpartition("-")[2])).decode
    last: dict[str, int] = {}
    for record in _sound_records([one.path for one in checked], unread):
        found = decode(record.offset, record.key, record.value)
        if found is None:
            continue
        last.pop(found[0], None)
        if found[1] is not None:
            last[found[0]] = record.offset
    count = sum(offset < damage for offset in last.values())
    if count:
        raise OperatorError(
            f"{folder}: of {count} transactional ids a later state may be among what is damaged,"
            f" which nobody could tell any more: {_ELSE}"
        )


def _sound_records(segments: Sequence[Path], unread: set[tuple[Path, int]]) -> Iterator[Record]:
    """As a start reads them: not from batches whose offsets go back."""
    for path in segments:
        with SegmentFile(path) as file:
            for batch in file.batches():
                if isinstance(batch, Damage) or (path, batch.position) in unread:
                    continue
                try:
                    yield from records(file.read(batch.position, batch.length))
                except BatchError:  # passed over by a start, and left as it is by a repair
                    continue
