"""A consumer group (KIP-848) with its members changes brokers: to Apache Kafka and back.

Records, epochs and the hash of the topics being Kafka's, the members go on in their epochs as if
nothing had happened: nobody is fenced, and there is no rebalance.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import wire
from tests.support.kafka import KafkaProcess
from tests.support.kbroker import KbrokerProcess
from tests.support.processes import BrokerProcess
from tests.support.waits import wait_for

pytestmark = pytest.mark.long

HEARTBEAT, DESCRIBE = 68, 69
QUICK = {"group.consumer.assignment.interval.ms": "0", "broker.rack": "rack-1"}


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[KbrokerProcess, KafkaProcess]]:
    kbroker = KbrokerProcess(tmp_path / "kbroker", QUICK, data_dir=tmp_path / "data")
    kafka = KafkaProcess(tmp_path / "kafka", QUICK, data_dir=tmp_path / "data")
    yield kbroker, kafka
    for broker in (kbroker, kafka):
        broker.kill()


class Member:
    """A member that joins once, and then only goes on."""

    def __init__(self, member_id: str, **fields: Any) -> None:
        self.member_id = member_id
        self.epoch = 0
        self.owned: list[dict[str, Any]] = []
        self.fields = {
            "rebalance_timeout": 60_000, "subscribed_topic_names": [], "topic_partitions": []
        } | fields  # fmt: skip

    def beat(self, broker: BrokerProcess) -> dict[str, Any]:
        body = {"group_id": "g", "member_id": self.member_id, "member_epoch": self.epoch}
        told = self.fields if self.epoch == 0 else {"topic_partitions": self.owned}
        answer = wire.call_once(broker.port, HEARTBEAT, 1, body | told)
        assert answer["error_code"] == 0, answer
        self.epoch = answer["member_epoch"]
        if answer["assignment"]:
            self.owned = answer["assignment"]["topic_partitions"]
        return answer


def described(broker: BrokerProcess) -> Any:
    """The group, None while it is not loaded yet."""
    body = {"group_ids": ["g"], "include_authorized_operations": False}
    (group,) = wire.call_once(broker.port, DESCRIBE, 1, body)["groups"]
    if group["error_code"]:
        return None
    group["members"].sort(key=lambda member: member["member_id"])
    for member in group["members"]:
        member["subscribed_topic_names"].sort()
        for kind in ("assignment", "target_assignment"):
            topics = sorted(member[kind]["topic_partitions"], key=lambda one: one["topic_name"])
            for topic in topics:
                topic["partitions"].sort()
            member[kind]["topic_partitions"] = topics
    return group


def settle(broker: BrokerProcess, members: list[Member]) -> Any:
    def is_stable() -> bool:
        for member in members:
            member.beat(broker)
        group = described(broker)
        return bool(group and group["group_state"] == "Stable" and len(group["members"]) == 3)

    wait_for(f"the group is stable on {broker.name}", is_stable, 60)
    return described(broker)


def test_a_living_group_changes_brokers(pair: tuple[KbrokerProcess, KafkaProcess]) -> None:
    kbroker, kafka = pair
    kbroker.start()
    for topic in ("t", "u-1"):
        wire.create_topic(kbroker.port, topic, 5)
    wire.call_once(kbroker.port, wire.FIND_COORDINATOR, 4,
                   {"key_type": 0, "coordinator_keys": ["g"]})  # fmt: skip
    members = [
        Member("m1", subscribed_topic_names=["t"], instance_id="i", rack_id="rack-1"),
        Member("m2", subscribed_topic_names=["t", "not there"], server_assignor="range"),
        Member("m3", subscribed_topic_regex="u-.*"),
    ]
    wait_for("a coordinator", lambda: is_there(kbroker), 30)
    before = settle(kbroker, members)
    for broker in (kafka, kbroker, kafka):
        (kbroker if broker is kafka else kafka).stop()
        broker.start()
        wait_for(f"{broker.name} has the group", lambda b=broker: described(b), 60)
        assert described(broker) == before
        for _ in range(2):
            for member in members:
                assert member.beat(broker)["assignment"] is None
        assert described(broker) == before


def is_there(broker: BrokerProcess) -> bool:
    body = {"group_ids": ["g"], "include_authorized_operations": False}
    (group,) = wire.call_once(broker.port, DESCRIBE, 1, body)["groups"]
    return bool(group["error_code"] == 69)
