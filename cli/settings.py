"""Settings of clients as text: which kind of client knows them, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kbroker.cli.nearest import did_you_mean
from kbroker.client.config_admin import AdminConfig, admin_config
from kbroker.client.config_common import ClientConfig
from kbroker.client.config_consumer import ConsumerConfig
from kbroker.client.config_elsewhere import advice
from kbroker.client.config_producer import ProducerConfig
from kbroker.client.config_types import read_settings, specs_of
from kbroker.client.errors import ConfigError
from kbroker.client.reach import ClusterSettings

__all__ = ["check_settings", "cluster_settings", "is_secret", "known_to", "setting_names"]

_KINDS: dict[str, type[ClientConfig]] = {
    "admin": AdminConfig,
    "producer": ProducerConfig,
    "consumer": ConsumerConfig,
}


def known_to(kind: str, settings: Mapping[str, str]) -> dict[str, str]:
    """Those settings that this kind of client has. Raises ConfigError for a name that none has."""
    for name in settings:
        _owners(name)
    own = specs_of(_KINDS[kind])
    return {name: value for name, value in settings.items() if name.replace(".", "_") in own}


def check_settings(settings: Mapping[str, str]) -> None:
    """Raises ConfigError for a name or value that no client takes, or what cannot go together."""
    for name, value in settings.items():
        for owner in _owners(name):
            read_settings(owner, {name: value}, {})
    admin_config({"bootstrap.servers": "localhost", **known_to("admin", settings)}, {})


def is_secret(name: str) -> bool:
    """Whether the value of a setting is never shown."""
    attribute = name.replace(".", "_")
    return any(specs[attribute].secret for specs in _all_specs() if attribute in specs)


def setting_names() -> list[str]:
    """All settings of all kinds of clients."""
    names = {name for specs in _all_specs() for name in specs}
    return sorted(name.replace("_", ".") for name in names)


def cluster_settings(settings: Mapping[str, str], timeout_s: float) -> ClusterSettings:
    """How a command reaches its cluster: limits that are not told are timeout_s, and that nobody
    is there is said at once."""
    config = admin_config(settings, {})
    own: dict[str, Any] = {"patient": False, "client_id": settings.get("client.id", "kbroker")}
    for limit, name in (
        ("timeout_s", "request_timeout_ms"),
        ("call_timeout_s", "default_api_timeout_ms"),
        ("setup_timeout_s", "socket_connection_setup_timeout_ms"),
        ("setup_timeout_max_s", "socket_connection_setup_timeout_max_ms"),
    ):
        if name not in config.given:
            own[limit] = timeout_s
    return ClusterSettings.of(config)._replace(**own)


def _all_specs() -> list[dict[str, Any]]:
    return [specs_of(owner) for owner in _KINDS.values()]


def _owners(name: str) -> list[type[ClientConfig]]:
    attribute = name.replace(".", "_")
    owners = [owner for owner in _KINDS.values() if attribute in specs_of(owner)]
    if not owners:
        told = advice(name)
        told = f"; {told}" if told else did_you_mean(name, setting_names())
        raise ConfigError(f"no client has a setting named {name!r}{told}")
    return owners
