"""The transaction coordinator without a broker: logs whose disk the test moves, crashes anywhere.

All appends go into one stream, as the journal has them; what is durable is a prefix of it, and a
crash leaves some prefix that is at least that long. After each crash every transaction is seen
whole or not at all: committed where the producer was told so, and nothing stays open.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from kbroker.errors import ClientError, ErrorCode
from kbroker.ext import records
from kbroker.txn.coordinator import TransactionCoordinator
from kbroker.txn.loading import StateLoad
from kbroker.txn.settings import TransactionSettings
from kbroker.txn.steps import End, Producer
from kbroker.txn.transaction import Partition, State
from tests.support.waits import wait_for

START_MS = 1_700_000_000_000
TIMEOUT_MS = 60_000
PARTITIONS = [("a", 0), ("a", 1), ("b", 0)]


class Stream:
    """Every append of every log, in order; `durable` of them are on disk."""

    def __init__(self) -> None:
        self.appends: list[tuple[Any, bytes]] = []
        self.durable = 0


class Log:
    """A log as the coordinator sees it."""

    leader_epoch = 0
    log_start_offset = 0
    offline = None
    late = 0
    """How many appends of the stream it has not been told of that are on disk."""

    def __init__(self, stream: Stream, name: Any) -> None:
        self.stream = stream
        self.name = name
        self.ends = [(0, 0)]
        """(place in the stream, log end offset) after each append."""
        self.batches: list[bytes] = []

    @property
    def log_end_offset(self) -> int:
        return self.ends[-1][1]

    @property
    def high_watermark(self) -> int:
        told = self.stream.durable - self.late
        return next(end for at, end in reversed(self.ends) if at <= told)

    def append(self, batch: bytes, **_: Any) -> None:
        count = sum(one.last_offset_delta + 1 for one in records.batches(batch))
        own = bytearray(batch)
        records.assign(own, self.log_end_offset, 0)
        self.stream.appends.append((self.name, bytes(own)))
        self.ends.append((len(self.stream.appends), self.log_end_offset + count))
        self.batches.append(bytes(own))

    def read(self, offset: int, most: int, *, up_to: str = "") -> bytes:
        found = [one for one in self.batches if records.batches(one)[0].base_offset >= offset]
        return b"".join(found[:3])


class World:
    """The host of a coordinator, and what survives its crashes."""

    def __init__(self, **settings: Any) -> None:
        self.wall_ms = START_MS
        self.ids = 0
        self.given = TransactionSettings(**settings)
        self.stream = Stream()
        self.told: list[tuple[Log, int]] = []
        self.posted: list[Callable[[], None]] = []
        self.start({})

    def start(self, batches: Mapping[Any, list[bytes]]) -> None:
        self.stream = Stream()
        names = [("state", n) for n in range(2)] + PARTITIONS
        self.logs = {name: Log(self.stream, name) for name in names}
        for name, found in batches.items():
            for batch in found:
                self.logs[name].append(batch)
        self.stream.durable = len(self.stream.appends)
        self.coordinator = TransactionCoordinator(self)  # type: ignore[arg-type]
        self.coordinator.open()
        wait_for("the slots' states are read", self.is_open, 10, pause_s=0.002)

    def is_open(self) -> bool:
        self.run_posted()
        return all(slot.state == "active" for slot in self.coordinator._slots)

    def run_posted(self) -> None:
        while self.posted:
            self.posted.pop(0)()

    def crash(self, kept: int) -> None:
        """The process ends; of the stream `kept` appends are left."""
        assert kept >= self.stream.durable
        self.coordinator.stop()
        left: dict[Any, list[bytes]] = {}
        for name, batch in self.stream.appends[:kept]:
            left.setdefault(name, []).append(batch)
        self.start(left)

    def sync(self, count: int = 1 << 30) -> None:
        """So many appends more are on disk."""
        self.stream.durable = min(self.stream.durable + count, len(self.stream.appends))
        self.coordinator.run_due(self.wall_ms - START_MS)

    def settle(self) -> None:
        for _ in range(20):
            self.sync()

    def advance(self, ms: int) -> None:
        self.wall_ms += ms
        self.coordinator.run_due(self.wall_ms - START_MS)

    # ---- the host

    @property
    def clock(self) -> Any:
        world = self

        class Clock:
            def wall_ms(self) -> int:
                return world.wall_ms

            def monotonic_ms(self) -> int:
                return world.wall_ms - START_MS

        return Clock()

    @property
    def groups(self) -> Any:
        return None

    def settings(self) -> TransactionSettings:
        return self.given

    def partitions(self) -> int:
        return 2

    def state_log(self, partition: int) -> Log:
        return self.logs["state", partition]

    def load(self, log: Log) -> StateLoad:
        return StateLoad(log)  # type: ignore[arg-type]

    def new_producer_id(self) -> int:
        self.ids += 1
        return self.ids

    def tell(self, log: Log, offset: int) -> bool:
        return log.high_watermark >= offset

    def post(self, do: Callable[[], None]) -> None:
        self.posted.append(do)

    def knows(self, partition: Partition) -> bool:
        return partition in self.logs

    def log(self, partition: Partition) -> Log:
        return self.logs[partition]

    def appended(self, log: Log) -> None:
        pass


class Answer:
    """What became of a request."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.response: Any = None
        self.after: tuple[Log, int] | None = None

    def send(self, response: Any) -> None:
        self.response = response

    def send_when(self, log: Log, offset: int, response: Any, timeout_ms: int) -> None:
        self.response = response
        self.after = (log, offset)

    def fail(self, code: ErrorCode, message: str | None = None) -> None:
        self.response = code

    @property
    def came(self) -> Any:
        """The answer, when the disk has let it go."""
        if self.after is not None and self.after[0].high_watermark < self.after[1]:
            return None
        return self.response


class Client:
    """A transactional producer that knows what it was told."""

    def __init__(self, world: World, name: str, version: int) -> None:
        self.world, self.name, self.version = world, name, version
        self.producer = Producer(-1, -1)
        self.number = 0

    def _perform(self, operation: Any) -> Answer:
        answer = Answer(self.world)
        self.world.coordinator.perform(self.name, operation, answer, lambda code: code)
        return answer

    def init(self) -> bool:
        init = self.world.coordinator.init(self.name, TIMEOUT_MS, None)
        answer = self._perform(init)
        self.world.settle()
        found = answer.came
        if not isinstance(found, Producer) or found.id < 0:
            return False
        self.producer = found
        return True

    def send(self, partitions: list[Partition]) -> dict[Partition, ErrorCode]:
        """Produces one record each, when the coordinator lets it; what was refused."""
        told: list[Mapping[Partition, ErrorCode]] = []
        producer = self.producer

        def then(refused: Mapping[Partition, ErrorCode]) -> None:
            told.append(refused)
            for partition in partitions:
                if not refused.get(partition):
                    self._append(producer, partition)

        self.world.coordinator.begin_on(
            self.name, self.producer, partitions, adds=True, then=then
        )
        return dict(told[0]) if told else {}

    def _append(self, producer: Producer, partition: Partition) -> None:
        value = f"{self.name}/{producer.id}/{producer.epoch}".encode()
        batch = records.build(
            [(START_MS, None, value)], producer_id=producer.id, producer_epoch=producer.epoch,
            transactional=True, base_sequence=0,
        )  # fmt: skip
        self.world.logs[partition].append(batch)

    def end(self, commit: bool) -> Answer:
        asked = End(self.producer, commit, self.version)
        return self._perform(
            lambda slot, now_ms: self.world.coordinator.end(slot, self.name, asked, now_ms)
        )


def outcomes(world: World) -> dict[Partition, dict[bytes, str]]:
    """What became of each value in each partition: "open", "commit" or "abort"."""
    found: dict[Partition, dict[bytes, str]] = {}
    for partition in PARTITIONS:
        opened: dict[int, list[bytes]] = {}
        ended = found[partition] = {}
        for data in world.logs[partition].batches:
            (batch,) = records.batches(data)
            (record,) = records.records(data)
            if batch.control:
                assert record.key is not None
                result = "commit" if record.key[3] else "abort"
                for value in opened.pop(batch.producer_id, ()):
                    ended[value] = result
            else:
                assert record.value is not None
                opened.setdefault(batch.producer_id, []).append(record.value)
        for values in opened.values():
            ended.update(dict.fromkeys(values, "open"))
    return found


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


@pytest.mark.parametrize("seed", range(30))
def test_random(seed: int) -> None:
    """Many producers, fencings, timeouts, crashes; what was told holds, and nothing is half."""
    chance = random.Random(seed)
    world = World()
    clients = [Client(world, f"id{n % 4}", chance.choice((0, 2))) for n in range(6)]
    told: dict[bytes, str] = {}
    waiting: list[tuple[bytes, str, Answer]] = []
    for _ in range(300):
        client = chance.choice(clients)
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
            world.crash(chance.randint(world.stream.durable, len(world.stream.appends)))
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
