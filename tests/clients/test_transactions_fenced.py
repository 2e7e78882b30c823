"""What producers are told once another one has their transactional id: by real clients, exactly.

The expectations are what Apache Kafka makes the same clients say (the Kafka half of each test).
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from tests.support import wire
from tests.support.java import java_command
from tests.support.processes import BrokerProcess
from tests.support.transactional import values_of

CASES = ("commit", "abort", "send", "first-send", "offsets")


def test_java(target: BrokerProcess, topic: str, java_classes: Path, classes: Path) -> None:
    wire.create_topic(target.port, topic, 2)
    done = subprocess.run(
        java_command("Zombie", target.bootstrap, topic, topic, classes=java_classes),
        check=False, capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    told = [line.split() for line in done.stdout.splitlines()]
    expected = dict(java_expects(by_epoch=java_classes == classes))
    assert {(case, step): what for case, step, what in told} == expected
    assert values_of(target, topic, "read_committed") == [b"value"] * len(CASES)


def java_expects(by_epoch: bool) -> Iterator[tuple[tuple[str, str], str]]:
    """A partition tells of an old epoch; the coordinator, which version 1 asks before the first
    record, tells of being fenced."""
    by_partition = ("send", "first-send") if by_epoch else ("send",)
    for case in CASES:
        for step in ("before", "heir", "heir-commit"):
            yield (case, step), "ok"
        told = "InvalidProducerEpoch" if case in by_partition else "ProducerFenced"
        for step in ("after", "commit"):
            yield (case, step), f"{told}Exception"
        yield (case, "abort"), "ProducerFencedException"


Step = Callable[[Producer], object]


def test_librdkafka(target: BrokerProcess, topic: str) -> None:
    """Each step's error is fatal and says who was first to tell it."""
    wire.create_topic(target.port, topic, 2)
    consumer = Consumer({"bootstrap.servers": target.bootstrap, "group.id": topic})
    group = consumer.consumer_group_metadata()

    def send(producer: Producer) -> None:
        producer.produce(topic, b"value", partition=0)
        producer.flush(60)

    def offsets(producer: Producer) -> None:
        producer.send_offsets_to_transaction([TopicPartition(topic, 0, 1)], group, 60)

    steps: dict[str, tuple[Step, Step]] = {
        "commit": (send, lambda producer: producer.commit_transaction(60)),
        "abort": (send, lambda producer: producer.abort_transaction(60)),
        "send": (send, send),
        "first-send": (lambda _: None, send),
        "offsets": (send, offsets),
    }
    told = {}
    for case, (before, after) in steps.items():
        zombie, heir = (
            Producer({"bootstrap.servers": target.bootstrap, "transactional.id": f"{topic}-{case}",
                      "linger.ms": 0})
            for _ in range(2)
        )  # fmt: skip
        zombie.init_transactions(60)
        zombie.begin_transaction()
        before(zombie)
        heir.init_transactions(60)
        told[case] = error_of(zombie, after)
        told[f"{case}, then commit"] = error_of(zombie, lambda one: one.commit_transaction(60))
        heir.begin_transaction()
        send(heir)
        heir.commit_transaction(60)
    consumer.close()
    assert told == LIBRDKAFKA
    assert values_of(target, topic, "read_committed") == [b"value"] * len(CASES)


def error_of(producer: Producer, step: Step) -> str:
    """The error of a step and whether it is fatal; such a one is raised by any poll."""
    try:
        step(producer)
        producer.poll(1)
    except KafkaException as failed:
        error = failed.args[0]
        return f"{error.name()}{' fatal' if error.fatal() else ''}"
    return "ok"


LIBRDKAFKA = {
    one: "_FENCED fatal" for case in CASES for one in (case, f"{case}, then commit")
}  # fmt: skip
