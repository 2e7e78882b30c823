"""Settings of admin clients: Apache Kafka 4.3's."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping
from typing import Any

from kbroker.client.config_common import ClientConfig, read_common
from kbroker.client.config_types import boolean, int64, words
from kbroker.client.errors import ConfigError

__all__ = ["AdminConfig", "admin_config"]

_numbers = itertools.count(1)


# fmt: off
@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class AdminConfig(ClientConfig):
    """What an admin is told."""

    bootstrap_controllers: tuple[str, ...] = words((),
        "Addresses of controllers, to speak to these instead of brokers (KIP-919).")
    connections_max_idle_ms: int = int64(300_000,
        "Idle connections are closed after this time; negative: never.")
    enable_metrics_push: bool = boolean(False,
        "Whether metrics are pushed to brokers that ask for them (KIP-714). Never done here.",
        effective=False)
# fmt: on


def admin_config(given: Mapping[str, Any] | None, more: Mapping[str, Any]) -> AdminConfig:
    """Settings of an admin from a dict and keyword arguments; names with dots or underscores.

    Raises ConfigError, naming the setting and what would be right.
    """
    found = read_common(AdminConfig, given, more)
    servers, controllers = found.get("bootstrap_servers"), found.get("bootstrap_controllers")
    if not servers and not controllers:
        raise ConfigError("bootstrap.servers is not given; write HOST:PORT")
    if servers and controllers:
        raise ConfigError("bootstrap.servers and bootstrap.controllers exclude each other")
    if not found.get("client_id"):
        found["client_id"] = f"adminclient-{next(_numbers)}"
    return AdminConfig(**found)
