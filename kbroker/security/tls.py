"""TLS of the listeners: `ssl.*` as it holds for each, and its changes while the broker runs.

A listener takes `listener.name.NAME.ssl.*` before `ssl.*`. Stores are read when the broker starts,
at every change of settings and at SIGHUP; what was negotiated stays, new handshakes see the new
certificate. A change that cannot be used is refused and the one in force stays. Where a store was
replaced by one with another subject, or without a name that the one before had, it is refused as in
Apache Kafka, unless ssl.allow.dn.changes or ssl.allow.san.changes says otherwise.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from kbroker.config import BrokerConfig, ConfigError, Listener
from kbroker.config.listeners import TLS_PROTOCOLS
from kbroker.ext.tls_context import TlsContext
from kbroker.key_stores import (
    identity_store,
    inline_pem,
    speak_ciphers,
    speak_versions,
    trust_store,
)
from kbroker.security.names import alternative_names, rfc2253, subject_of
from kbroker.security.principals import Rule, mapped, parse_rules

_LOG: Final = logging.getLogger("kbroker.server")
_FILES: Final = ("ssl.keystore.location", "ssl.truststore.location")
_KEYS: Final = (
    *_FILES,
    "ssl.cipher.suites",
    "ssl.client.auth",
    "ssl.enabled.protocols",
    "ssl.key.password",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.key",
    "ssl.keystore.password",
    "ssl.truststore.certificates",
    "ssl.truststore.password",
)
Fingerprint = tuple[object, ...]


class _Settings:
    """`ssl.*` of one listener."""

    def __init__(self, config: BrokerConfig, listener: Listener) -> None:
        self._config = config
        self._listener = listener

    def text(self, name: str) -> str | None:
        """The text of a setting, None where there is none."""
        return self._config.text_of(self._listener.name, name) or None

    def name(self, name: str) -> str:
        """What a mistake is told by: the name in full."""
        return self._config.name_of(self._listener.name, name)

    def words(self, name: str) -> list[str]:
        return self._config.words_of(self._listener.name, name)

    def client_auth(self) -> str:
        """Where SASL says who a client is, certificates are asked for only by the listener's own
        setting, as in Apache Kafka (KIP-684)."""
        own = f"listener.name.{self._listener.name.lower()}.ssl.client.auth"
        if self._listener.protocol == "SASL_SSL" and self._config.text(own) is None:
            return "none"
        return (self.text("ssl.client.auth") or "none").lower()

    def fingerprint(self) -> Fingerprint:
        """What tells whether contexts would differ: settings, and files by size and time."""
        told: list[object] = [self.text(name) for name in _KEYS]
        for name in _FILES:
            path = self.text(name)
            try:
                found = Path(path).stat() if path is not None else None
            except OSError:
                found = None
            told.append(found and (found.st_mtime_ns, found.st_size, found.st_ino))
        return tuple(told)


def check_tls(config: BrokerConfig, listener: Listener) -> None:
    """Whether a listener could speak TLS. Raises ConfigError of one line."""
    _rules_of(config, listener)
    server_context(config, listener)


def _rules_of(config: BrokerConfig, listener: Listener) -> list[Rule]:
    rules = config.text_of(listener.name, "ssl.principal.mapping.rules") or "DEFAULT"
    try:
        return parse_rules(rules)
    except ConfigError as error:
        raise ConfigError(f"listener {listener.name}: {error}") from None


def server_context(config: BrokerConfig, listener: Listener) -> TlsContext:
    """What a listener shows and trusts. Raises ConfigError of one line."""
    settings = _Settings(config, listener)
    try:
        context = TlsContext(server=True)
        for speak, name in ((speak_versions, "ssl.enabled.protocols"),
                            (speak_ciphers, "ssl.cipher.suites")):  # fmt: skip
            speak(context, settings.name(name), settings.words(name))
        _set_identity(context, settings)
        if config.flag("kbroker.tls.kernel"):
            context.use_kernel()
        asked = settings.client_auth()
        if asked != "none":
            _set_trust(context, settings)
            context.ask_clients(required=asked == "required")
    except ValueError as error:
        raise ConfigError(f"listener {listener.name}: {error}") from None
    return context


def _set_identity(context: TlsContext, settings: _Settings) -> None:
    password = settings.text("ssl.key.password")
    key, chain = settings.text("ssl.keystore.key"), settings.text("ssl.keystore.certificate.chain")
    path = settings.text("ssl.keystore.location")
    name = settings.name("ssl.keystore.location")
    if path is not None and (key or chain):
        raise ValueError("ssl.keystore.location and ssl.keystore.key are both set; keep one")
    if path is not None:
        store_password = settings.text("ssl.keystore.password")
        identity_store(context, name, path, store_password, password)
    elif key is not None and chain is not None:
        source = settings.name("ssl.keystore.certificate.chain")
        context.identity_pem(inline_pem(chain), inline_pem(key), password, source)
    else:
        raise ValueError(
            "TLS needs a key and its certificate: set ssl.keystore.location, or both of"
            " ssl.keystore.key and ssl.keystore.certificate.chain; `kbroker cert create` makes some"
        )


def _set_trust(context: TlsContext, settings: _Settings) -> None:
    """Without a trust store everybody whom the system trusts, as Apache Kafka takes Java's."""
    certificates = settings.text("ssl.truststore.certificates")
    path = settings.text("ssl.truststore.location")
    if path is not None and certificates is not None:
        raise ValueError(
            "ssl.truststore.location and ssl.truststore.certificates are both set; keep one"
        )
    if path is not None:
        password = settings.text("ssl.truststore.password")
        trust_store(context, settings.name("ssl.truststore.location"), path, password)
    elif certificates is not None:
        source = settings.name("ssl.truststore.certificates")
        context.trust_pem(inline_pem(certificates), source)
    else:
        context.trust_system()


def takes_public_clients(config: BrokerConfig, listener: Listener) -> bool:
    """Whether certificates are asked for and those count that the system trusts."""
    settings = _Settings(config, listener)
    stores = map(settings.text, ("ssl.truststore.location", "ssl.truststore.certificates"))
    return settings.client_auth() != "none" and not any(stores)


def _is_true(config: BrokerConfig, listener: str, name: str) -> bool:
    return (config.text_of(listener, name) or "").lower() == "true"


def check_successor(config: BrokerConfig, old: TlsContext, new: TlsContext, name: str) -> None:
    """Whether a certificate may take the place of another while clients know that. Raises
    ConfigError."""
    before, after = old.certificate() or b"", new.certificate() or b""
    subjects = [rfc2253(subject_of(one)) for one in (before, after)]
    if subjects[0].lower() != subjects[1].lower() and not _is_true(
        config, name, "ssl.allow.dn.changes"
    ):
        raise ConfigError(
            f"listener {name}: the certificate is {subjects[1]}'s, the one in force"
            f" {subjects[0]}'s; ssl.allow.dn.changes=true would allow that"
        )
    if alternative_names(before) - alternative_names(after) and not _is_true(
        config, name, "ssl.allow.san.changes"
    ):
        raise ConfigError(
            f"listener {name}: the certificate lacks alternative names of the one in force;"
            " ssl.allow.san.changes=true would allow that"
        )


class TlsListeners:
    """The contexts of all TLS listeners. The control thread owns it once the broker serves."""

    def __init__(
        self,
        config: BrokerConfig,
        listeners: Iterable[Listener],
        install: Callable[[str, TlsContext], None],
    ) -> None:
        """`install` gives a listener's context to the network threads. Reads every store; raises
        ConfigError."""
        self._config = config
        self._install = install
        self._listeners = [one for one in listeners if one.protocol in TLS_PROTOCOLS]
        self._rules = {one.name: _rules_of(config, one) for one in self._listeners}
        self._prints = {one.name: _Settings(config, one).fingerprint() for one in self._listeners}
        self._contexts = {one.name: server_context(config, one) for one in self._listeners}

    def __bool__(self) -> bool:
        return bool(self._listeners)

    def install(self) -> None:
        """Give every listener its context; the listeners are there."""
        for name, context in self._contexts.items():
            self._install(name, context)

    def check(self, config: BrokerConfig) -> None:
        """Whether other settings can be used, now and at the next start. Raises ConfigError."""
        for one in self._listeners:
            _rules_of(config, one)
        self.successors(config)

    def successors(self, config: BrokerConfig) -> dict[str, TlsContext]:
        """The contexts that other settings, or other contents of files, make; none where all is as
        it was. Raises ConfigError where they cannot be used."""
        made = {}
        for one in self._listeners:
            if _Settings(config, one).fingerprint() != self._prints[one.name]:
                made[one.name] = server_context(config, one)
                check_successor(config, self._contexts[one.name], made[one.name], one.name)
        return made

    def reload(self) -> list[str]:
        """Take over what has changed, if it can be used; the names of the listeners."""
        prints = {one.name: _Settings(self._config, one).fingerprint() for one in self._listeners}
        try:
            made = self.successors(self._config)
        except ConfigError as error:
            _LOG.error("TLS stays as it was: %s", error)
            return []
        for name, context in made.items():
            self._prints[name], self._contexts[name] = prints[name], context
            self._install(name, context)
            _LOG.info("listener %s: the key store was read again", name)
        return list(made)

    def user_of(self, listener: str, subject: bytes) -> str | None:
        """The name that ssl.principal.mapping.rules make of a subject (DER); None where none fits.
        Raises ValueError for what is no name."""
        return mapped(self._rules[listener], rfc2253(subject))
