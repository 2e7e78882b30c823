"""A compacted log with a past: keyed records of many producers, and what a reader must find.

`History` appends to a log what it is told, and keeps beside it, in dicts, what the last value of
each key is once aborted transactions are left out.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, NamedTuple

from kbroker.ext import records, testing_log
from kbroker.ext.cleaner import Cleaned, Cleaner, Throttle, survey
from kbroker.ext.log import Log
from tests.reference import cleaner as oracle
from tests.support.logs import marker

START_MS = 1_700_000_000_000
RETENTION_MS = 10_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
READ_COMMITTED = 1
COORDINATOR = 1
UNLIMITED = 1e300


class Data(NamedTuple):
    """A batch: rows of (key, value, milliseconds), and who writes it (-1: no producer)."""

    rows: list[tuple[bytes | None, bytes | None, int]]
    producer: int = -1
    transactional: bool = False
    codec: str = "none"


class End(NamedTuple):
    """The marker of a producer's transaction."""

    producer: int
    commit: bool


class Roll(NamedTuple):
    """A new segment."""


class Clean(NamedTuple):
    """A cleaning, so much later than the last one."""

    after_ms: int = 0
    entries_max: int = 1 << 20


Step = Data | End | Roll | Clean


class History:
    """`bumps`: each transaction ends in an epoch of its own, as from transaction version 2 on."""

    def __init__(self, log: Log, folder: Path, *, bumps: bool = False) -> None:
        self.log, self.folder, self.bumps = log, folder, bumps
        self.now_ms = START_MS
        self.checkpoint: int | None = None
        self.producers: dict[int, tuple[int, int]] = {}
        """Last data offset, -1 where the epoch has none, and epoch."""
        self.sequences: dict[int, int] = {}
        self.epochs: dict[int, int] = {}
        self.open: dict[int, list[tuple[int, bytes | None, bytes | None]]] = {}
        self.settled: list[tuple[int, bytes | None, bytes | None]] = []

    def run(self, steps: list[Step]) -> None:
        for step in steps:
            self.do(step)

    def do(self, step: Step) -> None:
        if isinstance(step, Data):
            self.append(step)
        elif isinstance(step, End):
            self.end(step)
        elif isinstance(step, Roll):
            self.log.roll()
        else:
            self.clean(step)

    def append(self, step: Data) -> None:
        producer = step.producer
        transactional = producer >= 0 and (step.transactional or producer in self.open)
        header: dict[str, Any] = {"codec": step.codec}
        epoch = self.epochs.get(producer, 0)
        if producer >= 0:
            header |= {"producer_id": producer, "producer_epoch": epoch,
                       "base_sequence": self.sequences.get(producer, 0),
                       "transactional": transactional}  # fmt: skip
        rows = [(START_MS + ms, key, value, [("h", b"1")] if ms % 3 == 0 else [])
                for key, value, ms in step.rows]  # fmt: skip
        data = records.build(rows, **header)
        code, base, last, *_ = testing_log.append(self.log, data, 0, START_MS)
        assert code == 0
        told = [(base + i, key, value) for i, (key, value, _) in enumerate(step.rows)]
        if producer >= 0:
            self.sequences[producer] = header["base_sequence"] + len(rows)
            self.producers[producer] = (last, epoch)
        if transactional:
            self.open.setdefault(producer, []).extend(told)
        else:
            self.settled += told

    def end(self, step: End) -> None:
        if step.producer not in self.open:
            return
        told = self.open.pop(step.producer)
        if step.commit:
            self.settled += told
        epoch = self.epochs.get(step.producer, 0)
        if self.bumps:
            epoch += 1
            self.epochs[step.producer], self.sequences[step.producer] = epoch, 0
            self.producers[step.producer] = (-1, epoch)
        code, *_ = testing_log.append(
            self.log, marker(step.producer, epoch, commit=step.commit, timestamp=START_MS),
            COORDINATOR, START_MS, transaction_version=2 if self.bumps else 0,
        )  # fmt: skip
        assert code == 0

    # ---- cleaning, beside the oracle

    def clean(self, step: Clean) -> Cleaned | None:
        self.now_ms += step.after_ms
        found = survey(self.log, self.checkpoint, self.now_ms)
        assert found is not None
        if found.first_uncleanable <= found.first_dirty:
            return None
        before = self.segments()
        settings = oracle.Settings(
            self.now_ms, RETENTION_MS, step.entries_max, segment_bytes=self.segment_bytes,
        )  # fmt: skip
        end, expected = oracle.clean(
            before, self.producers, found.first_dirty, found.first_uncleanable, settings,
        )  # fmt: skip
        # Slots are counted so that the map takes exactly entries_max keys.
        cleaner = Cleaner(
            Throttle(UNLIMITED), map_bytes=24 * (step.entries_max + 1),
            load_factor=step.entries_max / (step.entries_max + 1) + 1e-9, io_bytes=4096,
        )  # fmt: skip
        done = cleaner.clean(self.log, found, self.now_ms)
        assert done.end_offset == end
        after = [one for one in self.segments() if one.base_offset < found.first_uncleanable]
        assert [one.base_offset for one in after] == [one.base_offset for one in expected]
        for one, wanted in zip(after, expected, strict=True):
            assert one.batches == wanted.batches
            assert one.aborted == wanted.aborted
        self.checkpoint = end
        return done

    segment_bytes = 1 << 30

    def segments(self) -> list[oracle.Segment]:
        """What the files hold."""
        found = []
        for base, *_ in self.log.segments():
            stem = self.folder / f"{base:020}"
            sizes = [
                path.stat().st_size if (path := stem.with_suffix(suffix)).exists() else 0
                for suffix in (".index", ".timeindex")
            ]
            data = stem.with_suffix(".log").read_bytes()
            index = stem.with_suffix(".txnindex")
            aborted = oracle.decode_aborted(index.read_bytes()) if index.exists() else []
            found.append(oracle.Segment(base, oracle.content(data), len(data), *sizes, aborted))
        return found

    # ---- what a reader must find

    def expected(self) -> dict[bytes, bytes]:
        """The last value of each key, without tombstones."""
        last: dict[bytes, bytes | None] = {}
        for _, key, value in sorted(self.settled, key=lambda row: row[0]):
            if key is not None:
                last[key] = value
        return {key: value for key, value in last.items() if value is not None}

    def check(self) -> None:
        """A reader of committed records finds the last values; those below the last stable
        offset only."""
        stable = self.log.last_stable_offset
        mine = self.settled
        self.settled = [row for row in mine if row[0] < stable]
        wanted = self.expected()
        self.settled = mine
        assert read_committed(self.log) == wanted


def read_committed(log: Log, max_bytes: int = 3000) -> dict[bytes, bytes]:
    """As a consumer does it: with each read aborted transactions are told, by first offset."""
    last: dict[bytes, bytes | None] = {}
    at = log.log_start_offset
    while at < log.last_stable_offset:
        data = log.read(at, max_bytes, up_to="last_stable_offset")
        aborted = sorted(
            testing_log.read(log, at, max_bytes, READ_COMMITTED, True)[5], key=lambda one: one[1]
        )
        if not data:
            break
        gone: set[int] = set()
        for batch in oracle.content(data):
            while aborted and aborted[0][1] <= batch.last_offset:
                gone.add(aborted.pop(0)[0])
            at = batch.last_offset + 1
            if batch.control:
                if batch.records and (batch.records[0].key or b"")[2:4] == b"\0\0":
                    gone.discard(batch.producer_id)
                continue
            if batch.transactional and batch.producer_id in gone:
                continue
            for record in batch.records:
                if record.key is not None:
                    last[record.key] = record.value
    return {key: value for key, value in last.items() if value is not None}


def random_steps(seed: int, count: int, *, keys: int = 12, small_maps: bool = True) -> list[Step]:
    """A past that has everything."""
    dice = random.Random(seed)

    def data() -> Step:
        producer = dice.choice((-1, -1, 1, 2, 3, 4))
        rows: list[tuple[bytes | None, bytes | None, int]] = []
        for _ in range(dice.randrange(1, 8)):
            value = None if dice.random() < 0.15 else dice.randbytes(dice.randrange(40))
            rows.append((b"key-%d" % dice.randrange(keys), value, dice.randrange(50_000)))
        return Data(rows, producer, dice.random() < 0.4, dice.choice(CODECS))

    def clean() -> Step:
        entries = dice.choice((3, 8, 1000)) if small_maps else 1000
        return Clean(dice.choice((0, RETENTION_MS // 2, 2 * RETENTION_MS)), entries)

    steps: list[Step] = []
    for _ in range(count):
        draw = dice.random()
        if draw < 0.62:
            steps.append(data())
        elif draw < 0.78:
            steps.append(End(dice.randrange(1, 5), dice.random() < 0.5))
        elif draw < 0.92:
            steps.append(Roll())
        else:
            steps.append(clean())
    return steps
