"""SASL on a new connection: SaslHandshake, then SaslAuthenticate until both sides are content.

PLAIN (RFC 4616), SCRAM-SHA-256 and -512, OAUTHBEARER. What the broker tells of the session's life
(KIP-368) becomes the connection's `renew_at`: sessions are renewed by replacing the connection,
somewhere between 85 and 95 percent of its life, so that all of a client's do not fall together.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from kbroker import jaas
from kbroker.client.connection import Connection
from kbroker.client.errors import AuthenticationError, ConfigError, check
from kbroker.client.oauth import TokenSource, initial_response
from kbroker.client.scram import Scram
from kbroker.errors import ErrorCode
from kbroker.ext.client_clock import monotonic
from kbroker.protocol import ApiKey

if TYPE_CHECKING:
    from kbroker.client.config_common import ClientConfig

__all__ = ["login_of", "parse_jaas"]

Login = Callable[[Connection], None]

_RENEWAL = (0.85, 0.95)

_MODULES = {
    "PLAIN": "PlainLoginModule",
    "SCRAM-SHA-256": "ScramLoginModule",
    "SCRAM-SHA-512": "ScramLoginModule",
    "OAUTHBEARER": "OAuthBearerLoginModule",
}


def parse_jaas(text: str) -> tuple[str, dict[str, str]]:
    """Login module and options of Kafka's `sasl.jaas.config`. Raises ConfigError."""
    try:
        return jaas.parse_jaas(text)
    except ValueError as error:
        raise ConfigError(str(error)) from None


def login_of(config: ClientConfig) -> Login | None:
    """What authenticates a new connection; None where there is no SASL. Raises ConfigError."""
    if not config.security_protocol.startswith("SASL"):
        return None
    mechanism = config.sasl_mechanism
    options: Mapping[str, str] = {}
    if config.sasl_jaas_config is not None:
        module, options = parse_jaas(config.sasl_jaas_config)
        if module.rpartition(".")[2] != _MODULES[mechanism]:
            raise ConfigError(
                f"sasl.jaas.config: {module} is not for {mechanism}, which wants"
                f" {_MODULES[mechanism]}"
            )
    if mechanism == "OAUTHBEARER":
        source = TokenSource(config, options)
        return lambda connection: _oauth(connection, source)
    user = options.get("username", config.sasl_username)
    password = options.get("password", config.sasl_password)
    if user is None or password is None:
        raise ConfigError(f"{mechanism} needs sasl.username and sasl.password, or sasl.jaas.config")
    if mechanism == "PLAIN":
        if not user or "\0" in user + password:
            raise ConfigError("sasl.username and sasl.password must not be empty or have NULs")
        return lambda connection: _plain(connection, user, password)
    hash_name = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}[mechanism]
    token = options.get("tokenauth", "").lower() == "true"

    def scram(connection: Connection) -> None:
        exchange = Scram(hash_name, user, password, token=token)
        _handshake(connection, mechanism)
        told = _step(connection, exchange.first())
        told = _step(connection, exchange.final(bytes(told.auth_bytes)))
        exchange.verify(bytes(told.auth_bytes))
        _keep_life(connection, told)

    return scram


def _plain(connection: Connection, user: str, password: str) -> None:
    _handshake(connection, "PLAIN")
    _keep_life(connection, _step(connection, f"\0{user}\0{password}".encode()))


def _oauth(connection: Connection, source: TokenSource) -> None:
    token = source.token()
    _handshake(connection, "OAUTHBEARER")
    told = _step(connection, initial_response(token))
    if told.auth_bytes:  # JSON that says what is wrong; ^A asks for the verdict (RFC 7628)
        _step(connection, b"\x01")
        text = bytes(told.auth_bytes).decode(errors="replace")
        raise AuthenticationError(f"broker {connection.address} refused the token: {text}")
    _keep_life(connection, told)


def _handshake(connection: Connection, mechanism: str) -> None:
    told = connection.call(ApiKey.SASL_HANDSHAKE, {"mechanism": mechanism})
    other = told.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    wrong = f"it offers {', '.join(told.mechanisms)}" if other else None
    check(told.error_code, f"{mechanism} at broker {connection.address}", wrong)


def _step(connection: Connection, message: bytes) -> Any:
    told = connection.call(ApiKey.SASL_AUTHENTICATE, {"auth_bytes": message})
    check(told.error_code, f"broker {connection.address}", told.error_message)
    return told


def _keep_life(connection: Connection, told: Any) -> None:
    life = told.session_lifetime
    life_s = life.total_seconds() if hasattr(life, "total_seconds") else life / 1e3
    if life_s > 0:
        connection.renew_at = monotonic() + life_s * random.uniform(*_RENEWAL)
