"""SASL OAUTHBEARER (RFC 7628, KIP-255, KIP-768): a token says who the client is.

    C: n,[a=authorization id],^Aauth=Bearer TOKEN^A[key=value^A]...^A
    S: (empty), or JSON that says no; then
    C: ^A
    S: the refusal

A token is signed by a key of `sasl.oauthbearer.jwks.endpoint.url`. Unsigned ones are taken only
where the listener names Kafka's handler for them:

    listener.name.NAME.oauthbearer.sasl.server.callback.handler.class=
        org.apache.kafka...OAuthBearerUnsecuredValidatorCallbackHandler

What it wants of them is in the JAAS settings (`kbroker.security.unsecured`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from kbroker.security import jwt
from kbroker.security.mechanism import AuthenticationError, Step
from kbroker.security.principals import USER, Principal

_MESSAGE: Final = re.compile(
    rb"n,(?:a=(?P<authzid>[^,\x01]*))?,\x01(?P<pairs>(?:[A-Za-z]+=[^\x01]*\x01)+)\x01"
)
_BEARER: Final = re.compile(r"[Bb]earer +(?P<token>[-A-Za-z0-9._~+/]+=*)")
_NO: Final = b'{"status":"invalid_token"}'
_REFUSED: Final = "refused"
_MS_PER_S: Final = 1000


class Demands(NamedTuple):
    """What a listener wants of a token's claims, and how far clocks may be apart. Scopes are asked
    of unsigned tokens alone, as by Kafka (`kbroker.security.unsecured`)."""

    subject: str = "sub"
    issuer: str = ""
    audiences: frozenset[str] = frozenset()
    skew_s: float = 30
    signed: bool = True
    scopes: frozenset[str] = frozenset()
    scope_claim: str = "scope"


Keys = Callable[[str | None], list[Mapping[str, Any]]]
"""The keys that a token with this key id, or none, may be signed by."""


class OAuthBearer:
    """The mechanism."""

    def __init__(self, demands: Demands, keys: Keys, now_ms: Callable[[], int]) -> None:
        self._demands = demands
        self._keys = keys
        self._now_ms = now_ms

    def step(self, state: Any, message: bytes) -> Step:
        """See kbroker.security.mechanism."""
        if state is not None:
            raise AuthenticationError(f"a token that is not valid: {state[1]}")
        found = _MESSAGE.fullmatch(message)
        if found is None:
            raise AuthenticationError("an OAUTHBEARER message that is none")
        try:
            user, ends_ms = self._verified(_token_of(found["pairs"]))
        except jwt.TokenError as error:
            return Step(_NO, [_REFUSED, str(error)])
        claimed = (found["authzid"] or b"").decode(errors="replace")
        if claimed not in ("", user):
            raise AuthenticationError("an authorization id that is not the token's", user)
        return Step(b"", who=Principal(USER, user), ends_ms=ends_ms)

    def _verified(self, text: str) -> tuple[str, int]:
        """Whose token it is and when it ends. Raises TokenError."""
        token = jwt.take_apart(text)
        if self._demands.signed:
            self._check_signature(token)
        elif token.header.get("alg") != "none" or token.signature:
            raise jwt.TokenError("a signed token where unsigned ones are named")
        return self._check_claims(token.claims)

    def _check_signature(self, token: jwt.Token) -> None:
        key_id = token.header.get("kid")
        keys = self._keys(key_id if isinstance(key_id, str) else None)
        if not keys:
            raise jwt.TokenError("signed by a key that is not known")
        for number, key in enumerate(keys, 1):
            try:
                jwt.verify(token, key)
                return
            except jwt.TokenError:
                if number == len(keys):
                    raise

    def _check_claims(self, claims: Mapping[str, Any]) -> tuple[str, int]:
        demands, now_s = self._demands, self._now_ms() / _MS_PER_S
        ends_s = _time(claims, "exp", needed=True)
        made_s = _time(claims, "iat", needed=demands.signed)
        if now_s >= ends_s + demands.skew_s:
            raise jwt.TokenError("it has ended")
        if _time(claims, "nbf") > now_s + demands.skew_s:
            raise jwt.TokenError("it is not valid yet")
        if demands.issuer and claims.get("iss") != demands.issuer:
            raise jwt.TokenError("of another issuer")
        told = claims.get("aud")
        listed = told if isinstance(told, list) else [told]
        audiences = {one for one in listed if isinstance(one, str)}
        asked = demands.signed and bool(audiences or demands.audiences)
        if asked and demands.audiences.isdisjoint(audiences):
            raise jwt.TokenError("made out for others")
        if not demands.signed:
            self._check_unsigned(claims, made_s, ends_s)
        user = claims.get(demands.subject)
        if not isinstance(user, str) or not user.strip():
            raise jwt.TokenError(f"no {demands.subject} in it")
        return user, int(ends_s * _MS_PER_S)

    def _check_unsigned(self, claims: Mapping[str, Any], made_s: float, ends_s: float) -> None:
        """What Kafka asks of these alone."""
        demands = self._demands
        if made_s > self._now_ms() / _MS_PER_S + demands.skew_s or ends_s <= made_s:
            raise jwt.TokenError("made later than now, or than its end")
        told = claims.get(demands.scope_claim)
        listed = told if isinstance(told, list) else [told]  # a text is one scope, as Kafka has it
        scopes = {one.strip() for one in listed if isinstance(one, str)}
        if not demands.scopes <= scopes:
            raise jwt.TokenError(f"without the scope {' '.join(sorted(demands.scopes - scopes))}")


def _time(claims: Mapping[str, Any], name: str, *, needed: bool = False) -> float:
    value = claims.get(name, None if needed else 0)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e12:
        raise jwt.TokenError(f"{name} is no time")
    return value


def _token_of(pairs: bytes) -> str:
    told = dict(pair.split(b"=", 1) for pair in pairs.split(b"\x01")[:-1])
    found = _BEARER.fullmatch(told.get(b"auth", b"").decode(errors="replace"))
    if found is None:
        raise AuthenticationError("an OAUTHBEARER message without a token")
    return found["token"]
