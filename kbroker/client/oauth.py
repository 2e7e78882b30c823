"""Tokens for SASL OAUTHBEARER (RFC 7628, KIP-255, KIP-768): where they come from, and their life.

From a callable of the user's (`sasl.oauthbearer.token.callback`), from a token endpoint with the
client's credentials (`sasl.oauthbearer.token.endpoint.url`), or, only when asked for, unsigned ones
made here. A token is kept for most of its life (`sasl.login.refresh.*`) and shared by connections.
"""

from __future__ import annotations

import base64
import http.client
import json
import random
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kbroker.client.errors import AuthenticationError, ConfigError
from kbroker.client.native_threads import Lock
from kbroker.ext.client_clock import monotonic
from kbroker.ext.client_flag import Flag
from kbroker.urls import shown_url, split_credentials

if TYPE_CHECKING:
    from kbroker.client.config_common import ClientConfig

__all__ = ["Token", "TokenSource", "initial_response"]

_ANSWER_BYTES_MAX = 1 << 20
_UNSECURED_LIFE_S = 3600
_AGAIN = frozenset({408, 429, 500, 502, 503, 504})


@dataclass(frozen=True, slots=True)
class Token:
    """A bearer token. expires_s: when it ends, in seconds since 1970. extensions: of KIP-342."""

    value: str = field(repr=False)
    expires_s: float
    extensions: Mapping[str, str] = field(default_factory=dict)


def initial_response(token: Token) -> bytes:
    """The client's one message: GS2 header, Authorization, extensions, each ended by ^A."""
    pairs = {"auth": f"Bearer {token.value}", **token.extensions}
    if any("\x01" in text for pair in pairs.items() for text in pair):
        raise AuthenticationError("OAUTHBEARER: token and extensions must not have ^A in them")
    return ("n,,\x01" + "".join(f"{k}={v}\x01" for k, v in pairs.items()) + "\x01").encode()


class TokenSource:
    """Gives the token that is due. Thread-safe: one thread fetches, the others wait for it."""

    def __init__(self, config: ClientConfig, options: Mapping[str, str]) -> None:
        self._config = config
        self._lock = Lock()
        self._token: Token | None = None
        self._renew_at_s = 0.0
        self._extensions = {
            name.removeprefix("extension_"): value
            for name, value in options.items()
            if name.startswith("extension_")
        }
        self._fetch = self._way(options)

    def token(self) -> Token:
        """The token kept, or a new one where that is near its end. Raises AuthenticationError."""
        with self._lock:
            now = time.time()
            if self._token is None or now >= self._renew_at_s:
                try:
                    self._token = self._fetch()
                except AuthenticationError:
                    if self._token is None or now >= self._token.expires_s:
                        raise
                self._renew_at_s = self._renewal(self._token, now)
            return self._token

    def _renewal(self, token: Token, now: float) -> float:
        config = self._config
        life_s = max(token.expires_s - now, 0)
        jitter = random.uniform(0, config.sasl_login_refresh_window_jitter)
        due = now + life_s * (config.sasl_login_refresh_window_factor + jitter)
        due = min(due, token.expires_s - config.sasl_login_refresh_buffer_seconds)
        least = now + config.sasl_login_refresh_min_period_seconds
        return min(max(due, least), token.expires_s)

    def _way(self, options: Mapping[str, str]) -> Callable[[], Token]:
        config = self._config
        subject = options.get("unsecuredLoginStringClaim_sub")
        if config.sasl_oauthbearer_token_callback is not None:
            return self._called
        if config.sasl_oauthbearer_token_endpoint_url:
            name = config.sasl_oauthbearer_client_credentials_client_id or options.get("clientId")
            secret = config.sasl_oauthbearer_client_credentials_client_secret or options.get(
                "clientSecret"
            )
            if not name or secret is None:
                raise ConfigError(
                    "sasl.oauthbearer.client.credentials.client.id and .client.secret are needed"
                    " with sasl.oauthbearer.token.endpoint.url"
                )
            scope = config.sasl_oauthbearer_scope or options.get("scope")
            return lambda: self._endpoint(name, secret, scope)
        if config.enable_sasl_oauthbearer_unsecure_jwt or subject is not None:
            return lambda: self._unsecured(subject or config.sasl_username or config.client_id)
        raise ConfigError(
            "OAUTHBEARER needs sasl.oauthbearer.token.callback or"
            " sasl.oauthbearer.token.endpoint.url"
        )

    def _called(self) -> Token:
        try:
            token = self._config.sasl_oauthbearer_token_callback()
        except Exception as error:
            raise AuthenticationError(
                f"sasl.oauthbearer.token.callback raised {type(error).__name__}: {error}"
            ) from error
        if not isinstance(token, Token):
            raise AuthenticationError(
                f"sasl.oauthbearer.token.callback gave {type(token).__name__}, not a Token"
            )
        return token

    def _unsecured(self, subject: str) -> Token:
        now = time.time()
        claims = {"sub": subject, "iat": now, "exp": now + _UNSECURED_LIFE_S}
        parts = ({"alg": "none"}, claims)
        text = ".".join(
            base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode()
            for part in parts
        )
        return Token(f"{text}.", now + _UNSECURED_LIFE_S, self._extensions)

    def _endpoint(self, name: str, secret: str, scope: str | None) -> Token:
        config = self._config
        pause_s = config.sasl_login_retry_backoff_ms / 1e3
        over_s = monotonic() + config.sasl_login_retry_backoff_max_ms / 1e3
        while True:
            try:
                return self._post(name, secret, scope)
            except _PassingError as error:
                if monotonic() + pause_s > over_s:
                    raise AuthenticationError(str(error)) from error
            Flag().wait(pause_s)
            pause_s *= 2

    def _post(self, name: str, secret: str, scope: str | None) -> Token:
        config = self._config
        url = str(config.sasl_oauthbearer_token_endpoint_url)
        shown = shown_url(url)
        if urllib.parse.urlsplit(shown).scheme not in ("http", "https"):
            raise ConfigError(
                f"sasl.oauthbearer.token.endpoint.url={shown!r}: must be http or https"
            )
        if config.sasl_oauthbearer_header_urlencode:
            name, secret = urllib.parse.quote_plus(name), urllib.parse.quote_plus(secret)
        form = {"grant_type": "client_credentials"} | ({"scope": scope} if scope else {})
        request = urllib.request.Request(
            split_credentials(url)[0],
            urllib.parse.urlencode(form).encode(),
            {
                "Accept": "application/json",
                "Content-Type": "application/x-www-form-urlencoded",
            },
        )
        basic = base64.b64encode(f"{name}:{secret}".encode()).decode()
        # A server that redirects does not choose who learns the secret.
        request.add_unredirected_header("Authorization", f"Basic {basic}")
        limit_ms = config.sasl_login_read_timeout_ms or config.sasl_login_connect_timeout_ms
        try:
            with urllib.request.urlopen(request, timeout=(limit_ms or 10_000) / 1e3) as answer:
                return self._read(answer.read(_ANSWER_BYTES_MAX))
        except urllib.error.HTTPError as error:
            with error:
                told = f"token endpoint {shown}: {error.code} {error.reason}"
            raise (_PassingError if error.code in _AGAIN else AuthenticationError)(told) from error
        except (OSError, http.client.HTTPException) as error:
            raise _PassingError(f"token endpoint {shown}: {error}") from error

    def _read(self, text: bytes) -> Token:
        try:
            told = json.loads(text)
            value = told.get("access_token") or told.get("id_token")
            life_s = float(told.get("expires_in") or 0)
        except (ValueError, TypeError, AttributeError):
            value, life_s = None, 0.0
        if not isinstance(value, str) or not value.strip():
            raise AuthenticationError("the token endpoint's answer has no access_token")
        expires_s = _expiry_of(value) or time.time() + (life_s or _UNSECURED_LIFE_S)
        return Token(value.strip(), expires_s, self._extensions)


class _PassingError(AuthenticationError):
    """The token endpoint may answer the next time."""


def _expiry_of(token: str) -> float | None:
    """The claim `exp` of a JWT; None where the token is something else."""
    parts = token.split(".")
    try:
        claims: Any = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        return float(claims["exp"])
    except (IndexError, KeyError, TypeError, ValueError):
        return None
