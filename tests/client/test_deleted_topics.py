"""Consumers and groups whose topics are deleted: they go on with the others, without spinning."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest

from kbroker.client import Admin, Consumer
from kbroker.client.errors import UnknownTopicOrPartitionError
from kbroker.client.group import SubscriptionPattern
from kbroker.client.partitions import OffsetAndMetadata, TopicPartition
from tests.client.test_consumer import produce, taken
from tests.support import wire
from tests.support.processes import BrokerProcess
from tests.support.waits import wait_for

SUBSCRIPTIONS = {
    "broker's pattern": lambda name: SubscriptionPattern(f"{name}-.*"),
    "own pattern": lambda name: re.compile(f"{name}-.*"),
    "names": lambda name: [f"{name}-{letter}" for letter in "abcd"],
}


@pytest.mark.parametrize("subscription", SUBSCRIPTIONS)
def test_member_takes_new_topics_after_one_was_deleted(
    target: BrokerProcess, topic: str, subscription: str
) -> None:
    names = [f"{topic}-{letter}" for letter in "abc"]
    for name in names:
        wire.create_topic(target.port, name, 2)
        produce(target.port, name, 1)
    settings = {"bootstrap_servers": target.bootstrap, "group_id": topic}
    with Admin(bootstrap_servers=target.bootstrap) as admin:
        consumer = Consumer(
            **settings, group_protocol="consumer", auto_offset_reset="earliest",
            metadata_max_age_ms=200, allow_auto_create_topics=False,
            auto_commit_interval_ms=600_000,
        )  # fmt: skip
        with consumer:
            consumer.subscribe(SUBSCRIPTIONS[subscription](topic))
            taken(consumer, 3)
            admin.delete_topics([names[1]])
            wire.create_topic(target.port, f"{topic}-d", 2)
            produce(target.port, f"{topic}-d", 1)
            assert [record.topic for record in taken(consumer, 1)] == [f"{topic}-d"]
            assert {name for name, _ in consumer.assignment()} == {
                names[0], names[2], f"{topic}-d"
            }  # fmt: skip
            began_s = time.monotonic()
        assert time.monotonic() - began_s < 5
        assert admin.describe_groups([topic])[topic].members == ()
    with Consumer(**settings) as after:
        wanted = TopicPartition(names[0], 0)
        assert after.committed([wanted])[wanted] == OffsetAndMetadata(1, "", 0)


def test_close_leaves_though_a_topic_was_deleted(target: BrokerProcess, topic: str) -> None:
    gone = f"{topic}-gone"
    for name in (topic, gone):
        wire.create_topic(target.port, name, 1)
        produce(target.port, name, 1)
    with Admin(bootstrap_servers=target.bootstrap) as admin:
        consumer = Consumer(
            bootstrap_servers=target.bootstrap, group_id=topic, group_protocol="consumer",
            auto_offset_reset="earliest", allow_auto_create_topics=False,
        )  # fmt: skip
        consumer.subscribe([topic, gone])
        taken(consumer, 2)
        admin.delete_topics([gone])
        wait_for("its end", lambda: admin.describe_topics([gone]).errors, 60)
        began_s = time.monotonic()
        consumer.close()
        assert time.monotonic() - began_s < 5
        assert admin.describe_groups([topic])[topic].members == ()
    with Consumer(bootstrap_servers=target.bootstrap, group_id=topic) as after:
        where = TopicPartition(topic, 0)
        assert after.committed([where])[where] == OffsetAndMetadata(1, "", 0)


def test_commit_of_unknown_topic_fails_within_seconds(target: BrokerProcess, topic: str) -> None:
    wire.create_topic(target.port, topic, 1)
    with Consumer(bootstrap_servers=target.bootstrap, group_id=topic) as consumer:
        consumer.assign([(topic, 0)])
        began_s = time.monotonic()
        with pytest.raises(UnknownTopicOrPartitionError):
            consumer.commit({(topic, 0): 7, (topic, 9): 5})
        assert 2 < time.monotonic() - began_s < 10
        where = TopicPartition(topic, 0)
        assert consumer.committed([where])[where] == OffsetAndMetadata(7)


def poll(consumer: Consumer) -> bool:
    """Poll once; return whether it says that a topic does not exist."""
    try:
        consumer.poll(0.2)
    except UnknownTopicOrPartitionError:
        return True
    return False


def fetches_per_second(consumer: Consumer) -> float:
    """Count Fetch answers for some seconds."""
    before, began_s = consumer.metrics()["fetch-total"], time.monotonic()
    while time.monotonic() - began_s < 3:
        poll(consumer)
    return (consumer.metrics()["fetch-total"] - before) / (time.monotonic() - began_s)


@pytest.mark.parametrize("grouped", [False, True], ids=["assigned", "subscribed"])
def test_deleted_topic_causes_no_fetch_after_fetch(
    target: BrokerProcess, topic: str, grouped: bool
) -> None:
    """A Fetch session that kept the partition would be answered at once, again and again."""
    gone = f"{topic}-gone"
    for name in (topic, gone):
        wire.create_topic(target.port, name, 1)
        produce(target.port, name, 1)
    settings: dict[str, Any] = {"bootstrap_servers": target.bootstrap}
    if grouped:
        settings |= {"group_id": topic, "group_protocol": "consumer"}
    with Admin(bootstrap_servers=target.bootstrap) as admin, Consumer(
        **settings, auto_offset_reset="earliest", allow_auto_create_topics=False,
        fetch_max_wait_ms=500,
    ) as consumer:  # fmt: skip
        if grouped:
            consumer.subscribe([topic, gone])
        else:
            consumer.assign([(topic, 0), (gone, 0)])
        taken(consumer, 2)
        admin.delete_topics([gone])
        wait_for("its end", lambda: poll(consumer) or grouped, 30)
        assert fetches_per_second(consumer) < 8
