"""What a listener wants of unsigned tokens, said in its JAAS settings as for Apache Kafka's
OAuthBearerUnsecuredValidatorCallbackHandler (KIP-255):

    listener.name.NAME.oauthbearer.sasl.jaas.config=...OAuthBearerLoginModule required
        unsecuredValidatorRequiredScope="kafka" unsecuredValidatorPrincipalClaimName="email";
"""

from __future__ import annotations

import re
from typing import Final

from kbroker.config.types import ConfigError
from kbroker.security.login_modules import module_options
from kbroker.security.oauth import Demands

_MODULE: Final = "OAuthBearerLoginModule"
_OPTION: Final = "unsecuredValidator"
_SCOPE: Final = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")
_MS: Final = re.compile(r"[+]?\d{1,9}")


def unsecured_demands(jaas: str | None) -> Demands:
    """Raises ConfigError. Without settings a token only has to name its subject and not be over."""
    options = {} if jaas is None else module_options(jaas, _MODULE, "OAUTHBEARER")

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
