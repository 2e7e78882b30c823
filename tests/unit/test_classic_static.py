"""Static members of the classic protocol (KIP-345): takeover, fencing, restarts in silence."""

from __future__ import annotations

import pytest

from kbroker.errors import ErrorCode
from tests.support.classic import BOTH, DELAY_MS, RANGE, REBALANCE_MS, SESSION_MS, Classic
from tests.support.coordinator import Answer

FENCED = ErrorCode.FENCED_INSTANCE_ID


def static(c: Classic, count: int = 2) -> list[str]:
    """A stable group of static members s0, s1, ...; s0 leads."""
    answers = [c.join(instance_id=f"s{number}") for number in range(count)]
    c.pass_ms(2 * DELAY_MS)
    names = [str(answer["member_id"]) for answer in answers]
    c.sync_all(names)
    assert c.state == "Stable"
    return names


def fields(answer: Answer) -> tuple:
    return (answer.error, answer["generation_id"], answer["leader"], answer["member_id"])


def test_a_static_member_is_named_after_its_instance_and_never_sent_back() -> None:
    c = Classic()
    assert static(c) == ["s0-uuid1", "s1-uuid2"]


def test_a_restarted_member_gets_its_place_back_without_a_rebalance() -> None:
    c = Classic()
    names = static(c)
    written = len(c.log)
    answer = c.join(instance_id="s1")
    new = str(answer["member_id"])
    assert fields(answer) == (ErrorCode.NONE, 1, names[0], "s1-uuid3")
    assert (answer["members"], answer["skip_assignment"]) == (None, False)
    assert (c.state, len(c.log)) == ("Stable", written + 1)
    assert c.sync(new, 1, instance_id="s1")["assignment"] == names[1].encode()
    for request in (c.sync, c.heartbeat):
        assert request(names[1], 1, instance_id="s1").error == FENCED
        assert request(names[1], 1).error == ErrorCode.UNKNOWN_MEMBER_ID
    assert c.join(names[1], instance_id="s1").error == FENCED
    assert c.leave((names[1], "s1"))["members"][0]["error_code"] == FENCED


def test_a_leader_that_comes_back_is_told_to_skip_the_assignment() -> None:
    c = Classic()
    static(c)
    answer = c.join(instance_id="s0")
    assert fields(answer) == (ErrorCode.NONE, 1, "s0-uuid3", "s0-uuid3")
    assert answer["skip_assignment"] is True
    assert {member["member_id"] for member in answer["members"]} == {"s0-uuid3", "s1-uuid2"}


def test_before_version_9_a_leader_that_comes_back_is_not_told_that_it_leads() -> None:
    c = Classic()
    names = static(c)
    answer = c.join(instance_id="s0", version=8)
    assert fields(answer) == (ErrorCode.NONE, 1, names[0], "s0-uuid3")
    assert not answer["members"]
    assert c.group.leader == "s0-uuid3"


def test_what_the_replaced_member_waits_for_is_answered_with_fenced() -> None:
    c = Classic()
    names = static(c)
    join = c.join(names[0], instance_id="s0")
    assert c.state == "PreparingRebalance"
    second = c.join(instance_id="s0")
    assert (join.error, join["member_id"]) == (FENCED, names[0])
    c.join(names[1], instance_id="s1")
    assert second["generation_id"] == 2
    sync = c.sync(names[1], 2, instance_id="s1")
    third = c.join(instance_id="s1")
    assert sync.error == FENCED
    assert (third.came, c.state) == (False, "PreparingRebalance")


def test_a_takeover_that_changes_the_protocol_rebalances() -> None:
    c = Classic()
    answers = [c.join(instance_id="s0", protocols=BOTH), c.join(instance_id="s1", protocols=BOTH)]
    c.pass_ms(2 * DELAY_MS)
    c.sync_all([str(answer["member_id"]) for answer in answers])
    answer = c.join(instance_id="s1", protocols=BOTH[1:])
    assert (answer.came, c.state) == (False, "PreparingRebalance")
    c.join("s0-uuid1", protocols=BOTH, instance_id="s0")
    assert answer["protocol_name"] == "roundrobin"


def test_a_takeover_that_cannot_be_written_is_undone() -> None:
    c = Classic()
    names = static(c)
    c.append_error = ErrorCode.KAFKA_STORAGE_ERROR
    answer = c.join(instance_id="s0", session_timeout_ms=SESSION_MS + 1, protocols=BOTH)
    assert fields(answer) == (ErrorCode.NOT_COORDINATOR, 1, names[0], "")
    assert c.group.leader == names[0]
    member = c.group.members[names[0]]
    assert (member.protocols, member.session_timeout_ms) == (RANGE, SESSION_MS)
    assert c.heartbeat(names[0], 1, instance_id="s0").error == ErrorCode.NONE
    assert len(c.shard.timers) == 2
    assert (c.group.joined, c.group.all_joined) == (0, False)


def test_a_static_member_that_does_not_join_stays_until_its_session_is_over() -> None:
    c = Classic()
    names = static(c)
    c.leave(("", "s0"))
    answer = c.join(instance_id="s2", rebalance_timeout_ms=SESSION_MS // 2)
    c.group.members[names[1]].rebalance_timeout_ms = SESSION_MS // 2
    assert c.state == "PreparingRebalance"
    c.pass_ms(SESSION_MS - 1)
    assert names[1] in c.group.members
    c.pass_ms(REBALANCE_MS)
    assert answer.came
    assert names[1] not in c.group.members


@pytest.mark.parametrize("timeout_ms", [0, -1, -(2**31)])
def test_members_that_give_nobody_time_hold_up_nobody(timeout_ms: int) -> None:
    """All who are left are static and have not joined: they are asked again, but not at once."""
    c = Classic()
    static(c)
    for member in c.group.members.values():
        member.rebalance_timeout_ms = timeout_ms
    c.leave(("", "s0"))
    assert c.state == "PreparingRebalance"
    turns = 0
    while (action := c.shard.timers.pop_due(c.now.monotonic_ms)) is not None:
        action(c.now)
        turns += 1
        assert turns < 3, "it goes on without an end"
    due = c.shard.timers.next_ms()
    assert due is not None and due > c.now.monotonic_ms


def test_the_session_of_the_replaced_member_ends_nothing() -> None:
    c = Classic()
    static(c)
    new = str(c.join(instance_id="s1")["member_id"])
    for _ in range(3):
        c.pass_ms(SESSION_MS - 1)
        assert c.heartbeat("s0-uuid1", 1).error == ErrorCode.NONE
        assert c.heartbeat(new, 1, instance_id="s1").error == ErrorCode.NONE
    assert c.state == "Stable"


def test_who_takes_over_before_the_sync_is_waited_for() -> None:
    c = Classic()
    names = static(c)
    c.rejoin_all(names)
    c.sync(names[0], 2)
    c.join(instance_id="s1", rebalance_timeout_ms=SESSION_MS // 2)
    assert c.group.unsynced == {"s1-uuid3"}
    c.sync("s1-uuid3", 2)
    assert not c.group.unsynced
    assert c.shard.timers.when(("classic-sync", "g")) is None


def test_static_members_are_never_pending() -> None:
    c = Classic()
    name = c.id_of()
    assert c.join(name, instance_id="s0").error == ErrorCode.UNKNOWN_SERVER_ERROR
