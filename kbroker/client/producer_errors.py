"""The exception for a record that was not delivered."""

from __future__ import annotations

from kbroker.client.errors import (
    BrokerError,
    DeliveryTimeoutError,
    KafkaError,
    PurgedError,
    UndeliveredError,
)
from kbroker.ext import client_delivery

__all__ = ["delivery_error"]


def delivery_error(
    code: int, local: int, message: str | None, topic: str, partition: int
) -> Exception:
    """The exception for a record; code: Kafka's last one, local: client_delivery's own."""
    where = f"{topic}-{partition}" if topic else ""
    if local == 0:
        return BrokerError(code, where, message)
    last = f"; the last answer was: {BrokerError(code)}" if code else ""
    if local == client_delivery.EXPIRED:
        return DeliveryTimeoutError(
            f"{where}: not acknowledged within delivery.timeout.ms; look whether its leader can be"
            f" reached{last}"
        )
    if local == client_delivery.PURGED:
        return PurgedError(f"{where}: purge() gave the record up")
    if local == client_delivery.COMPRESSION:
        return KafkaError(f"{where}: the batch could not be compressed; no memory, or no codec")
    return UndeliveredError(f"{where}: the producer was closed before{last}")


client_delivery.set_error_factory(delivery_error)
