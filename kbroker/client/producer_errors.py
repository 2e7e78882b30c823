"""What a producer finds out by itself, and the exception for a record that was not delivered."""

from __future__ import annotations

from kbroker.client.errors import BrokerError, KafkaError
from kbroker.ext import client_delivery

__all__ = [
    "BufferExhaustedError",
    "DeliveryTimeoutError",
    "PurgedError",
    "RecordTooLargeError",
    "UndeliveredError",
    "delivery_error",
]


class BufferExhaustedError(KafkaError):
    """buffer.memory was full for max.block.ms: the cluster takes less than is sent."""

    retriable = True


class RecordTooLargeError(KafkaError, ValueError):
    """A record larger than max.request.size or buffer.memory."""


class DeliveryTimeoutError(KafkaError, TimeoutError):
    """delivery.timeout.ms passed before a batch was acknowledged; it may have been written."""

    retriable = True


class PurgedError(KafkaError):
    """purge() gave the record up."""


class UndeliveredError(KafkaError):
    """The producer was closed before the record was acknowledged."""


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
