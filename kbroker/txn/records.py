"""Records of `__transaction_state` from and to bytes (TransactionLogKey, TransactionLogValue).

A record that does not decode is skipped, and its transactional id is then unknown: only the last
record of each key is decoded (kbroker.txn.loading). The next producer of that id gets a new
producer id; `kbroker txn find-hanging` finds what the earlier one left open. Version 1 of the value
(transaction.version 1 and above) has tagged fields.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from typing import Final, cast

from kbroker.metadata.records import transaction as schema
from kbroker.metadata.records.frame import decode_key, decode_value, encode_key, encode_value
from kbroker.metadata.records.wire import RecordError
from kbroker.txn.transaction import Partition, State, Transaction

_LOG: Final = logging.getLogger("kbroker.txn")
_COMPLAINTS_MAX: Final = 20


def encode(
    transactional_id: str, value: Transaction | None, version: int
) -> tuple[bytes, bytes | None]:
    """Key and value; no value is a tombstone. `version`: of the value."""
    key = encode_key(schema.TransactionLogKey(transactional_id))
    if value is None:
        return key, None
    record = schema.TransactionLogValue(
        producer_id=value.producer_id,
        producer_epoch=value.epoch,
        transaction_timeout_ms=value.timeout_ms,
        transaction_status=value.state,
        transaction_partitions=_grouped(value),
        transaction_last_update_timestamp_ms=value.updated_ms,
        transaction_start_timestamp_ms=value.started_ms,
    )
    if version >= 1:
        record.previous_producer_id = value.previous_producer_id
        record.next_producer_id = value.next_producer_id
        record.client_transaction_version = value.version
    return key, encode_value(record, version)


def _grouped(value: Transaction) -> list[schema.PartitionsSchema] | None:
    if value.state is State.EMPTY:
        return None
    topics: dict[str, list[int]] = defaultdict(list)
    for topic, partition in sorted(value.partitions):
        topics[topic].append(partition)
    return [schema.PartitionsSchema(topic, indexes) for topic, indexes in topics.items()]


class Records:
    """Reads the records of one partition, and tells what it passes over, within bounds."""

    def __init__(self, partition: int) -> None:
        self._partition = partition
        self._complaints = 0

    def decode(
        self, offset: int, key: bytes | None, value: bytes | None
    ) -> tuple[str, Transaction | None] | None:
        """Transactional id and value, no value for a tombstone; None for what is passed over."""
        try:
            if key is None:
                raise RecordError("it has no key")
            found = decode_key(key, schema.KEYS)
            if found is None:
                raise RecordError("its key is of another kind")
            transactional_id = cast(schema.TransactionLogKey, found).transactional_id
            if value is None:
                return transactional_id, None
            return transactional_id, _transaction(decode_value(value, schema.TransactionLogValue))
        except (RecordError, ValueError) as error:
            self._complaints += 1
            if self._complaints <= _COMPLAINTS_MAX:
                _LOG.warning("passing over a record of __transaction_state-%d at offset %d: %s",
                             self._partition, offset, error)  # fmt: skip
            return None


def _transaction(record: schema.TransactionLogValue) -> Transaction:
    partitions: list[Partition] = [
        (one.topic, index)
        for one in record.transaction_partitions or ()
        for index in one.partition_ids
    ]
    return Transaction(
        record.producer_id,
        record.transaction_timeout_ms,
        record.transaction_last_update_timestamp_ms,
        record.producer_epoch,
        State(record.transaction_status),  # type: ignore[call-arg]
        frozenset(partitions),
        record.transaction_start_timestamp_ms,
        record.previous_producer_id,
        record.next_producer_id,
        version=record.client_transaction_version,
    )
