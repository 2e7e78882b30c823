"""What a listener wants of unsigned tokens, said in its JAAS settings as for Apache Kafka's
OAuthBearerUnsecuredValidatorCallbackHandler (KIP-255):

    listener.name.NAME.oauthbearer.sasl.jaas.config=...OAuthBearerLoginModule required
        unsecuredValidatorRequiredScope="kafka" unsecuredValidatorPrincipalClaimName="email";
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from kbroker.config.types import ConfigError
from kbroker.jaas import parse_jaas
from kbroker.security.oauth import Demands

_MODULE: Final = "OAuthBearerLoginModule"
_OPTION: Final = "unsecuredValidator"
_SCOPE: Final = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")
_MS: Final = re.compile(r"[+]?\d{1,9}")


def unsecured_demands(jaas: str | None) -> Demands:
    """Raises ConfigError. Without settings a token only has to name its subject and not be over."""
    options = {} if jaas is None else _options(jaas)

    def told(name: str, default: str) -> str:
        return options.get(_OPTION + name, "").strip() or default

    skew_ms = told("AllowableClockSkewMs", "0")
    if not _MS.fullmatch(skew_ms):
        raise ConfigError(
            f"sasl.jaas.config: {_OPTION}AllowableClockSkewMs is {skew_ms!r}, and has to be "
            "milliseconds, 0 or more"
        )
    scopes = told("RequiredScope", "").split()
    wrong = [scope for scope in scopes if not _SCOPE.fullmatch(scope)]
    if wrong:
        raise ConfigError(
            f"sasl.jaas.config: {wrong[0]!r} of {_OPTION}RequiredScope is no scope (RFC 6749)"
        )
    return Demands(
        told("PrincipalClaimName", "sub"),
        skew_s=int(skew_ms) / 1000,
        signed=False,
        scopes=frozenset(scopes),
        scope_claim=told("ScopeClaimName", "scope"),
    )


def _options(jaas: str) -> Mapping[str, Any]:
    try:
        module, options = parse_jaas(jaas)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    if module.rpartition(".")[2] != _MODULE:
        raise ConfigError(
            f"sasl.jaas.config: {module} is not for OAUTHBEARER, which wants {_MODULE}"
        )
    return options
