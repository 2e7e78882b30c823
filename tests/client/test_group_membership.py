"""Members of classic and KIP-848 groups: joins, rebalances, commits, leaves, beside a broker."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

import pytest

from kbroker.client import Admin, Consumer
from kbroker.client.errors import CommitFailedError, KafkaError
from kbroker.client.group import SubscriptionPattern
from kbroker.client.partitions import OffsetAndMetadata, TopicPartition
from tests.client.test_consumer import produce, taken
from tests.support import wire
from tests.support.processes import BrokerProcess
from tests.support.seats import Seat, poll_until, seated, settle, share
from tests.support.waits import wait_for

PROTOCOLS = {
    "range": {"partition_assignment_strategy": ["range"]},
    "roundrobin": {"partition_assignment_strategy": ["roundrobin"]},
    "sticky": {"partition_assignment_strategy": ["sticky"]},
    "cooperative": {"partition_assignment_strategy": ["cooperative-sticky"]},
    "consumer": {"group_protocol": "consumer"},
}

Sit = Callable[..., Seat]


@pytest.fixture(params=PROTOCOLS)
def sit(request: pytest.FixtureRequest, target: BrokerProcess, topic: str) -> Sit:
    """Makes a member of the test's group: of each protocol in turn."""
    wire.create_topic(target.port, topic, 4)
    settings = PROTOCOLS[request.param]
    if request.param != "consumer":
        settings = {**settings, "heartbeat_interval_ms": 100, "session_timeout_ms": 6000}

    def make(**more: Any) -> Seat:
        return Seat(target.bootstrap, f"group-{topic}", **{**settings, **more})

    return make


def test_members_share_and_hand_over(sit: Sit, topic: str) -> None:
    one, two = sit(), sit()
    with seated(one, two):
        one.group.subscribe([topic], one)
        poll_until(lambda: share(one) == [4], one)
        two.group.subscribe([topic], two)
        poll_until(lambda: share(one, two) == [2, 2], one, two)
        assert not one.owned & two.owned
        settle(one, two)
        one.end()
        assert one.owned == frozenset()
        assert one.story[-1][0] == "revoked"
        poll_until(lambda: share(two) == [4], two)


def test_commits_are_read_by_the_next_owner(sit: Sit, topic: str) -> None:
    one, two = sit(enable_auto_commit=False), sit(enable_auto_commit=False)
    with seated(one, two):
        one.group.subscribe([topic], one)
        poll_until(lambda: share(one) == [4], one)
        told = {
            partition: OffsetAndMetadata(10 + partition.partition, "by one", 0)
            for partition in one.owned
        }
        one.group.commit(told, 10.0)
        assert one.group.committed(told, 10.0) == told
        none = TopicPartition(topic, 0)
        answers: list[Any] = []
        one.group.fetch_committed([none], answers.append)
        poll_until(lambda: answers, one)
        assert answers == [{none: told[none]}]
        calls: list[Any] = []
        for offset in (20, 21, 22):
            one.group.commit_async(
                {none: OffsetAndMetadata(offset)},
                lambda offsets, error: calls.append((offsets[none].offset, error)),
            )
        poll_until(lambda: len(calls) == 3, one)
        assert calls == [(20, None), (21, None), (22, None)]
        one.end()
        assert two.group.committed([none], 10.0) == {none: OffsetAndMetadata(22)}


def test_a_topic_made_again_is_committed_to_by_its_new_id(
    sit: Sit, target: BrokerProcess, topic: str
) -> None:
    one = sit(enable_auto_commit=False)
    with seated(one):
        one.group.subscribe([topic], one)
        poll_until(lambda: share(one) == [4], one)
        topics = one.group._room.topics
        stale = topics.ids_of([topic])
        assert stale
        with Admin(bootstrap_servers=target.bootstrap) as admin:
            admin.delete_topics([topic])
            wait_for("it is gone", lambda: admin.describe_topics([topic]).errors, 60)
            admin.create_topic(topic, partitions=4)
            wait_for("it is back", lambda: not admin.describe_topics([topic]).errors, 60)
        told = {TopicPartition(topic, 0): OffsetAndMetadata(7)}
        one.group.commit(told, 20.0)
        assert topics.ids_of([topic]) not in ({}, stale)
        assert one.group.committed(told, 10.0) == told


def test_delivered_positions_are_committed_before_they_go(sit: Sit, topic: str) -> None:
    one, two = sit(auto_commit_interval_ms=600_000), sit()
    with seated(one, two):
        one.group.subscribe([topic], one)
        poll_until(lambda: share(one) == [4], one)
        one.read = {partition: OffsetAndMetadata(5) for partition in one.owned}
        every = one.owned
        two.group.subscribe([topic], two)
        poll_until(lambda: share(one, two) == [2, 2], one, two)
        found = two.group.committed(every, 10.0)
        assert all(found[partition] == OffsetAndMetadata(5) for partition in two.owned)
        settle(one, two)
        one.read = {partition: OffsetAndMetadata(7) for partition in one.owned}
        kept = one.owned
        one.end()
        found = two.group.committed(kept, 10.0)
        assert set(found.values()) == {OffsetAndMetadata(7)}


def test_patterns_find_topics_that_come_later(sit: Sit, target: BrokerProcess, topic: str) -> None:
    one = sit(metadata_max_age_ms=200)
    with seated(one):
        one.group.subscribe(re.compile(rf"{topic}(-more)?"), one)
        poll_until(lambda: share(one) == [4], one)
        wire.create_topic(target.port, f"{topic}-more", 3)
        poll_until(lambda: share(one) == [7], one)
        assert one.group.subscription == {topic, f"{topic}-more"}


def test_a_topic_that_grows_brings_a_rebalance(sit: Sit, target: BrokerProcess, topic: str) -> None:
    given = {"metadata_max_age_ms": 200, "allow_auto_create_topics": False}
    one, two = sit(**given), sit(**given)
    with seated(one, two):
        for seat in (one, two):
            seat.group.subscribe([topic, f"{topic}-late"], seat)
        poll_until(lambda: share(one, two) == [2, 2], one, two)
        wire.create_topic(target.port, f"{topic}-late", 4)
        poll_until(lambda: share(one, two) == [4, 4], one, two)


def test_a_new_subscription_replaces_the_old(sit: Sit, target: BrokerProcess, topic: str) -> None:
    wire.create_topic(target.port, f"{topic}-b", 3)
    one = sit()
    with seated(one):
        one.group.subscribe([topic], one)
        poll_until(lambda: share(one) == [4], one)
        one.group.subscribe([f"{topic}-b"], one)
        poll_until(lambda: {name for name, _ in one.owned} == {f"{topic}-b"}, one)
        assert share(one) == [3]
        one.group.unsubscribe()
        assert one.owned == frozenset()
        one.group.subscribe([topic], one)
        poll_until(lambda: share(one) == [4], one)


def test_a_member_that_does_not_poll_loses_what_it_has(sit: Sit, topic: str) -> None:
    one, two = sit(max_poll_interval_ms=1500), sit()
    with seated(one, two):
        one.group.subscribe([topic], one)
        poll_until(lambda: share(one) == [4], one)
        two.group.subscribe([topic], two)
        poll_until(lambda: share(two) == [4], two)
        with pytest.raises(KafkaError):
            one.group.commit({next(iter(two.owned)): OffsetAndMetadata(1)}, 5.0)
        poll_until(lambda: share(one, two) == [2, 2], one, two)
        assert ("lost", frozenset(two.owned | one.owned)) in one.story


def test_static_members_come_back_to_what_they_had(sit: Sit, topic: str) -> None:
    one, two = sit(group_instance_id="i1"), sit(group_instance_id="i2")
    with seated(one, two):
        for seat in (one, two):
            seat.group.subscribe([topic], seat)
        poll_until(lambda: share(one, two) == [2, 2], one, two)
        had = one.owned
        one.end()
        again = sit(group_instance_id="i1")
        with seated(again):
            again.group.subscribe([topic], again)
            poll_until(lambda: share(again) == [2], again, two)
            assert again.owned == had


def test_commits_of_strangers_are_refused(sit: Sit, topic: str) -> None:
    one, two = sit(enable_auto_commit=False), sit(enable_auto_commit=False)
    with seated(one, two):
        offsets = {TopicPartition(topic, 0): OffsetAndMetadata(3)}
        two.group.commit(offsets, 10.0)  # nobody is in the group: anybody may commit
        one.group.subscribe([topic], one)
        poll_until(lambda: share(one) == [4], one)
        with pytest.raises(CommitFailedError):
            two.group.commit(offsets, 10.0)
        two.group.subscribe([topic], two)
        with pytest.raises(KafkaError):
            two.group.commit(offsets, 10.0)


def test_the_broker_matches_patterns_of_re2(target: BrokerProcess, topic: str) -> None:
    wire.create_topic(target.port, f"{topic}-x", 2)
    wire.create_topic(target.port, f"{topic}-y", 2)
    one = Seat(target.bootstrap, f"group-{topic}", group_protocol="consumer")
    with seated(one):
        one.group.subscribe(SubscriptionPattern(rf"{topic}-[xy]"), one)
        poll_until(lambda: share(one) == [4], one)
        one.group.subscribe([f"{topic}-x"], one)
        poll_until(lambda: share(one) == [2], one)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_others_are_read_on_when_a_topic_goes(
    target: BrokerProcess, topic: str, protocol: str
) -> None:
    gone = f"{topic}-gone"
    for name in (topic, gone):
        wire.create_topic(target.port, name, 1)
        produce(target.port, name, 1)
    settings = {"bootstrap_servers": target.bootstrap, "group_id": topic}
    with Admin(bootstrap_servers=target.bootstrap) as admin, Consumer(
        **settings, group_protocol=protocol, auto_offset_reset="earliest",
        metadata_max_age_ms=200, allow_auto_create_topics=False, auto_commit_interval_ms=600_000,
    ) as consumer:  # fmt: skip
        consumer.subscribe([topic, gone])
        taken(consumer, 2)
        admin.delete_topics([gone])
        wait_for("its end", lambda: not consumer.poll(0.1) and len(consumer.assignment()) == 1, 60)
        produce(target.port, topic, 1)
        taken(consumer, 1)
        began = time.monotonic()
        consumer.close()
        assert time.monotonic() - began < 20
    with Consumer(**settings) as after:
        where = TopicPartition(topic, 0)
        assert after.committed([where])[where] == OffsetAndMetadata(2, "", 0)
