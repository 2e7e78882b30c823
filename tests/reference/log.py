"""A partition's log, the slow and obvious way: a list of batches and what follows from it.

Rules of Apache Kafka 4.3: which segment a batch goes to, what the indexes hold, which producers
may append what. Nothing here knows files; formats are in `decode_*`.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

INT32_MAX = 2**31 - 1


@dataclass
class Stored:
    """A batch as it lies in the log."""

    base_offset: int
    last_offset: int
    max_timestamp: int
    leader_epoch: int
    data: bytes


@dataclass
class Segment:
    base_offset: int
    batches: list[Stored] = field(default_factory=list)

    @property
    def size(self) -> int:
        return sum(len(one.data) for one in self.batches)

    def offset_index(self, interval: int) -> list[tuple[int, int]]:
        """(offset, position): an entry for a batch that begins more than `interval` bytes behind
        the last one that has an entry."""
        entries, position, since = [], 0, 0
        for one in self.batches:
            if since > interval:
                entries.append((one.last_offset, position))
                since = 0
            position += len(one.data)
            since += len(one.data)
        return entries

    def time_index(self, interval: int, sealed: bool) -> list[tuple[int, int]]:
        """(timestamp, offset) of the largest timestamp so far, at each offset index entry, and at
        the end; only where it has grown."""
        entries: list[tuple[int, int]] = []
        largest, largest_offset, since = -1, -1, 0

        def append() -> None:
            if largest > (entries[-1][0] if entries else -1):
                entries.append((largest, largest_offset))

        for one in self.batches:
            if one.max_timestamp > largest:
                largest, largest_offset = one.max_timestamp, one.last_offset
            if since > interval:
                append()
                since = 0
            since += len(one.data)
        if sealed:
            append()
        return entries


@dataclass
class Model:
    segment_bytes: int
    interval: int
    segments: list[Segment] = field(default_factory=lambda: [Segment(0)])
    log_start: int = 0
    leo: int = 0
    epochs: list[tuple[int, int]] = field(default_factory=list)  # (leader epoch, its first offset)

    @property
    def batches(self) -> list[Stored]:
        return [one for segment in self.segments for one in segment.batches]

    def append(self, stored: Stored) -> None:
        active = self.segments[-1]
        if active.batches and active.size + len(stored.data) > self.segment_bytes:
            self.roll()
        self.segments[-1].batches.append(stored)
        if not self.epochs or stored.leader_epoch > self.epochs[-1][0]:
            # An epoch that has nothing left goes when the next begins where it would have (Kafka's
            # LeaderEpochFileCache does so with entries that do not come before the new one).
            self.epochs = [one for one in self.epochs if one[1] < stored.base_offset]
            self.epochs.append((stored.leader_epoch, stored.base_offset))
        self.leo = stored.last_offset + 1

    def roll(self) -> None:
        if self.segments[-1].base_offset != self.leo:
            self.segments.append(Segment(self.leo))

    def set_start(self, offset: int) -> None:
        self.log_start = max(self.log_start, offset)
        past = [epoch for epoch, first in self.epochs if first <= self.log_start]
        if past:
            coming = self.epochs[len(past) :]
            self.epochs = [(past[-1], self.log_start), *coming]

    def delete_below_start(self) -> list[int]:
        gone = []
        while len(self.segments) > 1 and self.segments[1].base_offset <= self.log_start:
            gone.append(self.segments.pop(0).base_offset)
        return gone

    def truncate(self, offset: int) -> None:
        if offset >= self.leo:
            return
        if offset < self.segments[0].base_offset:
            self.segments = [Segment(offset)]
        while self.segments[-1].base_offset > offset:
            self.segments.pop()
        kept = [one for one in self.segments[-1].batches if one.last_offset < offset]
        self.segments[-1].batches = kept
        self.leo = offset
        self.log_start = min(self.log_start, offset)
        self.epochs = [(epoch, first) for epoch, first in self.epochs if first < offset]

    def read_from(self, offset: int) -> bytes:
        """Everything from the batch that holds the offset on."""
        return b"".join(one.data for one in self.batches if one.last_offset >= offset)

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """The greatest epoch that is not above this one, and where the next began; of a log with
        records, as one that has none left keeps its epoch only until it is opened again."""
        if not self.epochs or not 0 <= epoch <= self.epochs[-1][0]:
            return -1, -1
        if epoch == self.epochs[-1][0]:
            return epoch, self.leo
        below = [one for one, _ in self.epochs if one <= epoch]
        return below[-1] if below else epoch, self.epochs[len(below)][1]

    def offset_for_timestamp(self, timestamp: int) -> tuple[int, int, int] | None:
        """(offset, timestamp, leader epoch) of the first record that is not deleted and reaches the
        timestamp. The timestamps of a batch grow by one from record to record."""
        for one in self.batches:
            for offset in range(max(one.base_offset, self.log_start), one.last_offset + 1):
                if (at := one.max_timestamp - (one.last_offset - offset)) >= timestamp:
                    return offset, at, one.leader_epoch
        return None

    def offset_of_max_timestamp(self) -> tuple[int, int, int] | None:
        """The first with the largest of all timestamps, deleted or not as long as it is there."""
        if not self.batches:
            return None
        found = max(self.batches, key=lambda one: one.max_timestamp)
        return found.last_offset, found.max_timestamp, found.leader_epoch


# ---- producers


class RefusedError(Exception):
    """With the word for why."""


def add(sequence: int, n: int) -> int:
    return (sequence + n) % (INT32_MAX + 1)


@dataclass
class Producer:
    epoch: int = -1
    window: list[tuple[int, int, int, int]] = field(default_factory=list)


@dataclass
class Producers:
    """Sequences of idempotent producers, five batches deep."""

    known: dict[int, Producer] = field(default_factory=dict)

    def append(
        self, producer_id: int, epoch: int, first: int, count: int, offset: int
    ) -> tuple[int, int] | None:
        """Offsets of the batch that this one repeats, or None when it is new; or RefusedError."""
        state = self.known.get(producer_id, Producer())
        last = add(first, count - 1)
        if epoch == state.epoch:
            for old_first, old_last, old_base, old_end in state.window:
                if (old_first, old_last) == (first, last):
                    return old_base, old_end
        if epoch < state.epoch:
            raise RefusedError("epoch")
        if state.epoch >= 0 and epoch > state.epoch and first != 0:
            raise RefusedError("sequence")
        if state.epoch >= 0 and epoch == state.epoch:
            expected = add(state.window[-1][1], 1) if state.window else 0
            if first != expected:
                raise RefusedError("sequence")
        if epoch != state.epoch:
            state = Producer(epoch)
        state.window = [*state.window, (first, last, offset, offset + count - 1)][-5:]
        self.known[producer_id] = state
        return None

    def restart(self) -> None:
        """A snapshot keeps the last batch of each producer."""
        for state in self.known.values():
            state.window = state.window[-1:]


# ---- files


def decode_offset_index(data: bytes, base_offset: int) -> list[tuple[int, int]]:
    assert len(data) % 8 == 0
    return [(base_offset + offset, at) for offset, at in struct.iter_unpack(">ii", data)]


def decode_time_index(data: bytes, base_offset: int) -> list[tuple[int, int]]:
    assert len(data) % 12 == 0
    return [(time, base_offset + offset) for time, offset in struct.iter_unpack(">qi", data)]


def decode_snapshot(data: bytes) -> tuple[int, list[tuple[int, ...]]]:
    """CRC as stored, and (id, epoch, last sequence, last offset, offset delta, timestamp,
    coordinator epoch, first offset of the transaction) of each producer."""
    version, crc, count = struct.unpack_from(">hIi", data)
    assert version == 1
    entries = list(struct.iter_unpack(">qhiqiqiq", data[10:]))
    assert len(entries) == count
    return crc, entries


def decode_txn_index(data: bytes) -> list[tuple[int, ...]]:
    """(version, producer id, first offset, last offset, last stable offset)."""
    assert len(data) % 34 == 0
    return list(struct.iter_unpack(">hqqqq", data))
