"""Classic groups as `__consumer_offsets` holds them, and what else the rooms ask of a group."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker.errors import ErrorCode
from kbroker.group.classic.group import ClassicGroup
from kbroker.group.classic.subscription import topics_of
from kbroker.group.migration import ClassicMember, ClassicState
from kbroker.group.order import most_voted
from kbroker.group.outcome import CoordinatorRecord
from kbroker.metadata.records.classic_group import (
    KEYS,
    VALUES,
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
)
from kbroker.metadata.records.frame import decode_key, decode_value, encode_key, encode_value
from tests.support.classic import BOTH, DELAY_MS, RANGE, SESSION_MS, Classic, subscription


def reloaded(c: Classic) -> Classic:
    """The same after a restart; every record goes through its bytes."""
    return Classic(log=[through_bytes(record) for record in c.log])


def through_bytes(record: CoordinatorRecord) -> CoordinatorRecord:
    key = encode_key(record.key)
    value = None if record.value is None else encode_value(record.value, record.version)
    read = None if value is None else decode_value(value, VALUES[record.key.SCHEMA.key])
    return CoordinatorRecord(decode_key(key, KEYS), read, record.version)


def test_a_stable_group_is_there_again_and_its_members_go_on() -> None:
    c = Classic()
    names = c.stable(2)
    c = reloaded(c)
    group = c.group
    assert (group.state_name, group.generation, group.leader) == ("Stable", 1, names[0])
    assert (group.protocol_type, group.protocol_name) == ("consumer", "range")
    assert {name: member.assignment for name, member in group.members.items()} == {
        name: name.encode() for name in names
    }
    assert group.topics == {"t"}
    assert len(c.shard.timers) == 2
    assert c.heartbeat(names[1], 1).error == ErrorCode.NONE
    assert c.sync(names[1], 1)["assignment"] == names[1].encode()
    c.pass_ms(SESSION_MS)
    assert c.state == "Empty"


def test_members_that_joined_after_the_last_record_are_not_there() -> None:
    c = Classic()
    names = c.stable(1)
    c.join(version=3)
    c = reloaded(c)
    assert list(c.group.members) == names


def test_a_member_comes_back_with_all_its_protocols() -> None:
    c = Classic()
    names = c.stable(2, protocols=BOTH)
    c = reloaded(c)
    assert c.group.members[names[0]].protocols == RANGE
    answers = [c.join(name, protocols=BOTH) for name in names]
    assert [answer["generation_id"] for answer in answers] == [2, 2]
    assert c.group.members[names[0]].protocols == BOTH


def test_an_empty_group_knows_since_when() -> None:
    c = Classic()
    c.leave(*c.stable(1))
    loaded = reloaded(c)
    assert loaded.group.is_empty()
    assert loaded.group.changed_ms == c.group.changed_ms
    assert loaded.group.protocol_type == "consumer"


def test_a_static_member_is_known_by_its_instance() -> None:
    c = Classic()
    answer = c.join(instance_id="s")
    c.pass_ms(DELAY_MS)
    c.sync(answer["member_id"], 1, [(answer["member_id"], b"a")])
    c = reloaded(c)
    again = c.join(instance_id="s")
    assert (again.error, again["generation_id"], again["skip_assignment"]) == (0, 1, True)


def test_a_tombstone_deletes_the_group() -> None:
    c = Classic()
    c.leave(*c.stable(1))
    for record in c.group.tombstones():
        c.log.append(record)
        c.shard.replay(record)
    assert not c.shard.groups
    assert not reloaded(c).shard.groups


def test_records_of_older_versions() -> None:
    """No state timestamp before version 2, no rebalance timeout before 1, no instance before 3."""
    value = GroupMetadataValue(
        "consumer", 7, "range", "m",
        members=[MemberMetadata("m", None, "c", "/h", -1, 12_000, RANGE[0][1], b"a")],
    )  # fmt: skip
    for version in (0, 1, 2, 3, 4):
        record = through_bytes(CoordinatorRecord(GroupMetadataKey("g"), value, version))
        c = Classic(log=[record])
        member = c.group.members["m"]
        assert (member.rebalance_timeout_ms, member.session_timeout_ms) == (12_000, 12_000)
        assert (c.group.generation, c.group.changed_ms) == (7, None)


def test_a_record_whose_leader_is_no_member_gets_another() -> None:
    value = GroupMetadataValue(
        "consumer", 7, "range", "gone", members=[MemberMetadata("m", subscription=RANGE[0][1])]
    )
    c = Classic(log=[CoordinatorRecord(GroupMetadataKey("g"), value, 3)])
    assert c.group.leader == "m"


@pytest.mark.parametrize("loaded", [False, True])
def test_when_offsets_expire(loaded: bool) -> None:
    c = Classic()
    names = c.stable(1)
    for state in ("Stable", "Empty"):
        if state == "Empty":
            c.leave(*names)
        group = (reloaded(c) if loaded else c).group
        expiry = group.offset_expiry()
        assert expiry is not None
        since = group.changed_ms if state == "Empty" else 500
        assert since is not None
        assert not expiry.is_expired(500, -1, since + 99, 100)
        assert expiry.is_expired(500, -1, since + 100, 100)
        assert expiry.is_expired(500, 600, 600, 10**15)
        assert not expiry.is_expired(500, 601, 600, 0)


def test_offsets_of_a_rebalancing_or_unreadable_group_do_not_expire() -> None:
    c = Classic()
    names = c.stable(1)
    c.join(names[0])
    assert c.state == "CompletingRebalance"
    assert c.group.offset_expiry() is None
    c = Classic()
    c.stable(1, protocols=(("range", b"\xff"),))
    assert c.group.offset_expiry() is None
    assert c.group.subscribed_to("anything")


def test_described() -> None:
    c = Classic()
    names = c.completing(1)
    told = c.group.described()
    assert (told["group_state"], told["protocol_data"]) == ("CompletingRebalance", "")
    assert told["members"][0]["member_metadata"] == b""
    c.sync_all(names)
    told = c.group.described()
    assert (told["protocol_type"], told["protocol_data"]) == ("consumer", "range")
    assert told["members"] == [{
        "member_id": names[0], "group_instance_id": None, "client_id": "c",
        "client_host": "/127.0.0.1", "member_metadata": RANGE[0][1],
        "member_assignment": names[0].encode(),
    }]  # fmt: skip


def test_an_upgrade_sends_everybody_to_join_again() -> None:
    c = Classic()
    names = c.stable(2)
    join, group = c.join(names[0], protocols=BOTH), c.group
    state = c.room.state_of(group)
    assert state[:3] == (1, "consumer", "range")
    assert state.members[0].protocols == BOTH
    c.room.upgraded(group)
    assert (join.error, join["member_id"]) == (ErrorCode.REBALANCE_IN_PROGRESS, names[0])
    assert len(c.shard.timers) == 0


@pytest.mark.parametrize("reason", [None, "a member left"])
def test_a_downgraded_group_goes_on_with_all_protocols(reason: str | None) -> None:
    source = Classic()
    names = source.stable(2, protocols=BOTH)
    c = Classic()
    for record in source.log:
        c.shard.replay(through_bytes(record))
    members = [
        ClassicMember(name, None, "c", "/h", 60_000, SESSION_MS, BOTH, b"a") for name in names
    ]
    outcome = c.room.downgraded("g", ClassicState(1, "consumer", "range", members), reason, c.now)
    assert outcome is None or outcome.records == ()
    assert c.state == ("Stable" if reason is None else "PreparingRebalance")
    assert c.group.members[names[0]].protocols == BOTH
    assert c.heartbeat(names[0], 1).error == (0 if reason is None else 27)


def test_the_topics_of_subscriptions() -> None:
    assert topics_of([subscription("a", "b"), subscription("b", "c")]) == {"a", "b", "c"}
    assert topics_of([]) == frozenset()
    newer = b"\x00\x03" + subscription("a")[2:] + b"what version 3 adds"
    assert topics_of([newer]) == {"a"}


def test_subscriptions_that_name_too_many_topics_are_not_known() -> None:
    many = subscription(*["t"] * 250_000)
    assert topics_of([many, many]) == {"t"}
    assert topics_of([many, many, subscription("t")]) is None


@given(st.binary(max_size=40))
def test_what_is_no_subscription_is_not_known(told: bytes) -> None:
    for end in range(len(told)):
        topics_of([told[:end]])
    whole = subscription("abc", "de")
    for end in range(len(whole)):
        assert topics_of([whole[:end]]) is None


def test_equal_votes_fall_as_a_java_hash_map_has_them() -> None:
    """By the slot of 16 of each name's hash, as `new HashMap<String, Integer>()` lists them."""

    def winner(votes):
        return most_voted(Counter(votes))

    assert winner(["roundrobin", "range"]) == winner(["range", "roundrobin"]) == "range"
    assert winner(["b", "a"]) == "a"
    assert winner(["a", "b", "b"]) == "b"
    many = [f"p{number}" for number in range(40)]
    assert winner(many) == winner(reversed(many))


def test_a_group_prints_itself() -> None:
    c = Classic()
    names = c.stable(1)
    assert repr(c.group) == "ClassicGroup('g', Stable, 1)"
    assert names[0] in repr(c.group.members[names[0]])
    assert isinstance(c.group, ClassicGroup)
