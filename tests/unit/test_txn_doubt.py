"""Ids whose last record stands before damage: nothing is half committed, and no epoch is given out
twice, whatever was lost, at the next start and the one after that, with the damage or without."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest

from kbroker.errors import ClientError, DiskError, ErrorCode
from kbroker.ext import records
from kbroker.group.partition import group_partition
from kbroker.txn.steps import Producer
from kbroker.txn.transaction import Partition, State, Transaction
from tests.support.txn_world import PARTITIONS, Client, World, outcomes
from tests.support.waits import wait_for

#: Of one partition of `__transaction_state`, which has two of them.
ID, OTHER = [name for name in map(str, range(20)) if group_partition(name, 2) == 0][:2]
STATE = ("state", 0)
A, A1, B = PARTITIONS
REFUSED = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
#: Of the server and of its client.
VERSIONS = [(0, 0), (1, 0), (2, 0), (2, 2)]


class Life:
    """A producer, and all producers that its id ever was."""

    def __init__(self, server: int, version: int) -> None:
        self.world = World(version=server)
        self.client = Client(self.world, ID, version)
        self.given: list[Producer] = []
        self.init()

    def init(self) -> None:
        if not self.client.init():
            assert self.client.init(), "the first one has its transaction aborted"
        self.note()

    def note(self) -> None:
        assert self.client.producer not in self.given, "an epoch is given out twice"
        self.given.append(self.client.producer)

    def end(self, commit: bool) -> None:
        """EndTxn, of which no more is on disk than before."""
        found = self.client.end(commit).response
        if self.client.version >= 2:
            self.client.producer = found
            self.note()

    def commit(self, *partitions: Partition) -> None:
        """A whole transaction."""
        self.client.write(*partitions)
        self.end(True)
        self.world.settle()

    def records(self) -> int:
        """How many the state has."""
        return len(self.world.logs[STATE].batches)

    def lose(self, kept: int) -> None:
        """The process ends, with all appends on disk, and begins again with all of the state
        damaged but the first ones; something of another id is damaged at least."""
        other = Client(self.world, OTHER, self.client.version)
        other._perform(self.world.coordinator.init(OTHER, 60_000, None))
        self.damage(kept)
        self.world.crash(len(self.world.stream.appends))
        self.world.settle()

    def damage(self, kept: int) -> None:
        batches = self.world.logs[STATE].batches[kept:]
        self.world.damaged = {STATE: {records.batches(one)[0].base_offset for one in batches}}

    def start_again(self, dropped: bool) -> None:
        """The next start, with the damage, or behind `kbroker log repair --drop`."""
        world = self.world
        world.settle()
        world.coordinator.stop()
        left = world.kept(len(world.stream.appends))
        if dropped:
            damaged = world.damaged.pop(STATE)
            left[STATE] = [
                one for one in left[STATE] if records.batches(one)[0].base_offset not in damaged
            ]
        world.start(left)
        world.settle()

    def now(self) -> Transaction:
        return dict(self.world.coordinator.all_transactions())[ID]

    def ends(self) -> dict[Partition, Collection[str]]:
        """What became of the values of each partition."""
        return {one: [*found.values()] for one, found in outcomes(self.world).items() if found}

    def check_is_refused(self) -> None:
        """Everything that the producer before the damage asks."""
        assert self.client.add([B]).came in REFUSED
        assert self.client.end(True).came in REFUSED
        assert self.client.end(False).came in REFUSED
        if self.client.version >= 2:
            assert self.client.send([B])[B] in REFUSED

    def check_goes_on(self, dropped: bool) -> None:
        """Restarted, with the damage or without: a new producer is new, and commits."""
        ends = self.ends()
        self.start_again(dropped)
        assert self.ends() == ends
        self.check_is_refused()
        self.init()
        self.commit(A)
        assert self.now().state is State.COMPLETE_COMMIT
        self.start_again(dropped=False)
        self.init()


@pytest.fixture(params=[False, True], ids=["damaged", "dropped"])
def dropped(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.mark.parametrize(("server", "version"), VERSIONS)
def test_a_partition_that_was_added_is_lost(server: int, version: int, dropped: bool) -> None:
    """What is known of the transaction is aborted, not committed without the rest."""
    life = Life(server, version)
    life.client.write(A)
    kept = life.records()
    life.client.write(B)
    life.lose(kept)
    assert life.now().state is State.COMPLETE_ABORT
    assert life.ends() == {A: ["abort"], B: ["open"]}
    life.check_is_refused()
    life.check_goes_on(dropped)


@pytest.mark.parametrize(("server", "version"), VERSIONS)
def test_the_beginning_of_a_transaction_is_lost(
    server: int, version: int, dropped: bool
) -> None:
    """Its producer cannot go on with the rest."""
    life = Life(server, version)
    kept = life.records()
    life.client.write(A)
    life.lose(kept)
    assert life.ends() == {A: ["open"]}
    life.check_is_refused()
    life.check_goes_on(dropped)


@pytest.mark.parametrize(("server", "version"), VERSIONS)
def test_whole_transactions_are_lost(server: int, version: int, dropped: bool) -> None:
    """Behind a decision that has its markers: it is none about the one that is open by now."""
    life = Life(server, version)
    life.commit(A, B)
    prepared = life.records() - 1
    life.commit(A)
    life.commit(B)
    life.init()
    life.client.write(A, A1)
    life.lose(prepared)
    assert life.ends()[A][-1] == life.ends()[A1][-1] == "open"
    assert "open" not in life.ends()[B]
    life.check_is_refused()
    life.check_goes_on(dropped)


@pytest.mark.parametrize(("server", "version"), VERSIONS)
def test_a_decision_is_none_about_the_next_transaction(
    server: int, version: int, dropped: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Which has the same epoch in version 1."""
    life = Life(server, version)
    life.commit(A, B)
    prepared = life.records() - 1
    life.client.write(A)
    life.lose(prepared)
    assert life.ends()[A][-1] == "open"
    assert life.ends()[B] == ["commit"]
    assert ("what came of it is lost" in caplog.text) == (version < 2)
    life.check_is_refused()
    life.check_goes_on(dropped)


@pytest.mark.parametrize(("server", "version"), VERSIONS)
def test_epochs_behind_an_open_transaction_are_lost(
    server: int, version: int, dropped: bool
) -> None:
    """And the end that it had: what was committed stays so."""
    life = Life(server, version)
    life.client.write(A)
    kept = life.records()
    life.end(True)
    life.world.settle()
    for _ in range(3):
        life.init()
    life.lose(kept)
    assert life.ends() == {A: ["commit"]}
    life.check_is_refused()
    life.check_goes_on(dropped)


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize(("server", "version"), VERSIONS)
def test_a_decision_that_is_known_and_has_no_markers(
    server: int, version: int, commit: bool, dropped: bool
) -> None:
    """It is carried out, unless it is a commit of version 1."""
    life = Life(server, version)
    life.client.write(A, B)
    life.end(commit)
    life.lose(life.records())
    end = "abort" if not commit else "commit" if version >= 2 else "open"
    assert life.ends() == {A: [end], B: [end]}
    life.check_is_refused()
    life.check_goes_on(dropped)


@pytest.mark.parametrize("commit", [True, False])
def test_a_decision_that_is_lost_and_has_a_marker(commit: bool, dropped: bool) -> None:
    """The rest of the transaction is left as it is: it may be the other end that was decided."""
    life = Life(2, 2)
    life.client.write(A, B)
    kept = life.records()
    life.end(commit)
    life.world.sync(1)
    life.damage(kept)
    life.world.crash(len(life.world.stream.appends) - 1)
    life.world.settle()
    assert life.ends() == {A: ["commit" if commit else "abort"], B: ["open"]}
    assert life.now().state is State.EMPTY
    life.check_is_refused()
    life.check_goes_on(dropped)


def test_nothing_is_served_before_it_is_settled(dropped: bool) -> None:
    """The disk takes no record at first."""
    life = Life(2, 2)
    life.client.write(A)
    world, kept = life.world, life.records()
    life.client.write(B)
    life.damage(kept)
    world.coordinator.stop()
    world.open(world.kept(len(world.stream.appends)))
    log = world.logs[STATE]
    slot = world.coordinator._slots[0]
    log.append = refuse  # type: ignore[method-assign]

    def is_read() -> bool:
        world.run_posted()
        return slot.state != "loading"

    wait_for("the slot is read", is_read, 10, pause_s=0.002)
    assert life.client.end(True).came is ErrorCode.NOT_COORDINATOR
    with pytest.raises(ClientError):
        life.now()
    del log.append
    world.advance(1_000)
    wait_for("the slot is open", world.is_open, 10, pause_s=0.002)
    world.settle()
    assert life.ends() == {A: ["abort"], B: ["open"]}
    life.check_is_refused()
    life.check_goes_on(dropped)


def refuse(batch: bytes, **_: Any) -> None:
    raise DiskError("state", "the disk refuses")
