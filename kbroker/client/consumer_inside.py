"""Calls of an AsyncConsumer from inside a listener or callback of its own.

A listener runs within a call of the consumer's, on the thread that is at turn, and another call
would wait until that one has ended. So while it runs its turn is lent: a call that it makes or
awaits, or that a task of its making does, is run on another thread, one at a time. Which calls
these are is told by their context, which tasks and `asyncio.run_coroutine_threadsafe` pass on.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Collection
from contextvars import ContextVar
from typing import Any, Final, TypeVar

from kbroker.client.consumer_lock import UseLock
from kbroker.client.group.port import RebalanceListener
from kbroker.client.partitions import TopicPartition

__all__ = ["Inside", "Listener", "inside"]

T = TypeVar("T")


class _OverError(Exception):
    """The listener has returned: a call waits for its turn as others do."""


class Inside:
    """While a listener or callback runs, on the thread that is at turn."""

    Over: Final = _OverError

    def __init__(self, lock: UseLock) -> None:
        self.lock = lock
        self._lock = threading.Lock()
        self._over = False

    def __enter__(self) -> None:
        self._token = _now.set(self)

    def __exit__(self, *_: object) -> None:
        """Waits for a call that goes on."""
        _now.reset(self._token)
        with self._lock:
            self._over = True

    def run(self, call: Callable[[], T]) -> T:
        """On another thread. Raises Over."""
        with self._lock:
            if self._over:
                raise self.Over
            owner = self.lock.lend()
            try:
                return call()
            finally:
                self.lock.give_back(owner)


_now: ContextVar[Inside | None] = ContextVar("kbroker_consumer_inside", default=None)


def inside(lock: UseLock) -> Inside | None:
    """What the caller is inside of, of this consumer's."""
    now = _now.get()
    return now if now is not None and now.lock is lock else None


class Listener(RebalanceListener):
    """Calls another listener; what is a coroutine is awaited on the loop, and the rebalance waits
    for it."""

    def __init__(
        self, told: RebalanceListener, lock: UseLock, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._told = told
        self._use = lock
        self._loop = loop

    def on_assigned(self, partitions: Collection[TopicPartition]) -> None:
        self._tell(self._told.on_assigned, partitions)

    def on_revoked(self, partitions: Collection[TopicPartition]) -> None:
        self._tell(self._told.on_revoked, partitions)

    def on_lost(self, partitions: Collection[TopicPartition]) -> None:
        self._tell(self._told.on_lost, partitions)

    def _tell(self, function: Callable[..., Any], partitions: Collection[TopicPartition]) -> None:
        with Inside(self._use):
            found = function(partitions)
            if inspect.isawaitable(found):
                asyncio.run_coroutine_threadsafe(_awaited(found), self._loop).result()


async def _awaited(found: Any) -> None:
    await found
