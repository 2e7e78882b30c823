"""Handlers about the broker itself: cluster, coordinators, disk, leaders, producer ids, offsets."""

from __future__ import annotations

import pytest

from kbroker.errors import DiskError
from kbroker.protocol import ApiKey
from tests.support.control import FakeRequest


@pytest.mark.parametrize("version", range(3))
def test_the_cluster_is_this_broker(control, version):
    answer = control.call(
        ApiKey.DESCRIBE_CLUSTER, version, include_cluster_authorized_operations=True
    )
    assert answer["error_code"] == 0 and answer["cluster_id"] == control.store.meta.cluster_id
    (broker,) = answer["brokers"]
    assert (broker["broker_id"], broker["host"], broker["port"]) == (1, "localhost", 9092)
    assert answer["controller_id"] == 1 and answer["cluster_authorized_operations"] == 8096


def test_a_broker_does_not_answer_for_controllers(control):
    for kind, code in ((2, 114), (3, 115)):
        answer = control.call(ApiKey.DESCRIBE_CLUSTER, 1, endpoint_type=kind)
        assert answer["error_code"] == code and answer["error_message"]


@pytest.mark.parametrize("version", range(7))
def test_this_broker_coordinates_groups_and_transactions(control, version):
    for kind in (0, 1):
        if version < 4:
            fields = {"key": "g"} | ({"key_type": kind} if version else {})
            answers = [control.call(ApiKey.FIND_COORDINATOR, version, **fields)]
        else:
            keys = ["g", "h"]
            answer = control.call(
                ApiKey.FIND_COORDINATOR, version, coordinator_keys=keys, key_type=kind
            )
            answers = answer["coordinators"]
            assert [one["key"] for one in answers] == keys
        for one in answers:
            assert (one["error_code"], one["node_id"], one["port"]) == (0, 1, 9092)
    made = {"__consumer_offsets"} | ({"__transaction_state"} if version else set())
    assert set(control.store.image.topics) == made


@pytest.mark.parametrize("version", range(7))
def test_nobody_coordinates_where_the_topic_cannot_be_made(control_with, caplog, version):
    """Segments of less than `segment.bytes` may be: what the setting's own range lets through."""
    size = str(1024 + version)
    control = control_with(offsets_topic_segment_bytes=size)
    fields = {"key": "g"} if version < 4 else {"coordinator_keys": ["g"]}
    for _ in range(3):
        answer = control.call(ApiKey.FIND_COORDINATOR, version, **fields)
        one = answer if version < 4 else answer["coordinators"][0]
        assert (one["error_code"], one["node_id"], one["port"]) == (15, -1, -1)
    assert not control.store.image.topics
    (line,) = [text for text in caplog.messages if "cannot be created" in text]
    assert "__consumer_offsets" in line and "segment.bytes" in line and size in line


def test_other_coordinators_are_not_to_be_had(control):
    answer = control.call(ApiKey.FIND_COORDINATOR, 6, coordinator_keys=["a"], key_type=2)
    assert answer["coordinators"][0]["error_code"] == 42
    assert control.call(ApiKey.FIND_COORDINATOR, 2, key="a", key_type=9)["error_code"] == 42


@pytest.mark.parametrize("version", range(1, 6))
def test_the_log_directory_is_described(control, version):
    control.create("a", 2)
    control.create("b")
    control.log("a", 1).size_bytes = 77
    (result,) = control.call(ApiKey.DESCRIBE_LOG_DIRS, version, topics=None)["results"]
    assert result["error_code"] == 0 and result["log_dir"] == str(control.logs.directory)
    sizes = {one["name"]: [part["partition_size"] for part in one["partitions"]]
             for one in result["topics"]}  # fmt: skip
    assert sizes == {"a": [0, 77], "b": [0]}
    if version >= 4:
        assert 0 < result["usable_bytes"] <= result["total_bytes"]
    asked = [{"topic": "a", "partitions": [1, 9]}, {"topic": "no", "partitions": [0]}]
    (result,) = control.call(ApiKey.DESCRIBE_LOG_DIRS, version, topics=asked)["results"]
    (topic,) = result["topics"]
    assert [part["partition_index"] for part in topic["partitions"]] == [1]


@pytest.mark.parametrize("version", range(3))
def test_no_election_is_needed(control, version):
    control.create("a")
    asked = [{"topic": "a", "partitions": [0, 1]}, {"topic": "no", "partitions": [0]}]
    answer = control.call(ApiKey.ELECT_LEADERS, version, topic_partitions=asked)
    found = {
        (one["topic"], part["partition_id"]): part["error_code"]
        for one in answer["replica_election_results"]
        for part in one["partition_result"]
    }
    assert found == {("a", 0): 84, ("a", 1): 3, ("no", 0): 3}
    every = control.call(ApiKey.ELECT_LEADERS, version, topic_partitions=None)
    assert every["replica_election_results"] == [
        {**every["replica_election_results"][0], "topic": "a", "partition_result": []}
    ]
    if version:
        refused = control.call(
            ApiKey.ELECT_LEADERS, version, topic_partitions=None, election_type=7
        )
        assert refused["error_code"] == 42


@pytest.mark.parametrize("version", range(2))
def test_nothing_can_be_moved(control, version):
    control.create("a", 4)
    asked = [
        {"name": "a", "partitions": [
            {"partition_index": 0, "replicas": [1]},
            {"partition_index": 1, "replicas": None},
            {"partition_index": 2, "replicas": [2]},
            {"partition_index": 3, "replicas": []},
            {"partition_index": 4, "replicas": [1]}]},
    ]  # fmt: skip
    answer = control.call(ApiKey.ALTER_PARTITION_REASSIGNMENTS, version, topics=asked)
    (topic,) = answer["responses"]
    assert [one["error_code"] for one in topic["partitions"]] == [0, 85, 39, 39, 3]
    answer = control.call(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, topics=None)
    assert (answer["error_code"], answer["topics"]) == (0, [])


@pytest.mark.parametrize("version", range(6))
def test_producer_ids_are_given_out_once(control, control_with, version):
    given = [
        control.call(ApiKey.INIT_PRODUCER_ID, version, transactional_id=None) for _ in range(1002)
    ]
    assert {one["error_code"] for one in given} == {0}
    assert {one["producer_epoch"] for one in given} == {0}
    assert [one["producer_id"] for one in given] == list(range(1002))
    control.close()
    later = control_with().call(ApiKey.INIT_PRODUCER_ID, version, transactional_id=None)
    assert later["producer_id"] == 2000


def test_ids_without_a_coordinator_and_half_told_producers_are_refused(control):
    call = control.call
    asked = {"transactional_id": "t", "transaction_timeout": 1000}
    assert call(ApiKey.INIT_PRODUCER_ID, 4, **asked)["error_code"] == 16
    assert call(ApiKey.INIT_PRODUCER_ID, 4, transactional_id="t")["error_code"] == 50
    assert call(ApiKey.INIT_PRODUCER_ID, 4, transactional_id="")["error_code"] == 42
    half = call(ApiKey.INIT_PRODUCER_ID, 4, transactional_id=None, producer_id=7)
    assert (half["error_code"], half["producer_id"], half["producer_epoch"]) == (42, -1, -1)


@pytest.mark.parametrize("version", range(2, 5))
def test_the_end_of_a_leader_epoch(control, version):
    control.create("a")
    log = control.log("a")
    log.epochs, log.high_watermark = [(0, 5), (2, 9)], 9
    partitions = [
        {"partition": 0, "current_leader_epoch": -1, "leader_epoch": 1},
        {"partition": 0, "current_leader_epoch": 3, "leader_epoch": 1},
        {"partition": 7, "current_leader_epoch": -1, "leader_epoch": 1},
    ]
    answer = control.call(
        ApiKey.OFFSET_FOR_LEADER_EPOCH, version, topics=[{"topic": "a", "partitions": partitions}]
    )
    assert [
        (one["error_code"], one["leader_epoch"], one["end_offset"])
        for one in answer["topics"][0]["partitions"]
    ] == [(0, 0, 5), (75, -1, -1), (3, -1, -1)]


def test_a_full_disk_is_a_storage_error_and_changes_nothing(control, monkeypatch):
    def fail(records, then):
        raise DiskError("/data", "No space left on device")

    monkeypatch.setattr(control.store, "append", fail)
    asked = [{"name": "a", "num_partitions": 1, "replication_factor": 1}]
    answer = control.call(ApiKey.CREATE_TOPICS, 7, topics=asked)
    assert answer["topics"][0]["error_code"] == 56
    assert not control.data_plane.topics
    assert control.call(ApiKey.INIT_PRODUCER_ID, 4, transactional_id=None)["error_code"] == 56


def test_requests_that_cannot_be_answered_close_the_connection(control):
    for key, version, body in (
        (ApiKey.METADATA, 14, b""),
        (ApiKey.PRODUCE, 9, b""),
        (4711, 0, b""),
        (ApiKey.METADATA, 9, b"\xff"),
    ):
        request = FakeRequest(key, version, body)
        control.dispatcher.serve(request)
        assert request.closed and request.answer is None


def test_a_bug_is_an_unknown_server_error(control, monkeypatch):
    monkeypatch.setattr(type(control.store), "meta", property(lambda store: 1 / 0))
    assert control.call(ApiKey.DESCRIBE_CLUSTER, 0)["error_code"] == -1
