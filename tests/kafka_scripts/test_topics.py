"""kafka-topics beside Kafka's."""

from __future__ import annotations

import pytest

from tests.kafka_scripts.conftest import Both
from tests.support import wire
from tests.support.processes import BrokerProcess


def test_a_topic_from_its_creation_to_its_end(both: Both) -> None:
    both("topics --create --topic t@ --partitions 3 --config retention.ms=1000000"
         " --config cleanup.policy=compact")  # fmt: skip
    both("topics --create --topic t@", status=1)
    both("topics --create --topic t@ --if-not-exists")
    both("topics --create --topic a.b@ --replica-assignment 1,1")
    both("topics --describe --topic t@,a.b@")
    both("topics --describe", "--topic", " 't@' ")
    for report in ("under-replicated", "under-min-isr", "at-min-isr", "unavailable"):
        both(f"topics --describe --topic t@ --{report}-partitions")
    both("topics --describe --topic [at].*@ --topics-with-overrides")
    both("topics -list --topic=[at].*@ --exclude-internal")
    both("topics --alter --topic t@ --partitions 4")
    both("topics --alter --topic t@ --partitions 4", status=1)
    both("topics --alter --topic a.b@ --partitions 3 --replica-assignment 1,1,1")
    both("topics --describe --topic t@ --partition-size-limit-per-response 1")
    both("topics --delete --topic t@|a.b@")
    both("topics --delete --topic t@", status=1)
    both("topics --delete --topic t@ --if-exists")
    both("topics --describe --topic t@", status=1)
    both("topics --describe --topic t@ --if-exists")


def test_what_is_refused(both: Both) -> None:
    for words in (
        "--config retention.ms", "--config a=b=c", "--config nope=1", "--config retention.ms=x",
        "--partitions 0", "--partitions x", "--replication-factor 0", "--replication-factor 9",
        "--replica-assignment 1:1", "--replica-assignment 1,1:2", "--replica-assignment x",
    ):  # fmt: skip
        both(f"topics --create --topic refused@ {words}", status=1)
    both("topics --create --topic bad/name", status=1)
    both("topics --describe --topic (", status=1)
    both(f"topics --describe --topic-id {'x' * 22}", status=1)
    both("topics --describe --topic-id abc", status=1)
    both(f"topics --describe --topic-id {'x' * 30}", status=1)
    both(f"topics --describe --if-exists --topic-id {'x' * 21}w --topic a")


def test_command_lines(both: Both) -> None:
    """No broker is needed for these."""
    for words in (
        "", "--help", "--version", "--list", "--bogus", "-bogus", "--topic", "--list --create",
        "--create --bootstrap-server a:1", "--alter --bootstrap-server a:1 --topic t",
        "--list --partitions 1 --bootstrap-server a:1 --topic t",
        "--create --bootstrap-server a:1 --topic t --if-exists",
        "--describe --bootstrap-server a:1 --if-exists",
        "--describe --bootstrap-server a:1 --unavailable-partitions --topics-with-overrides",
        "--list --bootstrap-server a:1 --if-not-exists", "--delete --bootstrap-server a:1",
        "--create --bootstrap-server a:1 --topic t --replica-assignment 1 --partitions 2",
    ):  # fmt: skip
        both.bare(f"topics {words}")


@pytest.mark.long
def test_a_topic_by_its_id(both: Both, target: BrokerProcess, topic: str) -> None:
    wire.create_topic(target.port, topic, 2)
    told = both(f"topics --describe --topic {topic}").out
    topic_id = told.split("TopicId: ")[1][:22]
    by_id = both(f"topics --describe --topic-id {topic_id}")
    assert f"Topic: {topic}\t" in by_id.out
