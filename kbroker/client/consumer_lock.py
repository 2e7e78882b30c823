"""UseLock of a consumer, with the client's exceptions."""

from __future__ import annotations

from typing import Final, Self

from kbroker.client.errors import ClosedError, ConcurrentUseError, ForkError, KafkaError
from kbroker.ext import client_use_lock
from kbroker.ext.client_fetch import Fetcher

__all__ = ["UseLock"]

_ERRORS: Final = {
    client_use_lock.FORKED: (
        ForkError, "this consumer was made before fork(); make a new one in the child"
    ),
    client_use_lock.GIVING: (
        ConcurrentUseError,
        "the consumer is giving out records, to another thread or by way of a deserializer",
    ),
    client_use_lock.IN_USE: (
        ConcurrentUseError,
        "the consumer is in use by another thread; only wakeup() may be called from it",
    ),
    client_use_lock.CLOSED: (ClosedError, "the consumer was closed"),
}  # fmt: skip


class UseLock(client_use_lock.UseLock):
    """Exclusive use by one thread at a time; calls of that thread may nest (a listener that
    commits)."""

    __slots__ = ()

    def __new__(cls, fetcher: Fetcher) -> Self:
        """Any exception but these, which the client raises itself, may have split a change."""
        return super().__new__(cls, fetcher, (KafkaError, ValueError, TypeError))

    def _error(self, why: int) -> Exception:
        kind, text = _ERRORS[why]
        return kind(text)
