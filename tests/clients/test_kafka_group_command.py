"""Kafka's ConsumerGroupCommand (kafka-consumer-groups) in all its modes, on every kind of group."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.support import wire
from tests.support.kafka import run_tool
from tests.support.processes import BrokerProcess
from tests.support.waits import wait_for

pytestmark = pytest.mark.long

GROUPS = ("classic", "consumer", "simple")


@pytest.fixture
def groups(kbroker: BrokerProcess, topic: str) -> Iterator[dict[str, Consumer]]:
    """A group of each kind with a commit, two of them with a member; their ids end in the topic."""
    wire.create_topic(kbroker.port, topic, 3)
    made = {}
    for kind in GROUPS:
        protocol = "consumer" if kind == "consumer" else "classic"
        made[kind] = Consumer({"bootstrap.servers": kbroker.bootstrap, "group.protocol": protocol,
                               "group.id": f"{kind}-{topic}"})  # fmt: skip
    for kind in ("classic", "consumer"):
        member = made[kind]
        member.subscribe([topic])
        wait_for(f"{kind}'s assignment", lambda m=member: m.poll(0.1) or m.assignment(), 30)
    for member in made.values():
        member.commit(offsets=[TopicPartition(topic, 0, 0)], asynchronous=False)
    yield made
    for member in made.values():
        member.close()


def run(broker: BrokerProcess, *words: str) -> str:
    done = run_tool("consumer-groups", "--bootstrap-server", broker.bootstrap, *words)
    return done.stdout + done.stderr


def row(text: str, *words: str) -> list[str]:
    """The one line that begins with these words."""
    lines = [line.split() for line in text.splitlines()]
    (found,) = [line for line in lines if line[: len(words)] == list(words)]
    return found


def test_every_mode(kbroker: BrokerProcess, topic: str, groups: dict[str, Consumer]) -> None:
    classic, consumer, simple = (f"{kind}-{topic}" for kind in GROUPS)
    states = run(kbroker, "--list", "--state")
    types = run(kbroker, "--list", "--type")
    for group, state, kind in ((classic, "Stable", "Classic"), (consumer, "Stable", "Consumer"),
                               (simple, "Empty", "Classic")):  # fmt: skip
        assert row(states, group)[1] == state and row(types, group)[1] == kind
    for group in (classic, consumer, simple):
        offsets = run(kbroker, "--describe", "--group", group)
        assert row(offsets, group, topic, "0")[3:6] == ["0", "0", "0"]
        members = run(kbroker, "--describe", "--group", group, "--members", "--verbose")
        assert (f"{topic}:0,1,2" in members) == (group != simple)
        state = run(kbroker, "--describe", "--group", group, "--state")
        assert row(state, group)[-1] == ("0" if group == simple else "1")
    for group, refused in ((classic, True), (consumer, True), (simple, False)):
        told = run(kbroker, "--delete-offsets", "--group", group, "--topic", topic)
        assert ("GroupSubscribedToTopicException" in told) == refused
        told = run(kbroker, "--reset-offsets", "--group", group, "--topic", topic,
                   "--to-latest", "--execute")  # fmt: skip
        assert ("can only be reset if the group" in told) == refused
        told = run(kbroker, "--delete", "--group", group)
        assert ("GroupNotEmptyException" in told) == refused
    for member in groups.values():
        member.close()
    for group in (classic, consumer):
        told = run(kbroker, "--reset-offsets", "--group", group, "--all-topics",
                   "--shift-by", "0", "--execute")  # fmt: skip
        assert row(told, group, topic, "0")[3] == "0"
        assert "was successful" in run(kbroker, "--delete", "--group", group)
    left = run(kbroker, "--list")
    assert not any(f"{kind}-{topic}" in left for kind in GROUPS)
