"""What Apache Kafka would do at a setting's word and kbroker would not, where it matters.

A Java class that decides who gets in or what is allowed is refused: without it others would get in,
and more would be allowed, than the file says. Kafka's own classes are taken, since kbroker does
what they do. Of other settings without effect the start tells a line (see report.ignored_line).
"""

from __future__ import annotations

from typing import Final

from kbroker.config.types import ConfigError, ConfigKey

_KAFKA: Final = "org.apache.kafka.common.security."
_OAUTH: Final = f"{_KAFKA}oauthbearer."

# Keys that name what decides, and of each what kbroker does itself.
_DECIDING: Final[dict[str, tuple[str, ...]]] = {
    "alter.config.policy.class.name": (),
    "client.quota.callback.class": (),
    "create.topic.policy.class.name": (),
    "principal.builder.class": (f"{_KAFKA}authenticator.DefaultKafkaPrincipalBuilder",),
    "sasl.oauthbearer.jwt.validator.class": (
        f"{_OAUTH}BrokerJwtValidator",
        f"{_OAUTH}DefaultJwtValidator",
    ),
    "sasl.server.callback.handler.class": (
        f"{_KAFKA}plain.internals.PlainServerCallbackHandler",
        f"{_KAFKA}scram.internals.ScramServerCallbackHandler",
        f"{_OAUTH}OAuthBearerValidatorCallbackHandler",
        f"{_OAUTH}secured.OAuthBearerValidatorCallbackHandler",
        f"{_OAUTH}internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler",
    ),
    "security.providers": (),
    "ssl.engine.factory.class": (f"{_KAFKA}ssl.DefaultSslEngineFactory",),
}
_TIERED: Final = "remote.log.storage.system.enable"


def refuse_unheeded(key: ConfigKey, name: str, text: str) -> None:
    """Raises ConfigError where `name`, which sets `key` for a listener or all, asks for what would
    not be done."""
    value = text.strip()
    if key.name in _DECIDING and value and value not in _DECIDING[key.name]:
        known = _DECIDING[key.name]
        own = f"; it does what {' and '.join(known)} does" if known else ""
        raise ConfigError(
            f"{name}: kbroker loads no Java classes, and would not do what {value} does{own}"
        )
    if key.name == _TIERED and value.lower() == "true":
        raise ConfigError(f"{name}: kbroker has no tiered storage; take the line out")
