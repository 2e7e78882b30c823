"""The metadata image: what records fold to, and the way back."""

from __future__ import annotations

import random
import uuid

import pytest

from kbroker.errors import BugError, OperatorError
from kbroker.metadata import features
from kbroker.metadata.builders import (
    Listener,
    ProducerIds,
    Replica,
    adopt_partitions,
    allocate_producer_ids,
    alter_configs,
    create_partitions,
    create_topic,
    delete_topic,
    elect_leaders,
    leave_broker,
    register_broker,
    replace_configs,
    replica_of,
)
from kbroker.metadata.image import Image
from kbroker.metadata.records import access, cluster, raft, topics
from kbroker.metadata.records.frame import decode_metadata, encode_metadata
from kbroker.metadata.records.schema import Record

ME = Replica(1, b"d" * 16)
TOPIC_ID = bytes(range(16))


def image_with(*lists: list[Record]) -> Image:
    image = Image()
    image.replay_all(cluster.FeatureLevelRecord(*item) for item in features.NEW_CLUSTER.items())
    for records in lists:
        image.check(records)
        image.replay_all(records)
    return image


def copied(record: Record, metadata_version: int = 30) -> Record:
    """A record as it comes back from the disk."""
    version = features.record_version(type(record), metadata_version)
    return decode_metadata(encode_metadata(record, version))[0]


def folded_again(image: Image) -> Image:
    again = Image()
    again.replay_all(copied(record) for record in image.records())
    return again


def test_a_topic_is_found_by_name_and_by_id() -> None:
    image = image_with(create_topic("t", TOPIC_ID, 3, ME, {"retention.ms": "5"}))
    topic = image.topics["t"]
    assert topic.id == TOPIC_ID and topic.uuid == uuid.UUID(bytes=TOPIC_ID)
    assert image.topic_by_id(TOPIC_ID) is topic is image.topic_by_id(uuid.UUID(bytes=TOPIC_ID))
    assert image.topic_by_id(b"?" * 16) is None
    assert list(topic.partitions) == [0, 1, 2] and len(topic) == 3
    partition = image.partition("t", 2)
    assert partition is topic.partitions[2]
    assert (partition.leader, partition.isr, partition.replicas) == (1, [1], [1])
    assert (partition.leader_epoch, partition.partition_epoch) == (0, 0)
    assert partition.directories == [ME.directory_id]
    assert image.partition("t", 3) is None and image.partition("u", 0) is None
    assert image.partition_count() == 3


def test_partitions_are_in_order_however_they_come() -> None:
    records = create_topic("t", TOPIC_ID, 50, ME)
    shuffled = records[1:]
    random.Random(5).shuffle(shuffled)
    image = image_with([records[0], *shuffled])
    assert list(image.topics["t"].partitions) == list(range(50))


def test_partitions_are_added() -> None:
    image = image_with(create_topic("t", TOPIC_ID, 2, ME))
    image.replay_all(create_partitions(image.topics["t"], 4, ME))
    assert list(image.topics["t"].partitions) == [0, 1, 2, 3]


def test_a_topic_goes_with_its_settings_and_may_come_again() -> None:
    image = image_with(create_topic("t", TOPIC_ID, 1, ME, {"retention.ms": "5"}))
    image.replay_all(delete_topic(image.topics["t"]))
    assert not image.topics and image.topic_by_id(TOPIC_ID) is None
    assert image.configs(("topic", "t")) == {}
    image.replay_all(create_topic("t", b"x" * 16, 1, ME))
    assert image.topics["t"].id == b"x" * 16


def test_settings_are_made_changed_and_removed() -> None:
    image = image_with(alter_configs(("topic", "t"), {"a": "1", "b": "2"}))
    image.replay_all(alter_configs(("topic", "t"), {"a": None, "b": "3"}))
    assert image.configs(("topic", "t")) == {"b": "3"}
    image.replay_all(replace_configs(image, ("topic", "t"), {"c": "4"}))
    assert image.configs(("topic", "t")) == {"c": "4"}
    image.replay_all(replace_configs(image, ("topic", "t"), {}))
    assert list(image.config_resources()) == []
    image.replay(topics.ConfigRecord(77, "x", "k", "v"))
    assert image.configs(("77", "x")) == {"k": "v"}
    assert folded_again(image).configs(("77", "x")) == {"k": "v"}


def test_producer_ids_are_never_given_out_twice() -> None:
    image = image_with()
    seen = set()
    for _ in range(5):
        records, block = allocate_producer_ids(image, 1)
        image.replay_all(records)
        ids = set(range(block.first, block.first + block.size))
        assert not seen & ids
        seen |= ids
    again, block = allocate_producer_ids(folded_again(image), 1)
    assert block == ProducerIds(5000, 1000) and again


def test_a_broker_registers_and_leaves() -> None:
    image = image_with()
    listeners = [Listener("PLAINTEXT", "localhost", 9092), Listener("TLS", "example", 9093, 1)]
    image.replay_all(
        register_broker(image, ME, listeners, incarnation_id=b"i" * 16, broker_epoch=12)
    )
    broker = image.brokers[1]
    assert not broker.fenced and broker.broker_epoch == 12
    assert [(one.name, one.port, one.security_protocol) for one in broker.end_points] == [
        ("PLAINTEXT", 9092, 0),
        ("TLS", 9093, 1),
    ]
    assert broker.log_dirs == [ME.directory_id] and broker.cordoned_log_dirs == []
    image.replay_all(leave_broker(image, 1))
    assert image.brokers[1].fenced and image.brokers[1].in_controlled_shutdown
    assert leave_broker(image, 1) == [] == leave_broker(image, 7)


def test_a_change_of_another_registration_is_refused() -> None:
    image = image_with()
    with pytest.raises(BugError, match="not registered"):
        image.replay(cluster.BrokerRegistrationChangeRecord(1, 5, fenced=1))


def test_fencing_as_older_kafkas_wrote_it() -> None:
    image = image_with([cluster.RegisterBrokerRecord(broker_id=1, broker_epoch=3)])
    assert image.brokers[1].fenced
    image.replay(cluster.UnfenceBrokerRecord(1, 3))
    assert not image.brokers[1].fenced
    image.replay(cluster.FenceBrokerRecord(1, 3))
    assert image.brokers[1].fenced
    image.replay(cluster.UnregisterBrokerRecord(1, 3))
    assert not image.brokers


def test_partitions_left_without_leader_are_led_again() -> None:
    image = image_with(create_topic("t", TOPIC_ID, 2, ME))
    for index in (0, 1):
        image.replay(
            topics.PartitionChangeRecord(
                index, TOPIC_ID, isr=[], leader=-1, eligible_leader_replicas=[1],
                last_known_elr=[1], leader_recovery_state=index,
            )
        )  # fmt: skip
    assert image.topics["t"].partitions[0].leader == -1
    image.replay_all(elect_leaders(image, ME, new_epochs=False))
    for partition in image.topics["t"].partitions.values():
        assert (partition.leader, partition.isr) == (1, [1])
        assert (partition.leader_epoch, partition.partition_epoch) == (2, 2)
        assert partition.eligible_leader_replicas is None and partition.last_known_elr is None
        assert partition.leader_recovery_state == 0
    assert elect_leaders(image, ME, new_epochs=False) == []
    image.replay_all(elect_leaders(image, ME, new_epochs=True))
    assert image.topics["t"].partitions[0].leader_epoch == 3


def test_a_recovering_partition_is_recovered_without_a_new_epoch() -> None:
    image = image_with(create_topic("t", TOPIC_ID, 1, ME))
    image.replay(topics.PartitionChangeRecord(0, TOPIC_ID, leader_recovery_state=1))
    image.replay_all(elect_leaders(image, ME, new_epochs=False))
    partition = image.topics["t"].partitions[0]
    assert (partition.leader_recovery_state, partition.leader_epoch) == (0, 0)


def test_partitions_of_others_are_left_alone() -> None:
    image = image_with(create_topic("t", TOPIC_ID, 1, Replica(9, b"e" * 16)))
    assert elect_leaders(image, ME, new_epochs=True) == []
    assert adopt_partitions(image, ME) == []


def test_unassigned_partitions_are_adopted() -> None:
    image = image_with(create_topic("t", TOPIC_ID, 1, Replica(1, bytes(16))))
    image.replay_all(adopt_partitions(image, ME))
    partition = image.topics["t"].partitions[0]
    assert (partition.directories, partition.leader_epoch) == ([ME.directory_id], 0)


def test_features() -> None:
    image = image_with()
    assert image.features == features.NEW_CLUSTER
    image.replay(cluster.FeatureLevelRecord("group.version", 0))
    image.replay(cluster.FeatureLevelRecord("kraft.version", 1))
    assert "group.version" not in image.features and "kraft.version" not in image.features
    assert next(iter(image.records())) == cluster.FeatureLevelRecord("metadata.version", 30)
    assert Image().metadata_version == -1


@pytest.mark.parametrize(("level", "why"), [(31, "later than"), (6, "older than")])
def test_a_metadata_version_out_of_reach_is_refused(level: int, why: str) -> None:
    with pytest.raises(OperatorError, match=why):
        Image().replay(cluster.FeatureLevelRecord("metadata.version", level))


@pytest.mark.parametrize("level", range(features.METADATA_VERSION_MIN, 31))
def test_what_is_built_can_be_written_at_every_level(level: int) -> None:
    image = Image()
    image.replay(cluster.FeatureLevelRecord("metadata.version", level))
    me = replica_of(image, ME.node_id, b"d" * 16)
    for build in (
        lambda: create_topic("t", TOPIC_ID, 1, me),
        lambda: register_broker(image, me, [], incarnation_id=b"i" * 16, broker_epoch=2),
        lambda: leave_broker(image, 1),
        lambda: elect_leaders(image, me, new_epochs=True),
        lambda: adopt_partitions(image, me),
    ):
        image.replay_all(copied(record, level) for record in build())


def test_what_kbroker_has_no_use_for_is_kept() -> None:
    entity = [access.EntityData("user", "alice"), access.EntityData("client-id", None)]
    kept: list[Record] = [
        access.AccessControlEntryRecord(b"a" * 16, 2, "t", 3, "User:x", "*", 4, 3),
        access.UserScramCredentialRecord("alice", 1, b"salt", b"stored", b"server", 4096),
        access.ClientQuotaRecord(entity, "producer_byte_rate", 1024.0),
        access.ClientQuotaRecord(entity, "consumer_byte_rate", 2048.0),
        access.DelegationTokenRecord("User:x", "User:x", [], 1, 2, 3, "token"),
        cluster.RegisterControllerRecord(1, b"i" * 16),
    ]
    image = image_with(kept)
    assert list(folded_again(image).records()) == list(image.records())
    assert all(record in list(image.records()) for record in kept)
    image.replay_all(
        [
            access.RemoveAccessControlEntryRecord(b"a" * 16),
            access.RemoveUserScramCredentialRecord("alice", 1),
            access.ClientQuotaRecord(list(reversed(entity)), "producer_byte_rate", 0.0, True),
            access.RemoveDelegationTokenRecord("token"),
        ]
    )
    assert not image.acls and not image.scram and not image.tokens
    assert [list(quotas) for quotas in image.quotas.values()] == [["consumer_byte_rate"]]


def test_eligible_leaders_are_cleared() -> None:
    image = image_with(create_topic("t", TOPIC_ID, 1, ME), create_topic("u", b"u" * 16, 1, ME))
    for topic in image.topics.values():
        image.replay(topics.PartitionChangeRecord(0, topic.id, eligible_leader_replicas=[1]))
    image.replay(topics.ClearElrRecord("t"))
    assert image.topics["t"].partitions[0].eligible_leader_replicas is None
    assert image.topics["u"].partitions[0].eligible_leader_replicas == [1]
    image.replay(topics.ClearElrRecord(""))
    assert image.topics["u"].partitions[0].eligible_leader_replicas is None
    with pytest.raises(BugError, match="no topic"):
        image.replay(topics.ClearElrRecord("x"))


@pytest.mark.parametrize(
    "records",
    [
        create_topic("t", b"n" * 16, 1, ME),
        create_topic("u", TOPIC_ID, 1, ME),
        create_topic("u", b"n" * 16, 1, ME) + create_topic("u", b"m" * 16, 1, ME),
        [topics.RemoveTopicRecord(b"n" * 16)],
        [topics.RemoveTopicRecord(TOPIC_ID), topics.RemoveTopicRecord(TOPIC_ID)],
        [topics.PartitionRecord(0, b"n" * 16)],
        [topics.PartitionChangeRecord(1, TOPIC_ID)],
        [raft.KRaftVersionRecord()],
    ],
)
def test_records_that_would_not_fold_are_refused_before_they_are_written(
    records: list[Record],
) -> None:
    image = image_with(create_topic("t", TOPIC_ID, 1, ME))
    before = list(map(repr, image.records()))
    with pytest.raises(BugError):
        image.check(records)
    with pytest.raises((BugError, KeyError)):
        image.replay_all(records)
    assert before


def test_a_topic_may_be_made_anew_in_one_list() -> None:
    image = image_with(create_topic("t", TOPIC_ID, 1, ME))
    records = [*delete_topic(image.topics["t"]), *create_topic("t", b"n" * 16, 2, ME)]
    image.check(records)
    image.replay_all(records)
    assert len(image.topics["t"]) == 2


def test_any_history_folds_to_the_image_of_its_snapshot() -> None:
    """Random changes, step by step against a plain dictionary."""
    rng = random.Random(631)
    image = image_with()
    model: dict[str, int] = {}
    for step in range(600):
        name = f"t{rng.randrange(20)}"
        if name not in model:
            records = create_topic(name, rng.randbytes(16), 1, ME, {"segment.ms": str(step)})
            model[name] = 1
        elif rng.random() < 0.3:
            records = delete_topic(image.topics[name])
            del model[name]
        else:
            model[name] += 2
            records = create_partitions(image.topics[name], model[name], ME)
        image.check(records)
        image.replay_all(copied(record) for record in records)
        assert {topic.name: len(topic) for topic in image.topics.values()} == model
    assert list(folded_again(image).records()) == list(image.records())
