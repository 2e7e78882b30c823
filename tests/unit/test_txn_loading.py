"""Loading `__transaction_state`: what is damaged is passed over and costs no more than itself, and
what the disk refuses is read again."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from kbroker.errors import ClientError, DiskError, ErrorCode
from kbroker.ext import records
from kbroker.ext.offsets_load import OffsetsLoad
from kbroker.group.loading import Piece
from kbroker.group.partition import group_partition
from kbroker.group.slot_loads import LoadFigures
from kbroker.txn.coordinator import TransactionCoordinator
from kbroker.txn.loading import StateLoad
from kbroker.txn.steps import Producer
from kbroker.txn.transaction import State
from tests.support.logs import open_log
from tests.support.txn_world import PARTITIONS, START_MS, Client, World, outcomes
from tests.support.waits import wait_for

#: Of one partition of `__transaction_state`, which has two of them.
FIRST, SECOND = [name for name in map(str, range(20)) if group_partition(name, 2) == 0][:2]
STATE = ("state", 0)


@pytest.fixture
def world() -> World:
    return World()


def stop(world: World, *damaged: int) -> None:
    """The process ends, and begins again with these batches of the state damaged."""
    world.settle()
    world.damaged = {STATE: set(damaged)}
    world.crash(len(world.stream.appends))
    world.settle()


def test_a_damaged_batch_costs_only_what_was_in_it(world: World) -> None:
    """The one that was hit is forgotten, the other one's prepared transaction is finished."""
    for name in (FIRST, SECOND):
        client = Client(world, name, 2)
        assert client.init()
    client.send(PARTITIONS)
    world.settle()
    client.end(True)
    prepared = len(world.stream.appends)
    world.damaged = {STATE: {0}}
    world.crash(prepared)
    world.settle()
    ((name, found),) = world.coordinator.all_transactions()
    assert (name, found.state) == (SECOND, State.COMPLETE_COMMIT)
    assert {end for one in outcomes(world).values() for end in one.values()} == {"commit"}
    assert world.coordinator.figures().loads == LoadFigures(loading=0, failed=0, passed_over=1)


def test_who_stands_before_the_damage_gets_another_producer_id(world: World) -> None:
    """A later epoch may have been lost: with it, new records could pass for old ones."""
    first, second = Client(world, FIRST, 2), Client(world, SECOND, 2)
    assert first.init()
    assert first.init()
    assert second.init()
    before = first.producer, second.producer
    stop(world, 1)
    assert first.init()
    assert second.init()
    assert first.producer == Producer(max(one.id for one in before) + 1, 1)
    assert second.producer == Producer(before[1].id, before[1].epoch + 1)
    assert first.init()
    assert first.producer.epoch == 2, "in doubt no more"


def test_doubt_that_cannot_be_written_down_fails_the_load(world: World) -> None:
    """To serve the id would be to forget the doubt with the next start."""
    first, second = Client(world, FIRST, 2), Client(world, SECOND, 2)
    assert first.init()
    assert second.init()
    world.coordinator.stop()
    world.damaged, world.loads = {STATE: {1}}, []
    kept = world.kept(len(world.stream.appends))
    world.refuses_ids = True
    world.open(kept)
    until_loads(world, 1)
    with pytest.raises(ClientError) as raised:
        world.coordinator.slot(FIRST)
    assert raised.value.code is ErrorCode.NOT_COORDINATOR
    world.refuses_ids = False
    world.advance(1_000)
    until_loads(world, 2)
    assert first.init()
    assert first.producer.id > 2


def test_more_damage_than_is_kept_puts_everybody_in_doubt(world: World) -> None:
    client = Client(world, FIRST, 2)
    assert client.init()
    slot = world.coordinator.slot(FIRST)
    slot.begin()
    load = StateLoad(Damaged(world.logs[STATE].batches))
    while not load.done:
        slot.take(Piece(load.step()))
    slot.take(Piece(problem_count=load.problem_count, problems=load.problems))
    slot.loaded()
    assert slot.in_doubt == {FIRST}
    assert slot.passed_over == 200


class Damaged:
    """A reader of these batches (kbroker.group.loading.Load)."""

    problem_count = 200
    problems = ((0, "x"),)
    done = False

    def __init__(self, batches: list[bytes]) -> None:
        self._batches = batches

    def step(self) -> Any:
        self.done = True
        read = [one for data in self._batches for one in records.read(data)]
        return [(one.offset, one.key, one.value) for one in read]

    def packed(self, most: int = 0) -> Any:
        raise NotImplementedError

    pending = packed


def coordinator_of(world: World, refused: int) -> TransactionCoordinator:
    """The next life's, whose disk refuses the first reads."""
    assert Client(world, FIRST, 2).init()
    world.coordinator.stop()
    world.refused, world.loads = refused, []
    world.open(world.kept(len(world.stream.appends)))
    return world.coordinator


def until_loads(world: World, count: int) -> None:
    """Run until so many loads were begun, and what came of them is known."""

    def are_done() -> bool:
        world.run_posted()
        slot = world.coordinator._slots[0]
        return len(world.loads) == count and slot.state != "loading"

    wait_for(f"{count} loads", are_done, 10, pause_s=0.002)


def test_a_read_that_fails_once_is_tried_again(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    coordinator = coordinator_of(world, refused=1)
    until_loads(world, 1)
    assert coordinator.figures().loads.failed == 1
    with pytest.raises(ClientError) as raised:
        coordinator.all_transactions()
    assert raised.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    with pytest.raises(ClientError) as raised:
        coordinator.slot(FIRST)
    assert raised.value.code is ErrorCode.NOT_COORDINATOR
    assert "kbroker log repair" in caplog.text
    world.advance(999)
    assert len(world.loads) == 1
    world.advance(1)
    until_loads(world, 2)
    assert coordinator.figures().loads.failed == 0
    assert [name for name, _ in coordinator.all_transactions()] == [FIRST]


def test_what_is_refused_again_and_again_is_passed_over_at_last(world: World) -> None:
    coordinator_of(world, refused=6)
    pauses = []
    for count in range(1, 7):
        until_loads(world, count)
        due_ms = world.coordinator._timers.when((0, "", "load"))
        assert due_ms is not None
        pauses.append(due_ms - (world.wall_ms - START_MS))
        world.advance(pauses[-1])
    until_loads(world, 7)
    assert pauses == [1_000, 2_000, 4_000, 8_000, 16_000, 32_000]
    assert world.loads == [True] * 5 + [False] * 2
    assert world.is_open()


def test_a_reload_that_comes_too_late_does_nothing(world: World) -> None:
    coordinator = coordinator_of(world, refused=1)
    until_loads(world, 1)
    coordinator.close()
    world.advance(60_000)
    world.run_posted()
    assert len(world.loads) == 1


# ---- the reader


def filled(folder: Path) -> Any:
    log = open_log(folder, segment_bytes=1 << 20, index_interval_bytes=500)
    for number in range(60):
        pair = (START_MS, b"\0\0%d" % number, b"v")
        log.append(records.build([pair]), leader_epoch=0)
    return log


def damage_batch(log: Any, folder: Path, at: int, damage: bytes) -> None:
    """The thirtieth's, at this place."""
    path = next(folder.glob("*.log"))
    place = records.batches(path.read_bytes()[: log.size_bytes])[30].position
    with path.open("r+b") as file:
        file.seek(place + at)
        file.write(damage)


def keys_of(load: StateLoad) -> list[int]:
    found: list[int] = []
    while not load.done:
        found += [int(key[2:]) for _, key, _ in load.step()]
    return found


@pytest.mark.parametrize(
    ("at", "damage"),
    [(17, b"\1\2\3\4"), (8, b"\x7f"), (8, b"\xff" * 4), (0, b"\1"), (16, b"\1"), (65, b"\xff")],
)
def test_damage_of_any_field_is_passed_over(tmp_path: Path, at: int, damage: bytes) -> None:
    """Records whose keys are numbered as those of commits are, too, are given out as they are."""
    log = filled(tmp_path / "state-0")
    damage_batch(log, tmp_path / "state-0", at, damage)
    load = StateLoad(OffsetsLoad(log, commits=False, strict=True))
    found = keys_of(load)
    assert found[:30] == list(range(30))
    assert found[-20:] == list(range(40, 60))
    assert 30 not in found
    assert [offset for offset, _ in load.problems] == [30]
    log.close()


def test_the_last_record_of_a_key_counts_in_the_logs_order(tmp_path: Path) -> None:
    log = open_log(tmp_path / "state-0")
    pairs = [(START_MS, b"\0\0%d" % (number % 300), b"%d" % number) for number in range(1000)]
    log.append(records.build([*pairs, (START_MS, b"\0\0007", None)]), leader_epoch=0)
    load, steps = StateLoad(OffsetsLoad(log, commits=False)), []
    while not load.done:
        steps.append(load.step())
    rows = [row for step in steps for row in step]
    assert max(map(len, steps)) == 100
    assert [row[0] for row in rows] == sorted(row[0] for row in rows)
    assert {key[2:]: value for _, key, value in rows} == {
        b"%d" % (number % 300): b"%d" % number for number in range(700, 1000)
    } | {b"7": None}
    log.close()


def refuse_reads(path: Path) -> None:
    """Of this log, from now on."""
    fds = [
        int(fd.name)
        for fd in Path("/proc/self/fd").iterdir()
        if fd.is_symlink() and os.path.realpath(fd) == os.path.realpath(path)
    ]
    deaf = os.open(path, os.O_WRONLY)
    for fd in fds:
        os.dup2(deaf, fd)
    os.close(deaf)


def test_a_read_that_is_refused(tmp_path: Path) -> None:
    """By a strict reader it is told; another one passes over it."""
    log = filled(tmp_path / "state-0")
    refuse_reads(next((tmp_path / "state-0").glob("*.log")))
    with pytest.raises(DiskError, match="refuses"):
        keys_of(StateLoad(OffsetsLoad(log, commits=False, strict=True)))
    load = StateLoad(OffsetsLoad(log, commits=False, strict=False))
    assert keys_of(load) == []
    assert load.problem_count >= 1
    log.close()


@pytest.mark.parametrize("strict", [True, False])
def test_a_read_that_is_refused_while_the_end_of_damage_is_looked_for(
    tmp_path: Path, strict: bool
) -> None:
    """What stands behind the damage is not damaged: the next load may read it."""
    folder = tmp_path / "state-0"
    log = filled(folder)
    damage_batch(log, folder, 17, b"\1\2\3\4")
    load = OffsetsLoad(log, commits=False, strict=strict)
    load.step()
    assert not load.problem_count
    refuse_reads(next(folder.glob("*.log")))
    if strict:
        with pytest.raises(DiskError, match="refuses"):
            while not load.done:
                load.step()
    else:
        while not load.done:
            load.step()
        assert load.problem_count == 1
    log.close()
