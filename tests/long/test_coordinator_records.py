"""Keys and values that Apache Kafka 4.3's coordinators wrote, read and written again by ours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from kbroker.ext.records import read
from kbroker.metadata.records import (
    classic_group,
    consumer_group,
    share_group,
    share_state,
    streams_group,
    streams_topology,
    transaction,
)
from kbroker.metadata.records.codec import decode, encode
from kbroker.metadata.records.frame import decode_key, decode_value, encode_key, encode_value
from kbroker.metadata.records.schema import Record
from tests.support.kafka import KafkaProcess, tool_output

pytestmark = pytest.mark.long

GROUPS = (classic_group, consumer_group, share_group, streams_group, streams_topology)
GROUP_KEYS = {number: cls for module in GROUPS for number, cls in module.KEYS.items()}
GROUP_VALUES = {number: cls for module in GROUPS for number, cls in module.VALUES.items()}


def consume(kafka: KafkaProcess, group: str, protocol: str) -> None:
    settings = {
        "bootstrap.servers": kafka.bootstrap, "group.id": group, "group.protocol": protocol,
        "auto.offset.reset": "earliest", "enable.auto.commit": False,
    }  # fmt: skip
    consumer = Consumer(settings)
    try:
        consumer.subscribe(["t"])
        left = 10
        while left:
            message = consumer.poll(30)
            assert message is not None and message.error() is None, message
            left -= 1
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()


def produce(kafka: KafkaProcess) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": "tx"})
    producer.init_transactions(60)
    for commit in (True, False, True):
        producer.begin_transaction()
        for number in range(10):
            producer.produce("t", f"{number}".encode(), partition=0)
        if commit:
            producer.commit_transaction(60)
        else:
            producer.abort_transaction(60)


def share(kafka: KafkaProcess) -> None:
    tool_output(
        "console-share-consumer", "--bootstrap-server", kafka.bootstrap, "--topic", "t",
        "--group", "shared", "--timeout-ms", "8000",
    )  # fmt: skip


def pairs(kafka: KafkaProcess, topic: str) -> Iterator[tuple[bytes, bytes | None]]:
    for folder in sorted(kafka.data_dir.glob(f"{topic}-*")):
        for log in sorted(folder.glob("*.log")):
            for record in read(log.read_bytes()):
                assert record.key is not None
                yield record.key, record.value


def reread(
    kafka: KafkaProcess,
    topic: str,
    keys: dict[int, type[Record]],
    values: dict[int, type[Record]],
) -> Counter[str]:
    """Every record of a topic decoded and encoded again, to the same bytes."""
    seen: Counter[str] = Counter()
    for key_data, value_data in pairs(kafka, topic):
        key = decode_key(key_data, keys)
        assert key is not None, key_data
        assert encode_key(key) == key_data
        seen[type(key).__name__] += 1
        if value_data is None:
            continue
        value = decode_value(value_data, values[key.SCHEMA.key])
        seen[type(value).__name__] += 1
        assert encode_value(value, int.from_bytes(value_data[:2])) == value_data
    return seen


def test_what_kafkas_coordinators_wrote(tmp_path: Path) -> None:
    kafka = KafkaProcess(tmp_path, {"offsets.topic.num.partitions": "5"})
    kafka.start()
    try:
        server = ("--bootstrap-server", kafka.bootstrap)
        tool_output("topics", *server, "--create", "--topic", "t", "--partitions", "2")
        produce(kafka)
        consume(kafka, "classic", "classic")
        consume(kafka, "next", "consumer")
        share(kafka)
    finally:
        kafka.stop()

    groups = reread(kafka, "__consumer_offsets", GROUP_KEYS, GROUP_VALUES)
    for name in ("OffsetCommit", "GroupMetadata", "ConsumerGroupMetadata",
                 "ConsumerGroupMemberMetadata", "ConsumerGroupTargetAssignmentMember",
                 "ConsumerGroupCurrentMemberAssignment", "ShareGroupMetadata",
                 "ShareGroupMemberMetadata", "ShareGroupStatePartitionMetadata"):  # fmt: skip
        assert groups[f"{name}Key"] and groups[f"{name}Value"], (name, groups)
    states = reread(
        kafka, "__transaction_state", {0: transaction.TransactionLogKey},
        {0: transaction.TransactionLogValue},
    )  # fmt: skip
    assert states["TransactionLogValue"] > 5
    shares = reread(kafka, "__share_group_state", share_state.KEYS, share_state.VALUES)
    assert shares["ShareSnapshotValue"]


def test_a_producer_snapshot_of_kafka(tmp_path: Path) -> None:
    kafka = KafkaProcess(tmp_path)
    kafka.start()
    try:
        tool_output("topics", "--bootstrap-server", kafka.bootstrap, "--create", "--topic", "t")
        produce(kafka)
    finally:
        kafka.stop()
    (path,) = kafka.partition_dir("t", 0).glob("*.snapshot")
    data = path.read_bytes()
    version = int.from_bytes(data[:2])
    snapshot = decode(transaction.ProducerSnapshot, version, data[2:])
    assert encode(snapshot, version) == data[2:]
    (entry,) = snapshot.producer_entries
    assert entry.producer_id == 0 and entry.last_sequence % 10 == 9


def test_offsets_as_the_client_knows_them(tmp_path: Path) -> None:
    kafka = KafkaProcess(tmp_path, {"offsets.topic.num.partitions": "1"})
    kafka.start()
    try:
        tool_output("topics", "--bootstrap-server", kafka.bootstrap, "--create", "--topic", "t")
        consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "g"})
        mine = TopicPartition("t", 0, 77, metadata="note")
        consumer.commit(offsets=[mine], asynchronous=False)
        consumer.close()
    finally:
        kafka.stop()
    values = [
        decode_value(value, classic_group.OffsetCommitValue)
        for key, value in pairs(kafka, "__consumer_offsets")
        if value and isinstance(decode_key(key, GROUP_KEYS), classic_group.OffsetCommitKey)
    ]
    assert [(value.offset, value.metadata) for value in values] == [(77, "note\0")]  # librdkafka's
