"""Transactions whose record stands in a disk that hangs: the step is taken when that is over."""

from __future__ import annotations

import pytest

from kbroker.errors import ErrorCode
from kbroker.txn.steps import Producer
from kbroker.txn.transaction import State
from tests.support.txn_world import PARTITIONS, TIMEOUT_MS, Client, World, outcomes


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def client(world: World) -> Client:
    """With a transaction on all partitions, which the disk has."""
    made = Client(world, "id", 2)
    assert made.init()
    made.send(PARTITIONS)
    world.settle()
    return made


def state_of(world: World) -> State:
    ((_, found),) = world.coordinator.all_transactions()
    return found.state


def ends(world: World) -> set[str]:
    return {state for one in outcomes(world).values() for state in one.values()}


def test_what_is_late_takes_place(world, client):
    world.stream.hangs = True
    answer = client.end(True)
    assert answer.came is None
    world.advance(1_000)
    assert answer.came is ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.settle()
    assert state_of(world) is State.ONGOING and ends(world) == {"open"}
    world.thaw()
    assert state_of(world) is State.PREPARE_COMMIT
    world.settle()
    assert state_of(world) is State.COMPLETE_COMMIT and ends(world) == {"commit"}
    assert world.coordinator.counts.committed == 1
    assert client.end(True).came == Producer(1, 1)


def test_a_step_that_is_slow_is_answered_when_it_is_taken(world, client):
    """No client sees an error for a disk that takes less than a second."""
    world.stream.hangs = True
    answer = client.end(True)
    world.advance(500)
    assert answer.came is None
    world.thaw()
    world.settle()
    assert answer.came == Producer(1, 1)
    assert state_of(world) is State.COMPLETE_COMMIT and ends(world) == {"commit"}
    assert world.coordinator.counts.committed == 1


def test_meanwhile_nothing_else_is_taken(world, client):
    world.stream.hangs = True
    client.end(True)
    late = world.stream.standing
    world.advance(1_000)
    assert client.end(False).came is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert client.add(PARTITIONS).came is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert not client.init()
    world.advance(TIMEOUT_MS + 10_001)
    world.settle()
    assert world.stream.standing is late and state_of(world) is State.ONGOING
    world.thaw()
    world.settle()
    assert ends(world) == {"commit"}


def test_a_refusal_that_is_late_changes_nothing(world, client, monkeypatch):
    world.stream.hangs = True
    answer = client.end(True)
    world.advance(1_000)
    assert answer.came is ErrorCode.COORDINATOR_NOT_AVAILABLE
    monkeypatch.setattr(world.stream.standing, "_append", refuse)
    world.thaw()
    world.settle()
    assert state_of(world) is State.ONGOING
    assert client.end(False).came is None
    world.settle()
    assert ends(world) == {"abort"}


def refuse() -> None:
    from kbroker.errors import ClientError

    raise ClientError(ErrorCode.KAFKA_STORAGE_ERROR)


@pytest.mark.parametrize("appends", range(5))
def test_a_disk_that_hangs_at_each_step_of_an_end(world, client, appends):
    """Prepared and marked, the disk hangs: once and no more it is completed, and the next
    transaction is one of its own."""
    answer = client.end(True)
    world.sync(1)
    for _ in range(appends):
        world.sync(1)
    world.stream.hangs = True
    world.settle()
    world.advance(1_000)
    world.settle()
    world.thaw()
    for _ in range(3):
        world.advance(100)
        world.settle()
    assert answer.came == Producer(1, 1)
    assert state_of(world) is State.COMPLETE_COMMIT and ends(world) == {"commit"}
    assert world.coordinator.counts.committed == 1
    client.producer = Producer(1, 1)
    client.send(PARTITIONS[:1])
    world.settle()
    world.advance(1_000)
    world.settle()
    assert state_of(world) is State.ONGOING
    assert outcomes(world)["a", 0] == {b"id/1/0": "commit", b"id/1/1": "open"}


def test_ids_that_expire_late(world):
    Client(world, "id", 2).init()
    world.stream.hangs = True
    world.advance(world.given.transactional_id_expiration_ms + 1)
    world.advance(world.given.transaction_remove_expired_transaction_cleanup_interval_ms + 1)
    assert world.stream.standing is not None and world.coordinator.all_transactions()
    world.thaw()
    assert not world.coordinator.all_transactions()


def test_stopping_forgets_what_is_late(world, client):
    world.stream.hangs = True
    client.end(True)
    world.coordinator.stop()
    world.thaw()
    assert world.coordinator.counts.committed == 0


def test_close_answers_a_batch_that_waits_for_the_disk(world, client):
    """`__transaction_state` is deleted while a batch waits for the record that adds its partition:
    the producer gets an answer, and nothing is appended."""
    assert client.end(True).came is None
    world.settle()
    client.producer = Producer(1, 1)
    refused = []
    world.coordinator.begin_on(
        client.name, client.producer, [PARTITIONS[0]], adds=True, then=refused.append
    )
    appended = len(world.stream.appends)
    assert not refused
    world.coordinator.close()
    assert refused == [{PARTITIONS[0]: ErrorCode.NOT_COORDINATOR}]
    world.settle()
    assert len(refused) == 1 and len(world.stream.appends) == appended
    assert world.coordinator.next_due_ms() is None


def test_close_completes_no_transaction(world, client):
    """Its markers are on disk, which the coordinator has not seen yet when its log is deleted."""
    client.end(True)
    world.sync()
    world.stream.durable = len(world.stream.appends)
    appended = len(world.stream.appends)
    world.coordinator.close()
    assert len(world.stream.appends) == appended
    assert world.coordinator.next_due_ms() is None
