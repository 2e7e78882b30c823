"""`kbroker log repair` of `__transaction_state`: first a start settles what is in doubt."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbroker.cli import root
from kbroker.ext.records import batches, build
from kbroker.txn.records import encode
from kbroker.txn.transaction import State, Transaction

Captured = pytest.CaptureFixture[str]

NAME = "00000000000000000000.log"
A, B = "a", "b"
GONE = "gone"
"""An id with a tombstone."""


def value(state: State) -> Transaction:
    return Transaction(producer_id=7, timeout_ms=60_000, updated_ms=1, epoch=0, state=state)


def partition(folder: Path, *ids: str, hit: int) -> Path:
    """A partition with a record of each id in turn, of which one is hit by damage."""
    place = folder / "__transaction_state-0"
    place.mkdir(parents=True)
    data = bytearray()
    for offset, name in enumerate(ids):
        record = encode(name, None if name == GONE else value(State.EMPTY), 1)
        data += build([(1_000, *record)], base_offset=offset, leader_epoch=0)
    data[batches(bytes(data))[hit].position + 70] ^= 1
    (place / NAME).write_bytes(data)
    return place


def repair(capsys: Captured, place: Path, *words: str) -> tuple[int, str, str]:
    status = root.run(["log", "repair", str(place), *words])
    said = capsys.readouterr()
    return status, said.out, said.err


@pytest.mark.parametrize(
    ("ids", "hit"),
    [
        ((A, A, B), 1),  # something of it, or of another one, is lost in the middle,
        ((A, B, A), 2),  # or at the end
        ((A, B, B, A, B, B), 4),
    ],
)
def test_damage_that_no_start_has_met_stays(
    capsys: Captured, tmp_path: Path, ids: tuple[str, ...], hit: int
) -> None:
    place = partition(tmp_path, *ids, hit=hit)
    before = (place / NAME).read_bytes()
    status, out, err = repair(capsys, place, "--drop")
    assert (status, out) == (1, "")
    assert "start the broker first" in err
    assert "restore a backup" in err
    assert (place / NAME).read_bytes() == before


@pytest.mark.parametrize(
    ("ids", "hit"),
    [
        ((A, A, B, A), 1),  # each has a record behind the damage, as a start writes them
        ((A, B, A), 0),
        ((GONE, A, A), 1),
        ((A, GONE, B), 0),
    ],
)
def test_damage_that_leaves_nothing_in_doubt_is_dropped(
    capsys: Captured, tmp_path: Path, ids: tuple[str, ...], hit: int
) -> None:
    place = partition(tmp_path, *ids, hit=hit)
    assert repair(capsys, place, "--drop")[0] == 0
    left = [one.base_offset for one in batches((place / NAME).read_bytes())]
    assert left == [offset for offset in range(len(ids)) if offset != hit]


def test_of_two_places_the_last_counts(capsys: Captured, tmp_path: Path) -> None:
    place = partition(tmp_path, A, A, A, B, B, hit=1)
    data = bytearray((place / NAME).read_bytes())
    data[-1] ^= 1
    (place / NAME).write_bytes(data)
    status, _, err = repair(capsys, place, "--drop")
    assert (status, "of 2 transactional ids" in err) == (1, True)


def test_offsets_that_go_back_are_damage_too(capsys: Captured, tmp_path: Path) -> None:
    """What such a batch says is not read at a start either."""
    place = partition(tmp_path, A, A, B, hit=0)
    data = (place / NAME).read_bytes()
    sound = data[batches(data, check_crc=False)[1].position :]
    again = build([(1_000, *encode(A, value(State.EMPTY), 1))], base_offset=1, leader_epoch=0)
    (place / NAME).write_bytes(sound + again)
    status, _, err = repair(capsys, place, "--drop")
    assert (status, "of 2 transactional ids" in err) == (1, True)


def test_a_log_of_states_is_never_cut(capsys: Captured, tmp_path: Path) -> None:
    """Behind the damage are the later states, and what a start has settled."""
    place = partition(tmp_path, A, A, A, hit=1)
    before = (place / NAME).read_bytes()
    status, _, err = repair(capsys, place, "--truncate")
    assert (status, "--drop" in err) == (1, True)
    assert (place / NAME).read_bytes() == before
    assert repair(capsys, place)[1].endswith("[--drop]\n")
