"""Handlers about features, the quorum, registrations, log directories and what has settings."""

from __future__ import annotations

import uuid

import pytest
from kio.serial import entity_reader

from kbroker.errors import ClientError
from kbroker.metadata.features import UNSAFE_DOWNGRADE, UPGRADE, Update, check_update
from kbroker.metadata.records.cluster import FeatureLevelRecord, RegisterBrokerRecord
from kbroker.metadata.records.topics import PartitionChangeRecord
from kbroker.metadata.store import MetadataStore
from kbroker.protocol import ApiKey
from kbroker.protocol.schemas import response_schema

SAFE = 2


def update(control, version=2, *updates, **fields):
    rows = [{"feature": name, "max_version_level": level,
             **({"upgrade_type": kind} if version else {})}
            for name, level, kind in updates]  # fmt: skip
    return control.call(ApiKey.UPDATE_FEATURES, version, feature_updates=rows, **fields)


@pytest.mark.parametrize("version", range(3))
def test_a_feature_is_updated_and_told(control, version):
    control.store.append([FeatureLevelRecord("group.version", 0)])
    answer = update(control, version, ("group.version", 1, UPGRADE))
    assert (answer["error_code"], answer["error_message"]) == (0, None)
    if version < 2:
        assert [(one["feature"], one["error_code"]) for one in answer["results"]] == [
            ("group.version", 0)
        ]
    assert control.store.image.features["group.version"] == 1
    told, _ = entity_reader(response_schema(ApiKey.API_VERSIONS, 4))(
        control.data_plane.engine.bodies[4], 0
    )
    levels = {one.name: one.max_version_level for one in told.finalized_features}
    assert levels["group.version"] == levels["kraft.version"] == 1
    assert told.finalized_features_epoch == control.store.next_offset - 1


@pytest.mark.parametrize(
    ("feature", "level", "kind"),
    [
        ("group.version", 2, UPGRADE),
        ("group.version", -1, SAFE),
        ("group.version", 0, UPGRADE),
        ("group.version", 1, 9),
        ("no.such", 1, UPGRADE),
        ("metadata.version", 31, UPGRADE),
        ("metadata.version", 6, SAFE),
        ("metadata.version", 29, SAFE),
        ("metadata.version", 29, UNSAFE_DOWNGRADE),
        ("kraft.version", 0, SAFE),
        ("kraft.version", 2, UPGRADE),
    ],
)
def test_all_updates_are_refused_for_one_bad_one(control, feature, level, kind):
    before = control.store.next_offset
    answer = update(control, 2, ("transaction.version", 0, SAFE), (feature, level, kind))
    assert answer["error_code"] == 95 and answer["error_message"]
    assert control.store.next_offset == before


def test_validate_only_updates_nothing(control):
    before = control.store.next_offset
    answer = update(control, 1, ("group.version", 0, SAFE), validate_only=True)
    assert answer["error_code"] == 0
    assert control.store.next_offset == before and not control.data_plane.engine.bodies


def test_eligible_leaders_come_with_one_min_insync_replicas(control_with):
    control = control_with(min_insync_replicas="2")
    assert update(control, 1, ("eligible.leader.replicas.version", 0, SAFE))["error_code"] == 0
    delete = {"name": "min.insync.replicas", "config_operation": 1, "value": None}
    set_own = {"name": "min.insync.replicas", "config_operation": 0, "value": "3"}
    resources = [
        {"resource_type": 4, "resource_name": "", "configs": [delete]},
        {"resource_type": 4, "resource_name": "1", "configs": [set_own]},
    ]
    answer = control.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=resources)
    assert [one["error_code"] for one in answer["responses"]] == [0, 0]
    assert control.config.integer("min.insync.replicas") == 3
    update(control, 1, ("eligible.leader.replicas.version", 1, UPGRADE))
    image = control.store.image
    assert image.configs(("broker", "")) == {"min.insync.replicas": "2"}
    assert image.configs(("broker", "1")) == {}
    assert control.config.integer("min.insync.replicas") == 2


def test_rules_between_features_and_brokers():
    levels = {"metadata.version": 22}
    supported = {"us": {"eligible.leader.replicas.version": (0, 1), "metadata.version": (7, 30)}}
    elr = Update("eligible.leader.replicas.version", 1, UPGRADE)
    with pytest.raises(ClientError, match="needs metadata"):
        check_update(elr, levels, levels, supported)
    check_update(elr, levels, {"metadata.version": 23}, supported)
    check_update(Update("metadata.version", 18, SAFE), levels, levels, supported)
    with pytest.raises(ClientError, match="might be lost"):
        check_update(Update("metadata.version", 16, SAFE), levels, levels, supported)
    with pytest.raises(ClientError, match="broker 2 supports none"):
        check_update(elr, levels, levels, {**supported, "broker 2": {}})


def test_kraft_version_moves_into_the_log(control, tmp_path):
    control.store.quorum.kraft_version = 0
    control.store.quorum.voters = None
    answer = control.call(ApiKey.ADD_RAFT_VOTER, 1, **voter(2))
    assert answer["error_code"] == 35
    assert update(control, 2, ("kraft.version", 1, UPGRADE))["error_code"] == 0
    control.store.close()
    again = MetadataStore(tmp_path, control.clock, node_id=1)
    again.open()
    assert again.quorum.kraft_version == 1
    (only,) = again.quorum.voters.voters
    assert (only.voter_id, only.voter_directory_id) == (1, again.directory_id)
    again.close()


@pytest.mark.parametrize("version", range(3))
def test_this_node_is_the_quorum(control, version):
    topics = [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]
    answer = control.call(ApiKey.DESCRIBE_QUORUM, version, topics=topics)
    ((part,),) = (topic["partitions"] for topic in answer["topics"])
    assert (part["error_code"], part["leader_id"], part["leader_epoch"]) == (0, 1, 1)
    (replica,) = part["current_voters"]
    assert replica["log_end_offset"] == part["high_watermark"] == control.store.next_offset
    assert part["observers"] == []
    if version >= 1:
        assert replica["last_fetch_timestamp"] == control.clock.wall_ms()
    if version >= 2:
        assert replica["replica_directory_id"] == uuid.UUID(bytes=control.store.directory_id)
        (node,) = answer["nodes"]
        assert (node["node_id"], node["listeners"]) == (1, [])  # none is opened


def test_a_quorum_names_the_controller_listener_of_the_settings(control_with):
    ends = "PLAINTEXT://127.0.0.1:0,CONTROLLER://10.0.0.1:9095"
    topics = [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]
    control = control_with(listeners=ends)
    answer = control.call(ApiKey.DESCRIBE_QUORUM, 2, topics=topics)
    named = {"name": "CONTROLLER", "host": "10.0.0.1", "port": 9095}
    assert answer["nodes"] == [{"node_id": 1, "listeners": [named]}]


def test_other_quorums_are_unknown(control):
    for name, indexes in (("a", [0]), ("__cluster_metadata", [1]), ("__cluster_metadata", [0, 0])):
        parts = [{"partition_index": index} for index in indexes]
        topics = [{"topic_name": name, "partitions": parts}]
        answer = control.call(ApiKey.DESCRIBE_QUORUM, 2, topics=topics)
        assert [one["error_code"] for one in answer["topics"][0]["partitions"]] == [3] * len(parts)
    assert control.call(ApiKey.DESCRIBE_QUORUM, 2, topics=[])["topics"] == []


def voter(node, listener="CONTROLLER", **fields):
    ends = [{"name": listener, "host": "localhost", "port": 9}]
    given = {"cluster_id": None, "timeout": 1000, "voter_id": node,
             "voter_directory_id": uuid.UUID(int=7), "listeners": ends}  # fmt: skip
    return given | fields


def test_the_quorum_does_not_grow(control):
    for fields, code in (
        (voter(2), 7),
        (voter(1), 126),
        (voter(2, cluster_id="other"), 104),
        (voter(2, cluster_id=control.store.meta.cluster_id), 7),
        (voter(-1), 42),
        (voter(2, voter_directory_id=None), 42),
        (voter(2, "ELSE"), 42),
    ):
        answer = control.call(ApiKey.ADD_RAFT_VOTER, 0, **fields)
        assert answer["error_code"] == code and answer["error_message"]


def test_the_last_voter_stays(control):
    own = uuid.UUID(bytes=control.store.directory_id)
    for node, directory, cluster, code in (
        (1, own, None, 127), (2, own, None, 127), (1, None, None, 42), (1, own, "other", 104),
    ):  # fmt: skip
        answer = control.call(
            ApiKey.REMOVE_RAFT_VOTER, 0, cluster_id=cluster, voter_id=node,
            voter_directory_id=directory,
        )  # fmt: skip
        assert answer["error_code"] == code and answer["error_message"]


def test_a_broker_that_is_gone_is_forgotten(control):
    control.create("a", 2)
    topic = control.store.image.topics["a"]
    control.store.append([
        RegisterBrokerRecord(broker_id=7, broker_epoch=5),
        PartitionChangeRecord(1, topic.id, leader=7),
    ])  # fmt: skip
    assert control.call(ApiKey.UNREGISTER_BROKER, 0, broker_id=7)["error_code"] == 0
    assert set(control.store.image.brokers) == set()
    assert [part.leader for part in topic.partitions.values()] == [1, -1]
    answer = control.call(ApiKey.UNREGISTER_BROKER, 0, broker_id=7)
    assert answer["error_code"] == 102 and answer["error_message"]


def test_this_broker_is_registered_again(control):
    control.store.append([RegisterBrokerRecord(broker_id=1, broker_epoch=3, rack="r")])
    assert control.call(ApiKey.UNREGISTER_BROKER, 0, broker_id=1)["error_code"] == 0
    broker = control.store.image.brokers[1]
    assert (broker.broker_epoch, broker.rack) == (control.store.next_offset - 1, "r")


@pytest.mark.parametrize("version", (1, 2))
def test_replicas_are_where_they_can_be(control, version):
    control.create("a")
    control.logs.offline["a", 0] = "bad"
    here, long = str(control.logs.directory), "x" * 249
    dirs = [
        {"path": here, "topics": [{"name": "a", "partitions": [0, 9]},
                                  {"name": long, "partitions": [0]}]},
        {"path": "/elsewhere", "topics": [{"name": "b", "partitions": [0]}]},
    ]  # fmt: skip
    def codes():
        answer = control.call(ApiKey.ALTER_REPLICA_LOG_DIRS, version, dirs=dirs)
        return {(topic["topic_name"], part["partition_index"]): part["error_code"]
                for topic in answer["results"] for part in topic["partitions"]}  # fmt: skip

    assert codes() == {("a", 0): 56, ("a", 9): 3, (long, 0): 17, ("b", 0): 57}
    del control.logs.offline["a", 0]
    assert codes()["a", 0] == 0


def test_resources_with_settings_are_listed(control):
    control.create("a")
    for kind, name, key, value in ((16, "m", "interval.ms", "1000"),
                                   (32, "g", "consumer.session.timeout.ms", "46000")):  # fmt: skip
        configs = [{"name": key, "config_operation": 0, "value": value}]
        resource = {"resource_type": kind, "resource_name": name, "configs": configs}
        control.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource])

    def listed(version, **fields):
        answer = control.call(ApiKey.LIST_CONFIG_RESOURCES, version, **fields)
        return answer["error_code"], {
            (one.get("resource_type", 16), one["resource_name"])
            for one in answer["config_resources"]
        }

    assert listed(0) == (0, {(16, "m")})
    everything = {(2, "a"), (4, "1"), (8, "1"), (16, "m"), (32, "g")}
    assert listed(1, resource_types=[]) == (0, everything)
    assert listed(1, resource_types=[32, 2]) == (0, {(2, "a"), (32, "g")})
    assert listed(1, resource_types=[2, 3]) == (35, set())


@pytest.mark.parametrize("version", range(1, 4))
def test_there_is_no_authorizer(control, version):
    rule = {"principal": "User:a", "host": "*", "operation": 3, "permission_type": 3}
    made = rule | {"resource_type": 2, "resource_name": "t", "resource_pattern_type": 3}
    wanted = {"resource_type_filter": 2, "resource_name_filter": None, "pattern_type_filter": 1,
              "principal_filter": None, "host_filter": None, "operation": 1,
              "permission_type": 1}  # fmt: skip
    told = control.call(ApiKey.DESCRIBE_ACLS, version, **wanted)
    assert told["error_code"] == 54 and told["resources"] == []
    created = control.call(ApiKey.CREATE_ACLS, version, creations=[made, made])["results"]
    assert [one["error_code"] for one in created] == [54, 54]
    gone = control.call(ApiKey.DELETE_ACLS, version, filters=[wanted])["filter_results"]
    assert [(one["error_code"], one["matching_acls"]) for one in gone] == [(54, [])]
