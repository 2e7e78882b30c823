"""Whether each listener can let somebody in: its stores of TLS and its logins, looked at as a start
does.

What was set at run time and has gone bad since (a key store that is no longer there) keeps no
broker from starting: it is passed over, as in Apache Kafka, so that it can be set anew.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from kbroker.config import BrokerConfig, ConfigError, Listener
from kbroker.config.definitions import find_broker_key
from kbroker.config.listeners import TLS_PROTOCOLS

_LOG: Final = logging.getLogger("kbroker.server")
Look = Callable[[BrokerConfig, Listener], None]
Names = tuple[str, ...]
"""What names of keys begin with."""


class _Kind(NamedTuple):
    """A look at a listener, and the keys that it is about: those that belong together, together."""

    name: str
    look: Look
    keys: tuple[Names, ...]


def _look_at_tls(config: BrokerConfig, listener: Listener) -> None:
    from kbroker.security.tls import check_tls  # noqa: PLC0415  not everybody's

    check_tls(config, listener)


def _look_at_logins(config: BrokerConfig, listener: Listener) -> None:
    from kbroker.security.authentication import check_listener  # noqa: PLC0415  as above

    check_listener(config, listener.name)


_TLS: Final = _Kind(
    "TLS", _look_at_tls,
    (
        ("ssl.keystore.", "ssl.key."),
        ("ssl.truststore.",),
        ("ssl.enabled.protocols", "ssl.cipher.suites"),
        ("ssl.principal.mapping.rules",),
    ),
)  # fmt: skip
_LOGINS: Final = _Kind(
    "logins", _look_at_logins,
    (("sasl.jaas.config",), ("sasl.enabled.mechanisms",), ("sasl.oauthbearer.",)),
)  # fmt: skip


def _kinds(listener: Listener) -> Iterator[_Kind]:
    if listener.protocol in TLS_PROTOCOLS:
        yield _TLS
    if listener.protocol.startswith("SASL"):
        yield _LOGINS


def mistakes(config: BrokerConfig) -> Iterator[tuple[str, str]]:
    """What would keep listeners from letting anybody in: what it is about, and a line."""
    for listener in config.listeners:
        for kind in _kinds(listener):
            wrong = _mistake(config, listener, kind)
            if wrong is not None:
                yield kind.name, str(wrong)


def check(config: BrokerConfig) -> None:
    """Raises ConfigError, a line for each mistake."""
    told = [line for _, line in mistakes(config)]
    if told:
        raise ConfigError("\n".join(told))


def pass_over_bad(config: BrokerConfig) -> None:
    """At the start: leave out what was set at run time and cannot be used. Raises ConfigError where
    static settings cannot be either."""
    for listener in config.listeners:
        for kind in _kinds(listener):
            _settle(config, listener, kind)


def pass_over_bad_logins(config: BrokerConfig) -> None:
    """As the start did, where dynamic settings are read again. TLS has its own way: what is in
    force stays."""
    for listener in config.listeners:
        if _LOGINS in _kinds(listener):
            try:
                _settle(config, listener, _LOGINS)
            except ConfigError as error:
                _LOG.error("%s", error)


def _settle(config: BrokerConfig, listener: Listener, kind: _Kind) -> None:
    """Leaves out as little as has the look find nothing wrong."""
    wrong = left = _mistake(config, listener, kind)
    if wrong is None:
        return
    every = tuple(name for names in kind.keys for name in names)
    for keys in (*kind.keys, every):
        gone = set(_dynamic(config, listener, keys))
        broker, default = (
            {name: text for name, text in layer.items() if name not in gone}
            for layer in (config.dynamic_broker, config.dynamic_default)
        )
        left = _mistake(config.preview(broker, default), listener, kind)
        if left is None:
            break
    if gone:
        _LOG.error("%s, set at run time, cannot be used and is passed over: %s",
                   ", ".join(sorted(gone)), wrong)  # fmt: skip
    if left is not None:
        raise left
    config.set_dynamic(broker, default)


def _mistake(config: BrokerConfig, listener: Listener, kind: _Kind) -> ConfigError | None:
    try:
        kind.look(config, listener)
    except ConfigError as error:
        return error
    return None


def _dynamic(config: BrokerConfig, listener: Listener, keys: Iterable[str]) -> Iterator[str]:
    """Names that were set at run time and say something of these keys to the listener."""
    own, begins = f"listener.name.{listener.name.lower()}.", tuple(keys)
    for name in (*config.dynamic_broker, *config.dynamic_default):
        key = find_broker_key(name)
        if key is None or not key.name.startswith(begins):
            continue
        if name == key.name or name.startswith(own):
            yield name
