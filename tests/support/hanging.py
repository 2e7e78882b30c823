"""Transactions that hang in a partition: open there, and no coordinator will ever end them.

Brokers of today verify a batch before it opens a transaction (KIP-890), so that none can hang;
transaction.partition.verification.enable=false turns that off for clients of before, and is how
the tests make what `find-hanging` is for.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from tests.reference.crafted_batches import TRANSACTIONAL, Batch, Record
from tests.support import wire
from tests.support.processes import BrokerProcess
from tests.support.transactional import TIMEOUT_S, WireProducer
from tests.support.waits import wait_for

VERIFICATION = "transaction.partition.verification.enable"
PRODUCE_UNVERIFIED = 9  # a client of protocol 1, which adds partitions by itself
LONG_AGO_MS = 1_700_000_000_000

_BROKER, _SET, _DELETE = 4, 0, 1
_INVALID_TXN_STATE = 48


class Hanging(NamedTuple):
    """What `find-hanging` has to find."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    start_offset: int


def _configure(broker: BrokerProcess, operation: int) -> None:
    change = {"name": VERIFICATION, "config_operation": operation, "value": "false"}
    resource = {"resource_type": _BROKER, "resource_name": "", "configs": [change]}
    answer = wire.call_once(broker.port, wire.INCREMENTAL_ALTER_CONFIGS, 1,
                            {"resources": [resource]})  # fmt: skip
    assert answer["responses"][0]["error_code"] == 0, answer


@contextmanager
def unverified(broker: BrokerProcess) -> Iterator[None]:
    """Batches of clients that add partitions by themselves are taken as they come."""
    _configure(broker, _SET)
    try:
        yield
    finally:
        _configure(broker, _DELETE)


def hang(broker: BrokerProcess, name: str, topic: str, partition: int = 0) -> Hanging:
    """A record of `name` that is part of no transaction of its coordinator's; inside unverified().
    A broker may take a moment to hear of its new setting."""
    producer = WireProducer(broker, name, 1)
    producer.init()
    data = Batch(
        records=[Record(b"hanging")], producer_id=producer.id, producer_epoch=producer.epoch,
        base_sequence=0, attributes=TRANSACTIONAL, base_timestamp=LONG_AGO_MS,
    ).encode()  # fmt: skip
    parts = [{"index": partition, "records": data}]
    body = {"transactional_id": name, "acks": -1, "timeout": 30_000,
            "topic_data": [{"name": topic, "partition_data": parts}]}  # fmt: skip

    def send() -> dict[str, Any] | None:
        answer = wire.call_once(broker.port, wire.PRODUCE, PRODUCE_UNVERIFIED, body)
        (found,) = answer["responses"][0]["partition_responses"]
        return None if found["error_code"] == _INVALID_TXN_STATE else found

    found = wait_for("a batch is taken unverified", send, TIMEOUT_S)
    assert found["error_code"] == 0, found
    return Hanging(topic, partition, producer.id, producer.epoch, found["base_offset"])


def last_stable(broker: BrokerProcess, topic: str, partition: int = 0) -> tuple[int, int]:
    """(last stable offset, end of the log) as ListOffsets tells them."""
    told = []
    for isolation in (1, 0):
        part = {"partition_index": partition, "timestamp": -1}
        body = {"replica_id": -1, "isolation_level": isolation,
                "topics": [{"name": topic, "partitions": [part]}]}  # fmt: skip
        (answer,) = wire.call_once(broker.port, wire.LIST_OFFSETS, 6, body)["topics"]
        told.append(answer["partitions"][0]["offset"])
    return told[0], told[1]
