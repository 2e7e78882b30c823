"""The world of a transaction coordinator without a broker: logs whose disk the test moves.

All appends go into one stream, as the journal has them; what is durable is a prefix of it, and a
crash leaves some prefix that is at least that long.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kbroker.errors import ClientError, DiskError, ErrorCode, LateError
from kbroker.ext import records
from kbroker.ext.offsets_rows import OffsetsFold
from kbroker.txn.coordinator import TransactionCoordinator
from kbroker.txn.loading import StateLoad
from kbroker.txn.settings import TransactionSettings
from kbroker.txn.steps import Add, End, Producer
from kbroker.txn.transaction import Partition
from tests.support.waits import wait_for

START_MS = 1_700_000_000_000
TIMEOUT_MS = 60_000
PARTITIONS = [("a", 0), ("a", 1), ("b", 0)]


class LateAppend:
    """An append that stands in a disk that hangs (kbroker.ext.appending.LateAppend)."""

    def __init__(self, append: Callable[[], None]) -> None:
        self._append = append
        self._error: Exception | None = None
        self.done = False

    def land(self) -> None:
        try:
            self._append()
        except ClientError as error:
            self._error = error
        self.done = True

    def result(self) -> tuple[int, int]:
        assert self.done
        if self._error is not None:
            raise self._error
        return 0, 0


class Stream:
    """Every append of every log, in order; `durable` of them are on disk."""

    def __init__(self) -> None:
        self.appends: list[tuple[Any, bytes]] = []
        self.durable = 0
        self.hangs = False
        self.standing: LateAppend | None = None
        """The coordinator's append that stands in the disk."""

    def thaw(self) -> None:
        """The disk goes on."""
        self.hangs = False
        standing, self.standing = self.standing, None
        if standing is not None:
            standing.land()


class Log:
    """A log as the coordinator sees it."""

    leader_epoch = 0
    directory = 0
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
        self.damaged: set[int] = set()
        self._epochs: dict[int, int] = {}
        self._open: set[int] = set()
        """Producers with an open transaction."""

    def producers(self) -> list[tuple[int, ...]]:
        """Of which only id and epoch are true."""
        return [(one, epoch, -1, -1, -1, -1) for one, epoch in self._epochs.items()]

    @property
    def log_end_offset(self) -> int:
        return self.ends[-1][1]

    @property
    def high_watermark(self) -> int:
        told = self.stream.durable - self.late
        return next(end for at, end in reversed(self.ends) if at <= told)

    def _judge(self, batch: Any, version: int) -> None:
        """Late markers are refused as by ext/producers.pyx."""
        if batch.producer_id < 0:
            return
        before = self._epochs.get(batch.producer_id, -1)
        if batch.control:
            bumps = version >= 2 and batch.producer_id in self._open
            if batch.producer_epoch < before + bumps:
                raise ClientError(ErrorCode.INVALID_PRODUCER_EPOCH)
            self._open.discard(batch.producer_id)
        else:
            self._open.add(batch.producer_id)
        self._epochs[batch.producer_id] = max(before, batch.producer_epoch)

    def append(
        self, batch: bytes, *, transaction_version: int = 0, room_wait_ms: int = -1, **_: Any
    ) -> None:
        if room_wait_ms >= 0 and self.stream.hangs:
            if self.stream.standing is not None:
                raise ClientError(ErrorCode.REQUEST_TIMED_OUT)
            self.stream.standing = LateAppend(
                lambda: self.append(batch, transaction_version=transaction_version)
            )
            raise LateError(self.stream.standing)
        for one in records.batches(batch):
            self._judge(one, transaction_version)
        count = sum(one.last_offset_delta + 1 for one in records.batches(batch))
        own = bytearray(batch)
        records.assign(own, self.log_end_offset, 0)
        self.stream.appends.append((self.name, bytes(own)))
        self.ends.append((len(self.stream.appends), self.log_end_offset + count))
        self.batches.append(bytes(own))


class Reading:
    """A log's records, read at once (kbroker.ext.offsets_load.OffsetsLoad); the batches that the
    log has as damaged are passed over."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self.problems = [(offset, "damaged") for offset in sorted(log.damaged)]
        self.problem_count = len(self.problems)
        self.done = False

    def step(self) -> Any:
        self.done = True
        sound = [
            one
            for one in self._log.batches
            if records.batches(one)[0].base_offset not in self._log.damaged
        ]
        return OffsetsFold(commits=False).feed(b"".join(sound))

    def packed(self, most: int = 0) -> Any:
        raise AssertionError

    pending = packed


class World:
    """The host of a coordinator, and what survives its crashes."""

    def __init__(self, **settings: Any) -> None:
        self.wall_ms = START_MS
        self.ids = 0
        self.given = TransactionSettings(**settings)
        self.stream = Stream()
        self.told: list[tuple[Log, int]] = []
        self.posted: list[Callable[[], None]] = []
        self.loads: list[bool] = []
        """Each load that was begun, and whether it was to be strict."""
        self.refuses_ids = False
        """Whether the metadata take no record of an id that was given out."""
        self.refused = 0
        """How many of the loads to come the disk refuses."""
        self.damaged: dict[Any, set[int]] = {}
        """Base offsets of batches that cannot be read, by log."""
        self.start({})

    def start(self, batches: Mapping[Any, list[bytes]]) -> None:
        self.open(batches)
        wait_for("the slots' states are read", self.is_open, 10, pause_s=0.002)

    def open(self, batches: Mapping[Any, list[bytes]]) -> None:
        """Start, and do not wait for what is loaded."""
        self.stream = Stream()
        names = [("state", n) for n in range(2)] + PARTITIONS
        self.logs = {name: Log(self.stream, name) for name in names}
        for name, found in batches.items():
            for batch in found:
                self.logs[name].append(batch)
            self.logs[name].damaged = self.damaged.get(name, set())
        self.stream.durable = len(self.stream.appends)
        self.coordinator = TransactionCoordinator(self)  # type: ignore[arg-type]
        self.coordinator.open()

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
        self.start(self.kept(kept))

    def kept(self, count: int) -> dict[Any, list[bytes]]:
        """The first appends of the stream, by log."""
        left: dict[Any, list[bytes]] = {}
        for name, batch in self.stream.appends[:count]:
            left.setdefault(name, []).append(batch)
        return left

    def sync(self, count: int = 1 << 30) -> None:
        """So many appends more are on disk."""
        self.stream.durable = min(self.stream.durable + count, len(self.stream.appends))
        self.coordinator.run_due(self.wall_ms - START_MS)

    def thaw(self) -> None:
        """The disk that hung goes on, and the coordinator sees it."""
        self.stream.thaw()
        self.advance(20)

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

    def is_offline(self, partition: int) -> bool:
        return False

    def state_log(self, partition: int) -> Log:
        return self.logs["state", partition]

    def load(self, log: Log, *, strict: bool) -> StateLoad:
        self.loads.append(strict)
        if self.refused:
            self.refused -= 1
            raise DiskError("state", "the disk refuses")
        return StateLoad(Reading(log))

    def new_producer_id(self) -> int:
        if self.refuses_ids:
            raise DiskError("metadata", "no room")
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

    def add(self, partitions: list[Partition]) -> Answer:
        """AddPartitionsToTxn, as a producer of version 1 asks."""
        asked = Add(self.producer, partitions, self.version)
        return self._perform(
            lambda slot, now_ms: self.world.coordinator.add(slot, self.name, asked, now_ms)
        )

    def write(self, *partitions: Partition) -> None:
        """One record each, in either version of the protocol, when the disk has it."""
        if self.version < 2:
            answer = self.add([*partitions])
            self.world.settle()
            assert answer.came is None
            for partition in partitions:
                self._append(self.producer, partition)
        else:
            self.send([*partitions])
        self.world.settle()

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
