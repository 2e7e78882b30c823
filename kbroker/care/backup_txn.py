"""Transactions in a backup of a live directory: each is in it whole, or not at all.

A moment is chosen, and `__transaction_state` taken as it was then: the control thread alone writes
to it, with its clock, so that records up to that moment are one state of all transactional ids,
whatever partition they are in. Of what partitions got later, everything stays that belongs to this
state: records of transactions that were open in it, markers of those that were decided. The first
batch of any other is where a log is cut: what follows it came after the moment as well. So the
restored broker finishes what was decided and aborts what was open, and no log holds records of a
transaction that its coordinator does not know, for which readers would wait for ever.

Marker and state of version 2 of the protocol (KIP-890) are told apart by epochs: what is prepared
has the epoch of its markers already, which is that of the next transaction's records as well. In
version 1 a producer keeps its epoch; there the times that the broker gave them tell a marker from
that of the transaction before, and what follows the marker of what was prepared is new.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from kbroker.care.folders import Key
from kbroker.care.segments import Damage, SegmentFile, read_index
from kbroker.ext.records import Batch, Record, records
from kbroker.files import list_names
from kbroker.group.records import Records as GroupRecords
from kbroker.metadata.records.classic_group import OffsetCommitKey, OffsetCommitValue
from kbroker.txn.records import Records
from kbroker.txn.transaction import AT_REST, BUMPS_EPOCHS, EPOCH_MAX, PREPARED, State, Transaction

__all__ = ["OFFSETS", "STATE", "Decided", "Place", "beyond", "later", "tail"]

STATE: Final = "__transaction_state"
OFFSETS: Final = "__consumer_offsets"


class Place(NamedTuple):
    """A batch of a partition: the segment's base offset and file, and the batch in it."""

    base: int
    log: Path
    batch: Batch


def tail(folder: Path, bases: Sequence[int], first: int, end: int) -> Iterator[Place]:
    """The batches of a partition from offset `first` to before `end`, as far as they are whole."""
    for number, base in enumerate(bases):
        if number + 1 < len(bases) and bases[number + 1] <= first:
            continue
        log = folder / f"{base:020}.log"
        with SegmentFile(log) as file:
            for batch in file.batches(_position(log, first, file.size), beyond=False):
                if isinstance(batch, Damage) or batch.base_offset >= end:
                    return
                if batch.base_offset >= first:
                    yield Place(base, log, batch)


def _position(log: Path, offset: int, size: int) -> int:
    """Where a batch begins, at or before the one of this offset."""
    try:
        entries = read_index(log.with_suffix(".index"))
    except FileNotFoundError:
        return 0
    return max((e.position for e in entries if e.offset <= offset and e.position < size), default=0)


def later(batches: Iterable[Place], moment_ms: int) -> Place | None:
    """The first of `__transaction_state` that was written after a moment."""
    return next((one for one in batches if one.batch.max_timestamp > moment_ms), None)


class Decided:
    """What `__transaction_state` says in the log directories of a broker, by producer id."""

    def __init__(self, directories: Sequence[Path]) -> None:
        self._directories = directories
        self._known: dict[int, Transaction] | None = None

    def undecided(self, key: Key, batches: Iterable[Place]) -> Place | None:
        """The first batch of a partition that is of a transaction begun or decided later."""
        told = [one for one in batches if one.batch.transactional]
        ended: dict[int, int] = {}
        done: set[int] = set()  # producers whose last decision has its marker: what follows is new
        for at, one in enumerate(told):
            producer_id = one.batch.producer_id
            if one.batch.control and producer_id not in done and self._is_decided(one.batch):
                ended[producer_id] = at
                if self._is_of_last_decision(one.batch):
                    done.add(producer_id)
        for at, one in enumerate(told):
            producer_id = one.batch.producer_id
            if at > ended.get(producer_id, -1) and (
                producer_id in done or not self._is_open(key, one.batch)
            ):
                return one
        return None

    def _of(self, producer_id: int) -> Transaction | None:
        if self._known is None:
            values = [one for path in self._directories for one in _values(path)]
            # Whoever has got a new producer id has done with the one before.
            past = {one.previous_producer_id: one._replace(epoch=EPOCH_MAX, state=State.EMPTY)
                    for one in values}  # fmt: skip
            self._known = past | {one.producer_id: one for one in values}
        return self._known.get(producer_id)

    def _is_open(self, key: Key, batch: Batch) -> bool:
        """Whether it holds records of a transaction that was open or prepared."""
        now = self._of(batch.producer_id)
        return not (
            batch.control
            or now is None
            or now.state in AT_REST
            or batch.producer_epoch > now.epoch
            or (batch.producer_epoch == now.epoch and _has_bumped(now))
            or key not in now.partitions
        )

    def _is_decided(self, marker: Batch) -> bool:
        """Whether it is of a transaction that was decided by then."""
        now = self._of(marker.producer_id)
        if now is None or marker.producer_epoch != now.epoch:
            return now is not None and marker.producer_epoch < now.epoch
        if now.version >= BUMPS_EPOCHS or now.state in PREPARED:
            return True
        last_ms = now.started_ms if now.state is State.ONGOING else now.updated_ms
        return marker.max_timestamp <= last_ms

    def _is_of_last_decision(self, marker: Batch) -> bool:
        """Whether a marker is that of what was prepared, not of a transaction before."""
        now = self._of(marker.producer_id)
        if now is None or now.state not in PREPARED or marker.producer_epoch != now.epoch:
            return False
        return now.version >= BUMPS_EPOCHS or marker.max_timestamp >= now.updated_ms


def _has_bumped(now: Transaction) -> bool:
    """Whether it was prepared with the epoch of the transaction that comes next."""
    return now.state in PREPARED and now.version >= BUMPS_EPOCHS


def _values(data: Path) -> Iterator[Transaction]:
    """Of each transactional id the last."""
    for folder in (data / name for name in list_names(data) if name.startswith(f"{STATE}-")):
        reader = Records(int(folder.name.rpartition("-")[2]))
        found: dict[str, Transaction | None] = {}
        bases = [int(name[:-4]) for name in list_names(folder) if name.endswith(".log")]
        for offset, key, value in _records(tail(folder, bases, 0, 1 << 63)):
            told = reader.decode(offset, key, value)
            if told is not None:
                found[told[0]] = told[1]
        yield from (value for value in found.values() if value is not None)


def _records(places: Iterable[Place]) -> Iterator[tuple[int, bytes | None, bytes | None]]:
    for place in places:
        if not place.batch.control:
            for one in _read(place):
                yield one.offset, one.key, one.value


def _read(place: Place) -> list[Record]:
    with SegmentFile(place.log) as file:
        return records(file.read(place.batch.position, place.batch.length))


def beyond(batches: Iterable[Place], ends: Mapping[Key, int]) -> Place | None:
    """The first of `__consumer_offsets` with an offset behind the end of its partition."""
    reader = GroupRecords(0)
    for place in batches:
        for offset, key, value in _records([place]):
            told = reader.decode(offset, key, value)
            if told is None or not isinstance(told.key, OffsetCommitKey):
                continue
            end = ends.get((told.key.topic, told.key.partition))
            if (
                end is not None
                and isinstance(told.value, OffsetCommitValue)
                and told.value.offset > end
            ):
                return place
    return None
