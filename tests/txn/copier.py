"""A member of a group that copies, each poll's records in one transaction with their offsets:

    python -m tests.txn.copier KIND BOOTSTRAP GROUP SOURCE SINK HISTORY HOLD [MOST]

KIND: confluent or kbroker, the library. MOST: so many records in a transaction. HISTORY, which is
its transactional id, too, gets a line an event:

    owns PARTITION ...  it was given these, by the group
    holds               it is in the middle of a transaction, and stays there while HISTORY.hold is
    copied COUNT        so many records were committed, as it was told
    refused ERROR       they were not; it has aborted, as far as it is let, and ends

HOLD: where it holds: `offsets`, before it sends them, or `commit`, when they were sent. `alone`: as
`offsets`, but it sends them for the group's name alone, as whoever is no member may.

What it says of itself as a member it asks for with the records: a zombie's library may have left
the group already when it wakes, and one that is no member is not refused.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import confluent_kafka

from kbroker.client.consumer import Consumer
from kbroker.client.errors import KafkaError
from kbroker.client.group import RebalanceListener
from kbroker.client.group.room import GroupMetadata
from kbroker.client.producer import Producer
from tests.support.waits import wait_for

SESSION_MS, TRANSACTION_MS = 2_000, 60_000
SHORT_MS = 6_000
"""Of a transaction whose end is waited for, for its offsets hold up the heir."""
LIMIT_S, HELD_S = 60, 600


class Options(NamedTuple):
    """What it was told."""

    kind: str
    bootstrap: str
    group: str
    source: str
    sink: str
    history: str
    hold: str
    most: str = "50"

    def tell(self, *words: object) -> None:
        with Path(self.history).open("a") as file:
            file.write(" ".join(map(str, words)).replace("\n", " ") + "\n")

    def hold_at(self, *points: str) -> None:
        """Stays here while the test wants it to."""
        flag = Path(f"{self.history}.hold")
        if self.hold in points and flag.exists():
            self.tell("holds")
            wait_for("it may go on", lambda: not flag.exists(), HELD_S)

    def consumer_settings(self) -> dict[str, Any]:
        return {"bootstrap.servers": self.bootstrap, "group.id": self.group,
                "auto.offset.reset": "earliest", "enable.auto.commit": False,
                "isolation.level": "read_committed", "session.timeout.ms": SESSION_MS,
                "heartbeat.interval.ms": 300}  # fmt: skip

    def producer_settings(self) -> dict[str, Any]:
        timeout_ms = SHORT_MS if self.hold == "commit" else TRANSACTION_MS
        return {"bootstrap.servers": self.bootstrap, "transactional.id": Path(self.history).name,
                "transaction.timeout.ms": timeout_ms, "linger.ms": 0}  # fmt: skip


def confluent(options: Options) -> None:
    """On librdkafka."""

    def assigned(_: Any, parts: list[confluent_kafka.TopicPartition]) -> None:
        options.tell("owns", *(part.partition for part in parts))

    consumer = confluent_kafka.Consumer(
        options.consumer_settings() | {"partition.assignment.strategy": "range", "log_level": 0}
    )
    consumer.subscribe([options.source], on_assign=assigned)
    producer = confluent_kafka.Producer(options.producer_settings() | {"log_level": 0})
    producer.init_transactions(LIMIT_S)
    while True:
        messages = [one for one in consumer.consume(int(options.most), 0.1) if one.error() is None]
        if not messages:
            continue
        member = consumer.consumer_group_metadata()
        offsets = consumer.position(consumer.assignment())
        producer.begin_transaction()
        for message in messages:
            producer.produce(options.sink, message.value(), partition=message.partition())
        producer.flush(LIMIT_S)
        try:
            options.hold_at("offsets")
            producer.send_offsets_to_transaction(offsets, member, LIMIT_S)
            options.hold_at("commit")
            producer.commit_transaction(LIMIT_S)
        except confluent_kafka.KafkaException as refused:
            with suppress(confluent_kafka.KafkaException):
                producer.abort_transaction(LIMIT_S)
            options.tell("refused", refused.args[0].name())
            return
        options.tell("copied", len(messages))


class Told(RebalanceListener):
    """Writes down what the group gives."""

    def __init__(self, options: Options, consumer: Consumer) -> None:
        self.options, self.consumer = options, consumer

    def on_assigned(self, partitions: Any) -> None:
        self.options.tell("owns", *sorted(index for _, index in self.consumer.assignment()))


def kbroker(options: Options) -> None:
    """On kbroker's own client."""
    consumer = Consumer(
        options.consumer_settings()
        | {"partition.assignment.strategy": ["range"], "max.poll.records": int(options.most)}
    )
    consumer.subscribe([options.source], Told(options, consumer))
    producer = Producer(options.producer_settings())
    producer.init_transactions(LIMIT_S)
    while True:
        records = list(consumer.poll(0.1))
        if not records:
            continue
        named = GroupMetadata(options.group)
        member = named if options.hold == "alone" else consumer.group_metadata()
        offsets = {part: consumer.position(part) for part in consumer.assignment()}
        producer.begin()
        for record in records:
            producer.send(options.sink, record.value, partition=record.partition)
        producer.flush(LIMIT_S)
        try:
            options.hold_at("offsets", "alone")
            producer.send_offsets_to_transaction(offsets, member, LIMIT_S)
            options.hold_at("commit")
            producer.commit(LIMIT_S)
        except KafkaError as refused:
            with suppress(KafkaError):
                producer.abort(LIMIT_S)
            options.tell("refused", getattr(refused, "name", refused))
            return
        options.tell("copied", len(records))


KINDS: dict[str, Callable[[Options], None]] = {"confluent": confluent, "kbroker": kbroker}

if __name__ == "__main__":
    told = Options(*sys.argv[1:])
    KINDS[told.kind](told)
