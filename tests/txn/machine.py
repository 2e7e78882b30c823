"""A broker without sockets and threads: real logs, both coordinators, a disk and a clock that only
the simulation moves.

All appends go into one stream, as the journal has them. What is durable is a prefix of it, and high
watermarks say no more than that. A crash closes the logs as a kill does and leaves some prefix that
is at least that long: each log is cut there, and recovered.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from kbroker.clock import FakeClock
from kbroker.errors import ErrorCode
from kbroker.ext import records, testing_log
from kbroker.ext.log import Log
from kbroker.ext.offsets_load import OffsetsLoad
from kbroker.ext.pulses import Pulses
from kbroker.group.runtime import GroupCoordinator
from kbroker.group.settings import GroupSettings
from kbroker.txn import records as state_records
from kbroker.txn.coordinator import TransactionCoordinator
from kbroker.txn.loading import StateLoad
from kbroker.txn.settings import TransactionSettings
from kbroker.txn.transaction import Partition, Transaction
from tests.faults.scenes import batch_places
from tests.support.coordinator import FakeTopics
from tests.support.logs import open_log
from tests.support.waits import wait_for

STATE, OFFSETS = "__transaction_state", "__consumer_offsets"
COORDINATORS = 2
TOPICS = {"a": 2, "b": 1}
PARTITIONS: tuple[Partition, ...] = tuple(
    (topic, index) for topic, count in TOPICS.items() for index in range(count)
)
OFFSET_PARTITIONS: tuple[Partition, ...] = tuple((OFFSETS, n) for n in range(COORDINATORS))
SEGMENT_BYTES = 8192
TIMEOUT_MS = 60_000
CLIENT = 0
_JOURNAL_BYTES = 6 << 20
_ENTRY_BYTES = 128


class Append(NamedTuple):
    """A batch in the stream; `end` is the log's end behind it."""

    partition: Partition
    batch: records.Batch
    rows: list[records.Record]
    end: int


class Listener(Protocol):
    """Who keeps account of what happens on the disk."""

    def appended(self, place: int, append: Append) -> None: ...
    def synced(self, durable: int) -> None: ...
    def crashed(self, kept: int) -> None: ...


class TracedLog:
    """A real log whose appends are written down."""

    offline = None
    directory = 0

    def __init__(self, machine: Machine, partition: Partition, core: Log) -> None:
        self.machine, self.partition, self.core = machine, partition, core

    @property
    def leader_epoch(self) -> int:
        return self.core.leader_epoch

    @property
    def log_start_offset(self) -> int:
        return self.core.log_start_offset

    @property
    def log_end_offset(self) -> int:
        return self.core.log_end_offset

    @property
    def high_watermark(self) -> int:
        return self.core.high_watermark

    def append(self, batches: bytes, **terms: Any) -> tuple[int, int]:
        found = self.core.append(batches, **terms)
        self.machine.trace(self, batches)
        return found

    def read(self, offset: int, most: int, *, up_to: Any = "high_watermark") -> bytes:
        return self.core.read(offset, most, up_to=up_to)

    def in_transaction(self, producer_id: int, epoch: int) -> bool:
        return self.core.in_transaction(producer_id, epoch)


class Answer:
    """The way back of one request; `told` hears of it once, unless the connection is gone."""

    def __init__(self, machine: Machine, told: Callable[[Any], None]) -> None:
        self._machine, self._life = machine, machine.lives
        self._told: Callable[[Any], None] | None = told

    def send(self, response: Any) -> None:
        told, self._told = self._told, None
        if told is not None and self._life == self._machine.lives:
            told(response)

    def send_when(self, log: Any, offset: int, response: Any, timeout_ms: int) -> None:
        self._send_if(lambda: log.high_watermark >= offset, response)

    def send_after_all(self, response: Any) -> None:
        """When all that was appended so far is on disk."""
        place = len(self._machine.stream)
        self._send_if(lambda: self._machine.durable >= place, response)

    def _send_if(self, may: Callable[[], bool], response: Any) -> None:
        if may():
            self.send(response)
        else:
            self._machine.held.append((may, lambda: self.send(response)))

    def fail(self, code: ErrorCode, message: str | None = None) -> None:
        self.send(code)


Break = Callable[["Machine"], None]


class Machine:
    """See the module. `broken` may break it at each start, to see that it is noticed."""

    def __init__(
        self, folder: Path, listener: Listener, broken: Break = lambda machine: None
    ) -> None:
        self.folder, self.listener, self._broken = folder, listener, broken
        self.clock = FakeClock()
        self.topics = FakeTopics(TOPICS)
        self.pulses = Pulses()
        self.guard: int | None = None
        """Of every client's batch, instead of the one that was drawn for it."""
        self.lives = self._ids = 0
        self._starts: dict[Partition, int] = {}
        self._journal: testing_log.TestLogJournal | None = None
        self._journaled = 0
        self._start(clean=True)

    # ---- lives

    def _start(self, *, clean: bool) -> None:
        self.lives += 1
        self.stream: list[Append] = []
        self.durable = 0
        self.held: list[tuple[Callable[[], bool], Callable[[], None]]] = []
        """Answers that wait for the disk, and what they wait for."""
        self.posted: list[Callable[[], None]] = []
        state = tuple((STATE, n) for n in range(COORDINATORS))
        journal = self._fresh_journal()
        self.logs: dict[Partition, TracedLog] = {}
        for partition in (*state, *OFFSET_PARTITIONS, *PARTITIONS):
            core = open_log(
                self._home(partition), clean=clean, segment_bytes=SEGMENT_BYTES,
                log_start=self._starts.get(partition, 0),
            )  # fmt: skip
            core.leader_epoch = self.lives
            journal.attach(core)
            self.logs[partition] = TracedLog(self, partition, core)
        self.groups = GroupCoordinator(_GroupHost(self))  # type: ignore[arg-type]
        self.transactions = TransactionCoordinator(self)  # type: ignore[arg-type]
        self._broken(self)
        self.groups.open()
        self.transactions.open()
        wait_for("the coordinators have loaded", self._is_loaded, 60, pause_s=0.0005)

    def _fresh_journal(self) -> testing_log.TestLogJournal:
        """It is never started: what is durable is said by `sync` alone."""
        if self._journal is None or self._journaled > _JOURNAL_BYTES // 2:
            self.end_journal()
            self.folder.mkdir(parents=True, exist_ok=True)
            self._journal = testing_log.TestLogJournal(
                str(self.folder), started=False, group_bytes=_JOURNAL_BYTES
            )
            self._journaled = 0
        return self._journal

    def end_journal(self) -> None:
        """Let go of its files."""
        if self._journal is not None:
            self._journal.stop()
            self._journal = None

    def _home(self, partition: Partition) -> Path:
        home = self.folder / f"{partition[0]}-{partition[1]}"
        home.mkdir(parents=True, exist_ok=True)
        return home

    def _is_loaded(self) -> bool:
        posted, self.posted = self.posted, []
        for do in posted:
            do()
        return not self.groups.loading and all(
            slot.state == "active" for slot in self.transactions._slots
        )

    @property
    def is_full(self) -> bool:
        """Whether the journal's buffer is: then a restart is due."""
        return self._journaled > _JOURNAL_BYTES * 3 // 4

    def crash(self, kept: int) -> None:
        """The process ends; of the stream `kept` appends are left. Who waits for an answer gets
        none."""
        assert kept >= self.durable
        self._end(clean=False)
        ends = {one.partition: one.end for one in self.stream[:kept]}
        for one in self.stream[kept:]:
            if one.partition not in ends:
                ends[one.partition] = one.batch.base_offset
        for partition, end in ends.items():
            cut(self._home(partition), end)
        self.listener.crashed(kept)
        self._start(clean=False)

    def restart(self) -> None:
        """A clean stop and a start."""
        self.sync()
        self._end(clean=True)
        self.listener.crashed(len(self.stream))
        self._start(clean=True)

    def _end(self, *, clean: bool) -> None:
        self.lives += 1  # nobody hears of anything any more
        self.transactions.stop()
        self.groups.stop()
        for log in self.logs.values():
            log.core.close(clean=clean)

    def close(self) -> None:
        """End, and leave nothing."""
        self._end(clean=False)
        self.end_journal()
        shutil.rmtree(self.folder)

    # ---- the disk

    def trace(self, log: TracedLog, data: bytes) -> None:
        """A batch was appended to a log."""
        for batch in records.batches(data):
            end = log.log_end_offset
            base = end - batch.last_offset_delta - 1
            append = Append(
                log.partition, batch._replace(base_offset=base), records.records(data), end
            )
            self.stream.append(append)
            self._journaled += len(data) + _ENTRY_BYTES
            self.listener.appended(len(self.stream), append)

    def sync(self, count: int = 1 << 30) -> None:
        """So many appends more are on disk."""
        before, self.durable = self.durable, min(self.durable + count, len(self.stream))
        for one in self.stream[before : self.durable]:
            testing_log.advance_hw(self.logs[one.partition].core, one.end)
        self.listener.synced(self.durable)
        held, self.held = self.held, []
        for may, send in held:
            if may():
                send()
            else:
                self.held.append((may, send))
        self.run_due()

    def settle(self) -> None:
        """Until nothing more follows from what is on disk."""
        while self.durable < len(self.stream):
            self.sync()

    # ---- time

    def run_due(self) -> None:
        now_ms = self.clock.monotonic_ms()
        self.groups.run_due(now_ms)
        self.transactions.run_due(now_ms)

    def advance(self, ms: int) -> None:
        """Time goes by; timers fire at their moments."""
        end_ms = self.clock.monotonic_ms() + ms
        while True:
            due = (self.groups.next_due_ms(), self.transactions.next_due_ms())
            next_ms = min((one for one in due if one is not None), default=end_ms)
            now_ms = self.clock.monotonic_ms()
            if next_ms > end_ms:
                break
            self.clock.advance(max(next_ms - now_ms, 0))
            self.run_due()
            if next_ms == end_ms:
                break
        self.clock.advance(end_ms - self.clock.monotonic_ms())

    # ---- logs

    def produce(self, partition: Partition, data: bytes, guard: int) -> tuple[int, int]:
        """A client's batch: code and base offset, as the data plane's append tells them."""
        log = self.logs[partition]
        if self.guard is not None:
            guard = self.guard
        code, base, *_ = testing_log.append(
            log.core, data, CLIENT, self.clock.wall_ms(), guard=guard
        )
        if code == 0:
            self.trace(log, data)
        return code, base

    def trim(self, partition: Partition) -> int:
        """All below the last stable offset is deleted; where the log starts then."""
        core = self.logs[partition].core
        core.set_log_start_offset(core.last_stable_offset)
        core.delete_old_segments(self.clock.wall_ms())
        core.unlink_deleted(at_once=True)
        self._starts[partition] = core.log_start_offset
        return core.log_start_offset

    def expire(self) -> None:
        """Logs forget producers that were quiet for long."""
        for partition in (*PARTITIONS, *OFFSET_PARTITIONS):
            self.logs[partition].core.expire_producers(self.clock.wall_ms())

    def know(self, transactional_id: str, value: Transaction) -> None:
        """A transactional id as an earlier life left it."""
        pairs = [(self.clock.wall_ms(), *state_records.encode(transactional_id, value, 1))]
        slot = self.transactions.slot(transactional_id)
        log = self.logs[STATE, slot.partition]
        log.append(records.build(pairs), leader_epoch=log.leader_epoch)
        slot.replay(transactional_id, value)

    # ---- kbroker.txn.coordinator.Host

    def settings(self) -> TransactionSettings:
        return TransactionSettings()

    def partitions(self) -> int:
        return COORDINATORS

    def is_offline(self, partition: int) -> bool:
        return False

    def state_log(self, partition: int) -> TracedLog:
        return self.logs[STATE, partition]

    def load(self, log: TracedLog, *, strict: bool) -> Any:
        return StateLoad(OffsetsLoad(log.core, commits=False, strict=strict))

    def new_producer_id(self) -> int:
        self._ids += 1
        return self._ids

    def tell(self, log: TracedLog, offset: int) -> bool:
        return log.high_watermark >= offset

    def post(self, do: Callable[[], None]) -> None:
        self.posted.append(do)

    def knows(self, partition: Partition) -> bool:
        return partition in self.logs

    def log(self, partition: Partition) -> TracedLog:
        return self.logs[partition]

    def appended(self, log: TracedLog) -> None:
        pass


class _GroupHost:
    """kbroker.group.runtime.Host."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.clock, self.topics, self.pulses = machine.clock, machine.topics, machine.pulses
        self.post = machine.post

    def settings(self) -> GroupSettings:
        return GroupSettings(offsets_retention_minutes=1 << 30)

    def partitions(self) -> int:
        return COORDINATORS

    def is_offline(self, partition: int) -> bool:
        return False

    def log(self, partition: int) -> TracedLog:
        return self._machine.logs[OFFSETS, partition]

    def load(self, log: TracedLog, *, strict: bool) -> OffsetsLoad:
        return OffsetsLoad(log.core, strict=strict)

    def batch_bytes_max(self) -> int:
        return 1 << 20

    def codec(self) -> str:
        return "none"


def cut(folder: Path, end: int) -> None:
    """Takes away what lies at `end` and above, as a power cut does that came before it."""
    paths = sorted(folder.glob("*.log"))
    for path in paths[::-1]:
        base = int(path.stem)
        if base >= end and path != paths[0]:
            for suffix in (".log", ".index", ".timeindex", ".txnindex"):
                path.with_suffix(suffix).unlink(missing_ok=True)
            continue
        data = path.read_bytes()
        for at, _ in batch_places(data):
            if int.from_bytes(data[at : at + 8], "big") >= end:
                os.truncate(path, at)
                break
        break
