"""The Python client: Producer, Consumer, Admin, AsyncAdmin and what they take and give.

Names are imported at first use, so that who needs one does not load the others. Works against any
broker of Kafka 2.5 and later, kbroker among them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kbroker.client.admin import NewTopic
    from kbroker.client.admin_client import Admin
    from kbroker.client.async_admin import AsyncAdmin
    from kbroker.client.async_producer import AsyncProducer
    from kbroker.client.consumer import Consumer
    from kbroker.client.consumer_async import AsyncConsumer
    from kbroker.client.errors import ConfigError, KafkaError
    from kbroker.client.group import RebalanceListener, SubscriptionPattern
    from kbroker.client.partitions import OffsetAndMetadata, TopicPartition
    from kbroker.client.producer import BatchDelivery, Delivery, Producer, RecordMetadata
    from kbroker.client.results import Results
    from kbroker.ext.client_columns import Columns
    from kbroker.ext.client_record import Record

__all__ = [
    "Admin",
    "AsyncAdmin",
    "AsyncConsumer",
    "AsyncProducer",
    "BatchDelivery",
    "Columns",
    "ConfigError",
    "Consumer",
    "Delivery",
    "KafkaError",
    "NewTopic",
    "OffsetAndMetadata",
    "Producer",
    "RebalanceListener",
    "Record",
    "RecordMetadata",
    "Results",
    "SubscriptionPattern",
    "TopicPartition",
]

_ROOMS = {
    "Admin": "kbroker.client.admin_client",
    "AsyncAdmin": "kbroker.client.async_admin",
    "AsyncConsumer": "kbroker.client.consumer_async",
    "AsyncProducer": "kbroker.client.async_producer",
    "BatchDelivery": "kbroker.client.producer",
    "Columns": "kbroker.ext.client_columns",
    "ConfigError": "kbroker.client.errors",
    "Consumer": "kbroker.client.consumer",
    "Delivery": "kbroker.client.producer",
    "KafkaError": "kbroker.client.errors",
    "NewTopic": "kbroker.client.admin",
    "OffsetAndMetadata": "kbroker.client.partitions",
    "Producer": "kbroker.client.producer",
    "RebalanceListener": "kbroker.client.group",
    "Record": "kbroker.ext.client_record",
    "RecordMetadata": "kbroker.client.producer",
    "Results": "kbroker.client.results",
    "SubscriptionPattern": "kbroker.client.group",
    "TopicPartition": "kbroker.client.partitions",
}


def __getattr__(name: str) -> Any:
    """A name of the public interface, from its room."""
    if name not in _ROOMS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_ROOMS[name]), name)
