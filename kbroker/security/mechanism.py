"""What every SASL mechanism is: a function of what it remembers and of the client's next message.

A mechanism keeps nothing of an exchange: what it remembers is plain data (JSON) that the connection
carries. So no exchange has to be cleared away, and a connection that goes takes its own with it.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from kbroker.security.principals import Principal


class AuthenticationError(Exception):
    """The exchange has failed. The text goes into the log; the client is told no more than that.
    `user` is who it claims to be, where it said so."""

    def __init__(self, text: str, user: str | None = None) -> None:
        super().__init__(text)
        self.user = user


class OutOfTurnError(Exception):
    """A message that no exchange waits for."""


class Step(NamedTuple):
    """What a message leads to: more of the exchange, or the one who the client is."""

    answer: bytes
    state: Any = None
    """Remembered until the next message, where `who` is None."""
    who: Principal | None = None
    by_token: bool = False
    """A delegation token said who it is."""
    ends_ms: int | None = None
    """When what it showed is no longer valid (ms since 1970), None for never."""


class Settled(NamedTuple):
    """What a message leads to for its connection: what it is to remember, and who the client is by
    number, None: not known yet."""

    answer: bytes
    state: bytes
    principal: int | None = None
    session_ms: int = 0
    """Until it must say so again; 0: never."""


class Mechanism(Protocol):
    """One SASL mechanism of one listener."""

    def step(self, state: Any, message: bytes) -> Step:
        """Take the client's next message; `state` is None for the first. Raises
        AuthenticationError."""
