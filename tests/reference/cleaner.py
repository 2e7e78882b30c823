"""Compaction, the slow and obvious way: rules of Apache Kafka 4.3 over lists of batches.

Nothing here knows files. A transaction's fate is known from the list of the aborted ones; keys are
kept whole; a segment is a base offset, its batches and the sizes of its files.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from kbroker.ext import records

INT32_MAX = 2**31 - 1
HORIZON = 0x40
CODEC = 0x07
NO_TIMESTAMP = -1


class Content(NamedTuple):
    """What a batch says, whatever its bytes."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    attributes: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records: tuple[records.Record, ...]

    @property
    def control(self) -> bool:
        return bool(self.attributes & 0x20)

    @property
    def transactional(self) -> bool:
        return bool(self.attributes & 0x10)

    @property
    def horizon(self) -> int | None:
        return self.base_timestamp if self.attributes & HORIZON else None


class Aborted(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


@dataclass
class Segment:
    base_offset: int
    batches: list[Content]
    bytes: int = 0
    index_bytes: int = 0
    time_index_bytes: int = 0
    aborted: list[Aborted] = field(default_factory=list)


@dataclass
class Settings:
    now_ms: int
    delete_retention_ms: int
    entries_max: int = 1 << 30
    segment_bytes: int = 1 << 30
    segment_index_bytes: int = 10 << 20


def content(data: bytes) -> list[Content]:
    """The batches of a file."""
    found = []
    for one in records.batches(data):
        rows = records.records(data, one.position) if one.count else []
        found.append(
            Content(
                one.base_offset, one.base_offset + one.last_offset_delta, one.leader_epoch,
                one.attributes, one.base_timestamp, one.max_timestamp, one.producer_id,
                one.producer_epoch, one.base_sequence, tuple(rows),
            )
        )
    return found


def decode_aborted(data: bytes) -> list[Aborted]:
    """A .txnindex."""
    return [
        Aborted(*(int.from_bytes(data[at + i : at + i + 8], "big") for i in (2, 10, 18, 26)))
        for at in range(0, len(data), 34)
    ]


class Transactions:
    """Which transactions are ongoing at a batch, and what was seen of them."""

    def __init__(self, aborted: list[Aborted]) -> None:
        self.coming = sorted(set(aborted), key=lambda one: one.first_offset)
        self.aborted: dict[int, Aborted] = {}
        self.seen: set[int] = set()
        self.committed: set[int] = set()

    def _reach(self, offset: int) -> None:
        while self.coming and self.coming[0].first_offset <= offset:
            one = self.coming.pop(0)
            self.aborted.setdefault(one.producer_id, one)

    def data(self, batch: Content) -> bool:
        """Whether it was aborted."""
        self._reach(batch.last_offset)
        if not batch.transactional:
            return False
        if batch.producer_id in self.aborted:
            self.seen.add(batch.producer_id)
            return True
        self.committed.add(batch.producer_id)
        return False

    def control(self, batch: Content) -> tuple[bool, Aborted | None]:
        """Whether the marker may go, and the index entry that stays with it."""
        self._reach(batch.last_offset)
        if not batch.records:
            return True, None
        key = batch.records[0].key
        assert key is not None
        kind = int.from_bytes(key[2:4], "big")
        if kind == 0:
            one = self.aborted.pop(batch.producer_id, None)
            if one is not None and batch.producer_id in self.seen:
                self.seen.discard(batch.producer_id)
                return False, one
            return True, None
        if kind == 1:
            known = batch.producer_id in self.committed
            self.committed.discard(batch.producer_id)
            return not known, None
        return False, None


def map_keys(
    segments: list[Segment], aborted: list[Aborted], first_dirty: int, end: int, entries_max: int
) -> tuple[dict[bytes, int], int]:
    """The last offset of each key from first_dirty on, and up to where that goes."""
    keys: dict[bytes, int] = {}
    latest = -1
    dirty = [one for one in segments if one.base_offset < end]
    while len(dirty) > 1 and dirty[1].base_offset <= first_dirty:
        dirty.pop(0)
    transactions = Transactions([one for one in aborted if one.last_offset >= dirty[0].base_offset])
    for index, segment in enumerate(dirty):
        for batch in segment.batches:
            gone = False
            if batch.control:
                transactions.control(batch)
            else:
                gone = transactions.data(batch)
            for record in () if batch.control or gone else batch.records:
                if record.key is not None and record.offset >= first_dirty:
                    if len(keys) >= entries_max:
                        return keys, latest
                    keys[record.key] = latest = record.offset
            if batch.last_offset >= first_dirty:
                latest = batch.last_offset
        latest = (dirty[index + 1].base_offset if index + 1 < len(dirty) else end) - 1
    return keys, latest


class Filter:
    """The fate of batches in their order."""

    def __init__(
        self, mapped: tuple[dict[bytes, int], int], aborted: list[Aborted],
        producers: dict[int, tuple[int, int]], settings: Settings, end: int,
    ) -> None:  # fmt: skip
        self.keys, self.latest = mapped
        self.settings, self.end = settings, end
        self.transactions = Transactions(aborted)
        self.producers = producers
        self.index: list[Aborted] = []

    def _record_stays(self, batch: Content, record: records.Record) -> bool:
        if record.offset > self.latest:
            return True
        if record.key is None or record.offset < self.keys.get(record.key, -1):
            return False
        early = batch.horizon is None or self.settings.now_ms < batch.horizon
        return record.value is not None or early

    def _holds_producer(self, batch: Content) -> bool:
        if batch.producer_id < 0 or batch.producer_id not in self.producers:
            return False
        last_data_offset, epoch = self.producers[batch.producer_id]
        if last_data_offset >= 0:
            return batch.last_offset == last_data_offset
        return batch.control and batch.producer_epoch == epoch

    def __call__(self, batch: Content) -> Content | None:
        """What is left of it, None for nothing."""
        spent = False
        if batch.control:
            spent, entry = self.transactions.control(batch)
            if entry is not None:
                self.index.append(entry)
            gone = spent and batch.horizon is not None and batch.horizon <= self.settings.now_ms
        else:
            gone = self.transactions.data(batch)
        kept = tuple(
            one
            for one in batch.records
            if not gone and (batch.control or self._record_stays(batch, one))
        )
        if not kept:
            if not self._holds_producer(batch) and batch.last_offset + 1 != self.end:
                return None
            attributes = batch.attributes & ~(HORIZON | CODEC)
            return batch._replace(attributes=attributes, base_timestamp=NO_TIMESTAMP, records=())
        new = batch.horizon is None and (spent or any(one.value is None for one in kept))
        if len(kept) == len(batch.records) and not new:
            return batch
        base, attributes = kept[0].timestamp, batch.attributes
        if new:
            base = self.settings.now_ms + self.settings.delete_retention_ms
            attributes |= HORIZON
        elif batch.horizon is not None:
            base = batch.horizon
        append_time = batch.attributes & 0x08
        largest = batch.max_timestamp if append_time else max(one.timestamp for one in kept)
        return batch._replace(
            attributes=attributes, base_timestamp=base, max_timestamp=largest, records=kept
        )


def groups(segments: list[Segment], end: int, settings: Settings) -> list[list[Segment]]:
    """Neighbours that become one segment."""
    found: list[list[Segment]] = []
    for index, one in enumerate(segments):
        following = segments[index + 1].base_offset if index + 1 < len(segments) else end
        group = found[-1] if found else []
        together = [*group, one]
        if (
            group
            and sum(each.bytes for each in together) <= settings.segment_bytes
            and sum(each.index_bytes for each in together) <= settings.segment_index_bytes
            and sum(each.time_index_bytes for each in together) <= settings.segment_index_bytes
            and (one.bytes == 0 or following - 1 - group[0].base_offset <= INT32_MAX)
        ):
            group.append(one)
        else:
            found.append([one])
    return found


def clean(
    segments: list[Segment], producers: dict[int, tuple[int, int]], first_dirty: int, end: int,
    settings: Settings,
) -> tuple[int, list[Segment]]:  # fmt: skip
    """One cleaning: up to where the log is clean now, and the segments below `end`, no sizes."""
    aborted = [one for segment in segments for one in segment.aborted if one.first_offset < end]
    segments = [one for one in segments if one.base_offset < end]
    keys, latest = map_keys(segments, aborted, first_dirty, end, settings.entries_max)
    mine = [one for one in segments if one.base_offset <= latest and one.base_offset < end]
    judge = Filter((keys, latest), aborted, producers, settings, end)
    cleaned = []
    for group in groups(mine, end, settings):
        judge.index = []
        left = [judge(batch) for segment in group for batch in segment.batches]
        kept = [one for one in left if one is not None]
        cleaned.append(Segment(group[0].base_offset, kept, aborted=judge.index))
    return latest + 1, cleaned + segments[len(mine) :]
