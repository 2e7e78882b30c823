"""Key and value of `__transaction_state`, and the producer state file of a partition.

Generated from Apache Kafka 4.3.0's schemas by kbroker/metadata/generate.py; do not edit.
"""

from __future__ import annotations

from typing import ClassVar

from .schema import EMPTY, Field, Record, Schema


class ProducerEntry(Record):
    """A part of ProducerSnapshot."""

    __slots__ = (
        "coordinator_epoch", "current_txn_first_offset", "epoch", "last_offset", "last_sequence",
        "offset_delta", "producer_id", "timestamp",
    )  # fmt: skip
    SCHEMA: ClassVar[Schema] = Schema(
        "ProducerEntry", -1, (1, 1), 32768,
        Field("producer_id", "int64", 1, 1, default=0),
        Field("epoch", "int16", 1, 1, default=0),
        Field("last_sequence", "int32", 1, 1, default=0),
        Field("last_offset", "int64", 1, 1, default=0),
        Field("offset_delta", "int32", 1, 1, default=0),
        Field("timestamp", "int64", 1, 1, default=0),
        Field("coordinator_epoch", "int32", 1, 1, default=0),
        Field("current_txn_first_offset", "int64", 1, 1, default=0),
    )  # fmt: skip

    def __init__(  # noqa: PLR0917
        self,
        producer_id: int = 0,
        epoch: int = 0,
        last_sequence: int = 0,
        last_offset: int = 0,
        offset_delta: int = 0,
        timestamp: int = 0,
        coordinator_epoch: int = 0,
        current_txn_first_offset: int = 0,
    ) -> None:
        self.unknown_tags = ()
        self.producer_id = producer_id
        self.epoch = epoch
        self.last_sequence = last_sequence
        self.last_offset = last_offset
        self.offset_delta = offset_delta
        self.timestamp = timestamp
        self.coordinator_epoch = coordinator_epoch
        self.current_txn_first_offset = current_txn_first_offset


class ProducerSnapshot(Record):
    """Version 1."""

    __slots__ = ("crc", "producer_entries")
    SCHEMA: ClassVar[Schema] = Schema(
        "ProducerSnapshot", -1, (1, 1), 32768,
        Field("crc", "uint32", 1, 1, default=0),
        Field("producer_entries", "[]ProducerEntry", 1, 1, of=ProducerEntry),
    )  # fmt: skip

    def __init__(
        self,
        crc: int = 0,
        producer_entries: list[ProducerEntry] = EMPTY,
    ) -> None:
        self.unknown_tags = ()
        self.crc = crc
        self.producer_entries: list[ProducerEntry] = (
            [] if producer_entries is EMPTY else producer_entries
        )


class TransactionLogKey(Record):
    """Key of record 0, version 0."""

    __slots__ = ("transactional_id",)
    SCHEMA: ClassVar[Schema] = Schema(
        "TransactionLogKey", 0, (0, 0), 32768,
        Field("transactional_id", "string", 0, 0, default=""),
    )  # fmt: skip

    def __init__(
        self,
        transactional_id: str = "",
    ) -> None:
        self.unknown_tags = ()
        self.transactional_id = transactional_id


class PartitionsSchema(Record):
    """A part of TransactionLogValue."""

    __slots__ = ("partition_ids", "topic")
    SCHEMA: ClassVar[Schema] = Schema(
        "PartitionsSchema", -1, (0, 1), 1,
        Field("topic", "string", default=""),
        Field("partition_ids", "[]int32"),
    )  # fmt: skip

    def __init__(
        self,
        topic: str = "",
        partition_ids: list[int] = EMPTY,
    ) -> None:
        self.unknown_tags = ()
        self.topic = topic
        self.partition_ids: list[int] = [] if partition_ids is EMPTY else partition_ids


class TransactionLogValue(Record):
    """Value of record 0, versions 0-1, flexible from 1."""

    __slots__ = (
        "client_transaction_version", "next_producer_epoch", "next_producer_id",
        "previous_producer_id", "producer_epoch", "producer_id",
        "transaction_last_update_timestamp_ms", "transaction_partitions",
        "transaction_start_timestamp_ms", "transaction_status", "transaction_timeout_ms",
    )  # fmt: skip
    SCHEMA: ClassVar[Schema] = Schema(
        "TransactionLogValue", 0, (0, 1), 1,
        Field("producer_id", "int64", default=0),
        Field("previous_producer_id", "int64", default=-1, tag=0, tagged=1),
        Field("next_producer_id", "int64", default=-1, tag=1, tagged=1),
        Field("producer_epoch", "int16", default=0),
        Field("next_producer_epoch", "int16", default=-1, tag=3, tagged=1),
        Field("transaction_timeout_ms", "int32", default=0),
        Field("transaction_status", "int8", default=0),
        Field("transaction_partitions", "[]PartitionsSchema", nullable=0, of=PartitionsSchema),
        Field("transaction_last_update_timestamp_ms", "int64", default=0),
        Field("transaction_start_timestamp_ms", "int64", default=0),
        Field("client_transaction_version", "int16", default=0, tag=2, tagged=1),
    )  # fmt: skip

    def __init__(  # noqa: PLR0917
        self,
        producer_id: int = 0,
        previous_producer_id: int = -1,
        next_producer_id: int = -1,
        producer_epoch: int = 0,
        next_producer_epoch: int = -1,
        transaction_timeout_ms: int = 0,
        transaction_status: int = 0,
        transaction_partitions: list[PartitionsSchema] | None = EMPTY,
        transaction_last_update_timestamp_ms: int = 0,
        transaction_start_timestamp_ms: int = 0,
        client_transaction_version: int = 0,
    ) -> None:
        self.unknown_tags = ()
        self.producer_id = producer_id
        self.previous_producer_id = previous_producer_id
        self.next_producer_id = next_producer_id
        self.producer_epoch = producer_epoch
        self.next_producer_epoch = next_producer_epoch
        self.transaction_timeout_ms = transaction_timeout_ms
        self.transaction_status = transaction_status
        self.transaction_partitions: list[PartitionsSchema] | None = (
            [] if transaction_partitions is EMPTY else transaction_partitions
        )
        self.transaction_last_update_timestamp_ms = transaction_last_update_timestamp_ms
        self.transaction_start_timestamp_ms = transaction_start_timestamp_ms
        self.client_transaction_version = client_transaction_version


KEYS: dict[int, type[Record]] = {
    0: TransactionLogKey,
}

VALUES: dict[int, type[Record]] = {
    0: TransactionLogValue,
}
