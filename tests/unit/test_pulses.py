"""Members whose heartbeats the data plane answers: the table, and what opens and closes a pulse."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from kbroker.errors import ErrorCode
from kbroker.ext.pulses import Pulses
from tests.support.classic import BOTH, DELAY_MS, SESSION_MS, Classic
from tests.support.group_shard import GroupShard
from tests.support.topics import FakeTopics
from tests.unit.test_consumer_group_migration import classic_group

KEY_BYTES_MAX = 1024


# ---- the table


def test_only_an_open_pulse_answers_and_only_its_generation() -> None:
    pulses = Pulses()
    assert not pulses.answers("g", "m", None, 1, 0)
    pulse = pulses.begin("g", "m", None)
    assert pulse is not None
    for generation in (-1, 0, 1):
        assert not pulses.answers("g", "m", None, generation, 0)
    pulse.open(1, 0)
    assert [pulses.answers("g", "m", None, number, 0) for number in (-1, 0, 1, 2)] == [
        False, False, True, False,
    ]  # fmt: skip
    assert not pulses.answers("g", "n", None, 1, 0)
    assert not pulses.answers("gm", "", None, 1, 0)
    pulse.close()
    assert not pulses.answers("g", "m", None, 1, 0)
    pulse.open(2, 0)
    assert pulses.answers("g", "m", None, 2, 0)
    pulse.open(-1, 0)
    assert pulses.answers("g", "m", None, 2, 0)
    pulse.end()
    pulse.open(2, 0)
    pulse.close()
    pulse.end()
    assert not pulses.answers("g", "m", None, 2, 0)
    assert len(pulses) == pulse.left_ms(100, 0) == 0


def test_who_tells_an_instance_id_must_tell_the_right_one() -> None:
    pulses = Pulses()
    for member, instance in (("static", "i"), ("dynamic", None), ("odd", "")):
        pulse = pulses.begin("g", member, instance)
        assert pulse is not None
        pulse.open(0, 0)
        told = [pulses.answers("g", member, one, 0, 0) for one in (None, "", "i", "j", "ii")]
        assert told == [True, instance == "", instance == "i", False, False]
        del pulse


@pytest.mark.parametrize("start_ms", [0, 1, 2**31 - 5, 2**32 - 5, 2**32 - 60_000, 2**40 + 7])
def test_what_is_left_of_a_session(start_ms: int) -> None:
    """The clock in the word goes round; ages below zero are those of clocks read in turn."""
    pulses = Pulses()
    pulse = pulses.begin("g", "m", None)
    assert pulse is not None
    pulse.open(3, start_ms)
    assert pulse.left_ms(10, start_ms) == pulse.left_ms(10, start_ms - 3) == 10
    assert pulse.left_ms(10, start_ms + 9) == 1
    assert pulses.answers("g", "m", None, 3, start_ms + 9)
    assert pulse.left_ms(10, start_ms + 18) == 1
    pulse.close()
    assert pulse.left_ms(10, start_ms + 18) == 1, "when it was heard is known after it was closed"
    pulse.open(3, start_ms)
    assert pulse.left_ms(2**31 - 1, start_ms + 2**31 - 2) == 1
    assert pulses.answers("g", "m", None, 3, start_ms)
    assert pulse.left_ms(10, start_ms + 10) == 0
    assert not pulses.answers("g", "m", None, 3, start_ms + 10), "a session that ended is closed"


def test_long_names_are_not_kept_twice() -> None:
    pulses = Pulses()
    assert pulses.begin("g", "m" * KEY_BYTES_MAX, None) is None
    assert pulses.begin("g", "m", "i" * KEY_BYTES_MAX) is None
    pulse = pulses.begin("g", "ä" * (KEY_BYTES_MAX // 2 - 1), "i")
    assert pulse is not None and len(pulses) == 1


def test_a_pulse_that_nobody_holds_is_gone() -> None:
    pulses = Pulses()
    pulse = pulses.begin("g", "m", None)
    assert pulse is not None
    pulse.open(1, 0)
    del pulse
    assert len(pulses) == 0
    assert not pulses.answers("g", "m", None, 1, 0)


def test_members_that_come_and_go() -> None:
    """Against a dict; so many that the table grows, is cleared of tombstones, and frees."""
    rng = random.Random(5)
    pulses = Pulses()
    known = {}
    for turn in range(20_000):
        name = str(rng.randrange(60 if turn < 10_000 else 3_000))
        if name in known and rng.random() < 0.5:
            known.pop(name)[0].end()
        elif name not in known:
            pulse = pulses.begin("group", name, None)
            assert pulse is not None
            generation = rng.randrange(3)
            pulse.open(generation, turn)
            known[name] = (pulse, generation)
        asked, generation = str(rng.randrange(3_000)), rng.randrange(3)
        right = asked in known and known[asked][1] == generation
        assert pulses.answers("group", asked, None, generation, turn) == right
        assert len(pulses) == len(known)


# ---- what opens and closes them


def beating_static() -> tuple[Classic, str]:
    """A stable group of one static member, "i", that the data plane knows."""
    c = Classic()
    joined = c.join(instance_id="i")
    c.pass_ms(2 * DELAY_MS)
    name = str(joined["member_id"])
    c.sync_all([name])
    assert c.heartbeat(name, 1).error == 0
    return c, name


def beating() -> tuple[Classic, list[str]]:
    """A stable group of two members that the data plane knows; the first leads."""
    c = Classic()
    names = c.stable(2)
    for name in names:
        assert c.heartbeat(name, 1).error == 0
    assert c.pulsed == 0
    assert all(answers(c, name) for name in names)
    return c, names


def answers(c: Classic, name: str, generation: int = 1) -> bool:
    return c.shard.pulses.answers("g", name, None, generation, c.now_ms)


def test_a_session_goes_on_by_heartbeats_that_the_coordinator_never_sees() -> None:
    c, (a, b) = beating()
    for _ in range(50):
        c.pass_ms(SESSION_MS - 1)
        assert c.heartbeat(a, 1).error == c.heartbeat(b, 1).error == 0
    assert c.pulsed == 100


def test_who_falls_silent_is_counted_out_on_time() -> None:
    """To the millisecond, though its timer stands where the last heartbeat before put it."""
    c, (a, b) = beating()
    c.pass_ms(SESSION_MS - 100)
    assert answers(c, a)
    c.pass_ms(50)
    assert answers(c, b)
    c.pass_ms(SESSION_MS - 51)
    assert answers(c, b)
    assert set(c.group.members) == {a, b}
    c.pass_ms(1)
    assert set(c.group.members) == {b} and c.state == "PreparingRebalance"
    assert c.heartbeat(a, 1).error == ErrorCode.UNKNOWN_MEMBER_ID
    assert c.heartbeat(b, 1).error == ErrorCode.REBALANCE_IN_PROGRESS


def test_the_last_heartbeat_counts_after_the_group_has_left_stable() -> None:
    c, (a, b) = beating()
    c.pass_ms(SESSION_MS - 1)
    assert answers(c, a) and answers(c, b)
    c.leave(b)
    c.pass_ms(SESSION_MS - 1)
    assert set(c.group.members) == {a}
    c.pass_ms(1)
    assert not c.group.members


def test_a_commit_is_a_sign_of_life_beside_heartbeats() -> None:
    c, (a, b) = beating()
    c.pass_ms(SESSION_MS - 1)
    assert answers(c, a) and answers(c, b)
    c.pass_ms(10)
    c.group.on_offset_commit(a, c.now)
    c.pass_ms(SESSION_MS - 10)
    assert set(c.group.members) == {a}


def leaves(c: Classic, a: str, b: str) -> None:
    c.leave(b)


def comes(c: Classic, a: str, b: str) -> None:
    c.join(c.id_of())


def joins_again(c: Classic, a: str, b: str) -> None:
    c.join(c.group.leader or "")


def changes_protocols(c: Classic, a: str, b: str) -> None:
    c.join(b, protocols=BOTH)


def is_unloaded(c: Classic, a: str, b: str) -> None:
    c.room.unload()


def is_upgraded(c: Classic, a: str, b: str) -> None:
    c.room.upgraded(c.group)


@pytest.mark.parametrize(
    "what", [leaves, comes, joins_again, changes_protocols, is_unloaded, is_upgraded]
)
def test_nobody_is_told_that_all_is_well_when_it_is_not(
    what: Callable[[Classic, str, str], None],
) -> None:
    c, (a, b) = beating()
    what(c, a, b)
    assert not answers(c, a) and not answers(c, b)


def test_a_member_id_that_is_only_asked_for_changes_nothing() -> None:
    c, (a, b) = beating()
    assert c.join().error == ErrorCode.MEMBER_ID_REQUIRED
    assert answers(c, a) and answers(c, b)


def test_the_next_generation_begins_with_a_heartbeat_to_the_coordinator() -> None:
    c, (a, b) = beating()
    c.join(a)
    c.join(b)
    assert c.state == "CompletingRebalance"
    assert c.heartbeat(a, 2).error == 0, "well, but to be asked"
    assert not answers(c, a, 2)
    c.sync_all([a, b])
    assert not answers(c, a, 2)
    assert c.heartbeat(a, 2).error == 0
    assert answers(c, a, 2) and not answers(c, a, 1) and not answers(c, b, 2)
    assert len(c.shard.pulses) == 2


def test_a_static_member_that_starts_again_takes_over() -> None:
    c, name = beating_static()
    c.heartbeat(name, 1, instance_id="i")
    c.heartbeat(name, 1, instance_id="j")
    assert c.pulsed == 1
    new = str(c.join(instance_id="i")["member_id"])
    assert c.heartbeat(name, 1).error == ErrorCode.UNKNOWN_MEMBER_ID
    assert c.heartbeat(name, 1, instance_id="i").error == ErrorCode.FENCED_INSTANCE_ID
    assert c.heartbeat(new, 1, instance_id="i").error == 0
    assert c.heartbeat(new, 1, instance_id="i").error == 0
    assert (c.pulsed, len(c.shard.pulses)) == (2, 1)


def test_a_takeover_that_is_not_written_leaves_the_old_member() -> None:
    c, name = beating_static()
    c.append_error = ErrorCode.KAFKA_STORAGE_ERROR
    assert c.join(instance_id="i").error
    c.append_error = ErrorCode.NONE
    assert c.heartbeat(name, 1).error == 0
    assert answers(c, name)
    c.pass_ms(SESSION_MS)
    assert not c.group.members and len(c.shard.pulses) == 0


def test_a_group_that_becomes_a_consumer_group() -> None:
    topics = FakeTopics()
    topics.add("t", 4)
    shard = GroupShard(topics, group_initial_rebalance_delay_ms=0)
    name, generation = classic_group(shard)
    assert shard.classic_beat(name, generation) == 0
    pulses = shard.shard.pulses
    assert pulses.answers("g", name, None, generation, 0)
    shard.join("new", "t")
    assert shard.shard.groups["g"].kind == "consumer"
    assert not pulses.answers("g", name, None, generation, 0) and len(pulses) == 0


def test_loaded_members_are_answered_after_their_first_heartbeat() -> None:
    before, (a, b) = beating()
    c = Classic(log=before.log)
    assert not answers(c, a)
    assert c.heartbeat(a, 1).error == 0
    assert answers(c, a) and not answers(c, b)
