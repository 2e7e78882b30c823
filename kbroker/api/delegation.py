"""What the requests about delegation tokens have in common (KIP-48)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from kbroker.api.context import Context, Services
from kbroker.errors import ClientError, ErrorCode
from kbroker.operations import Completion
from kbroker.security.principals import NOBODY, Principal

if TYPE_CHECKING:
    from kbroker.security.tokens import Tokens

_LOG: Final = logging.getLogger("kbroker.api")
NO_TIME: Final = -1
PRINCIPALS_KEPT: Final = 1_000
"""So many are no matter, whether they are there or not."""
PRINCIPALS_EVERY_MS: Final = 600_000
"""Longer than any operation goes on for a client that has left."""


def tokens_of(context: Context) -> Tokens:
    """The broker's tokens, where they are enabled and this client may ask about them. Raises
    ClientError."""
    check_allowed(context)
    tokens = context.services.tokens
    if not tokens.secret:
        raise ClientError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    return tokens


def check_allowed(context: Context) -> None:
    """Only who has said by itself who it is may: not by a token. Raises ClientError."""
    by_token = context.services.principals.by_token(context.principal_number)
    if by_token or context.principal == NOBODY:
        raise ClientError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)


class PrincipalSweep:
    """Forgets principals that nobody has any more, where there are many."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._next_ms = services.clock.monotonic_ms() + PRINCIPALS_EVERY_MS

    def tick(self) -> None:
        """On the control thread, now and then."""
        services = self._services
        now_ms = services.clock.monotonic_ms()
        if now_ms < self._next_ms:
            return
        self._next_ms = now_ms + PRINCIPALS_EVERY_MS
        if len(services.principals) > PRINCIPALS_KEPT:
            services.principals.forget(services.data_plane.engine.principals_idle)


class TokenSweep:
    """Removes tokens that are over, every `delegation.token.expiry.check.interval.ms`."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._next_ms = self._due_ms()
        self._removing = False

    def _removed(self, done: Completion[None]) -> None:
        self._removing = False
        if done.error is not None:
            _LOG.error("expired delegation tokens are not removed: %s", done.error)

    def _due_ms(self) -> int:
        key = "delegation.token.expiry.check.interval.ms"
        return self._services.clock.monotonic_ms() + self._services.config.integer(key)

    def tick(self) -> None:
        """On the control thread, now and then."""
        services = self._services
        if self._removing or services.clock.monotonic_ms() < self._next_ms:
            return
        records = services.tokens.ended() if services.image.tokens else []
        if records:
            self._removing = True
            services.store.append(records).on_done(self._removed)
        self._next_ms = self._due_ms()


def principal(one: Any) -> Principal:
    """A principal of a request."""
    return Principal(one.principal_type, one.principal_name)
