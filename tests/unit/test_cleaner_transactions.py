"""Compaction of transactions: what was aborted goes at once, a marker when nothing needs it any
more, and no reader of committed records sees another world for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbroker.ext.cleaner import Cleaner, Throttle, survey
from tests.reference import cleaner as oracle
from tests.reference.cleaner_history import (
    RETENTION_MS,
    START_MS,
    UNLIMITED,
    Data,
    End,
    History,
    read_committed,
)
from tests.support.logs import open_log

SETTINGS = {"cleanup_compact": 1, "cleanup_delete": 0, "delete_retention_ms": RETENTION_MS}
FIRST, SECOND = 1, 2
"""Producers."""


class World:
    """A log, cleaned stage by stage; after each whole one it is opened anew as after a crash."""

    def __init__(self, folder: Path, *, bumps: bool, **settings: int) -> None:
        self.folder, self.settings = folder, SETTINGS | settings
        self.past = History(open_log(folder, **self.settings), folder, bumps=bumps)
        self.now_ms = START_MS
        self.index: list[tuple[int, int]] = []
        """(producer, first offset) of what the transaction indexes had after the last cleaning."""

    def write(self, key: bytes, value: bytes, producer: int = -1) -> None:
        self.past.append(Data([(key, value, 0)], producer, transactional=producer >= 0))

    def end(self, producer: int, *, commit: bool) -> None:
        self.past.end(End(producer, commit))

    def clean(self, after_ms: int = 0, keys: int = 1_000) -> list[tuple[int, str]]:
        """Everything but one record at the end, or as far as so many keys reach; what is left."""
        log = self.past.log
        log.roll()
        end = log.log_end_offset
        self.write(b"the end", b"%d" % end)
        self.now_ms += after_ms
        hands = Cleaner(
            Throttle(UNLIMITED), map_bytes=24 * (keys + 1), io_bytes=1 << 16,
            load_factor=keys / (keys + 1) + 1e-9,
        )  # fmt: skip
        found = survey(log, self.past.checkpoint, self.now_ms)
        assert found is not None
        self.past.checkpoint = hands.clean(log, found, self.now_ms).end_offset
        assert self.past.checkpoint == end or keys < end
        self.past.check()
        wanted = read_committed(log)
        self.index = [
            (one.producer_id, one.first_offset)
            for segment in self.past.segments()
            for one in segment.aborted
        ]
        if keys >= end:
            log.close(clean=False)
            self.past.log = open_log(self.folder, clean=False, **self.settings)
            assert read_committed(self.past.log) == wanted
        return [one for one in self.left() if one[0] < end]

    def left(self) -> list[tuple[int, str]]:
        """(base offset, what it is) of each batch; a "!" has a delete horizon."""
        return [
            (batch.base_offset, kind_of(batch) + ("!" if batch.horizon is not None else ""))
            for segment in self.past.segments()
            for batch in segment.batches
        ]


def kind_of(batch: oracle.Content) -> str:
    if not batch.records:
        return "empty"
    if batch.control:
        return "commit" if (batch.records[0].key or b"")[3] else "abort"
    return ",".join((one.key or b"").decode() for one in batch.records)


def test_from_version_2_on(tmp_path: Path) -> None:
    """The marker's epoch is the producer's newest: it is needed until there is a record in it."""
    world = World(tmp_path / "topic-0", bumps=True)
    world.write(b"a", b"aborted", FIRST)
    world.write(b"b", b"1", SECOND)
    world.end(FIRST, commit=False)
    world.end(SECOND, commit=True)
    world.write(b"c", b"1")
    # Readers that began before still need to know of what was aborted.
    assert world.clean() == [(1, "b"), (2, "abort"), (3, "commit"), (4, "c")]
    assert world.index == [(FIRST, 0)]
    # Nothing of it was met: its horizon is set. A committed record is there and keeps its marker.
    assert world.clean() == [(1, "b"), (2, "abort!"), (3, "commit"), (4, "c"), (5, "the end")]
    assert world.index == []
    assert (2, "abort!") in world.clean(RETENTION_MS - 1)
    # Its transaction needs it no more, but its epoch fences the producer's last one.
    assert world.clean(1)[:4] == [(1, "b"), (2, "empty"), (3, "commit"), (4, "c")]
    world.write(b"a", b"2", FIRST)
    world.end(FIRST, commit=True)
    world.write(b"b", b"2")
    assert world.clean()[:2] == [(3, "commit"), (4, "c")]  # its record was met, and has gone
    assert world.clean()[0] == (3, "commit!")
    assert world.clean(RETENTION_MS)[0] == (3, "empty")
    assert read_committed(world.past.log)[b"a"] == b"2"
    assert read_committed(world.past.log)[b"b"] == b"2"


def test_before_version_2(tmp_path: Path) -> None:
    """The producer goes on in its epoch: for its sequence the last batch stays, without records."""
    world = World(tmp_path / "topic-0", bumps=False)
    world.write(b"a", b"aborted", FIRST)
    world.write(b"b", b"1", SECOND)
    world.end(FIRST, commit=False)
    world.end(SECOND, commit=True)
    world.write(b"c", b"1")
    for after_ms in (0, RETENTION_MS, RETENTION_MS):
        left = world.clean(after_ms)
        assert left[:5] == [(0, "empty"), (1, "b"), (2, "abort"), (3, "commit"), (4, "c")]
        assert world.index == [(FIRST, 0)]
    world.write(b"a", b"2", FIRST)
    world.end(FIRST, commit=True)
    world.write(b"b", b"2")
    assert world.clean()[:3] == [(1, "empty"), (2, "abort"), (3, "commit")]
    assert world.clean()[:3] == [(1, "empty"), (2, "abort!"), (3, "commit")]
    assert world.index == []
    assert world.clean(RETENTION_MS)[:2] == [(1, "empty"), (3, "commit")]
    assert read_committed(world.past.log)[b"a"] == b"2"


@pytest.mark.parametrize("bumps", [False, True])
def test_what_is_not_decided_stays(tmp_path: Path, bumps: bool) -> None:
    """Nothing from the first open transaction on is touched, be it aborted in the end."""
    world = World(tmp_path / "topic-0", bumps=bumps)
    world.write(b"a", b"1")
    world.write(b"a", b"2")
    world.write(b"a", b"open", FIRST)
    world.write(b"b", b"1", SECOND)
    world.end(SECOND, commit=False)
    log = world.past.log
    log.roll()
    world.write(b"x", b"1")
    found = survey(log, None, START_MS)
    assert found is not None
    assert found.first_uncleanable <= 2
    world.end(FIRST, commit=False)
    left = world.clean()
    assert (1, "a") in left
    assert not [kind for _, kind in left if kind == "b"]
    assert read_committed(world.past.log)[b"a"] == b"2"


def test_a_range_that_begins_behind_a_marker(tmp_path: Path) -> None:
    """A full map ends a cleaning within a segment. The next one reads on behind the marker of a
    transaction that was aborted before, and must not take the producer's later ones for it: what
    they delete would come back when the tombstone goes."""
    world = World(tmp_path / "topic-0", bumps=True, index_interval_bytes=1)
    world.write(b"k", b"old")
    world.write(b"a", b"aborted", FIRST)
    world.end(FIRST, commit=False)
    for number in range(6):
        world.write(b"p%d" % number, b"1")
    assert world.clean(keys=4)[-1][1] == "p5"
    first_dirty = world.past.checkpoint
    assert first_dirty is not None and 3 < first_dirty < 8
    world.past.append(Data([(b"k", None, 0)], FIRST, transactional=True))
    world.end(FIRST, commit=True)
    for after_ms in (0, RETENTION_MS):
        world.clean(after_ms)
        assert b"k" not in read_committed(world.past.log)
    assert "k" not in {kind for _, kind in world.left()}
