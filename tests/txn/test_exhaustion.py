"""The epochs of transactional ids run out while their producers begin one transaction after the
other: what EndTxn has told them to go on in, they use before the end is complete."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from kbroker.client.partitions import TopicPartition
from kbroker.client.producer import Producer
from tests.support import wire
from tests.support.java import java_command
from tests.support.transactional import committed_offset, values_of
from tests.txn.test_fault_points import DyingBroker, start

__all__ = ["start"]

PRODUCERS, TRANSACTIONS = 10, 4
TOPIC, LIMIT_S = "t", 60
DESCRIBE_PRODUCERS = 61


@pytest.fixture
def broker(start: Callable[..., DyingBroker]) -> DyingBroker:
    """Of its transactional ids each has one epoch left."""
    return start({"KBROKER_TEST_LAST_EPOCH": "1"}, kbroker_durability="fsync")


def check(broker: DyingBroker) -> None:
    """All is there, and more than one producer id was used by each."""
    names = [f"id-{n}" for n in range(PRODUCERS)]
    expected = [f"{name} {n}".encode() for name in names for n in range(TRANSACTIONS)]
    assert values_of(broker, TOPIC, "read_committed") == expected
    assert {committed_offset(broker, name, TOPIC) for name in names} == {TRANSACTIONS - 1}
    asked = {"topics": [{"name": TOPIC, "partition_indexes": [0]}]}
    told = wire.call_once(broker.port, DESCRIBE_PRODUCERS, 0, asked)
    ids = {one["producer_id"] for one in told["topics"][0]["partitions"][0]["active_producers"]}
    assert len(ids) == 2 * PRODUCERS


def produce(bootstrap: str, name: str, *, offsets_first: bool) -> None:
    settings = {"bootstrap.servers": bootstrap, "transactional.id": name}

    def offsets() -> None:
        place = {TopicPartition(TOPIC, 0): number}
        producer.send_offsets_to_transaction(place, name, LIMIT_S)

    with Producer(settings) as producer:
        producer.init_transactions(LIMIT_S)
        for number in range(TRANSACTIONS):
            producer.begin()
            if offsets_first:
                offsets()
            producer.send(TOPIC, f"{name} {number}".encode(), partition=0)
            if not offsets_first:
                offsets()
            producer.commit(LIMIT_S)


@pytest.mark.timeout(300)
def test_own_client(broker: DyingBroker) -> None:
    for n in range(PRODUCERS):
        produce(broker.bootstrap, f"id-{n}", offsets_first=n % 2 == 0)
    check(broker)


@pytest.mark.timeout(300)
def test_java(broker: DyingBroker, classes: Path) -> None:
    numbers = str(PRODUCERS), str(TRANSACTIONS)
    subprocess.run(
        java_command("Transactions", broker.bootstrap, TOPIC, *numbers, classes=classes),
        check=True, timeout=240,
    )  # fmt: skip
    check(broker)
