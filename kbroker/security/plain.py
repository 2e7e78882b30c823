"""SASL PLAIN (RFC 4616) over the users of a listener's JAAS settings, as Apache Kafka has them:

    listener.name.NAME.plain.sasl.jaas.config=...PlainLoginModule required user_alice="secret";

    C: authorization id NUL user NUL password        the first may be empty
    S: (empty)
"""

from __future__ import annotations

import functools
import hashlib
import hmac
from collections.abc import Mapping
from typing import Any, Final

from kbroker.security.login_modules import module_options
from kbroker.security.mechanism import AuthenticationError, Step
from kbroker.security.principals import USER, Principal

_MODULE: Final = "PlainLoginModule"
_USER: Final = "user_"


@functools.lru_cache(maxsize=64)
def users_of(text: str) -> Mapping[str, str]:
    """Password by user. Raises ConfigError."""
    options = module_options(text, _MODULE, "PLAIN")
    return {
        name.removeprefix(_USER): word for name, word in options.items() if name.startswith(_USER)
    }


class Plain:
    """The mechanism. What is compared are digests, so that no time tells how much was right, nor
    whether there is such a user."""

    def __init__(self, users: Mapping[str, str]) -> None:
        self._users = users

    def step(self, state: Any, message: bytes) -> Step:
        """See kbroker.security.mechanism."""
        del state
        parts = message.split(b"\0")
        if len(parts) != 3:
            raise AuthenticationError(f"a PLAIN message of {len(parts)} parts")
        try:
            claimed, user, password = (part.decode() for part in parts)
        except UnicodeDecodeError:
            raise AuthenticationError("a PLAIN message that is no text") from None
        if not user or not password:
            raise AuthenticationError("a PLAIN message without user or password", user)
        known = self._users.get(user)
        fits = hmac.compare_digest(_digest(password), _digest(known or ""))
        if not fits or not known:
            raise AuthenticationError("a wrong password, or no such user", user)
        if claimed not in ("", user):
            raise AuthenticationError("an authorization id that is not the user", user)
        return Step(b"", who=Principal(USER, user))


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
