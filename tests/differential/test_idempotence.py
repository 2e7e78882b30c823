"""Idempotent producers: InitProducerId, sequence windows, epochs, wraparound."""

from __future__ import annotations

from typing import Any

from tests.differential.harness import Script, same
from tests.reference.crafted_batches import TRANSACTIONAL

SEQUENCE_MAX = 2**31 - 1


class Producer:
    """An idempotent producer of one topic that counts nothing by itself."""

    def __init__(self, s: Script, topic: str, version: int = 9) -> None:
        self.s, self.topic, self.version = s, topic, version
        self.id, self.epoch = s.producer_id(), 0

    def send(self, sequence: int, count: int = 1, **fields: Any) -> dict[str, Any]:
        values = [b"%d" % (sequence + index) for index in range(count)]
        fields = {"producer_id": self.id, "producer_epoch": self.epoch} | fields
        data = self.s.batch(*values, base_sequence=sequence, **fields)
        return self.s.produce(self.topic, data, self.version)


@same(range(6))
def test_init_producer_id(s: Script, version: int) -> None:
    """Ids are given out once; a producer without a transactional id may not ask with one."""
    ask = {"transactional_id": None, "transaction_timeout": 60000}
    s.producer_id()
    for _ in range(3):
        s.call(22, version, ask)
    s.call(22, version, ask | {"transaction_timeout": 0})
    s.call(22, version, ask | {"transaction_timeout": -5})
    s.call(22, version, ask | {"transactional_id": ""})
    if version >= 3:
        s.call(22, version, ask | {"producer_id": 5, "producer_epoch": -1})
        s.call(22, version, ask | {"producer_id": -1, "producer_epoch": 5})
        s.call(22, version, ask | {"producer_id": 5, "producer_epoch": 5})


@same((3, 9, 12, 13))
def test_sequences(s: Script, version: int) -> None:
    """In order, repeated, skipped, gone back."""
    producer = Producer(s, s.topic(), version)
    for sequence, count in ((0, 3), (3, 1), (4, 2), (4, 2), (0, 3), (9, 1), (6, 1), (5, 1), (3, 2)):
        producer.send(sequence, count)
    s.fetch(producer.topic, 0)


@same((3, 9, 13))
def test_first_sequence_is_not_zero(s: Script, version: int) -> None:
    """A producer that the log does not know may begin anywhere."""
    producer = Producer(s, s.topic(), version)
    producer.send(7)
    producer.send(9)
    producer.send(8)
    s.offset(producer.topic, -1)


@same((3, 13))
def test_window_of_five(s: Script, version: int) -> None:
    """The last five batches are known; one before them is out of order or a duplicate untold."""
    producer = Producer(s, s.topic(), version)
    for sequence in range(8):
        producer.send(sequence)
    for sequence in range(8):
        producer.send(sequence)
    producer.send(8)
    s.offset(producer.topic, -1)


@same((3, 9, 13))
def test_epochs(s: Script, version: int) -> None:
    """A newer epoch begins at zero and fences the older one."""
    producer = Producer(s, s.topic(), version)
    producer.send(0, 2)
    producer.send(2, producer_epoch=1)
    producer.send(0, producer_epoch=1)
    producer.send(2)
    producer.send(0)
    producer.send(1, producer_epoch=1)
    producer.send(0, producer_epoch=5)
    producer.send(2, producer_epoch=1)
    s.fetch(producer.topic, 0)


@same((3, 13))
def test_sequence_wraps(s: Script, version: int) -> None:
    """After the greatest sequence comes zero, also within a batch."""
    producer = Producer(s, s.topic("a"), version)
    producer.send(SEQUENCE_MAX - 1)
    producer.send(SEQUENCE_MAX)
    producer.send(0)
    producer.send(0)
    producer.send(1)
    wrapping = Producer(s, s.topic("b"), version)
    wrapping.send(SEQUENCE_MAX - 1, 4)
    wrapping.send(2)
    wrapping.send(SEQUENCE_MAX - 1, 4)
    s.fetch(wrapping.topic, 0)


@same((3, 12))
def test_two_producers(s: Script, version: int) -> None:
    """Each has a sequence of its own."""
    topic = s.topic()
    first, second = Producer(s, topic, version), Producer(s, topic, version)
    for producer in (first, second, first):
        producer.send(0)
    second.send(1)
    first.send(5)
    s.fetch(topic, 0)


@same((3, 13))
def test_partitions_count_apart(s: Script, version: int) -> None:
    topic = s.topic(partitions=2)
    fields = {"producer_id": s.producer_id(), "producer_epoch": 0, "base_sequence": 0}
    for partition in (0, 1, 0, 1):
        s.produce(topic, s.batch(b"x", **fields), version, partition=partition)


@same((3, 13))
def test_retry_with_other_length(s: Script, version: int) -> None:
    """A batch that repeats a known first sequence with another count is no duplicate."""
    producer = Producer(s, s.topic(), version)
    producer.send(0, 3)
    producer.send(0, 2)
    producer.send(1, 2)
    producer.send(2, 2)
    s.offset(producer.topic, -1)


@same((3, 13))
def test_acks_of_duplicates(s: Script, version: int) -> None:
    """A duplicate is answered with the first offset and the time of the first append."""
    topic = s.topic(message_timestamp_type="LogAppendTime")
    producer = Producer(s, topic, version)
    producer.send(0, 2)
    producer.send(2, 2)
    producer.send(0, 2)
    producer.send(2, 2)


@same((3, 13))
def test_after_records_are_deleted(s: Script, version: int) -> None:
    """What a producer sent stays known when its records are gone."""
    producer = Producer(s, s.topic(), version)
    producer.send(0, 2)
    parts = [{"partition_index": 0, "offset": -1}]
    s.call(21, 2, {"topics": [{"name": producer.topic, "partitions": parts}], "timeout": 5000})
    producer.send(0, 2)
    producer.send(5)
    producer.send(2)


@same((3, 13))
def test_not_idempotent_between(s: Script, version: int) -> None:
    producer = Producer(s, s.topic(), version)
    producer.send(0)
    s.produce(producer.topic, s.batch(b"plain"), version)
    producer.send(1)
    producer.send(1, attributes=TRANSACTIONAL)
    s.offset(producer.topic, -1)
