"""The client: Admin and AsyncAdmin, and the rooms that the command line stands on.

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
    from kbroker.client.errors import ConfigError, KafkaError
    from kbroker.client.partitions import OffsetAndMetadata, TopicPartition
    from kbroker.client.results import Results

__all__ = [
    "Admin",
    "AsyncAdmin",
    "ConfigError",
    "KafkaError",
    "NewTopic",
    "OffsetAndMetadata",
    "Results",
    "TopicPartition",
]

_ROOMS = {
    "Admin": "admin_client",
    "AsyncAdmin": "async_admin",
    "ConfigError": "errors",
    "KafkaError": "errors",
    "NewTopic": "admin",
    "OffsetAndMetadata": "partitions",
    "Results": "results",
    "TopicPartition": "partitions",
}


def __getattr__(name: str) -> Any:
    """A name of the public interface, from its room."""
    if name not in _ROOMS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_ROOMS[name]}"), name)
