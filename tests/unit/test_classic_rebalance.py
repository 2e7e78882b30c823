"""From one generation of a classic group to the next: delays, timers, votes, sizes, failures."""

from __future__ import annotations

import time

import pytest

from kbroker.errors import ErrorCode
from kbroker.group.settings import GroupSettings
from kbroker.limits import PENDING_MEMBERS_MAX_CHARS, PENDING_MEMBERS_MAX_COUNT
from tests.support.classic import (
    BOTH,
    DELAY_MS,
    RANGE,
    REBALANCE_MS,
    SESSION_MS,
    Classic,
    subscription,
)

NEW_MEMBER_MS = 5 * 60_000


def roundrobin_first(*topics: str):
    return (("roundrobin", subscription(*topics)), ("range", subscription(*topics)))


def test_a_member_without_an_id_is_sent_back_with_one() -> None:
    c = Classic()
    first = c.join()
    assert first.error == ErrorCode.MEMBER_ID_REQUIRED
    assert first["member_id"] == "c-uuid1"
    assert c.state == "Empty"
    second = c.join("c-uuid1")
    assert not second.came
    c.pass_ms(DELAY_MS)
    assert (second.error, second["generation_id"], second["leader"]) == (0, 1, "c-uuid1")
    assert (second["protocol_type"], second["protocol_name"]) == ("consumer", "range")
    assert second["members"] == [
        {"member_id": "c-uuid1", "group_instance_id": None, "metadata": RANGE[0][1]}
    ]


def test_before_version_4_a_member_gets_its_id_with_the_answer() -> None:
    c = Classic()
    answer = c.join(version=3)
    c.pass_ms(DELAY_MS)
    assert (answer.error, answer["member_id"]) == (0, "c-uuid1")


def test_only_the_leader_is_told_of_the_members() -> None:
    c = Classic()
    answers = c.parked(3)
    c.pass_ms(2 * DELAY_MS)
    assert [len(answer["members"] or ()) for answer in answers] == [3, 0, 0]
    assert {answer["leader"] for answer in answers} == {"c-uuid1"}


def test_the_initial_delay_is_extended_for_each_who_comes_up_to_the_rebalance_timeout() -> None:
    c = Classic()
    first = c.parked(1, rebalance_timeout_ms=4 * DELAY_MS)[0]
    for _ in range(3):
        c.pass_ms(DELAY_MS - 2)
        c.parked(1, rebalance_timeout_ms=4 * DELAY_MS)
        c.pass_ms(1)
        assert not first.came
    c.pass_ms(DELAY_MS)
    assert first.came


def test_the_initial_delay_counts_from_the_last_who_came() -> None:
    c = Classic()
    first = c.parked(1)[0]
    c.pass_ms(10)
    c.parked(1)
    c.pass_ms(DELAY_MS - 1)
    assert not first.came
    c.pass_ms(1)
    assert first.came


def test_the_initial_delay_ends_with_the_rebalance_timeout() -> None:
    c = Classic()
    first = c.parked(1, rebalance_timeout_ms=DELAY_MS + 10)[0]
    c.pass_ms(DELAY_MS - 1)
    c.parked(1, rebalance_timeout_ms=DELAY_MS + 10)
    c.pass_ms(10)
    assert not first.came
    c.pass_ms(1)
    assert first.came


def test_the_initial_delay_is_not_extended_when_nobody_comes() -> None:
    c = Classic()
    answer = c.parked(1)[0]
    c.pass_ms(DELAY_MS - 1)
    assert not answer.came
    c.pass_ms(1)
    assert answer.came


def test_without_a_delay_the_first_member_does_not_wait() -> None:
    c = Classic(settings=GroupSettings(group_initial_rebalance_delay_ms=0))
    answer = c.parked(1)[0]
    c.settle()
    assert answer.came


def test_the_pending_member_that_goes_cuts_the_initial_delay_short() -> None:
    c = Classic()
    c.id_of(session_timeout_ms=SESSION_MS)
    answer = c.join(c.id_of())
    c.pass_ms(SESSION_MS)
    assert answer.came


def test_all_members_are_waited_for_up_to_the_longest_rebalance_timeout() -> None:
    c = Classic()
    names = c.stable(3)
    answers = [c.join(names[0])]
    assert c.state == "PreparingRebalance"
    for elapsed in range(0, REBALANCE_MS, SESSION_MS // 2):
        assert not answers[0].came, elapsed
        for name in names[1:]:
            assert c.heartbeat(name, 1).error == ErrorCode.REBALANCE_IN_PROGRESS
        if elapsed == SESSION_MS:
            answers.append(c.join(names[1]))
        c.pass_ms(SESSION_MS // 2)
    assert [answer["generation_id"] for answer in answers] == [2, 2]
    assert set(c.group.members) == set(names[:2])


def test_a_member_that_is_silent_is_removed_and_the_rest_rebalance() -> None:
    c = Classic()
    names = c.stable(3)
    c.pass_ms(SESSION_MS - 1)
    assert c.heartbeat(names[0], 1).error == ErrorCode.NONE
    assert c.heartbeat(names[1], 1).error == ErrorCode.NONE
    c.pass_ms(1)
    assert c.state == "PreparingRebalance"
    assert set(c.group.members) == set(names[:2])
    assert c.heartbeat(names[2], 1).error == ErrorCode.UNKNOWN_MEMBER_ID
    answers = c.rejoin_all(names[:2])
    assert [answer["generation_id"] for answer in answers] == [2, 2]


def test_a_parked_member_is_alive_however_long_it_waits() -> None:
    c = Classic()
    names = c.stable(2)
    answer = c.join(names[0])
    for _ in range(4):
        c.pass_ms(SESSION_MS - 1)
        c.heartbeat(names[1], 1)
    assert names[0] in c.group.members
    c.join(names[1])
    assert answer.came


def test_a_new_member_whose_join_is_parked_for_too_long_is_given_up() -> None:
    c = Classic()
    names = c.stable(1, rebalance_timeout_ms=2 * NEW_MEMBER_MS)
    answer = c.join(version=3)
    for _ in range(NEW_MEMBER_MS // (SESSION_MS - 1) + 1):
        assert not answer.came
        c.heartbeat(names[0], 1)
        c.pass_ms(SESSION_MS - 1)
    assert (answer.error, answer["member_id"]) == (ErrorCode.UNKNOWN_MEMBER_ID, "")


def test_a_pending_member_is_forgotten_after_its_session_timeout() -> None:
    c = Classic()
    name = c.id_of()
    c.pass_ms(SESSION_MS)
    assert c.join(name).error == ErrorCode.UNKNOWN_MEMBER_ID
    assert not c.group.pending
    assert len(c.shard.timers) == 0


def test_a_rebalance_waits_for_pending_members() -> None:
    c = Classic()
    names = c.stable(1)
    pending = c.id_of()
    answer = c.join(names[0])
    assert not answer.came
    c.join(pending)
    assert answer["generation_id"] == 2


def test_a_pending_member_that_leaves_is_waited_for_no_more() -> None:
    c = Classic()
    names = c.stable(1)
    pending = c.id_of()
    answer = c.join(names[0])
    assert c.leave(pending)["members"][0]["error_code"] == ErrorCode.NONE
    assert answer["generation_id"] == 2


def test_a_leader_that_does_not_join_is_replaced() -> None:
    c = Classic()
    names = c.stable(2)
    answer = c.join(names[1], protocols=BOTH)
    c.pass_ms(SESSION_MS)
    assert (answer["leader"], len(answer["members"])) == (names[1], 1)


def test_the_group_that_everybody_left_is_written_as_empty() -> None:
    c = Classic()
    names = c.stable(2)
    c.leave(*names)
    assert (c.state, c.group.generation) == ("Empty", 2)
    value = c.log[-1].value
    assert value is not None
    assert (value.members, value.protocol, value.leader) == ([], None, None)
    assert (value.protocol_type, value.generation) == ("consumer", 2)
    assert len(c.shard.timers) == 0


def test_the_protocol_with_most_votes_among_those_that_all_support() -> None:
    c = Classic()
    three = (("sticky", b"s"), *BOTH)
    answers = [c.join(c.id_of(protocols=p), protocols=p)
               for p in (roundrobin_first("t"), BOTH, three, roundrobin_first("t"))]  # fmt: skip
    c.pass_ms(2 * DELAY_MS)
    assert {answer["protocol_name"] for answer in answers} <= {"range", "roundrobin"}
    votes = [c.group.members[a["member_id"]].vote({"range", "roundrobin"}) for a in answers]
    assert sorted(votes) == ["range", "range", "roundrobin", "roundrobin"]


def test_a_majority_wins() -> None:
    c = Classic()
    answers = [c.join(c.id_of(protocols=p), protocols=p)
               for p in (BOTH, roundrobin_first("t"), roundrobin_first("t"))]  # fmt: skip
    c.pass_ms(2 * DELAY_MS)
    assert {answer["protocol_name"] for answer in answers} == {"roundrobin"}


def test_a_protocol_told_twice_counts_once() -> None:
    c = Classic()
    answer = c.join(c.id_of(), protocols=(*RANGE, *RANGE))
    c.pass_ms(DELAY_MS)
    assert answer["protocol_name"] == "range"


def test_the_member_that_all_others_cannot_follow_is_refused() -> None:
    c = Classic()
    names = c.stable(2)
    answer = c.join(names[0], protocols=(("new", b""),))
    assert answer.error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert c.state == "Stable"


def test_a_member_that_missed_the_answer_gets_it_again() -> None:
    c = Classic()
    names = c.completing(2)
    leader, follower = (c.join(name) for name in names)
    assert (leader["generation_id"], len(leader["members"])) == (1, 2)
    assert (follower["generation_id"], follower["members"]) == (1, None)
    assert c.state == "CompletingRebalance"


def test_a_second_join_answers_the_first() -> None:
    c = Classic()
    names = c.stable(2)
    first = c.join(names[0])
    second = c.join(names[0])
    assert (first.error, second.came) == (ErrorCode.REBALANCE_IN_PROGRESS, False)
    c.join(names[1])
    assert second["generation_id"] == 2


def test_a_second_sync_answers_the_first() -> None:
    c = Classic()
    names = c.completing(2)
    first, second = c.sync(names[1], 1), c.sync(names[1], 1)
    assert (first.error, second.came) == (ErrorCode.REBALANCE_IN_PROGRESS, False)
    c.sync(names[0], 1, [(names[1], b"a")])
    assert second["assignment"] == b"a"


def test_followers_wait_for_the_leaders_assignments() -> None:
    c = Classic()
    names = c.completing(3)
    waiting = c.sync(names[1], 1)
    assert not waiting.came
    leader = c.sync(names[0], 1, [(names[0], b"l"), (names[1], b"f"), ("nobody", b"x")])
    assert (leader["assignment"], waiting["assignment"]) == (b"l", b"f")
    assert (waiting["protocol_type"], waiting["protocol_name"]) == ("consumer", "range")
    assert c.state == "Stable"
    assert c.sync(names[2], 1)["assignment"] == b""


def test_a_rebalance_sends_away_those_who_wait_for_their_assignment() -> None:
    c = Classic()
    names = c.completing(2)
    waiting = c.sync(names[1], 1)
    c.join(names[0], protocols=BOTH)
    assert waiting.error == ErrorCode.REBALANCE_IN_PROGRESS
    assert c.state == "PreparingRebalance"


def test_a_leader_that_never_syncs_is_removed_after_the_rebalance_timeout() -> None:
    c = Classic()
    names = c.completing(2, rebalance_timeout_ms=SESSION_MS // 2)
    waiting = c.sync(names[1], 1)
    c.pass_ms(SESSION_MS // 2)
    assert waiting.error == ErrorCode.REBALANCE_IN_PROGRESS
    assert list(c.group.members) == [names[1]]
    assert c.group.leader == names[1]


def test_a_follower_that_never_syncs_is_removed_although_the_group_is_stable() -> None:
    c = Classic()
    names = c.completing(2, rebalance_timeout_ms=SESSION_MS // 2)
    c.sync(names[0], 1)
    assert c.state == "Stable"
    c.pass_ms(SESSION_MS // 2)
    assert (c.state, list(c.group.members)) == ("PreparingRebalance", [names[0]])


def test_a_member_removed_by_an_administrator_learns_it_wherever_it_waits() -> None:
    c = Classic()
    names = c.completing(2)
    waiting = c.sync(names[1], 1)
    c.leave(names[1])
    assert waiting.error == ErrorCode.UNKNOWN_MEMBER_ID
    parked = c.join(version=3)
    c.leave(next(name for name in c.group.members if name != names[0]))
    assert (parked.error, parked["member_id"]) == (ErrorCode.UNKNOWN_MEMBER_ID, "")


def test_members_leave_in_one_request_and_the_rest_rebalances_once() -> None:
    c = Classic()
    names = c.stable(4)
    answer = c.leave(names[0], "nobody", names[1])
    assert [member.get("error_code") for member in answer["members"]] == [0, 25, 0]
    assert (c.state, c.group.leader) == ("PreparingRebalance", names[2])


def test_a_full_group_takes_no_more() -> None:
    c = Classic(settings=GroupSettings(group_max_size=2))
    names = c.stable(2)
    refused = c.join(version=3)
    assert (refused.error, refused["member_id"]) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    assert not c.join(names[0]).came


def test_of_too_many_who_come_at_once_the_first_are_taken() -> None:
    c = Classic(settings=GroupSettings(group_max_size=2))
    pending = [c.id_of() for _ in range(4)]
    answers = [c.join(name) for name in pending]
    assert [a.error if a.came else None for a in answers] == [None, None, 81, 81]
    assert not c.group.pending
    c.pass_ms(2 * DELAY_MS)
    assert len(c.group.members) == 2


def test_a_group_that_is_too_large_when_loaded_is_brought_down_to_size() -> None:
    before = Classic()
    names = before.stable(4)
    c = Classic(settings=GroupSettings(group_max_size=2), log=before.log)
    assert c.state == "PreparingRebalance"
    answers = [c.join(name, protocols=RANGE) for name in names]
    assert [a.error if a.came else None for a in answers] == [None, None, 81, 81]
    c.pass_ms(REBALANCE_MS)
    assert [answer["generation_id"] for answer in answers[:2]] == [2, 2]
    assert set(c.group.members) == set(names[:2])


def test_long_ids_are_fewer() -> None:
    c = Classic()
    for number in range(300):
        c.id_of(client_id=f"{number:032000}")
    assert sum(map(len, c.group.pending)) <= PENDING_MEMBERS_MAX_CHARS


def test_a_flood_of_joins_drives_out_its_own() -> None:
    c = Classic()
    names = c.stable(1)
    first = c.id_of()
    for _ in range(PENDING_MEMBERS_MAX_COUNT):
        last = c.id_of()
    assert len(c.group.pending) == PENDING_MEMBERS_MAX_COUNT
    assert len(c.shard.timers) == PENDING_MEMBERS_MAX_COUNT + 1
    assert c.join(first).error == ErrorCode.UNKNOWN_MEMBER_ID
    assert not c.join(last).came
    assert c.heartbeat(names[0], 1).error == ErrorCode.REBALANCE_IN_PROGRESS


def test_300_members_at_once_cost_no_more_each_than_a_few() -> None:
    def cost(count: int) -> float:
        c = Classic()
        began = time.process_time()
        names = c.stable(count)
        for answer in c.rejoin_all(names):
            assert answer.came or c.state == "PreparingRebalance"
        c.sync_all(names)
        assert c.group.generation == 2
        return (time.process_time() - began) / count

    cost(50)
    assert cost(1200) < 6 * min(cost(100) for _ in range(3))


def test_assignments_that_cannot_be_written_are_an_error_to_all() -> None:
    c = Classic()
    names = c.completing(2)
    waiting = c.sync(names[1], 1)
    c.append_error = ErrorCode.KAFKA_STORAGE_ERROR
    leader = c.sync(names[0], 1, [(names[0], b"x")])
    assert [leader.error, waiting.error] == [ErrorCode.NOT_COORDINATOR] * 2
    assert c.state == "PreparingRebalance"
    c.append_error = ErrorCode.NONE
    answers = c.rejoin_all(names)
    assert [answer["generation_id"] for answer in answers] == [2, 2]
    assert {a["assignment"] for a in c.sync_all(names)} == {name.encode() for name in names}


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.INVALID_CONFIG, ErrorCode.INVALID_CONFIG),
    ],
)
def test_errors_of_the_log_as_members_know_them(error: ErrorCode, told: ErrorCode) -> None:
    c = Classic()
    names = c.completing(1)
    c.append_error = error
    assert c.sync(names[0], 1).error == told


def test_a_group_that_could_not_be_written_never_was() -> None:
    c = Classic()
    c.append_error = ErrorCode.KAFKA_STORAGE_ERROR
    required, parked = c.join(), c.join(version=3)
    assert required.error == ErrorCode.NOT_COORDINATOR
    assert parked.error == ErrorCode.NOT_COORDINATOR
    assert not c.shard.groups
    assert len(c.shard.timers) == 0


def test_an_empty_group_that_could_not_be_written_is_empty_all_the_same() -> None:
    c = Classic()
    names = c.stable(1)
    c.append_error = ErrorCode.KAFKA_STORAGE_ERROR
    assert c.leave(names[0]).error in {ErrorCode.NONE, ErrorCode.NOT_COORDINATOR}
    assert c.state == "Empty"


def test_a_commit_keeps_a_session_alive_while_stable() -> None:
    c = Classic()
    names = c.stable(1)
    for _ in range(3):
        c.pass_ms(SESSION_MS - 1)
        c.group.on_offset_commit(names[0], c.now)
    assert names[0] in c.group.members
    c.group.on_offset_commit("nobody", c.now)


def test_unloading_sends_everybody_to_look_for_the_coordinator() -> None:
    c = Classic()
    joins = c.parked(2)
    c.room.unload()
    assert {answer.error for answer in joins} == {ErrorCode.NOT_COORDINATOR}
    assert {answer["member_id"] for answer in joins} == set(c.group.members)
    c = Classic()
    names = c.completing(2)
    sync = c.sync(names[1], 1)
    c.room.unload()
    assert sync.error == ErrorCode.NOT_COORDINATOR
    assert len(c.shard.timers) == 0


def test_ownership_that_a_cooperative_member_tells_counts_as_new_metadata() -> None:
    """KIP-429: after giving up partitions a member joins again with other owned partitions."""
    c = Classic()
    c.stable(2, protocols=(("cooperative-sticky", subscription("t") + b"owned"),))
    names = list(c.group.members)
    follower = c.join(names[1], protocols=(("cooperative-sticky", subscription("t")),))
    assert (follower.came, c.state) == (False, "PreparingRebalance")
