"""One data directory, two brokers: groups and offsets go along, to Apache Kafka and back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support import wire
from tests.support.kafka import KafkaProcess, dump_log
from tests.support.kbroker import KbrokerProcess
from tests.support.processes import BrokerProcess
from tests.support.waits import wait_for

pytestmark = pytest.mark.long

PARTITIONS = 4
OFFSET_FETCH, LIST_GROUPS = 9, 16
UNSTABLE = 88
Offsets = dict[int, tuple[int, str]]
"""Offset and metadata by partition."""


def settings(broker: BrokerProcess, group: str, **more: Any) -> dict[str, Any]:
    own = {"bootstrap.servers": broker.bootstrap, "group.id": group, "enable.auto.commit": False,
           "auto.offset.reset": "earliest"}  # fmt: skip
    return own | {name.replace("_", "."): value for name, value in more.items()}


def commit_simply(broker: BrokerProcess, group: str, offsets: Offsets) -> None:
    """Without joining."""
    consumer = Consumer(settings(broker, group))
    told = [TopicPartition("t", n, offset, metadata) for n, (offset, metadata) in offsets.items()]
    consumer.commit(offsets=told, asynchronous=False)
    consumer.close()


def commit_as_member(broker: BrokerProcess, group: str, protocol: str, offsets: Offsets) -> None:
    """A member joins, commits what it was assigned, and leaves."""
    more = {} if protocol == "consumer" else {"session_timeout_ms": 6000}
    consumer = Consumer(settings(broker, group, group_protocol=protocol, **more))
    consumer.subscribe(["t"])
    try:
        wait_for("an assignment", lambda: consumer.poll(0.2) or consumer.assignment(), 60)
        told = [TopicPartition("t", n, offset, text) for n, (offset, text) in offsets.items()]
        consumer.commit(offsets=told, asynchronous=False)
    finally:
        consumer.close()


def commit_in_transactions(broker: BrokerProcess, group: str, offsets: Offsets) -> None:
    """One transaction that commits, then one that aborts, then one that is left open."""
    consumer = Consumer(settings(broker, group))
    metadata = consumer.consumer_group_metadata()
    for end in ("commit", "abort", "open"):
        producer = Producer({"bootstrap.servers": broker.bootstrap,
                             "transactional.id": f"{group}-{end}"})  # fmt: skip
        producer.init_transactions(60)
        producer.begin_transaction()
        shift = 0 if end == "commit" else 1000
        told = [
            TopicPartition("t", n, offset + shift, text) for n, (offset, text) in offsets.items()
        ]
        producer.send_offsets_to_transaction(told, metadata, 60)
        if end == "commit":
            producer.commit_transaction(60)
        elif end == "abort":
            producer.abort_transaction(60)
    consumer.close()


def committed(broker: BrokerProcess, group: str, stable: bool = False) -> Offsets | list[int]:
    """What the broker knows of a group, or its errors; this client's metadata ends with a NUL."""
    asked = {"group_id": group, "topics": None}
    body = {"groups": [asked], "require_stable": stable}
    (found,) = wire.call_once(broker.port, OFFSET_FETCH, 8, body)["groups"]
    parts = [one for topic in found["topics"] for one in topic["partitions"]]
    errors = [one["error_code"] for one in (found, *parts) if one["error_code"]]
    return errors or {
        one["partition_index"]: (one["committed_offset"], one["metadata"].rstrip("\0"))
        for one in parts
    }


def groups_of(broker: BrokerProcess) -> dict[str, tuple[str, str]]:
    """Type and state by group."""
    answer = wire.call_once(broker.port, LIST_GROUPS, 5, {"states_filter": [], "types_filter": []})
    assert answer["error_code"] == 0
    return {one["group_id"]: (one["group_type"], one["group_state"]) for one in answer["groups"]}


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[KbrokerProcess, KafkaProcess]]:
    kbroker = KbrokerProcess(tmp_path / "kbroker", data_dir=tmp_path / "data")
    kafka = KafkaProcess(tmp_path / "kafka", data_dir=tmp_path / "data")
    yield kbroker, kafka
    for broker in (kbroker, kafka):
        broker.kill()


def offsets_at(base: int) -> Offsets:
    return {n: (base + n, f"at {base}" if n % 2 else "") for n in range(PARTITIONS)}


@pytest.mark.parametrize("end", [BrokerProcess.stop, BrokerProcess.kill], ids=["stop", "kill"])
def test_groups_take_turns(
    pair: tuple[KbrokerProcess, KafkaProcess], end: Callable[[BrokerProcess], object]
) -> None:
    kbroker, kafka = pair
    expected: dict[str, Offsets] = {}
    for turn, broker in enumerate((kbroker, kafka, kbroker, kafka)):
        broker.start()
        try:
            if not turn:
                admin = AdminClient({"bootstrap.servers": broker.bootstrap})
                admin.create_topics([NewTopic("t", PARTITIONS, 1)])["t"].result(30)
            for group, offsets in expected.items():
                wait_for(
                    f"{group} on {broker.name}",
                    lambda b=broker, g=group, o=offsets: committed(b, g) == o,
                    60,
                )
            listed = groups_of(broker)
            assert expected.keys() <= listed.keys()
            if turn:
                assert listed["simple"] == ("classic", "Empty")
                assert listed["classic"] == ("classic", "Empty")
                assert listed["consumer"] == ("consumer", "Empty")
            for base, group in enumerate(("simple", "classic", "consumer")):
                offsets = offsets_at(1000 * turn + 100 * base)
                if group == "simple":
                    commit_simply(broker, group, offsets)
                else:
                    commit_as_member(broker, group, group, offsets)
                expected[group] = offsets
        finally:
            end(broker)
    logs = sorted(kbroker.data_dir.glob("__consumer_offsets-*/*.log"))
    dump_log([log for log in logs if log.stat().st_size], "--offsets-decoder")


def test_offsets_of_transactions(pair: tuple[KbrokerProcess, KafkaProcess]) -> None:
    """Kafka writes them; here only those of the transaction that committed have taken effect, and
    while one is open they are not stable."""
    kbroker, kafka = pair
    kafka.start()
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_topics([NewTopic("t", PARTITIONS, 1)])["t"].result(30)
    commit_in_transactions(kafka, "g", offsets_at(10))
    kafka.stop()
    kbroker.start()
    assert committed(kbroker, "g") == offsets_at(10)
    assert committed(kbroker, "g", stable=True) == [UNSTABLE] * PARTITIONS
