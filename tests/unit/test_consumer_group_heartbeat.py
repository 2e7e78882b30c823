"""ConsumerGroupHeartbeat: epochs, reconciliation, fencing, what is answered when."""

from __future__ import annotations

import pytest

from kbroker.errors import ErrorCode
from kbroker.group.consumer.member import MemberState
from kbroker.group.migration import Client
from tests.support.group_shard import GroupShard, code_of
from tests.support.topics import FakeTopics

V0 = Client(0, "test", "/127.0.0.1")


@pytest.fixture
def shard():
    """A shard that assigns at once, and the topic t of six partitions."""
    topics = FakeTopics()
    topics.add("t", 6)
    return GroupShard(topics, group_consumer_assignment_interval_ms=0)


@pytest.fixture
def t(shard):
    return shard.topics.by_name("t").topic_id


def test_first_member_gets_everything(shard, t):
    answer = shard.join("m1", "t")
    assert answer == {
        "member_id": "m1", "member_epoch": 2, "heartbeat_interval": 5000,
        "assignment": {t: [0, 1, 2, 3, 4, 5]},
    }  # fmt: skip
    assert shard.group().state_name == "Stable"
    # Nothing is new: nothing is told, nothing written.
    written = len(shard.log)
    assert "assignment" not in shard.beat("m1", 2)
    assert len(shard.log) == written


def test_records_are_those_of_kafka(shard):
    shard.join("m1", "t")
    names = [type(record.key).__name__.removesuffix("Key") for record in shard.log]
    assert names == [
        "ConsumerGroupMemberMetadata", "ConsumerGroupMetadata",
        "ConsumerGroupTargetAssignmentMember", "ConsumerGroupTargetAssignmentMetadata",
        "ConsumerGroupCurrentMemberAssignment",
    ]  # fmt: skip
    assert {record.version for record in shard.log} == {0}
    assert shard.log[1].value.metadata_hash == shard.group().metadata_hash != 0


def test_a_partition_moves_only_when_it_was_given_up(shard, t):
    shard.join("m1", "t")
    assert shard.join("m2", "t")["assignment"] == {}
    assert shard.group().members["m2"].state is MemberState.UNRELEASED_PARTITIONS
    # m1 is told to give up three, stays in its epoch, and m2 gets nothing yet.
    told = shard.beat("m1", 2)
    assert told["member_epoch"] == 2 and len(told["assignment"][t]) == 3
    assert "assignment" not in shard.beat("m2", 3)
    assert "assignment" not in shard.beat("m1", 2, {t: range(6)})
    assert shard.group().state_name == "Reconciling"
    # It has given them up: now they are m2's.
    kept = told["assignment"][t]
    assert shard.beat("m1", 2, {t: kept})["member_epoch"] == 3
    got = shard.beat("m2", 3)["assignment"][t]
    assert sorted(kept + got) == [0, 1, 2, 3, 4, 5]
    assert shard.group().state_name == "Stable"


def test_the_answer_that_was_lost(shard, t):
    shard.join("m1", "t")
    shard.join("m2", "t")
    kept = shard.beat("m1", 2)["assignment"][t]
    shard.beat("m1", 2, {t: kept})
    # The previous epoch is let through with what it owns being a part of its assignment.
    assert shard.beat("m1", 2, {t: kept})["member_epoch"] == 3
    assert code_of(shard.beat, "m1", 2, {t: range(6)}) == ErrorCode.FENCED_MEMBER_EPOCH
    assert code_of(shard.beat, "m1", 2) == ErrorCode.FENCED_MEMBER_EPOCH


@pytest.mark.parametrize(("member_id", "epoch", "code"), [
    ("m1", 1, ErrorCode.FENCED_MEMBER_EPOCH),
    ("m1", 3, ErrorCode.FENCED_MEMBER_EPOCH),
    ("who", 2, ErrorCode.UNKNOWN_MEMBER_ID),
    ("who", -1, ErrorCode.UNKNOWN_MEMBER_ID),
])  # fmt: skip
def test_fencing(shard, member_id, epoch, code):
    shard.join("m1", "t")
    assert code_of(shard.beat, member_id, epoch, {}) == code
    assert code_of(shard.beat, member_id, epoch, {}, group_id="h") == ErrorCode.GROUP_ID_NOT_FOUND


@pytest.mark.parametrize(("epoch", "fields"), [
    (0, {"rebalance_timeout_ms": -1}),
    (0, {"owned": None}),
    (0, {"owned": {b"x" * 16: [0]}}),
    (0, {"topic_names": None}),
    (0, {"member_id": ""}),
    (1, {"member_id": " "}),
    (-1, {"member_id": ""}),
    (-2, {}),
    (-3, {}),
    (1, {"group_id": ""}),
    (1, {"instance_id": ""}),
    (1, {"rack_id": " "}),
])  # fmt: skip
def test_invalid_requests(shard, epoch, fields):
    sound = {"member_id": "m", "rebalance_timeout_ms": 1000, "topic_names": ["t"], "owned": {}}
    fields = sound | fields
    assert code_of(shard.beat, epoch=epoch, **fields) == ErrorCode.INVALID_REQUEST
    assert not shard.log


def test_ids_are_made_for_old_clients(shard):
    assert shard.join("", "t", client=V0)["member_id"] == "member-1"
    assert code_of(shard.beat, "", 2, client=V0) == ErrorCode.INVALID_REQUEST


def test_unsupported_assignor(shard):
    wrong = {"server_assignor": "sticky"}
    assert code_of(shard.join, "m1", "t", **wrong) == ErrorCode.UNSUPPORTED_ASSIGNOR


def test_most_members_choose_the_assignor(shard, t):
    shard.topics.add("u", 3)
    shard.join("m1", "t", "u", server_assignor="range")
    shard.join("m2", "t", "u", server_assignor="range")
    shard.join("m3", "t", "u", server_assignor="uniform")
    assert shard.group().preferred_assignor(None, None) == "range"
    assert shard.group().target["m1"][t] == {0, 1}


def test_group_max_size(shard):
    shard.shard.settings = shard.settings = type(shard.settings)(group_consumer_max_size=1)
    shard.join("m1", "t")
    assert code_of(shard.join, "m2", "t") == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert shard.join("m1", "t")["member_epoch"] == 2


def test_full_requests_get_full_answers(shard, t):
    shard.join("m1", "t")
    full = {"owned": {t: range(6)}, "rebalance_timeout_ms": 60_000, "topic_names": ["t"]}
    assert shard.beat("m1", 2, **full)["assignment"] == {t: [0, 1, 2, 3, 4, 5]}
    assert "assignment" not in shard.beat("m1", 2, full["owned"])


def test_topics_that_come_grow_and_go(shard, t):
    shard.join("m1", "t", "later")
    later = shard.topics.add("later", 2)
    answer = shard.beat("m1", 2)
    assert answer["member_epoch"] == 3 and answer["assignment"][later] == [0, 1]
    shard.topics.add("t", 8)
    assert shard.beat("m1", 3)["assignment"][t] == [*range(8)]
    shard.topics.remove("later")
    # What is gone has to be given up, too.
    assert shard.beat("m1", 4)["assignment"] == {t: [*range(8)]}
    assert shard.beat("m1", 4, {t: range(8)})["member_epoch"] == 5
    shard.topics.add("unrelated", 1)
    assert "assignment" not in shard.beat("m1", 5)


def test_a_changed_subscription(shard, t):
    u = shard.topics.add("u", 2)
    shard.join("m1", "t")
    answer = shard.beat("m1", 2, topic_names=["u"])
    assert answer["member_epoch"] == 2 and answer["assignment"] == {}
    assert shard.beat("m1", 2, {})["assignment"] == {u: [0, 1]}


def test_assignments_are_an_interval_apart():
    topics = FakeTopics()
    t = topics.add("t", 2)
    shard = GroupShard(topics)
    shard.join("m1", "t")
    # The second member joins within the second: in the group, but its turn is yet to come.
    assert shard.join("m2", "t")["member_epoch"] == 2
    assert shard.group().state_name == "Assigning"
    shard.advance(1000)
    assert shard.beat("m1", 2)["assignment"] == {t: [0]}
    assert shard.beat("m1", 2, {t: [0]})["member_epoch"] == 3
    assert shard.beat("m2", 2)["assignment"] == {t: [1]}


def test_group_settings(shard):
    told = {"consumer.heartbeat.interval.ms": "9000", "consumer.session.timeout.ms": "50000"}
    shard.shard.settings = type(shard.settings)(configs_of=lambda group: told)
    assert shard.join("m1", "t")["heartbeat_interval"] == 9000
    shard.advance(49_999)
    assert shard.group().members
    shard.advance(1)
    assert not shard.group().members
    # Bounds of the broker hold for what was set when they were others.
    told["consumer.heartbeat.interval.ms"] = "1"
    assert shard.join("m1", "t")["heartbeat_interval"] == 5000


def test_append_that_failed_changes_nothing(shard):
    shard.refuse = ErrorCode.NOT_COORDINATOR
    assert shard.join("m1", "t")["error_code"] == ErrorCode.NOT_COORDINATOR
    assert not shard.shard.groups
    assert shard.join("m1", "t")["member_epoch"] == 2


def test_restart_finds_the_group_as_it_was(shard, t):
    both = {"topic_names": ["t"], "topic_regex": "x.*"}
    shard.join("m1", rack_id="r", instance_id="i", **both)
    shard.join("m2", "t")
    shard.beat("m1", 2)
    before = shard.group()
    shard.restart()
    after = shard.group()
    assert after is not before
    for name in ("epoch", "metadata_hash", "assignment_epoch", "assignment_ms", "members", "target",
                 "static_members", "regexes", "owners", "classic_members"):  # fmt: skip
        assert getattr(after, name) == getattr(before, name), name
    assert vars(after.subscriptions) == vars(before.subscriptions)
    assert after._partition_epochs == before._partition_epochs
    # m1, which has to give up partitions, is watched again.
    shard.advance(44_000)
    shard.beat("m1", after.members["m1"].epoch)
    shard.beat("m2", after.members["m2"].epoch)
    shard.advance(20_000)
    assert set(shard.group().members) == {"m2"}


def test_describe(shard, t):
    shard.join("m1", "t", instance_id="i", rack_id="r")
    shard.join("m2", "t")
    shard.beat("m1", 2)
    told = shard.run(shard.consumer.describe("none"))
    assert told["error_code"] == ErrorCode.GROUP_ID_NOT_FOUND
    group = shard.run(shard.consumer.describe("g"))
    assert (group["group_state"], group["group_epoch"], group["assignment_epoch"]) == (
        "Reconciling", 3, 3,
    )  # fmt: skip
    assert group["assignor_name"] == "uniform"
    first = group["members"][0]
    assert first["assignment"]["topic_partitions"][0]["partitions"] == [*range(6)]
    assert len(first["target_assignment"]["topic_partitions"][0]["partitions"]) == 3
    assert (first["instance_id"], first["rack_id"], first["member_type"]) == ("i", "r", 1)
