"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup: the same scripts to both brokers.

Each member has a connection of its own, as a parked request holds up what comes after it. Answers
are noted in an order that does not depend on which came first.
"""

from __future__ import annotations

import time

import pytest
from kio.index import load_request_schema

from tests.differential.classic_members import (
    HEARTBEAT,
    JOIN,
    OTHER_SUBSCRIPTION,
    SUBSCRIPTION,
    commit,
    describe,
    members,
    protocols,
    until_described,
    wait_for_rebalance,
)
from tests.differential.harness import Script, same
from tests.support import messages

VERSIONS = range(10)


@same(VERSIONS)
def test_one_member(s: Script, version: int) -> None:
    """Join, sync, heartbeat, join again, leave, and what is known of it afterwards."""
    with members(s, version, {}) as (m,):
        m.join()
        m.heartbeat()
        m.sync((m.id, b"mine"), ("nobody", b"other"))
        m.sync()
        m.heartbeat()
        m.join()
        m.sync()
        m.leave()
        m.heartbeat()
        m.sync()
        m.leave()
        m.join()
        m.id = ""
        m.join()


@same(VERSIONS)
def test_no_group(s: Script, version: int) -> None:
    """What a group that does not exist, or has no name, answers."""
    with members(s, version, {}) as (m,):
        m.id, m.generation = "nobody", 3
        for group in (s.name("none"), ""):
            m.joins["group_id"] = group
            m.send_join().take()
            m.sync()
            m.heartbeat()
            m.leave()


@same(VERSIONS)
def test_refused_joins(s: Script, version: int) -> None:
    with members(s, version, {}) as (m,):
        for session_ms in (0, 5_999, 1_800_001):
            m.send_join(session_timeout=session_ms).take()
        m.send_join(protocols=[]).take()
        m.send_join(protocol_type="").take()
        m.id = ""
        m.stable()
        m.send_join(protocols=protocols("other")).take()
        m.send_join(protocol_type="connect").take()
        m.send_join(member_id="nobody").take()
        m.send_join(member_id="", protocols=protocols("other")).take()
        m.heartbeat()


@same(VERSIONS)
def test_two_members(s: Script, version: int) -> None:
    """A second member makes the first join again; who waits for what, and every wrong turn."""
    with members(s, version, {}, {}) as (a, b):
        a.stable()
        b.begin_join()
        s.note("rebalancing", wait_for_rebalance(a))
        a.sync()
        a.heartbeat(generation_id=a.generation - 1)
        a.send_join().take()
        b.take()
        b.send_sync()
        b_waits = b.connection.is_silent(0.2)
        s.note("the follower waits", b_waits)
        a.heartbeat()
        a.sync(generation_id=a.generation - 1)
        a.sync(generation_id=a.generation + 1)
        a.sync(member_id="nobody")
        a.sync((a.id, b"for a"), (b.id, b"for b"))
        b.take()
        for m in (a, b):
            m.heartbeat()
            m.heartbeat(generation_id=0)
            m.heartbeat(member_id="nobody")
        b.leave()
        s.note("rebalancing", wait_for_rebalance(a))
        a.join()
        a.sync((a.id, b"all"))
        a.leave()


@same(VERSIONS)
def test_a_change_of_metadata_rebalances_while_the_leader_assigns(s: Script, version: int) -> None:
    with members(s, version, {}, {}) as (a, b):
        a.stable()
        b.begin_join()
        wait_for_rebalance(a)
        a.send_join().take()
        b.take()
        b.send_sync()
        a.send_join(protocols=protocols("range", "roundrobin"))
        b.take()
        b.send_join().take()
        a.take()
        a.sync((a.id, b"for a"))
        b.sync()


@same(VERSIONS)
def test_votes(s: Script, version: int) -> None:
    """The protocol with most votes of those that all support; equal votes as a HashMap has them."""
    for number, (first, second) in enumerate([
        (("range", "roundrobin"), ("roundrobin", "range")),
        (("b", "a"), ("a", "b")),
        (("sticky", "range", "cooperative-sticky"), ("cooperative-sticky", "sticky")),
        (("x", "only"), ("only",)),
    ]):  # fmt: skip
        group = s.name(f"votes{number}")
        told = [{"group_id": group, "protocols": protocols(*names)} for names in (first, second)]
        with members(s, version, *told) as (a, b):
            a.join()
            b.begin_join()
            wait_for_rebalance(a)
            a.send_join().take()
            b.take()
            a.leave()
            b.leave()


@same(VERSIONS)
def test_a_protocol_named_twice(s: Script, version: int) -> None:
    """It is nobody's protocol, as the name counts twice; where it is the only one, Apache Kafka
    never answers."""
    twice = [
        {"name": "range", "metadata": SUBSCRIPTION},
        {"name": "range", "metadata": OTHER_SUBSCRIPTION},
        *protocols("other"),
    ]
    with members(s, version, {"protocols": twice}, {}) as (a, b):
        a.join()
        a.sync((a.id, b"mine"), **({"protocol_name": "other"} if version >= 5 else {}))
        describe(a, "stable")
        b.send_join().take()
        b.send_join(protocols=twice[1:]).take() if version >= 4 else None
        a.heartbeat()


@same(range(5, 10))
def test_a_static_member_comes_back(s: Script, version: int) -> None:
    """Without a rebalance, in its place; the old id is fenced."""
    with members(s, version, {"group_instance_id": "i"}, {"group_instance_id": "i"}) as (a, b):
        static = {"group_instance_id": "i"}
        a.stable()
        a.heartbeat(**static)
        b.send_join().take()
        b.sync(**static)
        for m in (a, b):
            m.heartbeat(**static)
            m.heartbeat()
            m.sync(**static)
            m.send_join().take()
        a.heartbeat(group_instance_id="other")
        a.leave({"member_id": a.id, "group_instance_id": "i"})
        a.leave({"member_id": "", "group_instance_id": "i"})
        b.heartbeat(**static)


@same(range(5, 10))
def test_a_static_follower_comes_back(s: Script, version: int) -> None:
    joins = [{}, {"group_instance_id": "i"}, {"group_instance_id": "i"}]
    with members(s, version, *joins) as (a, b, c):
        a.stable()
        b.begin_join()
        wait_for_rebalance(a)
        a.send_join()
        b.take()
        a.take()
        a.sync((a.id, b"for a"), (b.id, b"for b"))
        b.sync(group_instance_id="i")
        c.send_join().take()
        c.sync(group_instance_id="i")
        a.heartbeat()
        a.send_join()
        wait_for_rebalance(c)
        b.send_join(member_id="")
        b.connection.is_silent(0.1)
        c.heartbeat(group_instance_id="i")
        b.take()
        a.take()


@same(range(5, 10))
def test_a_static_takeover_while_its_join_and_sync_wait(s: Script, version: int) -> None:
    joins = [{"group_instance_id": "l"}, {"group_instance_id": "i"}, {"group_instance_id": "i"}]
    with members(s, version, *joins) as (a, b, c):
        a.stable()
        b.send_join()
        wait_for_rebalance(a)
        c.send_join()
        b.take()
        a.send_join()
        c.take()
        a.take()
        c.send_sync(group_instance_id="i")
        c.connection.is_silent(0.1)
        b.id = ""
        b.send_join()
        c.take()
        wait_for_rebalance(a)
        a.send_join()
        b.take()
        a.take()


@same(range(5, 10))
def test_a_takeover_with_other_protocols(s: Script, version: int) -> None:
    both = protocols("range", "roundrobin")
    static = {"group_instance_id": "i", "protocols": both}
    with members(s, version, static, static) as (a, b):
        a.stable()
        b.send_join(protocols=protocols("roundrobin")).take()
        b.sync(protocol_name="roundrobin") if version >= 5 else None
        a.heartbeat(group_instance_id="i")


@same(range(3, 6))
def test_many_leave(s: Script, version: int) -> None:
    """One answer for each who leaves, whatever is wrong with some."""
    with members(s, 5, {}, {"group_instance_id": "i"}) as (a, b):
        a.stable()
        b.send_join()
        wait_for_rebalance(a)
        a.send_join()
        b.take()
        a.take()
        leaving = [
            {"member_id": "nobody"}, {"member_id": "", "group_instance_id": "i"},
            {"member_id": ""}, {"member_id": "", "group_instance_id": "unknown"},
            {"member_id": a.id, "group_instance_id": "unknown"}, {"member_id": a.id},
            {"member_id": a.id},
        ]  # fmt: skip
        a.leave(*leaving, version=version)
        a.heartbeat()


@same(range(4, 10))
def test_a_pending_member_leaves_or_joins_late(s: Script, version: int) -> None:
    with members(s, version, {}, {}) as (a, b):
        a.stable()
        b.send_join().take()
        a.send_join()
        s.note("waits for the pending one", a.connection.is_silent(0.2))
        b.leave(version=min(version, 5))
        a.take()
        b.send_join().take()
        b.sync()
        b.heartbeat()


@same((5,))
def test_sync_must_name_its_protocol(s: Script, version: int) -> None:
    with members(s, 9, {}) as (m,):
        m.join()
        m.sync(protocol_type=None)
        m.sync(protocol_name=None)
        m.sync(protocol_type="connect")
        m.sync(protocol_name="other")
        m.sync((m.id, b"mine"))


@same(VERSIONS)
def test_joining_twice_before_the_answer_was_heard(s: Script, version: int) -> None:
    """Members of a generation that join again with nothing new are told of it once more."""
    with members(s, version, {}, {}) as (a, b):
        a.stable()
        b.begin_join()
        wait_for_rebalance(a)
        a.send_join().take()
        b.take()
        a.send_join().take()
        b.send_join().take()
        a.sync((a.id, b"a"), (b.id, b"b"))
        b.send_join().take()
        b.sync()


@same(range(2, 11))
def test_commits_in_every_state(s: Script, version: int) -> None:
    """Who may commit: members in their generation, and anybody while the group is empty."""
    s.topic("t")
    with members(s, 3, {}, {}) as (a, b):
        commit(a, version)
        a.stable()
        commit(a, version)
        commit(a, version, generation_id_or_member_epoch=-1, member_id="")
        commit(a, version, generation_id_or_member_epoch=a.generation + 1)
        commit(a, version, generation_id_or_member_epoch=-1)
        commit(a, version, member_id="nobody")
        b.begin_join()
        wait_for_rebalance(a)
        commit(a, version)
        a.send_join().take()
        b.take()
        commit(a, version)
        commit(a, version, generation_id_or_member_epoch=1)
        a.leave()
        b.leave()
        commit(a, version)
        commit(a, version, generation_id_or_member_epoch=-1, member_id="")


@same((9,))
def test_static_members_commit(s: Script, version: int) -> None:
    s.topic("t")
    static = {"group_instance_id": "i"}
    with members(s, version, static, static) as (a, b):
        a.stable()
        commit(a, version, **static)
        b.send_join().take()
        for m in (a, b):
            commit(m, version, **static)
            commit(m, version)
            commit(m, version, group_instance_id="other")


@same((0,))
def test_described_in_every_state(s: Script, version: int) -> None:
    with members(s, 9, {}, {"group_instance_id": "i"}) as (a, b):
        describe(a, "before it was there")
        a.send_join().take()
        until_described(a)
        describe(a, "with a pending member")
        a.join()
        describe(a, "completing")
        a.sync((a.id, b"mine"))
        describe(a, "stable")
        b.send_join()
        wait_for_rebalance(a)
        describe(a, "preparing")
        a.send_join()
        b.take()
        a.take()
        describe(a, "completing again")
        a.sync((a.id, b"for a"), (b.id, b"for b"))
        describe(a, "stable again")
        a.leave()
        b.leave({"member_id": "", "group_instance_id": "i"})
        describe(a, "empty")


@pytest.mark.long
@same((9,))
def test_who_is_silent_is_removed(s: Script, version: int) -> None:
    """After its session timeout: a member, a pending member, and one that waits is not."""
    short = {"session_timeout": 6_000, "rebalance_timeout": 12_000}
    with members(s, version, short, short, short) as (a, b, c):
        a.stable()
        b.begin_join()
        wait_for_rebalance(a)
        a.send_join().take()
        b.take()
        a.sync((a.id, b"for a"), (b.id, b"for b"))
        b.sync()
        c.send_join().take()
        end = time.monotonic() + 7.5
        while time.monotonic() < end:
            body = {"group_id": a.joins["group_id"], "generation_id": a.generation,
                    "member_id": a.id}  # fmt: skip
            a.connection.call(HEARTBEAT, 0, body)
            b.connection.is_silent(0.3)
        describe(a, "after the session of one")
        b.heartbeat()
        c.send_join().take()
        a.send_join().take()
        a.sync((a.id, b"all"))
        describe(a, "after the rebalance")


@pytest.mark.long
@same((9,))
def test_the_timeouts_of_a_rebalance(s: Script, version: int) -> None:
    """Who does not join, and who does not sync, is removed after the rebalance timeout."""
    short = {"session_timeout": 30_000, "rebalance_timeout": 3_000}
    with members(s, version, short, short) as (a, b):
        a.stable()
        b.begin_join().take()
        describe(b, "without the one that did not join")
        b.sync((b.id, b"all"))
        a.heartbeat()
        a.id = ""
        a.begin_join()
        wait_for_rebalance(b)
        b.send_join()
        a.take()
        b.take()
        a.send_sync().take()
        describe(a, "without the leader that did not sync")
        b.heartbeat()


@same((0, 4, 9))
def test_a_client_without_a_name(s: Script, version: int) -> None:
    """Its member id begins with nothing, and so does its line in DescribeGroups."""
    with members(s, version, {}) as (m,):
        for _ in range(2):
            body = m.joins | {"member_id": m.id}
            schema = load_request_schema(JOIN, version)
            data = messages.encode(schema, body)
            m.connection.send_bytes(messages.request_frame(JOIN, version, data, 77, None))
            m.expect(JOIN, version, 77)
            if m.take()["error_code"] == 0:
                break
        m.sync((m.id, b"mine"))
        describe(m, "without a name")
