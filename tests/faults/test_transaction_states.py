"""F24: the broker dies between any two calls that change the disk while transactions run.

As in test_crash_states a recorder notes each call, and a directory is made as the disk may hold it
after it: by a kill (all is there), or by a power cut (what was not synced may be lost or torn).
The coordinators are started on it. Each transaction is seen whole or not at all, in both partitions
and in the offsets of its group; as its producer was told, where it was told; what was not ended is
still open, known to the coordinator, and can be aborted; and then nothing hangs.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from kbroker.errors import ClientError, ErrorCode
from kbroker.ext import testing_log
from kbroker.ext.log import Log
from kbroker.txn.markers import CONSUMER_OFFSETS
from kbroker.txn.transaction import PREPARED, State, Transaction
from tests.faults.test_crash_states import Recovered, StartBroker, choices, folder
from tests.reference.crafted_batches import CONTROL, TRANSACTIONAL, parse_batches
from tests.support import wire
from tests.support.crash_states import Call, Choice, read_calls, wrong_states
from tests.support.native import Words, preloaded, shared_library
from tests.support.rounds import scaled
from tests.support.tally import Tally
from tests.support.transactional import WireProducer
from tests.support.waits import wait_for
from tests.support.wire import FIND_COORDINATOR

__all__ = ["folder"]

LONG = pytest.mark.long
TOPIC = "t"
PARTITIONS = 2
COMMIT_KEY = b"\0\0\0\1"
SETTINGS = {
    "kbroker.journal.bytes.max": "16777216",
    "kbroker.journal.buffer.bytes": "1048576",
    "log.segment.bytes": "1048576",
    "transaction.state.log.num.partitions": "1",
    "offsets.topic.num.partitions": "1",
}
NEVER = 1 << 60
RETRIABLE = {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.CONCURRENT_TRANSACTIONS}


@dataclass
class Part:
    """A transaction of a story: how many calls there were when its end was asked for, and told."""

    name: str
    number: int
    commit: bool = True
    values: dict[int, set[bytes]] = field(default_factory=lambda: {0: set(), 1: set()})
    asked: int = NEVER
    told: int = NEVER


@dataclass
class Story:
    """What was done, in the order of the calls."""

    root: Path
    calls: list[Call] = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)


class Teller:
    """Producers whose transactions overlap, and their history."""

    def __init__(self, story: Story, broker: Any, count: Words, chance: random.Random) -> None:
        self.story, self.count, self.chance = story, count, chance
        self.producers = [WireProducer(broker, f"id-{n}") for n in range(3)]
        self.open: dict[str, Part] = {}

    def begin(self) -> None:
        for producer in self.producers:
            producer.init()

    def step(self) -> None:
        """One request of one of them."""
        producer = self.chance.choice(self.producers)
        part = self.open.get(producer.name)
        if part is None:
            part = self.open[producer.name] = Part(producer.name, len(self.story.parts))
            self.story.parts.append(part)
        elif any(part.values.values()) and self.chance.random() < 0.4:
            self.end(producer, part)
            return
        if self.chance.random() < 0.3:
            producer.commit_offset(f"g-{producer.name}", "t", part.number)
            return
        partition = self.chance.randrange(PARTITIONS)
        value = b"%d/%d/%d " % (part.number, partition, len(part.values[partition]))
        value += b"." * self.chance.choice((10, 700, 9_000, 60_000))
        part.values[partition].add(value)
        producer.send("t", partition, value)

    def end(self, producer: WireProducer, part: Part) -> None:
        part.commit = self.chance.random() < 0.6
        producer.commit_offset(f"g-{producer.name}", "t", part.number)
        part.asked = self.count[0]
        producer.end(part.commit)
        part.told = self.count[0]
        del self.open[producer.name]


def tell(
    start: StartBroker, home: Path, steps: int, seed: int, settings: dict[str, str]
) -> Story:
    """Two lives of a broker, the first ended by kill -9 with transactions open in it."""
    chance = random.Random(seed)
    story = Story(home / "data")
    record = home / "calls"
    with Words(home / "count", 1) as count:
        environ = {
            "LD_PRELOAD": preloaded(shared_library("recorder", home)),
            "KBROKER_TEST_RECORD": str(record),
            "KBROKER_TEST_RECORD_COUNT": str(count.path),
            "KBROKER_TEST_RECORD_ROOT": str(story.root),
        }
        broker = start(SETTINGS | settings, data_dir=story.root, environ=environ)
        wire.create_topic(broker.port, TOPIC, PARTITIONS)
        for kind in (0, 1):
            body = {"key_type": kind, "coordinator_keys": ["g"]}
            wire.call_once(broker.port, FIND_COORDINATOR, 4, body)
        teller = Teller(story, broker, count, chance)
        teller.begin()
        for life in range(2):
            for _ in range(steps):
                teller.step()
            seen = [-1]

            def quiet(seen: list[int] = seen) -> bool:
                seen.append(count[0])
                return seen[-1] == seen[-2]

            wait_for("no more calls", quiet, 60, 0.4)
            broker.kill()
            if life == 0:
                broker.start()
        story.calls = list(read_calls(record))
        assert len(story.calls) == count[0]
    return story


# --- what is left ---------------------------------------------------------------------------------


class Restarted(Recovered):
    """A directory on which the coordinators run again, as after a start of the broker."""

    def __init__(self, where: Path) -> None:
        super().__init__(where)
        self.posted: deque[Callable[[], None]] = deque()
        self.services.post = self.posted.append
        for (topic, partition), log in self.logs.items():
            state = self.store.image.partition(topic, partition)
            assert state is not None
            assert isinstance(log, Log)
            log.leader_epoch = state.leader_epoch + 1

    def run(self) -> None:
        """Until every transaction that was prepared is complete."""
        self.services.groups.open()
        self.services.transactions.open()
        wait_for("the coordinators are at rest", self.is_settled, 60, 0.001)

    def is_settled(self) -> bool:
        while self.posted:
            self.posted.popleft()()
        transactions = self.services.transactions
        transactions.run_due(self.services.clock.monotonic_ms())
        self.services.groups.run_due(self.services.clock.monotonic_ms())  # appends that were slow
        slots = transactions._slots
        return all(
            slot.state == "active" for slot in (*slots, *self.services.groups._slots)
        ) and not any(one.state in PREPARED for one in self.known())

    def known(self) -> Iterator[Transaction]:
        """What the coordinator knows."""
        for slot in self.services.transactions._slots:
            yield from slot.transactions.values()

    def of(self, name: str) -> Any:
        """What the coordinator knows of an id."""
        (slot,) = self.services.transactions._slots or (None,)
        return None if slot is None else slot.transactions.get(name)

    def abort(self, name: str) -> None:
        """As the next start of its producer does."""
        wait_for("the abort has begun", lambda: self._initialize(name), 60, 0.001)
        wait_for("the abort is complete", self.is_settled, 60, 0.001)

    def _initialize(self, name: str) -> bool:
        """Ask for a producer id, once; False where a client would ask again."""
        transactions = self.services.transactions
        try:
            slot = transactions.slot(name)
            transactions.init(name, 60_000, None)(slot, self.services.clock.wall_ms())
        except ClientError as error:
            if error.code not in RETRIABLE:
                raise
            self.is_settled()
            return False
        return True

    def all_logs(self) -> Iterator[tuple[str, int, Log]]:
        for (topic, partition), log in self.logs.items():
            if topic in (TOPIC, CONSUMER_OFFSETS):
                assert isinstance(log, Log)
                yield topic, partition, log

    def visible(self, partition: int) -> set[bytes]:
        """What is committed, told by the markers; and readers of committed data are told the same
        as far as they may read, by the lists of aborted transactions."""
        log = self.logs.get(TOPIC, partition)
        if not isinstance(log, Log):
            return set()
        committed = of_markers(log)
        stable = {value for value, offset in committed.items() if offset < log.last_stable_offset}
        assert stable == of_lists(log)
        return set(committed)

    def offset_of(self, group: str) -> int:
        slots = self.services.groups._slots
        found = slots[0].rooms.offsets.committed.get(group, TOPIC, 0) if slots else None
        return -1 if found is None else found.offset

    def close(self) -> None:
        self.services.transactions.stop()
        super().close()


def batches_of(log: Log, up_to: str) -> Iterator[dict[str, Any]]:
    at = log.log_start_offset
    while piece := log.read(at, 1 << 20, up_to=up_to):
        for batch in parse_batches(piece):
            yield batch
            at = batch["base_offset"] + batch["last_offset_delta"] + 1


def of_markers(log: Log) -> dict[bytes, int]:
    """Values that are committed, and where each is."""
    found: dict[bytes, int] = {}
    waiting: dict[int, dict[bytes, int]] = {}
    for batch in batches_of(log, "high_watermark"):
        producer = batch["producer_id"]
        if batch["attributes"] & CONTROL:
            ended = waiting.pop(producer, {})
            if batch["records"][0]["key"] == COMMIT_KEY:
                found |= ended
        else:
            assert batch["attributes"] & TRANSACTIONAL
            (record,) = batch["records"]
            waiting.setdefault(producer, {})[record["value"]] = batch["base_offset"]
    return found


def of_lists(log: Log) -> set[bytes]:
    aborted = testing_log.read(log, log.log_start_offset, 1 << 30, 1, True)[5]
    for segment_base, _, _ in log.segments():
        aborted += testing_log.read(log, segment_base, 1 << 30, 1, True)[5]
    begins = {(producer, first) for producer, first in aborted}
    aborting: set[int] = set()
    found: set[bytes] = set()
    for batch in batches_of(log, "last_stable_offset"):
        producer = batch["producer_id"]
        if (producer, batch["base_offset"]) in begins:
            aborting.add(producer)
        if batch["attributes"] & CONTROL:
            aborting.discard(producer)
        elif producer not in aborting:
            found |= {one["value"] for one in batch["records"]}
    return found


# --- the judgement --------------------------------------------------------------------------------


def wrong_with(where: Path, story: Story, calls: int) -> list[str]:
    """What of the story, as far as it was told by then, does not hold."""
    found = Restarted(where)
    try:
        found.run()
        wrong = wrong_ends(found, story, calls)
        wrong += hanging(found)
        before = [found.visible(partition) for partition in range(PARTITIONS)]
        for name in {part.name for part in story.parts}:
            now = found.of(name)
            if now is not None and now.state is State.ONGOING:
                found.abort(name)
        for topic, partition, log in found.all_logs():
            if log.last_stable_offset != log.log_end_offset:
                wrong.append(f"{topic}-{partition} is stable up to {log.last_stable_offset} of "
                             f"{log.log_end_offset}")  # fmt: skip
        if before != [found.visible(partition) for partition in range(PARTITIONS)]:
            wrong.append("what was aborted is seen")
        return wrong
    finally:
        found.close()


def wrong_ends(found: Restarted, story: Story, calls: int) -> list[str]:
    visible = [found.visible(partition) for partition in range(PARTITIONS)]
    wrong = []
    last: dict[str, int] = {}
    for part in story.parts:
        there = {n: part.values[n] & visible[n] for n in range(PARTITIONS)}
        if any(there.values()):
            if there != part.values:
                wrong.append(f"transaction {part.number} is torn")
            last[part.name] = part.number
        may = part.commit and part.asked <= calls
        must = part.commit and part.told <= calls
        if any(there.values()) and not may:
            wrong.append(f"transaction {part.number} is seen")
        if must and not any(there.values()):
            wrong.append(f"transaction {part.number} is lost")
    for name in {part.name for part in story.parts}:
        offset = found.offset_of(f"g-{name}")
        if offset != last.get(name, -1):
            wrong.append(f"the offset of {name} is {offset}, not {last.get(name, -1)}")
    return wrong


def hanging(found: Restarted) -> list[str]:
    """Transactions open in a log that no coordinator will end."""
    known = {
        (one.producer_id, partition)
        for one in found.known()
        if one.state is State.ONGOING
        for partition in one.partitions
    }
    return [
        f"producer {producer[0]} hangs in {topic}-{partition}"
        for topic, partition, log in found.all_logs()
        for producer in log.producers()
        if producer[5] >= 0 and (producer[0], (topic, partition)) not in known
    ]


def lost_in(
    story: Story,
    home: Path,
    moments: Iterable[tuple[int, Choice]],
    *,
    without_sync: bool = False,
) -> list[str]:
    """What is wrong in these states of the disk, each line with what repeats it."""
    return wrong_states(
        story.root,
        story.calls,
        lambda state, calls: wrong_with(state, story, calls),
        home,
        moments,
        without_sync=without_sync,
    )


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("steps", "states", "seed"),
    [
        (30, 120, 1),
        *(pytest.param(120, scaled(1500, full=3000), seed, marks=LONG)
          for seed in range(2, scaled(3, full=5))),
    ],
)
def test_power_cuts(
    start_kbroker: StartBroker, tmp_path: Path, folder: Path, tally: Tally, *, steps: int,
    states: int, seed: int,
) -> None:  # fmt: skip
    """And a disk that forgets to sync breaks transactions."""
    story = tell(start_kbroker, tmp_path, steps, seed, {})
    moments = list(choices(states, len(story.calls), random.Random(seed)))
    lost = lost_in(story, folder, moments)
    control = lost_in(story, folder, moments[:: len(moments) // 30], without_sync=True)
    tally("F24", tried=len(moments), lost=len(lost), control=len(control))
    assert not lost, "\n".join(lost[:20])
    assert control


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("durability", ["fsync", "page-cache"])
@pytest.mark.parametrize(
    # Transactions repeat the same steps: of 120 each call is hit several times by every third.
    ("steps", "every", "seed"),
    [(25, 7, 11), pytest.param(120, scaled(3, full=1), 12, marks=LONG)],
)
def test_kills(
    start_kbroker: StartBroker, tmp_path: Path, folder: Path, tally: Tally, *, steps: int,
    every: int, seed: int, durability: str,
) -> None:  # fmt: skip
    """After each call: before and after every step that the coordinator takes on disk."""
    story = tell(start_kbroker, tmp_path, steps, seed, {"kbroker.durability": durability})
    moments = [(calls, Choice(1, "all")) for calls in range(1, len(story.calls) + 1, every)]
    lost = lost_in(story, folder, moments)
    tally("F24", tried=len(moments), lost=len(lost))
    assert not lost, "\n".join(lost[:20])
