"""Listeners that let in whoever can connect: told at the start, unless it is meant."""

from __future__ import annotations

from typing import Final

from kbroker.config import BrokerConfig
from kbroker.config.definitions_kbroker import INSECURE

_OPEN: Final = frozenset({"PLAINTEXT", "SSL"})


def open_line(config: BrokerConfig) -> str | None:
    """One line where there is something to tell."""
    if config.flag(INSECURE) or config.string("authorizer.class.name"):
        return None
    told = [
        f"{one.name}://{one.host or '0.0.0.0'}:{one.port}"
        for one in config.listeners
        if one.protocol in _OPEN and not is_loopback(one.host) and not _knows(config, one.name)
    ]
    if not told:
        return None
    return (
        f"whoever can connect to {', '.join(told)} may do everything: make a user "
        "(kbroker start --user NAME), or say that it is meant (--insecure)"
    )


def _knows(config: BrokerConfig, listener: str) -> bool:
    """Whether TLS asks for a certificate there, which PLAINTEXT never does."""
    return (
        any(one.name == listener and one.protocol == "SSL" for one in config.listeners)
        and config.text_of(listener, "ssl.client.auth") == "required"
    )


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address."""
    return host in ("localhost", "::1") or host.startswith("127.")
