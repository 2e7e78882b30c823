"""A transactional producer by hand, in either protocol, and what readers see of transactions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition

from tests.reference.crafted_batches import TRANSACTIONAL, Batch, Record
from tests.support import wire
from tests.support.processes import BrokerProcess
from tests.support.waits import wait_for

ADD_PARTITIONS, ADD_OFFSETS, END, OFFSETS, DESCRIBE, OFFSET_FETCH = 24, 25, 26, 28, 65, 9
#: Loading, not there yet, elsewhere, the transaction before is ending; a leader that comes up, or
#: has not its replicas yet.
NOT_READY = (5, 6, 14, 15, 16, 19, 51)
TIMEOUT_S = 90


class WireProducer:
    """A producer of version 1 or 2 of the protocol that outlives brokers: `broker` may be another
    one of the same directory from then on. Every request has a connection of its own."""

    def __init__(
        self, broker: BrokerProcess, name: str, protocol: int = 2, timeout_ms: int = 60_000
    ) -> None:
        self.broker, self.name, self.timeout_ms = broker, name, timeout_ms
        self.is_first = protocol == 1
        self.id, self.epoch = -1, -1
        self.sequences: dict[tuple[str, int], int] = {}

    def _until(self, what: str, ask: Callable[[], int]) -> None:
        """Asked again while the error says that it may pass."""
        codes = []

        def answered() -> bool:
            codes.append(ask())
            return codes[-1] not in NOT_READY

        wait_for(f"{self.name}: {what}", answered, TIMEOUT_S)
        assert codes[-1] == 0, f"{self.name}: {what}: error {codes[-1]}"

    def _call(self, api: int, versions: tuple[int, int], body: dict[str, Any]) -> dict[str, Any]:
        return self._once(api, versions[0] if self.is_first else versions[1], body)

    def _once(self, api: int, version: int, body: dict[str, Any]) -> dict[str, Any]:
        """Send one request and return its answer."""
        return wire.call_once(self.broker.port, api, version, body)

    @property
    def who(self) -> dict[str, Any]:
        return {"transactional_id": self.name, "producer_id": self.id,
                "producer_epoch": self.epoch}  # fmt: skip

    def init(self) -> None:
        body = {"transactional_id": self.name, "transaction_timeout": self.timeout_ms,
                "producer_id": -1, "producer_epoch": -1}  # fmt: skip

        def ask() -> int:
            find = {"key_type": 1, "coordinator_keys": [self.name]}
            self._once(wire.FIND_COORDINATOR, 4, find)
            answer = self._call(wire.INIT_PRODUCER_ID, (4, 5), body)
            self.id, self.epoch = answer["producer_id"], answer["producer_epoch"]
            return int(answer["error_code"])

        self._until("a producer id", ask)
        self.sequences = {}

    def send(self, topic: str, partition: int, *values: bytes | Record) -> None:
        if self.is_first:
            self._until("a partition is added", lambda: self._add(topic, partition))
        place = topic, partition
        data = Batch(
            records=[one if isinstance(one, Record) else Record(one) for one in values],
            producer_id=self.id, producer_epoch=self.epoch, attributes=TRANSACTIONAL,
            base_sequence=self.sequences.get(place, 0),
        ).encode()  # fmt: skip
        parts = [{"index": partition, "records": data}]
        body = {"transactional_id": self.name, "acks": -1, "timeout": 30_000,
                "topic_data": [{"name": topic, "partition_data": parts}]}  # fmt: skip

        def ask() -> int:
            answer = self._call(wire.PRODUCE, (9, 12), body)
            return int(answer["responses"][0]["partition_responses"][0]["error_code"])

        self._until("records are taken", ask)
        self.sequences[place] = self.sequences.get(place, 0) + len(values)

    def _add(self, topic: str, partition: int) -> int:
        who = {f"v3_and_below_{key}": value for key, value in self.who.items()}
        asked = [{"name": topic, "partitions": [partition]}]
        answer = self._call(ADD_PARTITIONS, (3, 3), who | {"v3_and_below_topics": asked})
        (found,) = answer["results_by_topic_v3_and_below"]
        return int(found["results_by_partition"][0]["partition_error_code"])

    def commit_offset(self, group: str, topic: str, offset: int) -> None:
        """Of partition 0."""
        if self.is_first:
            body = self.who | {"group_id": group}
            self._until(
                "offsets are added",
                lambda: int(self._call(ADD_OFFSETS, (3, 3), body)["error_code"]),
            )
        part = {"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}
        told = self.who | {"group_id": group, "topics": [{"name": topic, "partitions": [part]}]}

        def ask() -> int:
            find = {"key_type": 0, "coordinator_keys": [group]}
            self._once(wire.FIND_COORDINATOR, 4, find)
            answer = self._call(OFFSETS, (3, 5), told)
            return int(answer["topics"][0]["partitions"][0]["error_code"])

        self._until("an offset is taken", ask)

    def end(self, commit: bool) -> None:
        def ask() -> int:
            answer = self._call(END, (3, 5), self.who | {"committed": commit})
            if answer["error_code"] == 0 and not self.is_first:
                self.id, self.epoch = answer["producer_id"], answer["producer_epoch"]
                self.sequences = {}
            return int(answer["error_code"])

        self._until("the end", ask)

    def state(self) -> str:
        """As DescribeTransactions tells it; an error's number while the coordinator is coming."""
        body = {"transactional_ids": [self.name]}
        answer = self._once(DESCRIBE, 0, body)["transaction_states"][0]
        return str(answer["transaction_state"] or answer["error_code"])

    def until_state(self, *states: str) -> None:
        wait_for(f"{self.name} is {states}", lambda: self.state() in states, TIMEOUT_S)


def values_of(
    broker: BrokerProcess, topic: str, isolation: str, partitions: int = 2
) -> list[bytes]:
    """All that a reader of this isolation sees, by librdkafka."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap, "group.id": "unused",
            "isolation.level": isolation, "enable.partition.eof": True, "check.crcs": True,
            "enable.auto.commit": False,
        }
    )  # fmt: skip
    consumer.assign([TopicPartition(topic, n, OFFSET_BEGINNING) for n in range(partitions)])
    left = set(range(partitions))
    found = []
    while left:
        message = consumer.poll(60)
        assert message is not None, "no end of the partition within 60 s"
        error = message.error()
        if error is None:
            found.append(message.value())
        elif error.name() == "_PARTITION_EOF":
            left.discard(message.partition())
        else:
            raise KafkaException(error)
    consumer.close()
    return found


def committed_offset(broker: BrokerProcess, group: str, topic: str) -> int:
    """Of partition 0, once it is stable; -1 for none."""

    def ask() -> tuple[int] | None:
        asked = {"group_id": group, "topics": [{"name": topic, "partition_indexes": [0]}]}
        body = {"groups": [asked], "require_stable": True}
        (found,) = wire.call_once(broker.port, OFFSET_FETCH, 8, body)["groups"]
        parts = [one for topic in found["topics"] for one in topic["partitions"]]
        if found["error_code"] or any(one["error_code"] for one in parts):
            return None
        return (int(parts[0]["committed_offset"]),)

    return int(wait_for(f"a stable offset of {group}", ask, TIMEOUT_S)[0])
