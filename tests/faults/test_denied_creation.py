"""F7: a disk that is full, or has no descriptor left, while logs of new partitions are made.

Their partitions are refused, those of a coordinator too; when the cause has passed they get their
logs without a restart.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from kbroker.client import Consumer, Producer, TopicPartition
from tests.support import wire
from tests.support.native import Words, preloaded, shared_library
from tests.support.processes import BrokerProcess
from tests.support.tally import Tally
from tests.support.waits import wait_for
from tests.support.wire import CREATE_TOPICS, FIND_COORDINATOR, METADATA, WireConnection

#: tests/support/failing.c.
KINDS, _, CODE, _, STAY = range(5)
CREATE = 16
COMMIT = 8
PARTITIONS = 3
SLOW_S = 60
SETTINGS = {"offsets.topic.num.partitions": "2", "kbroker.journal.bytes.max": "16777216"}


def commit(client: WireConnection, topic: str) -> int:
    """Commit an offset of a group without members; the error code."""
    part = {"partition_index": 0, "committed_offset": 1, "committed_leader_epoch": -1,
            "committed_metadata": ""}  # fmt: skip
    answer = client.call(COMMIT, 8, {
        "group_id": "g", "generation_id_or_member_epoch": -1, "member_id": "",
        "group_instance_id": None, "topics": [{"name": topic, "partitions": [part]}],
    })  # fmt: skip
    return int(answer["topics"][0]["partitions"][0]["error_code"])


def partition_codes(client: WireConnection, topic: str) -> list[int]:
    asked = {"topics": [{"name": topic}], "allow_auto_topic_creation": False}
    (found,) = client.call(METADATA, 9, asked)["topics"]
    return [part["error_code"] for part in found["partitions"]]


def create(client: WireConnection, topic: str) -> None:
    wanted = {"name": topic, "num_partitions": PARTITIONS, "replication_factor": 1,
              "assignments": [], "configs": []}  # fmt: skip
    body = {"timeout": 5_000, "validate_only": False, "topics": [wanted]}
    client.call(CREATE_TOPICS, 7, body)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EMFILE], ids=["ENOSPC", "EMFILE"])
def test_partitions_get_their_logs_when_the_cause_has_passed(
    start_kbroker: Callable[..., BrokerProcess], topic: str, tmp_path: Path, code: int, tally: Tally
) -> None:
    folder = tmp_path / "data"
    with Words(tmp_path / "words", 8) as words:
        environ = {
            "LD_PRELOAD": preloaded(shared_library("failing", tmp_path)),
            "KBROKER_TEST_FAIL": str(words.path),
            "KBROKER_TEST_FAIL_ROOT": str(folder),
        }
        broker = start_kbroker(SETTINGS, data_dir=folder, environ=environ)
        wire.create_topic(broker.port, "before", 1)
        with WireConnection(broker.port) as client:
            words[CODE], words[STAY], words[KINDS] = code, 1, CREATE
            create(client, topic)
            coordinator = {"key_type": 0, "coordinator_keys": ["g"]}
            client.call(FIND_COORDINATOR, 4, coordinator)
            wait_for("it is denied", lambda: any(partition_codes(client, topic)), SLOW_S)
            assert commit(client, "before") != 0
            words[KINDS] = 0
            served = [0] * PARTITIONS
            wait_for("logs", lambda: partition_codes(client, topic) == served, SLOW_S)
            wait_for("the coordinator", lambda: commit(client, "before") == 0, SLOW_S)
        partitions = [TopicPartition(topic, index) for index in range(PARTITIONS)]
        with Producer(bootstrap_servers=broker.bootstrap) as producer:
            for one in partitions:
                producer.send(topic, b"kept", partition=one.partition).result(SLOW_S)
        broker.kill()
        broker.start()
        with Consumer(bootstrap_servers=broker.bootstrap) as consumer:
            ends = consumer.end_offsets(partitions)
    tally("F7", tried=1, lost=sum(end != 1 for end in ends.values()))
    assert ends == dict.fromkeys(partitions, 1)
    assert not list(folder.glob("*-stray")), broker.log_tail()
