"""Groups that pass from the classic protocol to the consumer protocol and back."""

from __future__ import annotations

import struct

import pytest

from kbroker.errors import ErrorCode
from kbroker.group.classic.group import ClassicGroup, State
from kbroker.group.classic.requests import HeartbeatRequest
from kbroker.group.embedded import (
    EmbeddedError,
    read_assignment,
    read_subscription,
    version_of,
    write_assignment,
)
from tests.support.group_shard import GroupShard, code_of
from tests.support.topics import FakeTopics


def text(value):
    return struct.pack(">h", len(value)) + value.encode()


def subscription(*topics, owned=None, version=1):
    """ConsumerProtocolSubscription as clients write it."""
    out = struct.pack(">hi", version, len(topics)) + b"".join(map(text, topics))
    out += struct.pack(">i", -1)
    if version >= 1:
        out += struct.pack(">i", len(owned or {}))
        for topic, partitions in (owned or {}).items():
            out += text(topic) + struct.pack(f">i{len(partitions)}i", len(partitions), *partitions)
    return out


def protocols(*topics, owned=None, names=("cooperative-sticky", "range")):
    return tuple((name, subscription(*topics, owned=owned)) for name in names)


@pytest.fixture
def shard():
    topics = FakeTopics()
    topics.add("t", 4)
    return GroupShard(
        topics, group_consumer_assignment_interval_ms=0, group_initial_rebalance_delay_ms=0
    )


@pytest.fixture
def t(shard):
    return shard.topics.by_name("t").topic_id


def classic_group(shard, **fields):
    """A stable classic group of one member that has all partitions: its id, the generation."""
    old = shard.classic_join("", protocols("t"), **fields)[0]["member_id"]
    (joined,) = shard.classic_join(old, protocols("t"), **fields)
    generation = joined["generation_id"]
    shard.classic_sync(old, generation, {old: write_assignment({"t": range(4)}, 1)})
    assert shard.shard.groups["g"].state is State.STABLE
    return old, generation


def test_embedded_messages():
    read = read_subscription(subscription("a", "b", owned={"a": [1, 2]}))
    assert list(read.topics) == ["a", "b"] and read.rack_id is None
    assert [(topic, list(mine)) for topic, mine in read.owned] == [("a", [1, 2])]
    assert read_subscription(subscription("a", version=0)).owned == []
    # A version that is not known yet is read as the newest that is.
    newest = subscription("a", version=1)[2:] + struct.pack(">i", 7) + text("rack")
    assert read_subscription(struct.pack(">h", 9) + newest).rack_id == "rack"
    for version in range(4):
        written = write_assignment({"t": {3, 1}}, version)
        assert version_of(written) == version
        assert {k: list(v) for k, v in read_assignment(written).partitions.items()} == {"t": [1, 3]}
    for wrong in (b"", b"\0", b"\xff\xff", struct.pack(">hi", 0, 5), subscription("a")[:-3]):
        with pytest.raises(EmbeddedError):
            read_subscription(wrong)


def test_upgrade_and_downgrade(shard, t):
    old, generation = classic_group(shard)
    # A member of the new protocol joins: the group is converted, nothing moves yet.
    assert shard.join("new", "t")["assignment"] == {}
    group = shard.group()
    assert group.kind == "consumer" and group.members[old].is_classic
    assert group.members[old].epoch == generation
    assert set(group.members[old].assigned[t]) == {0, 1, 2, 3}
    shard.restart()
    group = shard.group()
    assert group.classic_members == 1
    # The classic member is told to rejoin, and gives up half of what it has.
    assert shard.classic_beat(old, generation) == ErrorCode.REBALANCE_IN_PROGRESS
    (joined,) = shard.classic_join(old, protocols("t", owned={"t": range(4)}))
    assert joined["protocol_name"] == "cooperative-sticky" and joined["generation_id"] == generation
    (synced,) = shard.classic_sync(old, generation)
    kept = list(read_assignment(synced["assignment"]).partitions["t"])
    assert len(kept) == 2
    # It must still rejoin to say that it gave them up.
    assert shard.classic_beat(old, generation) == ErrorCode.REBALANCE_IN_PROGRESS
    (joined,) = shard.classic_join(old, protocols("t", owned={"t": kept}))
    epoch = joined["generation_id"]
    assert epoch == group.epoch
    shard.classic_sync(old, epoch)
    assert shard.classic_beat(old, epoch) == ErrorCode.NONE
    got = shard.beat("new", epoch)["assignment"][t]
    assert sorted(kept + got) == [0, 1, 2, 3]
    # The last member of the new protocol leaves: classic again, and rebalancing.
    shard.beat("new", -1)
    classic = shard.shard.groups["g"]
    assert isinstance(classic, ClassicGroup) and classic.state is State.PREPARING
    assert classic.generation == epoch and set(classic.members) == {old}
    assert len(classic.members[old].protocols) == 2
    assert shard.classic_beat(old, epoch) == ErrorCode.REBALANCE_IN_PROGRESS
    (joined,) = shard.classic_join(old, protocols("t", owned={"t": kept}))
    assert joined["generation_id"] == epoch + 1 and joined["leader"] == old


def test_a_session_is_the_classic_members_own(shard):
    old, generation = classic_group(shard, session_timeout_ms=10_000)
    shard.join("new", "t")
    shard.advance(9_000)
    assert shard.classic_beat(old, generation) == ErrorCode.REBALANCE_IN_PROGRESS
    shard.advance(9_999)
    assert old in shard.group().members
    shard.advance(1)
    assert set(shard.group().members) == {"new"}


def test_a_classic_member_that_does_not_rejoin(shard):
    old, generation = classic_group(shard, rebalance_timeout_ms=20_000)
    shard.join("new", "t")
    for _ in range(4):
        shard.classic_beat(old, generation)
        shard.beat("new", shard.group().members["new"].epoch)
        shard.advance(5_000)
    assert set(shard.group().members) == {"new"}


def test_a_classic_member_that_does_not_sync(shard):
    old, generation = classic_group(shard)
    shard.join("new", "t")
    shard.classic_join(old, protocols("t", owned={"t": range(4)}), rebalance_timeout_ms=5_000)
    shard.advance(5_000)
    assert set(shard.group().members) == {"new"}
    assert shard.classic_beat(old, generation) == ErrorCode.UNKNOWN_MEMBER_ID


def test_parked_joins_are_answered(shard):
    """A member that waits for the others of a classic rebalance is told to begin again."""
    old, _ = classic_group(shard)
    other = shard.classic_join("", protocols("t"))[0]["member_id"]
    parked = shard.classic_join(other, protocols("t"))
    assert not parked
    shard.join("new", "t")
    assert parked[0]["error_code"] == ErrorCode.REBALANCE_IN_PROGRESS
    assert set(shard.group().members) == {old, other, "new"}


def test_joining_a_consumer_group_by_the_classic_protocol(shard, t):
    shard.join("new", "t")
    (told,) = shard.classic_join("", protocols("t"))
    assert told["error_code"] == ErrorCode.MEMBER_ID_REQUIRED and told["member_id"]
    old = told["member_id"]
    (wrong,) = shard.classic_join(old, protocols("t"), protocol_type="connect")
    assert wrong["error_code"] == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    (joined,) = shard.classic_join(old, protocols("t"))
    epoch = joined["generation_id"]
    assert epoch == 3 and joined["protocol_type"] == "consumer"
    (synced,) = shard.classic_sync(old, epoch)
    assert not read_assignment(synced["assignment"]).partitions
    # A protocol that not all classic members have.
    (wrong,) = shard.classic_join("", protocols("t", names=("sticky",)), instance_id="i")
    assert wrong["error_code"] == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    # The new member gives up its share; then the old one is told to come for it.
    assert shard.classic_beat(old, epoch) == ErrorCode.NONE
    kept = shard.beat("new", 2)["assignment"]
    shard.beat("new", 2, kept)
    assert shard.classic_beat(old, epoch) == ErrorCode.REBALANCE_IN_PROGRESS
    shard.classic_join(old, protocols("t"))
    (synced,) = shard.classic_sync(old, epoch)
    assert len(read_assignment(synced["assignment"]).partitions["t"]) == 2
    assert shard.classic_beat(old, epoch + 1) == ErrorCode.ILLEGAL_GENERATION
    assert shard.classic_beat("new", 3) == ErrorCode.UNKNOWN_MEMBER_ID


def test_members_are_removed_by_administrators(shard):
    shard.join("m1", "t", instance_id="i")
    shard.join("m2", "t")
    told = shard.classic_leave(("", "i"), ("m2", None), ("m3", None), ("m3", "i"))["members"]
    assert [one.get("error_code", 0) for one in told] == [
        0, 0, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID,
    ]  # fmt: skip
    assert not shard.group().members


def test_a_static_member_is_upgraded_and_downgraded(shard, t):
    ids = shard.classic_join("", protocols("t"), instance_id="i")
    old = ids[0]["member_id"]
    shard.classic_sync(old, 1, {old: write_assignment({"t": range(4)}, 1)})
    # The same instance comes back with the other protocol: it is one member, with its partitions.
    answer = shard.join("new", "t", instance_id="i")
    assert answer["assignment"] == {t: [0, 1, 2, 3]} and set(shard.group().members) == {"new"}
    shard.restart()
    # And back.
    (joined,) = shard.classic_join("", protocols("t"), instance_id="i")
    classic = shard.shard.groups["g"]
    assert isinstance(classic, ClassicGroup) and classic.state is State.STABLE
    assert classic.generation == joined["generation_id"]
    (synced,) = shard.classic_sync(joined["member_id"], joined["generation_id"])
    assert list(read_assignment(synced["assignment"]).partitions["t"]) == [0, 1, 2, 3]


def test_empty_groups_change_their_kind(shard):
    old, _ = classic_group(shard)
    shard.classic_leave((old, None))
    assert shard.join("new", "t")["member_epoch"] == 2
    assert shard.group().members.keys() == {"new"}
    shard.beat("new", -1)
    classic_group(shard)
    shard.restart()
    assert isinstance(shard.shard.groups["g"], ClassicGroup)


@pytest.mark.parametrize(("policy", "up", "down"), [
    ("disabled", False, False), ("upgrade", True, False), ("downgrade", False, True),
])  # fmt: skip
def test_policy(shard, policy, up, down):
    classic_group(shard)
    allowed = shard.shard.settings
    shard.shard.settings = type(allowed)(group_consumer_migration_policy=policy)
    if up:
        shard.join("new", "t")
    else:
        assert code_of(shard.join, "new", "t") == ErrorCode.GROUP_ID_NOT_FOUND
        shard.shard.settings = allowed
        shard.join("new", "t")
        shard.shard.settings = type(allowed)(group_consumer_migration_policy=policy)
    shard.beat("new", -1)
    assert isinstance(shard.shard.groups["g"], ClassicGroup) == down


def test_what_cannot_be_upgraded(shard):
    (old,) = shard.classic_join("", protocols("t"), version=3)
    foreign = read_foreign = write_assignment({"t": [0]}, 1)[:-4] + struct.pack(">i", 1) + b"x"
    assert read_assignment(read_foreign).user_data == b"x"
    shard.classic_sync(old["member_id"], 1, {old["member_id"]: foreign})
    assert code_of(shard.join, "new", "t") == ErrorCode.GROUP_ID_NOT_FOUND
    assert shard.shard.groups["g"].state is State.STABLE
    other = {"protocol_type": "connect", "group_id": "c", "version": 3}
    shard.classic_join("", (("v1", b""),), **other)
    wrong = {"group_id": "c"}
    assert code_of(shard.join, "new", "t", **wrong) == ErrorCode.GROUP_ID_NOT_FOUND


def test_partitions_that_are_not_there_are_not_taken_over(shard, t):
    """A leader assigns by name: of a topic that was deleted and made again, or at will."""
    old = shard.classic_join("", protocols("t"))[0]["member_id"]
    (joined,) = shard.classic_join(old, protocols("t"))
    given = {old: write_assignment({"t": [-1, 0, 3, 4, 1 << 20], "gone": [0]}, 1)}
    shard.classic_sync(old, joined["generation_id"], given)
    shard.join("new", "t")
    target = shard.group().target
    assert {p for mine in target.values() for p in mine.get(t, ())} == {0, 1, 2, 3}


def test_a_partition_that_two_have_is_not_taken_over(shard):
    """Apache Kafka refuses it likewise: two would go on reading it, and another nobody."""
    first = shard.classic_join("", protocols("t"), version=3)[0]["member_id"]
    waiting = shard.classic_join("", protocols("t"), version=3)
    (joined,) = shard.classic_join(first, protocols("t"))
    second, generation = waiting[0]["member_id"], joined["generation_id"]
    both = dict.fromkeys((first, second), write_assignment({"t": [0, 1]}, 1))
    shard.classic_sync(first, generation, both)
    assert code_of(shard.join, "new", "t") == ErrorCode.UNKNOWN_SERVER_ERROR
    assert isinstance(shard.shard.groups["g"], ClassicGroup)


def test_who_cannot_be_fenced_yet_is_fenced_later(shard):
    """With this one the group would become a classic one again, which cannot be written: what a
    member sent with its first protocol, which was never selected, cannot be read."""
    ranges = protocols("t", names=("range",))
    odd = (("odd", b""), *ranges)
    first = shard.classic_join("", odd)[0]["member_id"]
    (joined,) = shard.classic_join(first, odd)
    shard.classic_sync(first, joined["generation_id"], {})
    second = shard.classic_join("", ranges)[0]["member_id"]
    shard.classic_join(second, ranges)
    generation = shard.classic_join(first, odd)[0]["generation_id"]
    for one in (first, second):
        shard.classic_sync(one, generation, {})
    shard.join("new", "t")
    shard.advance(30_000)
    shard.classic_beat(first, generation)
    shard.classic_beat(second, generation)
    shard.advance(20_000)
    assert shard.group().members.keys() == {first, second, "new"}
    shard.classic_leave((first, None))
    shard.advance(10_000)
    assert shard.shard.groups["g"].members.keys() == {second}
    assert isinstance(shard.shard.groups["g"], ClassicGroup)


@pytest.mark.parametrize("told_to", ["join", "sync"])
def test_a_member_that_changes_its_protocol_keeps_no_classic_timer(shard, told_to):
    """It was told to rejoin, or has joined and not synced: then it goes on under the same id with
    heartbeats of the consumer protocol, which has neither."""
    old, generation = classic_group(shard, rebalance_timeout_ms=20_000)
    shard.join("new", "t")
    assert shard.classic_beat(old, generation) == ErrorCode.REBALANCE_IN_PROGRESS
    if told_to == "sync":
        owned = protocols("t", owned={"t": range(4)})
        shard.classic_join(old, owned, rebalance_timeout_ms=20_000)
    shard.join(old, "t")
    for _ in range(8):
        shard.advance(5_000)
        for name, member in list(shard.group().members.items()):
            owned = {topic_id: [*mine] for topic_id, mine in member.assigned.items()}
            shard.beat(name, member.epoch, owned)
    assert set(shard.group().members) == {old, "new"}


def test_a_replaced_static_member_leaves_no_timer(shard):
    """A static member that comes back under a new id, as Apache Kafka's `replaceMember`."""
    old, generation = classic_group(shard, instance_id="i", rebalance_timeout_ms=20_000)
    shard.join("new", "t")
    (beat,) = shard.call(
        shard.classic.heartbeat, HeartbeatRequest("g", generation, old, instance_id="i")
    )
    assert beat["error_code"] == ErrorCode.REBALANCE_IN_PROGRESS
    shard.join("back", "t", instance_id="i")
    timers = shard.consumer.timeouts._timers._due
    assert {member_id for _, _, member_id in timers} == {"new", "back"}
