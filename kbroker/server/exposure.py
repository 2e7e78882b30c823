"""Listeners that let in whoever can connect, unless it is meant, and those that let in nobody: told
at the start."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kbroker.config import BrokerConfig, Listener
from kbroker.config.definitions_kbroker import INSECURE
from kbroker.security.principals import ANONYMOUS, parse_super_users

_AUTHORIZER: Final = "authorizer.class.name"
_SUPER_USERS: Final = "super.users"
_ENABLED: Final = "sasl.enabled.mechanisms"
_IF_NONE: Final = "allow.everyone.if.no.acl.found"
#: What open_line goes by, listeners apart.
RIGHTS: Final = (INSECURE, _AUTHORIZER, _SUPER_USERS, _IF_NONE)


def open_line(config: BrokerConfig, *, users: bool = False) -> str | None:
    """One line where there is something to tell. `users`: there are some of SCRAM. Where anybody
    logs in, an open listener is a mistake on this machine too."""
    allowed = "" if config.flag(INSECURE) else _allowed_to_nobody(config)
    if not allowed:
        return None
    users = users or any(_others_than_scram(config, one) for one in config.listeners)
    told = _told(
        one
        for one in config.listeners
        if (users or not is_loopback(one.host)) and _is_open(config, one)
    )
    if not told:
        return None
    then = (
        "there are users, but it asks nobody who it is: have it speak SASL_PLAINTEXT or SASL_SSL"
        if users
        else "make a user (kbroker start --user NAME)"
    )
    return (
        f"whoever can connect to {told} may do {allowed}: {then}, or say that it is meant "
        "(--insecure)"
    )


def closed_line(config: BrokerConfig) -> str | None:
    """Where there are no users of SCRAM: one line on listeners that have nothing else."""
    asking = [one for one in config.listeners if one.protocol.startswith("SASL")]
    told = _told(one for one in asking if not _others_than_scram(config, one))
    if not told:
        return None
    first = "kbroker start --user NAME:PASSWORD"
    if any(_is_open(config, one) for one in config.listeners):
        first = "kbroker user create NAME, at a listener that asks for no login"
    return (
        f"nobody can log in at {told}: it knows SCRAM alone, and there is no user; make the first: "
        f"{first}"
    )


def _others_than_scram(config: BrokerConfig, listener: Listener) -> bool:
    """Whether a listener has mechanisms whose users stand in its settings, or elsewhere."""
    if not listener.protocol.startswith("SASL"):
        return False
    from kbroker.security.scram import MECHANISMS  # noqa: PLC0415  not everybody's

    if not config.is_set_for(listener.name, _ENABLED):
        return False  # SCRAM, unless told
    return not MECHANISMS.keys() >= set(config.words_of(listener.name, _ENABLED))


def _allowed_to_nobody(config: BrokerConfig) -> str:
    """What somebody may do who has not said who it is, in words."""
    if not config.string(_AUTHORIZER):
        return "everything"
    if ANONYMOUS in parse_super_users(config.string(_SUPER_USERS)):
        return f"everything (super.users has {ANONYMOUS})"
    if config.flag(_IF_NONE):
        return f"whatever no ACL is about ({_IF_NONE}=true)"
    return ""


def _told(listeners: Iterable[Listener]) -> str:
    return ", ".join(f"{one.name}://{one.host or '0.0.0.0'}:{one.port}" for one in listeners)


def _is_open(config: BrokerConfig, listener: Listener) -> bool:
    """Whether nobody has to say there who it is. TLS may ask for a certificate."""
    if listener.protocol == "SSL":
        return config.text_of(listener.name, "ssl.client.auth") != "required"
    return listener.protocol == "PLAINTEXT"


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address."""
    return host in ("localhost", "::1") or host.startswith("127.")
