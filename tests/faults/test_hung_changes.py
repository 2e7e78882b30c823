"""F10 under changes of the metadata: the control thread waits for no disk, whichever it is."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults.test_bad_disk import REQUEST_TIMED_OUT, frozen
from tests.faults.test_disk import numbered, stored_numbers
from tests.faults.test_hung_disk import ANSWER_S, Asker
from tests.support import wire
from tests.support.kbroker import KbrokerProcess
from tests.support.loopfs import LoopFilesystem
from tests.support.needs import need_loop
from tests.support.rounds import scaled
from tests.support.tally import Tally
from tests.support.waits import wait_for
from tests.support.wire import (
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    DESCRIBE_CONFIGS,
    FIND_COORDINATOR,
    INCREMENTAL_ALTER_CONFIGS,
    INIT_PRODUCER_ID,
    METADATA,
    PRODUCE,
    call_once,
)
from tests.wire.test_classic_groups import Member
from tests.wire.test_connections import produce_body

UNKNOWN_TOPIC, TOPIC_EXISTS, INVALID_PARTITIONS = 3, 36, 37
GROUPS = "abcdefgh"
TOPIC = 2
LONG = pytest.mark.long


class Changes:
    """What is asked for while the disk hangs, and again until it is done."""

    def __init__(self, port: int) -> None:
        self.port = port
        wire.create_topic(port, "grown", 2)
        wire.create_topic(port, "deleted", 2)

    def create(self) -> int:
        asked = {"name": "made", "num_partitions": 2, "replication_factor": 1}
        answer = call_once(self.port, CREATE_TOPICS, 7, {"topics": [asked], "timeout": 1_000})
        return self._code(answer["topics"], TOPIC_EXISTS)

    def grow(self) -> int:
        asked = {"name": "grown", "count": 4, "assignments": None}
        body = {"topics": [asked], "timeout": 1_000, "validate_only": False}
        answer = call_once(self.port, CREATE_PARTITIONS, 3, body)
        return self._code(answer["results"], INVALID_PARTITIONS)

    def configure(self) -> int:
        config = {"name": "retention.ms", "config_operation": 0, "value": "77000"}
        asked = {"resource_type": TOPIC, "resource_name": "grown", "configs": [config]}
        answer = call_once(self.port, INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [asked]})
        return self._code(answer["responses"], 0)

    def delete(self) -> int:
        body = {"topic_names": ["deleted"], "timeout": 1_000}
        answer = call_once(self.port, DELETE_TOPICS, 5, body)
        return self._code(answer["responses"], UNKNOWN_TOPIC)

    def take_id(self) -> int:
        body = {"transactional_id": None, "transaction_timeout": 1_000, "producer_id": -1,
                "producer_epoch": -1}  # fmt: skip
        return int(call_once(self.port, INIT_PRODUCER_ID, 4, body)["error_code"])

    @staticmethod
    def _code(results: list[dict[str, Any]], done: int) -> int:
        code = int(results[0]["error_code"])
        return 0 if code == done else code

    def all_of_them(self) -> dict[str, Callable[[], int]]:
        return {"create": self.create, "grow": self.grow, "configure": self.configure,
                "delete": self.delete, "an id": self.take_id}  # fmt: skip

    def check(self) -> None:
        """All of it took place, and the new partitions are served."""
        wire.wait_for_topic(self.port, "made", 2)
        wire.wait_for_topic(self.port, "grown", 4)
        topics = call_once(self.port, METADATA, 9, {"topics": None})["topics"]
        names = {one["name"] for one in topics}
        assert {"made", "grown"} <= names and "deleted" not in names
        asked = {"resource_type": TOPIC, "resource_name": "grown",
                 "configuration_keys": ["retention.ms"]}  # fmt: skip
        (told,) = call_once(self.port, DESCRIBE_CONFIGS, 4, {"resources": [asked]})["results"]
        assert told["configs"][0]["value"] == "77000"

    def write(self, number: int) -> None:
        body: dict[str, Any] = produce_body("made", numbered(number))
        for index in range(2):
            body["topic_data"][0]["partition_data"][0]["index"] = index
            answer = call_once(self.port, PRODUCE, 9, body)
            assert answer["responses"][0]["partition_responses"][0]["error_code"] == 0


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[LoopFilesystem]:
    need_loop()
    with LoopFilesystem(tmp_path, 512) as made:
        yield made


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "holds",
    # 15 s is beyond every timeout of the requests and of what waits for a disk.
    [(0, 8), (1, 8),
     *(pytest.param((hangs, scaled(15, full=30)), marks=LONG) for hangs in (0, 1))],
    ids=lambda holds: f"{holds[0]}-{holds[1]}s",
)
def test_the_control_thread_waits_for_no_disk(
    start_kbroker: Callable[..., KbrokerProcess], disk: LoopFilesystem, tmp_path: Path,
    holds: tuple[int, int], tally: Tally,
) -> None:  # fmt: skip
    """Changes are answered in time, by success or by the error on which clients ask again;
    heartbeats and metadata as if nothing were. When the disk is back, all of them take place."""
    hangs, seconds = holds  # the place of the directory on that disk
    paths = [tmp_path / "apart", disk.path / "on-it"]
    data, second = paths if hangs else reversed(paths)
    second.mkdir()
    settings = {
        "group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "2",
        "request.timeout.ms": "1000",  # of changes whose requests have no timeout
    }  # fmt: skip
    broker = start_kbroker(settings, data_dir=data, more_dirs=(second,))
    changes = Changes(broker.port)
    coordinator = {"key_type": 0, "coordinator_keys": ["g"]}
    call_once(broker.port, FIND_COORDINATOR, 4, coordinator)
    members = [Member(broker, group).alone() for group in GROUPS]
    beats = [Asker(lambda _, one=member: one.heartbeat()) for member in members]
    thawed = tmp_path / "thawed"
    waited, codes = {}, {}
    with frozen(disk, seconds, thawed):
        for name, ask in changes.all_of_them().items():
            begun = time.monotonic()
            codes[name] = ask()
            waited[name] = time.monotonic() - begun
        assert not thawed.exists()
    assert all(one < ANSWER_S for one in waited.values()), waited
    if hangs:  # what needs no more than the metadata is done
        assert codes["configure"] == codes["delete"] == codes["an id"] == 0, codes
    assert set(codes.values()) <= {0, REQUEST_TIMED_OUT}, codes
    for name, ask in changes.all_of_them().items():
        wait_for(name, lambda ask=ask: ask() == 0, 30, 0.1)
    changes.check()
    changes.write(1)
    assert [one.finish() for one in beats] == [{0}] * len(beats)
    assert all(one.prompt for one in beats), [one.longest_s for one in beats]
    for member in members:
        member.connection.close()
    assert broker.stop() == 0 and "Traceback" not in broker.log_text()
    broker.start()
    changes.port = broker.port
    changes.check()
    assert set(stored_numbers(broker.port, "made").values()) == {1}
    tally("F10", tried=1, lost=0)
