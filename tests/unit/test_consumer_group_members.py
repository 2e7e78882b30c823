"""Members that leave, die, come back: timers, static members, commits, deletion."""

from __future__ import annotations

import pytest

from kbroker.errors import ErrorCode
from tests.support.group_shard import GroupShard, code_of
from tests.support.topics import FakeTopics


@pytest.fixture
def shard():
    topics = FakeTopics()
    topics.add("t", 4)
    return GroupShard(topics, group_consumer_assignment_interval_ms=0)


@pytest.fixture
def t(shard):
    return shard.topics.by_name("t").topic_id


def share(shard, t):
    """m1 and m2 with two partitions each, both in epoch 3."""
    shard.join("m1", "t")
    shard.join("m2", "t")
    kept = shard.beat("m1", 2)["assignment"]
    shard.beat("m1", 2, kept)
    shard.beat("m2", 3)
    return kept[t]


def test_one_leaves(shard, t):
    share(shard, t)
    assert shard.beat("m2", -1) == {"member_id": "m2", "member_epoch": -1}
    assert shard.beat("m1", 3)["assignment"] == {t: [0, 1, 2, 3]}
    shard.beat("m1", -1)
    assert shard.group().state_name == "Empty" and not shard.group().target
    assert not shard.group()._partition_epochs and not shard.group().owners


def test_one_dies(shard, t):
    share(shard, t)
    shard.advance(44_999)
    shard.beat("m1", 3)
    shard.advance(1)
    assert set(shard.group().members) == {"m1"}
    assert shard.beat("m1", 3)["assignment"] == {t: [0, 1, 2, 3]}
    assert code_of(shard.beat, "m2", 3) == ErrorCode.UNKNOWN_MEMBER_ID
    assert shard.join("m2", "t")["member_epoch"] == 5


def test_one_does_not_give_up_in_time(shard, t):
    shard.join("m1", "t", rebalance_timeout_ms=10_000)
    shard.join("m2", "t")
    shard.beat("m1", 2)
    for _ in range(3):
        shard.advance(3000)
        shard.beat("m1", 2)
        shard.beat("m2", 3)
    shard.advance(1000)
    assert set(shard.group().members) == {"m2"}
    assert shard.beat("m2", 3)["assignment"] == {t: [0, 1, 2, 3]}


def test_one_that_gave_up_in_time_stays(shard, t):
    shard.join("m1", "t", rebalance_timeout_ms=10_000)
    shard.join("m2", "t")
    kept = shard.beat("m1", 2)["assignment"]
    shard.advance(9000)
    shard.beat("m1", 2, kept)
    shard.beat("m2", 3)
    shard.advance(20_000)
    assert set(shard.group().members) == {"m1", "m2"}


def test_static_member_restarts(shard, t):
    shard.join("m1", "t", instance_id="i")
    share_out = {"m2": shard.join("m2", "t")}
    assert share_out["m2"]["assignment"] == {}
    kept = shard.beat("m1", 2)["assignment"]
    shard.beat("m1", 2, kept)
    shard.beat("m2", 3)
    epoch = shard.group().epoch
    # While it is away its partitions stay where they are.
    assert shard.beat("m1", -2, instance_id="i") == {"member_id": "m1", "member_epoch": -2}
    assert "assignment" not in shard.beat("m2", 3)
    answer = shard.join("m1b", "t", instance_id="i")
    assert answer["assignment"] == kept and answer["member_epoch"] == 3
    assert shard.group().epoch == epoch
    assert set(shard.group().members) == {"m1b", "m2"}
    # The old one is told that it was replaced.
    assert code_of(shard.beat, "m1", 3, instance_id="i") == ErrorCode.FENCED_INSTANCE_ID
    assert code_of(shard.beat, "m1", 3) == ErrorCode.UNKNOWN_MEMBER_ID
    assert code_of(shard.beat, "m1", -2, instance_id="i") == ErrorCode.FENCED_INSTANCE_ID
    shard.restart()
    assert shard.group().static_members == {"i": "m1b"}


def test_static_member_that_stays_away(shard, t):
    shard.join("m1", "t", instance_id="i")
    shard.join("m2", "t")
    shard.beat("m1", -2, instance_id="i")
    shard.advance(44_000)
    shard.beat("m2", 3)
    shard.advance(1000)
    assert set(shard.group().members) == {"m2"}
    assert shard.beat("m2", 3)["assignment"] == {t: [0, 1, 2, 3]}


def test_an_instance_id_in_use(shard):
    shard.join("m1", "t", instance_id="i")
    wrong = {"instance_id": "i"}
    assert code_of(shard.join, "m2", "t", **wrong) == ErrorCode.UNRELEASED_INSTANCE_ID
    assert code_of(shard.beat, "m2", 2, **wrong) == ErrorCode.FENCED_INSTANCE_ID
    assert code_of(shard.beat, "m2", 2, instance_id="j") == ErrorCode.UNKNOWN_MEMBER_ID
    assert code_of(shard.beat, "m1", -1, instance_id="j") == ErrorCode.UNKNOWN_MEMBER_ID
    assert shard.beat("m1", -1, instance_id="i")["member_epoch"] == -1


def test_commits(shard, t):
    share(shard, t)
    group = shard.group()

    def commit(member_id, epoch, *, partition=None, transactional=False, version=9):
        check = group.validate_offset_commit(
            member_id, None, epoch, transactional=transactional, version=version
        )
        if partition is not None:
            assert check is not None
            check("t", t, partition)
        return check

    m1 = sorted(group.members["m1"].assigned[t])
    m2 = sorted(group.members["m2"].assigned[t])
    assert commit("m1", 3) is None
    # In an older epoch for what it has had since then, no more.
    commit("m1", 2, partition=m1[0])
    assert code_of(commit, "m1", 2, partition=m2[0]) == ErrorCode.STALE_MEMBER_EPOCH
    assert code_of(commit, "m2", 2, partition=m2[0]) == ErrorCode.STALE_MEMBER_EPOCH
    assert code_of(commit, "m1", 4) == ErrorCode.STALE_MEMBER_EPOCH
    assert code_of(commit, "", -1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert code_of(commit, "m1", 3, version=8) == ErrorCode.UNSUPPORTED_VERSION
    assert commit("", -1, transactional=True) is None
    shard.beat("m1", -1)
    shard.beat("m2", -1)
    assert commit("", -1) is None


def test_fetching_offsets(shard):
    shard.join("m1", "t")
    group = shard.group()
    group.validate_offset_fetch(None, -1)
    group.validate_offset_fetch("m1", 2)
    assert code_of(group.validate_offset_fetch, "m1", 1) == ErrorCode.STALE_MEMBER_EPOCH
    assert code_of(group.validate_offset_fetch, "m2", 2) == ErrorCode.UNKNOWN_MEMBER_ID


def test_deletion(shard):
    shard.join("m1", "t", topic_regex="t.*")
    assert code_of(shard.group().validate_delete) == ErrorCode.NON_EMPTY_GROUP
    assert shard.group().subscribed_to("t") and not shard.group().subscribed_to("u")
    shard.beat("m1", -1)
    group = shard.group()
    group.validate_delete()
    expiry = group.offset_expiry()
    assert expiry.is_expired(0, -1, 10, 10) and not expiry.is_expired(0, -1, 9, 10)
    for record in group.tombstones():
        shard.shard.replay(record)
    assert not shard.shard.groups


def test_partition_metadata_of_older_kafka_is_taken_away(shard):
    from kbroker.group.outcome import CoordinatorRecord
    from kbroker.metadata.records import consumer_group as kinds

    shard.join("m1", "t")
    key = kinds.ConsumerGroupPartitionMetadataKey("g")
    shard.shard.replay(CoordinatorRecord(key, kinds.ConsumerGroupPartitionMetadataValue(), 0))
    shard.topics.add("t", 5)
    shard.beat("m1", 2)
    assert [record.key for record in shard.log].count(key) == 1
    assert not shard.group().has_partition_metadata
