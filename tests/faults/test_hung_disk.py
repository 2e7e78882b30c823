"""F10 on one of two directories: who has nothing to do with the disk that hangs is served.

tests/faults/test_bad_disk.py has what becomes of the records on such a disk.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kbroker.group.partition import group_partition
from tests.faults.test_bad_disk import REQUEST_TIMED_OUT, frozen, page
from tests.faults.test_disk import numbered
from tests.faults.test_log_dirs import in_directory
from tests.support import wire
from tests.support.kbroker import KbrokerProcess
from tests.support.loopfs import LoopFilesystem
from tests.support.needs import need_loop
from tests.support.rounds import rounds
from tests.support.tally import Tally
from tests.support.waits import wait_for
from tests.support.wire import (
    FETCH,
    FIND_COORDINATOR,
    METADATA,
    PRODUCE,
    WireConnection,
    call_once,
)
from tests.wire.test_classic_groups import Member
from tests.wire.test_connections import fetch_body, produce_body

FSYNC = {"kbroker.durability": "fsync"}
PARTITIONS, OFFSETS = 4, 2
NETWORK_THREADS = 3
OFFSET_COMMIT = 8
#: COORDINATOR_NOT_AVAILABLE, and NOT_COORDINATOR for what was written and is not durable in time.
ASK_AGAIN = {15, 16}
#: As many as to be on every network thread, several times.
CONNECTIONS = 9
GROUPS = "abcdefgh"
#: What produces let their answers take.
TIMEOUT_MS = 1_000
#: Half a second until a write that stands is taken for hanging, a tenth more for an append of the
#: control thread, a second between looks whether somebody has waited for as long as it may.
ANSWER_S = 4.0
TOLD_S = 3


class Asker(threading.Thread):
    """Asks again and again on a connection of its own; the errors, and the longest wait for one."""

    def __init__(self, ask: Callable[[int], int]) -> None:
        super().__init__(daemon=True)
        self._ask = ask
        self.errors: list[int] = []
        self.longest_s = 0.0
        self.ends = threading.Event()
        self.start()

    def run(self) -> None:
        while not self.ends.is_set():
            begun = time.monotonic()
            error = self._ask(len(self.errors))
            self.longest_s = max(self.longest_s, time.monotonic() - begun)
            self.errors.append(error)

    def finish(self) -> set[int]:
        self.ends.set()
        self.join(120)
        assert not self.is_alive()
        return set(self.errors)

    @property
    def prompt(self) -> bool:
        return self.longest_s < ANSWER_S


class Scene:
    """A broker on two directories, the second on a disk of its own, and who asks it what."""

    def __init__(self, broker: KbrokerProcess, second: Path, topic: str) -> None:
        self.broker, self.topic = broker, topic
        wire.create_topic(broker.port, topic, PARTITIONS)
        self.here = in_directory(broker.data_dir, topic)
        self.there = in_directory(second, topic)
        assert self.here and self.there
        key = {"key_type": 0, "coordinator_keys": ["g"]}
        call_once(broker.port, FIND_COORDINATOR, 4, key)
        offsets = "__consumer_offsets"
        self.offsets_there = in_directory(second, offsets)
        assert self.offsets_there and in_directory(broker.data_dir, offsets)
        self.connections: list[WireConnection] = []

    def connect(self) -> WireConnection:
        self.connections.append(WireConnection(self.broker.port, timeout_s=120))
        return self.connections[-1]

    def write(self, partition: int) -> Callable[[int], int]:
        connection = self.connect()

        def ask(number: int) -> int:
            body: dict[str, Any] = produce_body(self.topic, numbered(number)) | {
                "timeout": TIMEOUT_MS
            }
            body["topic_data"][0]["partition_data"][0]["index"] = partition
            answer = connection.call(PRODUCE, 9, body)
            return int(answer["responses"][0]["partition_responses"][0]["error_code"])

        return ask

    def read(self, partition: int) -> Callable[[int], int]:
        connection = self.connect()

        def ask(number: int) -> int:
            asked = {"partition": partition, "fetch_offset": 0, "partition_max_bytes": 1_000,
                     "last_fetched_epoch": 0}  # fmt: skip
            body = fetch_body(self.topic, 0, max_wait=200, min_bytes=1) | {
                "topics": [{"topic": self.topic, "partitions": [asked]}]
            }
            answer = connection.call(FETCH, 12, body)["responses"][0]["partitions"][0]
            return int(answer["error_code"]) if answer["high_watermark"] > 0 else -1

        return ask

    def look(self) -> Callable[[int], int]:
        connection = self.connect()

        def ask(number: int) -> int:
            answer = connection.call(METADATA, 9, {"topics": None})
            return 0 if answer["topics"] else -1

        return ask

    @staticmethod
    def beat(member: Member) -> Callable[[int], int]:
        return lambda number: member.heartbeat()

    def commit(self, member: Member) -> Callable[[int], int]:
        connection = self.connect()

        def ask(number: int) -> int:
            partition = {
                "partition_index": 0, "committed_offset": number, "committed_metadata": "",
            }  # fmt: skip
            body = {
                "group_id": member.group, "member_id": member.id,
                "generation_id_or_member_epoch": member.generation,
                "topics": [{"name": self.topic, "partitions": [partition]}],
            }  # fmt: skip
            answer = connection.call(OFFSET_COMMIT, 8, body)
            return int(answer["topics"][0]["partitions"][0]["error_code"])

        return ask

    def tells(self) -> bool:
        """Whether the scrape says that the second directory hangs, and that the first does not."""
        told = page(self.broker, "metrics").splitlines()
        lines = [one for one in told if one.startswith("kbroker_log_directory_hangs{")]
        return sorted(line.rpartition(" ")[2] for line in lines) == ["0", "1"]

    def is_there(self, group: str) -> bool:
        return group_partition(group, OFFSETS) in self.offsets_there


def all_go_on(askers: list[Asker]) -> None:
    before = [len(one.errors) for one in askers]

    def they_do() -> bool:
        return all(len(one.errors) > then for one, then in zip(askers, before, strict=True))

    wait_for("all go on", they_do, 60, 0.05)


def is_committed(commit: Callable[[int], int]) -> bool:
    return commit(1) == 0


@pytest.fixture
def scene(
    start_kbroker: Callable[..., KbrokerProcess], disk: LoopFilesystem, topic: str
) -> Iterator[Scene]:
    second = disk.path / "second"
    second.mkdir()
    settings = FSYNC | {
        "offsets.topic.num.partitions": str(OFFSETS), "group.initial.rebalance.delay.ms": "0",
        "offsets.commit.timeout.ms": str(TIMEOUT_MS),
    }  # fmt: skip
    broker = start_kbroker(settings, more_dirs=(second,))
    made = Scene(broker, second, topic)
    yield made
    for connection in made.connections:
        connection.close()
    broker.kill()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[LoopFilesystem]:
    need_loop()
    with LoopFilesystem(tmp_path, 512) as made:
        yield made


@pytest.mark.timeout(600)
@pytest.mark.parametrize("holds_s", rounds((6,), long=(5, 1, 15), full=(5, 1, 30, 6)))
def test_everybody_is_answered(
    scene: Scene, disk: LoopFilesystem, tmp_path: Path, holds_s: tuple[int, ...], tally: Tally
) -> None:
    """Clients of the other directory as if nothing were, heartbeats of all groups; what is to be
    written to the disk that hangs with the error by which clients ask again, in its time."""
    members = [Member(scene.broker, group).alone() for group in GROUPS]
    here = [Asker(scene.write(scene.here[n % 2])) for n in range(CONNECTIONS)]
    there = [Asker(scene.write(scene.there[n % 2])) for n in range(CONNECTIONS)]
    all_go_on([*here, *there])
    here += [Asker(scene.read(scene.here[n % 2])) for n in range(CONNECTIONS)]
    here += [Asker(scene.look())]
    there += [Asker(scene.read(scene.there[n % 2])) for n in range(CONNECTIONS)]
    beats = [Asker(scene.beat(member)) for member in members]
    commits = {member.group: Asker(scene.commit(member)) for member in members}
    everybody = [*here, *there, *beats, *commits.values()]
    for seconds in holds_s:
        all_go_on(everybody)
        thawed = tmp_path / "thawed"
        with frozen(disk, seconds, thawed):
            before = [len(one.errors) for one in here + beats]
            if seconds > TOLD_S:
                wait_for("it is told", scene.tells, TOLD_S, 0.05)
            wait_for("it is thawed", thawed.exists, seconds + 30, 0.05)
        thawed.unlink()
        moved = [len(one.errors) for one in here + beats]
        assert all(now > then + 3 for now, then in zip(moved, before, strict=True))
    for one in everybody:
        one.ends.set()
    assert [one.finish() for one in here] == [{0}] * len(here)
    assert [one.finish() for one in beats] == [{0}] * len(beats)
    assert set().union(*[one.finish() for one in there]) == {0, REQUEST_TIMED_OUT}
    for group, one in commits.items():
        allowed = {0, *ASK_AGAIN} if scene.is_there(group) else {0}
        assert one.finish() <= allowed, group
    waited = {
        name: [round(one.longest_s, 2) for one in some if not one.prompt]
        for name, some in {"here": here, "beats": beats, "commits": [*commits.values()]}.items()
    }
    assert waited == {"here": [], "beats": [], "commits": []}
    # One that stands in the disk itself for each network thread.
    assert sum(not one.prompt for one in there) <= NETWORK_THREADS * len(holds_s)
    for member in members:
        wait_for("its group goes on", partial(is_committed, scene.commit(member)), 30, 0.05)
        member.connection.close()
    tally("F10", tried=len(holds_s), lost=0)
