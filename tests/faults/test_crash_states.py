"""F3 and F4: the power goes between any two calls, and of what was not synced anything is there.

A broker runs with a recorder in front of the C library while a client writes down what it is told,
and how many calls had been made by then. Then, for each moment and each choice of what is lost or
torn (tests/support/crash_states.py), the directory is made as the disk may hold it, and recovered
as a start does: what had been acknowledged by that moment is there.
"""

from __future__ import annotations

import logging
import random
import resource
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from kbroker.api.context import Endpoint, Services
from kbroker.clock import SystemClock
from kbroker.config import BrokerConfig
from kbroker.ext.log import Log
from kbroker.metadata.store import MetadataStore
from kbroker.server.broker import Broker
from kbroker.server.log_opening import LogOpening
from kbroker.storage.log_directory import LogDirectory
from kbroker.storage.manager import LogManager
from tests.faults.scenes import batch_places
from tests.reference.crafted_batches import Batch, Record, values_of
from tests.support import wire
from tests.support.crash_states import (
    FIXED,
    Call,
    Choice,
    Disk,
    materialize,
    read_calls,
    wrong_states,
)
from tests.support.logs import read_all
from tests.support.native import Words, preloaded, shared_library
from tests.support.ports import FakeDataPlane
from tests.support.processes import BrokerProcess
from tests.support.rounds import scaled
from tests.support.tally import Tally
from tests.support.waits import wait_for
from tests.support.wire import PRODUCE, WireConnection

LONG = pytest.mark.long
StartBroker = Callable[..., BrokerProcess]
SETTINGS = {
    "kbroker.journal.bytes.max": "16777216",
    "kbroker.journal.buffer.bytes": "1048576",
    "log.segment.bytes": "1048576",
    "log.segment.delete.delay.ms": "0",
}
PARTITIONS = 2
SIZES = (10, 700, 9_000, 90_000)
#: What thousands of recoveries in one process may take beside what one takes.
MEMORY_MAX_BYTES = 512 << 20


@dataclass
class Told:
    """A record's value, where it is said to be, and how many calls there were when it was said."""

    topic: str
    partition: int
    offset: int
    value: bytes
    calls: int


@dataclass
class Story:
    """All that was written, sent and told."""

    root: Path
    calls: list[Call] = field(default_factory=list)
    told: list[Told] = field(default_factory=list)
    sent: dict[tuple[str, int], list[bytes]] = field(default_factory=dict)
    topics: dict[str, int] = field(default_factory=dict)  # since which call


class Writer:
    """The client, and its history."""

    def __init__(self, story: Story, port: int, count: Words, sizes: tuple[int, ...]) -> None:
        self.story, self.port, self.count, self.sizes = story, port, count, sizes

    def create(self, topic: str) -> None:
        wire.create_topic(self.port, topic, PARTITIONS)
        self.story.topics[topic] = self.count[0]

    def produce(self, connection: WireConnection, topic: str, chance: random.Random) -> None:
        partition = chance.randrange(PARTITIONS)
        sent = self.story.sent.setdefault((topic, partition), [])
        value = b"%s %d %d " % (topic.encode(), partition, len(sent))
        value += b"." * chance.choice(self.sizes)
        data = Batch([Record(value)]).encode()
        sent.append(value)
        part = {"index": partition, "records": data}
        body = {"acks": -1, "timeout": 60_000,
                "topic_data": [{"name": topic, "partition_data": [part]}]}  # fmt: skip
        answer = connection.call(PRODUCE, 9, body)["responses"][0]["partition_responses"][0]
        assert answer["error_code"] == 0, answer
        self.story.told.append(Told(topic, partition, answer["base_offset"], value, self.count[0]))


def tell_a_story(
    start: StartBroker, folder: Path, batches: int, seed: int, settings: dict[str, str],
    *, sizes: tuple[int, ...] = SIZES,
) -> Story:  # fmt: skip
    """Two lives of a broker, the first ended by kill -9, with everything that they wrote."""
    chance = random.Random(seed)
    story = Story(folder / "data")
    record = folder / "calls"
    with Words(folder / "count", 1) as count:
        environ = {
            "LD_PRELOAD": preloaded(shared_library("recorder", folder)),
            "KBROKER_TEST_RECORD": str(record),
            "KBROKER_TEST_RECORD_COUNT": str(count.path),
            "KBROKER_TEST_RECORD_ROOT": str(story.root),
        }
        broker = start(SETTINGS | settings, data_dir=story.root, environ=environ)
        for life in range(2):
            writer = Writer(story, broker.port, count, sizes)
            writer.create(f"topic-{life}")
            with WireConnection(broker.port, timeout_s=60) as connection:
                for _ in range(batches):
                    writer.produce(connection, f"topic-{chance.randrange(life + 1)}", chance)
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


# --- recovery -----------------------------------------------------------------------------------


class Recovered:
    """A directory opened as a start of the broker does, up to where it would listen."""

    def __init__(self, folder: Path) -> None:
        config = BrokerConfig({"log.dirs": str(folder), "listeners": "PLAINTEXT://127.0.0.1:9092"})
        broker = Broker(config)
        clock = SystemClock()
        self.store = MetadataStore(folder, clock, node_id=None)
        self.store.open()
        home = LogDirectory(folder, 0, self.store.directory_id)
        self.logs = LogManager([home], LogOpening([home], None).open, 1)
        self.services = Services(
            config, self.store, self.logs, FakeDataPlane(), clock,
            {"PLAINTEXT": Endpoint("localhost", 9092)}, lambda _: None,
        )  # fmt: skip
        broker._open_logs(self.services)

    def values(self, topic: str, partition: int) -> list[tuple[int, bytes | None]]:
        log = self.logs.get(topic, partition)
        if not isinstance(log, Log):
            return []
        data = read_all(log)
        assert sum(size for _, size in batch_places(data)) == len(data)
        return values_of(data)

    def close(self) -> None:
        for _, log in self.logs.items():
            log.close(clean=False)
        self.services.groups.stop()
        self.store.close()


def wrong_with(folder: Path, story: Story, calls: int) -> list[str]:
    """What of the story, as far as it was told by then, is not there; what is there beside it."""
    found = Recovered(folder)
    try:
        stored: dict[tuple[str, int], list[tuple[int, bytes | None]]] = {}
        for (topic, partition), sent in story.sent.items():
            stored[topic, partition] = found.values(topic, partition)
            expected = list(enumerate(sent))[: len(stored[topic, partition])]
            if stored[topic, partition] != expected:
                return [f"{topic}-{partition}: not what was sent"]
        wrong = [
            f"{one.topic}-{one.partition} {one.offset}"
            for one in story.told
            if one.calls <= calls and one.offset >= len(stored[one.topic, one.partition])
        ]
        topics = found.store.image.topics.values()
        names = {topic.name for topic in topics}
        return wrong + [
            f"topic {name}"
            for name, since in story.topics.items()
            if since <= calls and name not in names
        ]
    finally:
        found.close()


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """In memory where that can be: it is filled and emptied thousands of times. Nothing is logged:
    pytest keeps what is, errors in it keep the frames they were raised in, and those all that was
    read (21 GB of it)."""
    memory = Path("/dev/shm")
    made = Path(tempfile.mkdtemp(dir=memory if memory.is_dir() else tmp_path))
    logging.disable()
    yield made
    logging.disable(logging.NOTSET)
    shutil.rmtree(made)


def peak_bytes() -> int:
    """The most memory that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def choices(states: int, calls: int, chance: random.Random) -> Iterator[tuple[int, Choice]]:
    """So many moments and choices, in the order of the moments."""
    picked = [
        (
            chance.randrange(1, calls + 1),
            FIXED[number % 8]
            if number % 8 < 4
            else Choice(chance.choice((0, 1, chance.random())), "some", number),
        )
        for number in range(states)
    ]
    yield from sorted(picked, key=lambda one: one[0])


def lost_in(
    story: Story, folder: Path, states: int, seed: int, *, without_sync: bool = False
) -> list[str]:
    """What is lost in so many states of the disk, each line with what repeats it."""
    return wrong_states(
        story.root,
        story.calls,
        lambda state, calls: wrong_with(state, story, calls),
        folder,
        choices(states, len(story.calls), random.Random(seed)),
        without_sync=without_sync,
    )


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("batches", "states", "seed"),
    [(40, 400, 1), *(pytest.param(250, scaled(2000, full=5000), seed, marks=LONG)
          for seed in range(2, scaled(4, full=10)))],
)
def test_what_was_acknowledged_is_in_every_state(
    start_kbroker: StartBroker, tmp_path: Path, folder: Path, *, batches: int,
    states: int, seed: int, tally: Tally,
) -> None:  # fmt: skip
    """And a disk that forgets to sync loses it."""
    story = tell_a_story(start_kbroker, tmp_path, batches, seed, {})
    before = peak_bytes()
    lost = lost_in(story, folder, states, seed)
    control = lost_in(story, folder, states // 10, seed, without_sync=True)
    for fault, is_some in (("F3", True), ("F4", False)):
        mine, others = (
            [line for line in lines if ("writes='some'" in line) is is_some]
            for lines in (lost, control)
        )
        tally(fault, tried=states // 2, lost=len(mine), control=len(others))
    assert not lost, "\n".join(lost[:20])
    assert control
    assert peak_bytes() - before < MEMORY_MAX_BYTES


def is_journal(path: str) -> bool:
    return Path(path).name.startswith(".kbroker-journal.")


def reused_headers(calls: list[Call]) -> Iterator[tuple[int, int]]:
    """Where a journal's file that was used before gets its header, and where its next write ends
    with the header not synced."""
    journal = {call.inode for call in calls if call.kind == "C" and is_journal(call.path)}
    written: set[int] = set()
    pending: dict[int, int] = {}
    for number, call in enumerate(calls):
        if call.inode not in journal or call.kind not in "WS":
            continue
        header = pending.pop(call.inode, None)
        if header is not None and call.kind == "W":
            yield header, number + 1
        elif call.kind == "W" and call.at == 0:
            if call.inode in written:
                pending[call.inode] = number
            written.add(call.inode)


def test_a_journal_file_that_is_used_again(
    start_kbroker: StartBroker, tmp_path: Path, folder: Path
) -> None:
    """Its first group reaches the disk and its new header does not: what other files hold is not
    behind the group, as the old header would have it."""
    story = tell_a_story(start_kbroker, tmp_path, 220, 1, {}, sizes=(90_000,))
    places = list(reused_headers(story.calls))
    assert places
    for number, (header, end) in enumerate(places):
        disk = Disk(str(story.root))
        for at, call in enumerate(story.calls[:end]):
            if at != header:
                disk.apply(call)
        # Of the logs nothing is there that was not synced: all of it has to come from the journal.
        lose_logs(disk)
        state = folder / str(number)
        materialize(disk, Choice(1, "all"), state)
        assert wrong_with(state, story, end) == []
        shutil.rmtree(state)


def lose_logs(disk: Disk) -> None:
    """What was not synced of files that are not the journal's."""
    kept = {one for name, one in disk.names[-1].items() if is_journal(name)}
    for identity, file in disk.files.items():
        if identity not in kept:
            del file.calls[file.synced :]
