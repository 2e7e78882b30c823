"""A disk that has failed: the broker's own tools and APIs say so, whatever met the error first.

kbroker alone: Apache Kafka ends its process when its only log directory fails.
"""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from kbroker import runfile
from kbroker.cli.scrape import scrape
from tests.faults.scenes import injected
from tests.faults.test_disk import KAFKA_STORAGE_ERROR, produce
from tests.support import wire
from tests.support.processes import BrokerProcess
from tests.support.waits import wait_for
from tests.support.wire import (
    CREATE_TOPICS,
    DESCRIBE_LOG_DIRS,
    FETCH,
    LIST_OFFSETS,
    METADATA,
    WireConnection,
)  # fmt: skip
from tests.wire.test_connections import fetch_body

LEADER_NOT_AVAILABLE, NOT_LEADER_OR_FOLLOWER = 5, 6
TOLD_S = 10
PARTITIONS = 3
StartBroker = Callable[..., BrokerProcess]

# What fails, under which settings: the first error of all.
FSYNC = {"kbroker.durability": "fsync"}
PAGE_CACHE = {
    "kbroker.durability": "page-cache",
    "log.flush.interval.messages": "1",
    "log.flush.scheduler.interval.ms": "50",
}
FAULTS = {
    "the journal's sync": (FSYNC, "fdatasync", "the journal"),
    "a partition's sync": (PAGE_CACHE, "fdatasync", "partition {topic}-0"),
    "a partition's write before the journal's": (FSYNC, "pwrite64", "partition {topic}-0"),
    "a partition's write": (PAGE_CACHE, "pwrite64", "partition {topic}-0"),
}


@pytest.fixture(params=FAULTS)
def failed(
    request: pytest.FixtureRequest, start_kbroker: StartBroker, topic: str
) -> Iterator[BrokerProcess]:
    """A broker whose disk failed once, under one of three partitions, and works again since."""
    settings, calls, what = FAULTS[request.param]
    broker = start_kbroker(settings)
    wire.create_topic(broker.port, topic, PARTITIONS)
    with injected(broker, calls, "error=EIO:when=1"), WireConnection(broker.port) as connection:
        number = 0

        def is_told() -> bool:
            nonlocal number
            number += 1
            return produce(connection, topic, number)["error_code"] == KAFKA_STORAGE_ERROR

        wait_for("produce is refused", is_told, TOLD_S)
    line = f"{what.format(topic=topic)} cannot be written: Input/output error (errno 5)"
    wait_for("the log says why", lambda: line in broker.log_text(), TOLD_S)
    yield broker


def page(broker: BrokerProcess, path: str) -> tuple[int, str]:
    """Status and text of a page of the broker's own."""
    info = runfile.running(broker.data_dir)
    assert info is not None
    connection = http.client.HTTPConnection(info.http[0].removeprefix("http://"), timeout=60)
    connection.request("GET", path)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text


def command(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "kbroker.cli", *words],
                          check=False, capture_output=True, text=True, timeout=60)  # fmt: skip


def fetch_all(topic: str) -> dict[str, object]:
    partitions = [
        {"partition": index, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
        for index in range(PARTITIONS)
    ]
    return fetch_body(topic, 0, topics=[{"topic": topic, "partitions": partitions}])


def check_apis(broker: BrokerProcess, topic: str) -> None:
    """No partition of the directory is served, the two that met no error as little as the one."""
    asked = {"name": topic, "partitions": [
        {"partition_index": index, "timestamp": -1} for index in range(PARTITIONS)
    ]}  # fmt: skip
    new = {"name": f"{topic}-new", "num_partitions": 1, "replication_factor": 1}
    with WireConnection(broker.port) as connection:
        (told,) = connection.call(METADATA, 9, {"topics": [{"name": topic}]})["topics"]
        (offsets,) = connection.call(LIST_OFFSETS, 6, {"replica_id": -1, "topics": [asked]})[
            "topics"
        ]
        (folder,) = connection.call(DESCRIBE_LOG_DIRS, 4, {"topics": None})["results"]
        fetched = connection.call(FETCH, 11, fetch_all(topic))["responses"][0]["partitions"]
        old = connection.call(FETCH, 5, fetch_all(topic))["responses"][0]["partitions"]
        (created,) = connection.call(CREATE_TOPICS, 5, {"topics": [new]})["topics"]
    assert [
        (part["error_code"], part["leader_id"], part["offline_replicas"])
        for part in told["partitions"]
    ] == [(LEADER_NOT_AVAILABLE, -1, part["replica_nodes"]) for part in told["partitions"]]
    assert len(fetched) == len(old) == PARTITIONS
    assert {part["error_code"] for part in old} == {NOT_LEADER_OR_FOLLOWER}
    codes = [part["error_code"] for part in offsets["partitions"] + fetched]
    codes += [folder["error_code"], created["error_code"]]
    assert len(told["partitions"]) == PARTITIONS and set(codes) == {KAFKA_STORAGE_ERROR}
    assert folder["topics"] == []


def check_pages(broker: BrokerProcess, topic: str) -> None:
    status, text = page(broker, "/readyz")
    assert status == 503 and "the log directory is offline" in text
    told = json.loads(page(broker, "/status")[1])
    assert f"{topic}-2" in told["offline_partitions"] and not told["ready"]
    info = runfile.running(broker.data_dir)
    assert info is not None
    found = scrape(info.http[0])
    for name, value in {
        "kafka_controller_kafkacontroller_offlinepartitionscount": PARTITIONS,
        "kafka_controller_kafkacontroller_globalpartitioncount": PARTITIONS,
        "kafka_server_replicamanager_offlinereplicacount": PARTITIONS,
        "kafka_server_replicamanager_leadercount": 0,
        "kafka_log_logmanager_offlinelogdirectorycount": 1,
    }.items():
        assert found.value(name) == value, name


def check_tools(broker: BrokerProcess, topic: str) -> None:
    health = command("cluster", "health", "-b", broker.bootstrap)
    assert health.returncode == 1 and f"{topic}-2" in health.stdout
    assert "log directories that are off: 1" in health.stdout
    folders = json.loads(command("cluster", "logdirs", "-b", broker.bootstrap, "-o", "json").stdout)
    assert "KAFKA_STORAGE_ERROR" in json.dumps(folders)
    checked = command("check", "--data-dir", str(broker.data_dir), "-o", "json")
    (partitions,) = [one for one in json.loads(checked.stdout) if one["check"] == "partitions"]
    assert checked.returncode == 1 and partitions["verdict"] == "FAILED"
    status = command("status", "--data-dir", str(broker.data_dir), "-o", "json")
    assert json.loads(status.stdout)["offline_partitions"] == PARTITIONS


@pytest.mark.timeout(300)
def test_a_failed_disk_is_told_everywhere(failed: BrokerProcess, topic: str) -> None:
    check_apis(failed, topic)
    check_pages(failed, topic)
    check_tools(failed, topic)
    assert failed.log_text().count("the log directory") == 1
    failed.stop()
    failed.start()
    with WireConnection(failed.port) as connection:
        assert produce(connection, topic, 1)["error_code"] == 0
