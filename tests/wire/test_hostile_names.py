"""Names that would be paths: no request makes, changes or tells of a file by them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.reference.crafted_batches import Batch, Record
from tests.support import wire
from tests.support.kbroker import KbrokerProcess
from tests.support.messages import error_codes
from tests.support.wire import WireConnection

NAMES = ("..", ".", "../out", "../../out", "a/../../out", "/tmp/out", "a/b", "a\\b", "..\\out",
         "a\0b", "%2e%2e%2fout", "\N{TWO DOT LEADER}/out", "a\nb", "x" * 250, "")  # fmt: skip
INVALID_TOPIC, UNKNOWN_TOPIC, INVALID_REQUEST, INVALID_CONFIG, NO_DIRECTORY = 17, 3, 42, 40, 57
TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
BATCH = Batch(records=[Record(b"v")]).encode()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KbrokerProcess]:
    """One that makes the topics that clients ask for."""
    settings = {"auto.create.topics.enable": "true", "offsets.topic.num.partitions": "1"}
    one = KbrokerProcess(tmp_path_factory.mktemp("home") / "inner" / "most", settings)
    one.home.parent.mkdir(exist_ok=True)
    one.start()
    try:
        wire.create_topic(one.port, "honest")
        find = {"key_type": 0, "coordinator_keys": ["g"]}
        wire.call_once(one.port, wire.FIND_COORDINATOR, 4, find)
        yield one
    finally:
        one.kill()


def files(broker: KbrokerProcess) -> set[Path]:
    """All folders from two above the broker's own on, and all files that are not its data."""
    return {
        path
        for path in (*broker.home.parent.parent.rglob("*"), *Path("/tmp").glob("out*"))
        if path.is_dir() or not path.is_relative_to(broker.data_dir)
    }


def topic_requests(name: str) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """All that could make, find or change something by a topic's name."""
    part = {"partition_index": 0}
    fetched = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000,
               "current_leader_epoch": -1}  # fmt: skip
    new = {"name": name, "num_partitions": 1, "replication_factor": 1, "configs": [],
           "assignments": []}  # fmt: skip
    rows = [{"name": name, "partition_data": [{"index": 0, "records": BATCH}]}]
    yield wire.CREATE_TOPICS, 7, {"topics": [new], "timeout": 10000}
    yield wire.METADATA, 9, {"topics": [{"name": name}], "allow_auto_topic_creation": True}
    yield wire.PRODUCE, 9, {"acks": -1, "timeout": 1000, "topic_data": rows}
    if len(name) < 250:  # longer ones close the connection: they would be answered many times over
        yield wire.FETCH, 11, {"replica_id": -1, "max_wait": 0, "min_bytes": 0,
                               "topics": [{"topic": name, "partitions": [fetched]}]}  # fmt: skip
    yield wire.LIST_OFFSETS, 6, {"replica_id": -1, "topics": [
        {"name": name, "partitions": [{**part, "timestamp": -1}]}]}  # fmt: skip
    yield wire.CREATE_PARTITIONS, 3, {"topics": [
        {"name": name, "count": 3, "assignments": None}], "timeout": 10000}  # fmt: skip
    yield wire.DELETE_RECORDS, 2, {"topics": [
        {"name": name, "partitions": [{**part, "offset": 0}]}], "timeout": 10000}  # fmt: skip
    yield wire.DELETE_TOPICS, 5, {"topic_names": [name], "timeout": 10000}


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_topics(broker: KbrokerProcess, name: str) -> None:
    before = files(broker)
    with WireConnection(broker.port) as one:
        for api, version, body in topic_requests(name):
            told = set(error_codes(one.call(api, version, body)))
            assert told & {INVALID_TOPIC, UNKNOWN_TOPIC}, (api, told)
        topics = one.call(wire.METADATA, 9, {"topics": None})["topics"]
    assert {row["name"] for row in topics} == {"honest", "__consumer_offsets"}
    assert files(broker) == before


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_settings(broker: KbrokerProcess, name: str) -> None:
    """Of topics and brokers that cannot be; those of groups and subscriptions have no files."""
    before = files(broker)
    change = [{"name": "x/../y", "config_operation": 0, "value": "../../out"}]
    with WireConnection(broker.port) as one:
        for kind in (TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP):
            if kind == BROKER and not name:
                continue  # all brokers, which may have settings of plugins
            resource = {"resource_type": kind, "resource_name": name}
            asked = {"resources": [{**resource, "configs": change}], "validate_only": False}
            (told,) = one.call(wire.INCREMENTAL_ALTER_CONFIGS, 1, asked)["responses"]
            assert told["error_code"] in {INVALID_TOPIC, INVALID_REQUEST, INVALID_CONFIG}, kind
            wanted = {"resources": [{**resource, "configuration_keys": None}]}
            (told,) = one.call(wire.DESCRIBE_CONFIGS, 4, wanted)["results"]
            if kind not in {CLIENT_METRICS, GROUP} or not name:
                assert told["error_code"] in {INVALID_TOPIC, INVALID_REQUEST}, kind
    assert files(broker) == before


def test_directories(broker: KbrokerProcess) -> None:
    before = files(broker)
    dirs = [{"path": path, "topics": [{"name": "honest", "partitions": [0]}]}
            for path in ("..", "../../out", "/", "/etc", "")]  # fmt: skip
    told = set(error_codes(wire.call_once(broker.port, 34, 2, {"dirs": dirs})))
    assert told == {NO_DIRECTORY}
    assert files(broker) == before
