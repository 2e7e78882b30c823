"""Properties of the server-side assignors, whatever the group."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker.group.consumer.assignors import ASSIGNORS, GroupSpec, MemberSpec

TOPICS = [bytes([number]) * 16 for number in range(5)]


@st.composite
def groups(draw, mixed):
    partitions = {t: draw(st.integers(1, 12)) for t in draw(st.sets(st.sampled_from(TOPICS)))}
    topics = st.sets(st.sampled_from(sorted(partitions))) if partitions else st.just(set())
    members = {}
    for number in range(draw(st.integers(1, 6))):
        subscribed = draw(topics) if mixed else set(partitions)
        members[f"m{number}"] = MemberSpec(tuple(subscribed), {})
    return members, partitions


def spec_of(members, partitions, mixed):
    owners = {}
    for member_id, member in members.items():
        for topic_id, mine in member.assignment.items():
            owners.setdefault(topic_id, {}).update(dict.fromkeys(mine, member_id))
    return GroupSpec(members, not mixed, owners, partitions)


def check(members, partitions, target):
    """Every partition that is subscribed to is given once, to a subscriber."""
    owners = {}
    for member_id, topics in target.items():
        for topic_id, mine in topics.items():
            assert topic_id in members[member_id].topic_ids
            for partition in mine:
                assert owners.setdefault((topic_id, partition), member_id) == member_id
    wanted = {topic_id for member in members.values() for topic_id in member.topic_ids}
    assert set(owners) == {(t, p) for t in wanted for p in range(partitions[t])}
    return owners


def sizes(members, target):
    return [sum(map(len, target.get(one, {}).values())) for one in members]


def assigned(members, target):
    return {one: spec._replace(assignment=target.get(one, {})) for one, spec in members.items()}


@pytest.mark.parametrize("name", ["uniform", "range"])
@pytest.mark.parametrize("mixed", [False, True])
@given(data=st.data())
def test_everything_once_and_to_subscribers(name, mixed, data):
    members, partitions = data.draw(groups(mixed))
    first = ASSIGNORS[name](spec_of(members, partitions, mixed))
    owners = check(members, partitions, first)
    # Nothing moves where nothing is new.
    again = ASSIGNORS[name](spec_of(assigned(members, first), partitions, mixed))
    assert check(members, partitions, again) == owners


@given(data=st.data())
def test_uniform_is_even_and_moves_little(data):
    members, partitions = data.draw(groups(False))
    first = ASSIGNORS["uniform"](spec_of(members, partitions, False))
    counts = sizes(members, first)
    assert max(counts) - min(counts) <= 1
    members = assigned(members, first)
    before = check(members, partitions, first)
    members["new"] = MemberSpec(tuple(partitions), {})
    second = ASSIGNORS["uniform"](spec_of(members, partitions, False))
    after = check(members, partitions, second)
    counts = sizes(members, second)
    assert max(counts) - min(counts) <= 1
    moved = [one for one in before if before[one] != after[one]]
    assert all(after[one] == "new" for one in moved)


@given(data=st.data())
def test_range_keeps_partitions_of_one_number_together(data):
    members, partitions = data.draw(groups(False))
    partitions = dict.fromkeys(partitions, 7)
    target = ASSIGNORS["range"](spec_of(members, partitions, False))
    for topics in target.values():
        assert len(set(topics.values())) <= 1


@pytest.mark.parametrize("name", ["uniform", "range"])
@pytest.mark.parametrize("mixed", [False, True])
def test_big_groups_are_quick(name, mixed):
    """300 members and 1,000 partitions; the bound is that of a loaded machine."""
    partitions = {bytes([number]) * 16: 100 for number in range(10)}
    members = {f"m{number}": MemberSpec(tuple(partitions), {}) for number in range(300)}
    spec = spec_of(members, partitions, mixed)
    start = time.process_time()
    target = ASSIGNORS[name](spec)
    assert time.process_time() - start < 0.2
    check(members, partitions, target)
