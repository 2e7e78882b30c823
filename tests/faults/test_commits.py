"""F2: power loss under commits: an offset that was answered is on the disk, and never goes back.

Only for kbroker: Apache Kafka answers a commit that is in the page cache.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import wire
from tests.support.loopfs import LoopFilesystem
from tests.support.needs import need_loop
from tests.support.oracle import CommitHistory, judge_commit
from tests.support.processes import BrokerProcess
from tests.support.tally import Tally
from tests.support.waits import wait_for
from tests.support.wire import FIND_COORDINATOR, ConnectionClosedError, WireConnection

OFFSET_COMMIT, OFFSET_FETCH = 8, 9
COMMITTERS, CYCLES = 8, 3
StartBroker = Callable[..., BrokerProcess]


class Committer(threading.Thread):
    """Commits 1, 2, 3... for a group of its own, through whatever happens to the broker."""

    def __init__(self, number: int, port: int, topic: str, going: threading.Event) -> None:
        """While not `going`, it makes no connection."""
        super().__init__(daemon=True)
        self.going = going
        self.history = CommitHistory(f"group-{number}")
        self.group, self.port, self.topic = self.history.group, port, topic
        self.connected = False
        self.stopping = threading.Event()

    def run(self) -> None:
        while not self.stopping.is_set():
            self.going.wait()
            try:
                with WireConnection(self.port, timeout_s=10) as connection:
                    self.connected = True
                    while not self.stopping.is_set():
                        self.commit(connection)
            except (OSError, ConnectionClosedError):
                self.connected = False
                self.stopping.wait(0.05)

    def commit(self, connection: WireConnection) -> None:
        self.history.sent += 1
        partition = {"partition_index": 0, "committed_offset": self.history.sent,
                     "committed_leader_epoch": -1, "committed_metadata": ""}  # fmt: skip
        body = {"group_id": self.group, "generation_id_or_member_epoch": -1, "member_id": "",
                "group_instance_id": None,
                "topics": [{"name": self.topic, "partitions": [partition]}]}  # fmt: skip
        answer = connection.call(OFFSET_COMMIT, 8, body)
        if answer["topics"][0]["partitions"][0]["error_code"] == 0:
            self.history.answered = self.history.sent

    def stored(self) -> int:
        """What the broker has; -1 for nothing. Waits until it is loaded."""
        asked = [{"group_id": self.group,
                  "topics": [{"name": self.topic, "partition_indexes": [0]}]}]  # fmt: skip

        def ask() -> dict[str, object]:
            body = {"groups": asked, "require_stable": True}
            found = wire.call_once(self.port, OFFSET_FETCH, 8, body)["groups"][0]
            return {} if found["error_code"] else found["topics"][0]["partitions"][0]

        return int(str(wait_for("the group is loaded", ask, 30)["committed_offset"]))


def faults(broker: BrokerProcess, disk: LoopFilesystem, topic: str, cycles: int) -> list[str]:
    """Cuts the power under commits so many times; what was answered and is not there."""
    wire.create_topic(broker.port, topic)
    body = {"key_type": 0, "coordinator_keys": ["any"]}
    wire.call_once(broker.port, FIND_COORDINATOR, 4, body)
    moments = random.Random(cycles)
    going = threading.Event()
    going.set()
    committers = [Committer(n, broker.port, topic, going) for n in range(COMMITTERS)]
    found = []

    def answered() -> int:
        return sum(one.history.answered for one in committers)

    try:
        for one in committers:
            one.start()
        for _ in range(cycles):
            wanted = answered() + moments.randint(200, 2000)
            wait_for("commits", lambda w=wanted: answered() >= w, 120)
            disk.cut_power()
            going.clear()
            broker.kill()
            wait_for("quiet", lambda: not any(one.connected for one in committers), 30)
            disk.restore_power()
            broker.start()
            for one in committers:
                found += judge_commit(one.history, one.stored())
            going.set()
    finally:
        going.set()
        for one in committers:
            one.stopping.set()
        for one in committers:
            one.join(30)
    return found


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("durability", "is_safe"), [("fsync", True), pytest.param("page-cache", False, id="control")]
)
def test_answered_commits_survive(
    start_kbroker: StartBroker, topic: str, tmp_path: Path, *, durability: str, is_safe: bool,
    tally: Tally,
) -> None:  # fmt: skip
    """And with the page cache's durability they do not: a test that cannot fail proves nothing."""
    need_loop()
    with LoopFilesystem(tmp_path, 1024, write_cache=True) as disk:
        broker = start_kbroker({"kbroker.durability": durability}, data_dir=disk.path / "data")
        if not is_safe:
            wire.create_topic(broker.port, f"{topic}-before")
            disk.sync()
        lost = faults(broker, disk, topic, CYCLES if is_safe else 1)
        broker.kill()
    if is_safe:
        tally("F2", tried=CYCLES, lost=len(lost))
    else:
        tally("F2", control=len(lost))
    assert bool(lost) != is_safe, lost
