"""The transaction coordinator without a broker: logs whose disk the test moves, crashes anywhere.

All appends go into one stream, as the journal has them; what is durable is a prefix of it, and a
crash leaves some prefix that is at least that long. After each crash every transaction is seen
whole or not at all: committed where the producer was told so, and nothing stays open.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from kbroker.errors import ClientError, ErrorCode
from kbroker.txn import coordinator
from kbroker.txn.steps import Producer
from kbroker.txn.transaction import EPOCH_MAX, State
from tests.support.txn_world import (
    PARTITIONS,
    TIMEOUT_MS,
    Answer,
    Client,
    Log,
    World,
    outcomes,
)


@pytest.fixture
def world() -> World:
    return World()


def state_of(world: World) -> State:
    """The only transaction's."""
    ((_, found),) = world.coordinator.all_transactions()
    return found.state


class TestSteps:
    def test_a_transaction(self, world):
        client = Client(world, "id", 2)
        assert client.init()
        assert client.producer == Producer(1, 0)
        client.send(PARTITIONS)
        assert all(not log.batches for log in (world.logs[one] for one in PARTITIONS))
        world.sync()
        assert all(log.batches for log in (world.logs[one] for one in PARTITIONS))
        answer = client.end(True)
        assert answer.came is None
        world.sync()
        assert answer.came == Producer(1, 1)
        world.settle()
        assert {state for one in outcomes(world).values() for state in one.values()} == {"commit"}
        ((_, found),) = world.coordinator.all_transactions()
        assert (found.state, found.epoch) == (State.COMPLETE_COMMIT, 1)

    def test_markers_wait_for_the_disk(self, world):
        """Prepared, markers, complete: each when what was before it is durable."""
        client = Client(world, "id", 2)
        client.init()
        client.send([("a", 0)])
        world.sync()
        before = len(world.stream.appends)
        client.end(True)
        assert len(world.stream.appends) == before + 1
        world.coordinator.run_due(0)
        assert len(world.stream.appends) == before + 1
        world.sync()
        assert [name for name, _ in world.stream.appends[before:]][1:] == [("a", 0)]
        world.sync()
        assert len(world.stream.appends) == before + 3

    @pytest.mark.parametrize("behind", PARTITIONS)
    def test_it_is_complete_when_every_log_shows_its_marker(self, world, behind):
        """Logs are told one after the other of what the journal has written at once."""
        client = Client(world, "id", 2)
        client.init()
        client.send(PARTITIONS)
        world.sync()
        client.end(True)
        world.sync()
        log = world.logs[behind]
        log.late = len(world.stream.appends)
        world.sync()
        assert state_of(world) is State.PREPARE_COMMIT
        log.late = 0
        world.sync()
        assert state_of(world) is State.COMPLETE_COMMIT

    def test_markers_are_written_in_slices(self, world, monkeypatch):
        """The first partition cannot be written for a while: it gets its marker later."""
        monkeypatch.setattr(coordinator, "MARKERS_PER_SLICE", 2)
        client = Client(world, "id", 2)
        client.init()
        client.send(PARTITIONS)
        world.sync()
        client.end(True)
        before = len(world.stream.appends)
        first, *others = PARTITIONS

        def refuse(*_: Any, **__: Any) -> None:
            raise ClientError(ErrorCode.KAFKA_STORAGE_ERROR)

        def marked() -> list[Any]:
            return [name for name, _ in world.stream.appends[before:]]

        monkeypatch.setattr(world.logs[first], "append", refuse)
        world.sync()
        assert marked() == others[:1]
        world.advance(1)
        assert marked() == others
        world.settle()
        assert state_of(world) is State.PREPARE_COMMIT
        monkeypatch.undo()
        world.advance(100)
        assert marked() == [*others, first]
        for _ in range(4):
            world.advance(1)
            world.settle()
        assert state_of(world) is State.COMPLETE_COMMIT

    def test_the_next_one_waits_for_the_end(self, world):
        client = Client(world, "id", 2)
        client.init()
        client.send([("a", 0)])
        world.sync()
        client.end(True)
        client.producer = Producer(1, 1)
        assert client.send([("a", 1)]) == {}
        world.settle()
        assert len(world.logs["a", 1].batches) == 1

    @pytest.mark.parametrize("commit", [True, False])
    def test_the_next_one_may_come_under_the_next_id(self, world, commit):
        """Told with the end, before the markers are on disk: at the end of its epochs."""
        client = Client(world, "id", 2)
        client.init()
        slot = world.coordinator.slot("id")
        aged = slot.transactions["id"]._replace(epoch=EPOCH_MAX - 1)
        world.coordinator.put(slot, "id", aged)
        client.producer = Producer(aged.producer_id, aged.epoch)
        client.send([("a", 0)])
        world.settle()
        answer = client.end(commit)
        world.sync(1)
        assert state_of(world) is (State.PREPARE_COMMIT if commit else State.PREPARE_ABORT)
        assert answer.came == Producer(aged.producer_id + 1, 0)
        client.producer = answer.came
        assert client.send([("a", 1)]) == {}
        added = client.add([("b", 0)])
        assert not world.logs["a", 1].batches
        assert added.after is None
        world.settle()
        assert added.after is not None
        client.end(True)
        world.settle()
        assert set(outcomes(world)["a", 0].values()) == {"commit" if commit else "abort"}
        assert outcomes(world)["a", 1] == {f"id/{aged.producer_id + 1}/0".encode(): "commit"}

    def test_but_not_for_ever(self, world):
        client = Client(world, "id", 2)
        client.init()
        client.send([("a", 0)])
        world.sync()
        client.end(True)
        client.producer = Producer(1, 1)
        told = []
        world.coordinator.begin_on("id", client.producer, [("a", 1)], adds=True, then=told.append)
        world.advance(99)
        assert told == []
        world.advance(1)
        assert told == [{("a", 1): ErrorCode.CONCURRENT_TRANSACTIONS}]

    def test_overdue(self, world):
        client = Client(world, "id", 2)
        client.init()
        client.send(PARTITIONS)
        world.sync()
        world.advance(TIMEOUT_MS + 10_001)
        world.settle()
        assert {state for one in outcomes(world).values() for state in one.values()} == {"abort"}
        late = client.end(True)
        assert late.response is ErrorCode.PRODUCER_FENCED or late.response is (
            ErrorCode.INVALID_TXN_STATE
        )

    def test_expired(self):
        world = World(transactional_id_expiration_ms=1_000)
        client = Client(world, "id", 2)
        client.init()
        world.advance(3_600_001)
        assert world.coordinator.all_transactions() == []
        world.settle()
        world.crash(len(world.stream.appends))
        assert world.coordinator.all_transactions() == []

    def test_a_log_that_is_not_there_yet(self, world, monkeypatch):
        """A marker that cannot be written is written later."""
        client = Client(world, "id", 2)
        client.init()
        client.send([("a", 0)])
        world.sync()

        def refuse(*_: Any, **__: Any) -> None:
            raise ClientError(ErrorCode.KAFKA_STORAGE_ERROR)

        monkeypatch.setattr(world.logs["a", 0], "append", refuse)
        client.end(True)
        world.settle()
        assert outcomes(world)["a", 0].popitem()[1] == "open"
        monkeypatch.undo()
        world.advance(100)
        world.settle()
        assert outcomes(world)["a", 0].popitem()[1] == "commit"


@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize("commit", [True, False])
def test_every_crash_point(version: int, commit: bool) -> None:
    """Killed after each append, with what was durable then and with all that was written."""
    for point in range(40):
        for kept_more in (False, True):
            world = World()
            client = Client(world, "id", version)
            client.init()
            client.send(PARTITIONS)
            world.sync()
            answer = client.end(commit)
            for _ in range(point):
                world.sync(1)
            told = answer.came
            prepared = len(world.stream.appends)
            world.crash(prepared if kept_more else world.stream.durable)
            world.settle()
            world.advance(TIMEOUT_MS + 10_001)
            world.settle()
            found = {state for one in outcomes(world).values() for state in one.values()}
            assert len(found) <= 1, f"point {point}: {outcomes(world)}"
            assert "open" not in found
            if told is not None:
                assert found == {"commit" if commit else "abort"}, point


@pytest.mark.parametrize("hangs", [False, True])
@pytest.mark.parametrize("seed", range(30))
def test_random(seed: int, hangs: bool) -> None:
    """Many producers, fencings, timeouts, crashes; what was told holds, and nothing is half. Where
    the disk hangs now and then, appends come late."""
    chance = random.Random(seed)
    world = World()
    clients = [Client(world, f"id{n % 4}", chance.choice((0, 2))) for n in range(6)]
    told: dict[bytes, str] = {}
    waiting: list[tuple[bytes, str, Answer]] = []
    for _ in range(300):
        client = chance.choice(clients)
        if hangs and chance.random() < 0.05:
            world.stream.hangs = True
        elif hangs and chance.random() < 0.15:
            world.thaw()
        act = chance.random()
        if act < 0.15 or client.producer.id < 0:
            client.init()
        elif act < 0.55:
            client.send(chance.sample(PARTITIONS, chance.randint(1, 3)))
        elif act < 0.8:
            commit = chance.random() < 0.7
            value = f"{client.name}/{client.producer.id}/{client.producer.epoch}".encode()
            answer = client.end(commit)
            if client.version and isinstance(answer.response, Producer):
                waiting.append((value, "commit" if commit else "abort", answer))
                if chance.random() < 0.7:
                    world.sync(chance.randint(1, 4))
                # Who does not wait for the answer has to begin anew.
                client.producer = answer.came or Producer(-1, -1)
        elif act < 0.9:
            world.sync(chance.randint(1, 4))
        elif act < 0.95:
            world.advance(chance.choice((50, 1_000, TIMEOUT_MS)))
        else:
            told.update({value: end for value, end, answer in waiting if answer.came is not None})
            waiting.clear()
            if chance.random() < 0.5:
                world.stream.thaw()
            world.crash(chance.randint(world.stream.durable, len(world.stream.appends)))
    world.thaw()
    world.settle()
    told.update({value: end for value, end, answer in waiting if answer.came is not None})
    world.advance(TIMEOUT_MS + 10_001)
    world.settle()
    world.settle()
    left = {found.state for _, found in world.coordinator.all_transactions()}
    assert State.ONGOING not in left
    by_value: dict[bytes, set[str]] = {}
    for found in outcomes(world).values():
        for value, end in found.items():
            by_value.setdefault(value, set()).add(end)
    for value, ends in by_value.items():
        assert ends != {"open"}, value
        if value in told:
            assert ends == {told[value]}, value


class TestTheDiskHangs:
    """An append that waits for room in the journal has the control thread; so only the first."""

    @pytest.fixture
    def waits(self, world, monkeypatch) -> list[int]:
        """Of each append since the disk hangs, how long it may wait (ms)."""
        for number in range(20):
            client = Client(world, f"id-{number}", 2)
            client.init()
            client.send([("a", 0)])
        world.settle()
        waits: list[int] = []

        def append(log: Log, batch: bytes, *, room_wait_ms: int, **_: Any) -> None:
            waits.append(room_wait_ms)
            raise ClientError(ErrorCode.REQUEST_TIMED_OUT)

        monkeypatch.setattr(Log, "append", append)
        return waits

    def test_transactions_that_are_overdue(self, world, waits, caplog):
        world.advance(TIMEOUT_MS + 10_000)
        assert len(waits) >= 20 and waits[0] == 500 and set(waits[1:]) == {0}
        told = [one for one in caplog.records if one.levelname == "WARNING"]
        assert len(told) < 10, "a line for each"

    def test_requests(self, world, waits):
        client = Client(world, "id-0", 2)
        for _ in range(3):
            client.init()
        assert waits == [500, 0, 0]

    def test_it_waits_again_once_the_disk_is_back(self, world, waits, monkeypatch):
        client = Client(world, "id-0", 2)
        client.init()
        hanging = Log.append
        monkeypatch.undo()
        Client(world, "id-1", 2).init()
        monkeypatch.setattr(Log, "append", hanging)
        client.init()
        assert waits == [500, 500]
