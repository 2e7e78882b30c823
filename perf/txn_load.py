"""A directory in which 10,000 transactional ids have 100 records each, how long it loads, and what
else the broker does meanwhile."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from kbroker.ext import records
from kbroker.group.partition import group_partition
from kbroker.txn.records import encode
from kbroker.txn.transaction import State, Transaction
from perf import admin
from perf import group_wire as wire
from perf.filling import Filling
from perf.txn_wire import NOT_YET, frame
from tests.support.processes import BrokerProcess
from tests.support.waits import wait_for

STATE_TOPIC, STATE_PARTITIONS = "__transaction_state", 50
IDS, TRANSACTIONS = 10_000, 25
STEPS = (State.ONGOING, State.ONGOING, State.PREPARE_COMMIT, State.COMPLETE_COMMIT)
RECORDS = IDS * TRANSACTIONS * len(STEPS)
BATCH_RECORDS = 10
THROUGH_TOPIC = "through"

PRODUCE, PRODUCE_VERSION = 0, 3
FETCH, FETCH_VERSION = 1, 4
DESCRIBE, DESCRIBE_VERSION = 65, 0
#: The partition's leader is not there yet.
NO_LEADER_YET = frozenset({3, 5, 6})
TRANSACTION_COORDINATOR = b"\1"
PAUSE_S = 0.005
#: Of a batch the broker sets what stands before: offset, length and leader epoch.
BATCH_KEPT_FROM = 16

Pair = tuple[bytes, bytes | None]


def transactional_id(number: int) -> str:
    return f"transactional-id-{number}"


def partition_of(number: int) -> int:
    return group_partition(transactional_id(number), STATE_PARTITIONS)


# ---- the directory


def steps(number: int, now_ms: int) -> list[Pair]:
    """The records of a transaction of one id, which adds two partitions and commits."""
    both = frozenset({("topic-of-a-transaction", 0), ("topic-of-a-transaction", 1)})
    first = frozenset(sorted(both)[:1])
    value = Transaction(number, 60_000, now_ms, epoch=1, started_ms=now_ms, version=2)
    partitions = (first, both, both, frozenset[tuple[str, int]]())
    return [
        encode(transactional_id(number), value._replace(state=state, partitions=named), 1)
        for state, named in zip(STEPS, partitions, strict=True)
    ]


def batches(numbers: Sequence[int], now_ms: int) -> Iterator[bytes]:
    """All that the ids of one partition have written, in turn."""
    pairs = [steps(number, now_ms) for number in numbers]
    for _ in range(TRANSACTIONS):
        for step in range(len(STEPS)):
            for first in range(0, len(pairs), BATCH_RECORDS):
                some = pairs[first : first + BATCH_RECORDS]
                yield records.build([(now_ms, *pair[step]) for pair in some])


def prepare(process: BrokerProcess, timeout_s: float) -> None:
    """Topics of a broker that runs; it is stopped, filled and not started again."""
    admin.create_topics(process.port, {THROUGH_TOPIC: 1})
    wait_for("the coordinator", lambda: has_coordinator(process), timeout_s, 0.2)
    process.stop()
    of_partition = defaultdict(list)
    for number in range(IDS):
        of_partition[partition_of(number)].append(number)
    filling = Filling(process, STATE_TOPIC)
    for partition, numbers in of_partition.items():
        for batch in batches(numbers, int(time.time() * 1000)):
            filling.append(partition, batch)
    filling.close()


def has_coordinator(process: BrokerProcess) -> bool:
    with admin.connect(process.port) as sock:
        body = wire.text("any") + TRANSACTION_COORDINATOR
        answer = admin.ask(sock, wire.FIND_COORDINATOR, wire.FIND_VERSION, body)
    return bool(struct.unpack_from(">h", answer, 4)[0] == wire.NONE)


# ---- how long it loads


def one_of_each_partition() -> Iterable[str]:
    """Ids whose coordinators are all there are."""
    return {partition_of(number): transactional_id(number) for number in range(IDS)}.values()


def is_loading(sock: socket.socket, name: str) -> bool:
    """Whether the partition of an id is being read; if not, it has the id's last record."""
    sock.sendall(frame(DESCRIBE, DESCRIBE_VERSION, b"\2" + wire.compact(name) + b"\0"))
    (size,) = struct.unpack(">i", admin.read_exactly(sock, 4))
    answer = admin.read_exactly(sock, size)
    (code,) = struct.unpack_from(">h", answer, 10)  # behind headers, throttle time and a count
    if code in NOT_YET:
        return True
    if code != wire.NONE or wire.compact(STEPS[-1].label) not in answer:
        raise RuntimeError(f"DescribeTransactions of {name}: error {code}, or another state")
    return False


# ---- and meanwhile


class Rounds(NamedTuple):
    """A record written and read again, over and over."""

    count: int
    longest_ms: float


class Through:
    """Writes a record and reads it, one after the other, until it is left; while the leader is
    being found it asks again, which makes that round a long one."""

    def __init__(self, port: int) -> None:
        self._sock = admin.connect(port)
        self._batch = records.build([(int(time.time() * 1000), b"key", bytes(100))])
        self._rounds: list[tuple[float, float]] = []
        self._left = threading.Event()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Through:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._left.set()
        self._thread.join()
        self._sock.close()

    def rounds(self, begun: float, ended: float) -> Rounds:
        """Those that began between two moments. Raises what ended the rounds too early."""
        if self._error is not None:
            raise self._error
        took = [seconds for at, seconds in self._rounds if begun <= at < ended]
        return Rounds(len(took), max(took, default=ended - begun) * 1000)

    def _run(self) -> None:
        try:
            while not self._left.is_set():
                begun = time.perf_counter()
                self._read(self._written())
                self._rounds.append((begun, time.perf_counter() - begun))
        except (OSError, RuntimeError) as error:
            self._error = error

    def _written(self) -> int:
        """The offset that the record got."""
        body = struct.pack(">hhii", -1, -1, 30_000, 1) + admin.text(THROUGH_TOPIC)
        body += struct.pack(">ii", 1, 0) + wire.block(self._batch)
        while not self._left.is_set():
            answer = admin.ask(self._sock, PRODUCE, PRODUCE_VERSION, body)
            at = 4 + 2 + len(THROUGH_TOPIC) + 4 + 4
            code, offset = struct.unpack_from(">hq", answer, at)
            if code == wire.NONE:
                return int(offset)
            check_code("Produce", code)
            time.sleep(PAUSE_S)
        return -1

    def _read(self, offset: int) -> None:
        body = struct.pack(">iiiibi", -1, 500, 1, 1 << 20, 0, 1) + admin.text(THROUGH_TOPIC)
        body += struct.pack(">iiqi", 1, 0, offset, 1 << 20)
        while not self._left.is_set():
            answer = admin.ask(self._sock, FETCH, FETCH_VERSION, body)
            at = 4 + 4 + 2 + len(THROUGH_TOPIC) + 4 + 4
            (code,) = struct.unpack_from(">h", answer, at)
            if code == wire.NONE and answer.endswith(self._batch[BATCH_KEPT_FROM:]):
                return
            check_code("Fetch", code)


def check_code(what: str, code: int) -> None:
    if code not in {wire.NONE, *NO_LEADER_YET}:
        raise RuntimeError(f"{what}: error {code}")
