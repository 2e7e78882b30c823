"""What may be seen of transactions, the slow and obvious way: lists, and two questions.

What lies in each partition the model is told by the stream of appends. It knows the control batch
that ends a transaction, and so, for any high watermark, the last stable offset, what a reader of
committed records sees and which offset of a group holds. What a transaction may come to it knows
from its client alone: nobody but who began it can commit it, what was answered holds, and what one
reader has seen of it holds for all its records in all partitions.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple

from kbroker.ext.records import Record
from kbroker.txn.transaction import Partition
from tests.txn.machine import OFFSETS, STATE, Append

COMMIT, ABORT = "commit", "abort"
GroupKey = tuple[str, str, int]


class BrokenPromiseError(AssertionError):
    """Somebody saw what may not be."""


def check(right: bool, *told: object) -> None:
    if not right:
        raise BrokenPromiseError(" ".join(map(str, told)))


@dataclass
class Txn:
    """A transaction as its client knows it."""

    label: bytes
    may: set[str] = field(default_factory=lambda: {ABORT})
    acked: list[tuple[Partition, int]] = field(default_factory=list)
    seen: bool = False
    """Its end is durable in some partition, so `may` has one element."""


@dataclass
class Entry:
    """Records of one batch as they lie in a partition."""

    place: int
    base: int
    end: int
    producer_id: int
    txn: Txn | None
    rows: list[Record]
    outcome: str = ""
    """Of its transaction here, once there is a marker."""


class Mark(NamedTuple):
    """An end marker: it ended the transaction of these entries, none if there was none."""

    place: int
    offset: int
    producer_id: int
    outcome: str
    entries: list[Entry]


class PartitionModel:
    """The entries of a partition, which transactions are open in it, what is durable."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.open: dict[int, list[Entry]] = {}
        self.marks: list[Mark] = []
        """... in their order, those at least whose offset is not below hw yet."""
        self.start = self.end = self.hw = 0

    @property
    def lso(self) -> int:
        """Nothing at or above it may be read by who wants committed records."""
        firsts = [entries[0].base for entries in self.open.values()]
        firsts += [
            mark.entries[0].base for mark in self.marks if mark.offset >= self.hw and mark.entries
        ]
        return min([self.hw, *firsts])

    def add(self, place: int, append: Append, txn: Txn | None) -> None:
        batch, self.end = append.batch, append.end
        if batch.control:
            key = append.rows[0].key or b""
            outcome = COMMIT if key[3] else ABORT
            entries = self.open.pop(batch.producer_id, [])
            for entry in entries:
                entry.outcome = outcome
            mark = Mark(place, batch.base_offset, batch.producer_id, outcome, entries)
            self.marks.append(mark)
            return
        rows = [
            row._replace(offset=batch.base_offset + n) for n, row in enumerate(append.rows)
        ]
        entry = Entry(place, batch.base_offset, append.end, batch.producer_id, txn, rows)
        self.entries.append(entry)
        if batch.transactional:
            self.open.setdefault(batch.producer_id, []).append(entry)
        else:
            entry.outcome = COMMIT

    def visible(self, start: int, end: int, *, committed: bool) -> list[tuple[int, bytes]]:
        """Offset and value of what a reader finds from `start` up to `end`."""
        found = []
        at = bisect_right(self.entries, start, key=lambda entry: entry.end)
        for entry in itertools.islice(self.entries, at, None):
            if entry.base >= end:
                break
            if not committed or entry.outcome == COMMIT:
                rows = (row for row in entry.rows if start <= row.offset < end)
                found += [(row.offset, row.value or b"") for row in rows]
        return found

    def forget_below(self, offset: int) -> None:
        self.start = offset
        self.entries = [entry for entry in self.entries if entry.end > offset]

    def crashed(self, kept: int) -> None:
        """Of this life's appends so many are left, which from now on have always been there."""
        for mark in reversed(self.marks):
            if mark.place > kept:
                for entry in mark.entries:
                    entry.outcome = ""
                if mark.entries:
                    self.open[mark.producer_id] = mark.entries
        self.entries = [entry for entry in self.entries if entry.place <= kept]
        self.open = {
            producer: left
            for producer, entries in self.open.items()
            if (left := [entry for entry in entries if entry.place <= kept])
        }
        marks = [mark for mark in self.marks if mark.place <= kept]
        ends = [entry.end for entry in self.entries] + [mark.offset + 1 for mark in marks]
        self.end = self.hw = max([self.start, self.hw, *ends])
        for entry in self.entries:
            entry.place = 0
        self.marks = [mark._replace(place=0) for mark in marks[-100:]]


class Model:
    """All partitions, all transactions, and the offsets of groups."""

    def __init__(self) -> None:
        self.partitions: dict[Partition, PartitionModel] = defaultdict(PartitionModel)
        self.txns: dict[bytes, Txn] = {}
        self.of_offset: dict[int, bytes] = {}
        """The transaction that commits an offset of a group; no two commit the same."""
        self._unsynced: list[tuple[int, PartitionModel, int, Mark | None]] = []
        self.ended = 0

    def begin(self, label: bytes) -> Txn:
        """A client begins a transaction."""
        txn = self.txns[label] = Txn(label)
        return txn

    # ---- what clients are told

    def asks(self, txn: Txn, outcome: str) -> None:
        """It asks for this end: from now on it may come to it."""
        if not txn.seen:
            txn.may.add(outcome)

    def told(self, txn: Txn, outcome: str) -> None:
        """It was answered that this is the end."""
        self._ends(txn, outcome, "its client was told so")

    def _ends(self, txn: Txn, outcome: str, why: object) -> None:
        check(outcome in txn.may, f"{txn.label!r} can only {txn.may}, but {outcome}:", why)
        txn.may = {outcome}
        txn.seen = True

    def acked(self, txn: Txn, partition: Partition, offset: int, value: bytes) -> None:
        """A record was acknowledged at this offset."""
        model = self.partitions[partition]
        there = model.visible(offset, offset + 1, committed=False)
        check(there in ([], [(offset, value)]) and (there or offset < model.start),
              f"{partition} has {there} where {value!r} was acknowledged")  # fmt: skip
        txn.acked.append((partition, offset))

    # ---- what is on disk

    def appended(self, place: int, append: Append) -> None:
        topic, _ = append.partition
        if topic == STATE:
            return
        model = self.partitions[append.partition]
        model.add(place, append, self._txn_of(append))
        mark = model.marks[-1] if append.batch.control else None
        self._unsynced.append((place, model, append.end, mark))

    def _txn_of(self, append: Append) -> Txn | None:
        row = append.rows[0]
        if append.batch.control or not append.batch.transactional:
            return None
        if append.partition[0] == OFFSETS:
            label = self.of_offset.get(committed_offset(row), b"")
        else:
            label = (row.value or b"").partition(b"#")[0]
        check(label in self.txns, append.partition, "got a batch of one that has long ended", row)
        return self.txns[label]

    def synced(self, durable: int) -> None:
        at = 0
        for at, (place, model, end, mark) in enumerate(self._unsynced):  # noqa: B007
            if place > durable:
                break
            model.hw = end
            for entry in mark.entries if mark is not None else ():
                assert mark is not None and entry.txn is not None
                self._ends(entry.txn, mark.outcome, f"a marker at {mark.offset}")
                self.ended += 1
        else:
            at = len(self._unsynced)
        del self._unsynced[:at]
        for model in self.partitions.values():
            if len(model.marks) > 20:
                model.marks = [mark for mark in model.marks if mark.offset >= model.hw]

    def crashed(self, kept: int) -> None:
        self.synced(kept)
        self._unsynced.clear()
        for model in self.partitions.values():
            model.crashed(kept)

    # ---- what groups have committed

    def offset_of(self, partition: Partition, key: GroupKey) -> tuple[int, bool]:
        """What is committed for a key, -1 for nothing, and whether something is pending."""
        found, pending = -1, False
        for entry in self.partitions[partition].entries:
            for row in entry.rows:
                if group_key(row) != key:
                    continue
                if entry.outcome == COMMIT:
                    found = committed_offset(row)
                pending |= not entry.outcome
        return found, pending

    # ---- at rest

    def check_rest(self) -> None:
        """Everything has ended: nothing is open, nothing acknowledged is missing."""
        for partition, model in self.partitions.items():
            check(not model.open, partition, "is at rest, but open:", model.open)
            check(model.lso == model.end, partition, "is at rest, but stable only to", model.lso)
        for txn in self.txns.values():
            for partition, offset in txn.acked:
                model = self.partitions[partition]
                if offset < model.start:
                    continue
                seen = bool(model.visible(offset, offset + 1, committed=True))
                told = f"{txn.label!r} may {txn.may}; {offset} of {partition} is seen: {seen}"
                check(txn.may == {COMMIT if seen else ABORT}, told)
        self.txns = {label: txn for label, txn in self.txns.items() if not txn.seen}
        self.of_offset = {
            offset: label for offset, label in self.of_offset.items() if label in self.txns
        }


def group_key(row: Record) -> GroupKey:
    """OffsetCommitKey: int16 version, group and topic with int16 lengths, int32 partition."""
    data = row.key or b""
    names, at = [], 2
    for _ in range(2):
        size = int.from_bytes(data[at : at + 2], "big")
        names.append(data[at + 2 : at + 2 + size].decode())
        at += 2 + size
    return names[0], names[1], int.from_bytes(data[at : at + 4], "big")


def committed_offset(row: Record) -> int:
    """OffsetCommitValue: int16 version, int64 offset."""
    return int.from_bytes((row.value or b"")[2:10], "big")
