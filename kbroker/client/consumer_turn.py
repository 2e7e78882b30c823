"""Who may use a consumer now."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator

from kbroker.client.errors import ClosedError, ConcurrentUseError, ForkError
from kbroker.ext.client_fetch import Fetcher

__all__ = ["Turn"]


class Turn:
    """One thread at a time; within it calls may nest (a listener that commits)."""

    def __init__(self, fetcher: Fetcher) -> None:
        self._fetcher = fetcher
        self._lock = threading.Lock()
        self._owner = 0
        self._depth = 0
        self._pid = os.getpid()
        self.closed = False

    @property
    def forked(self) -> bool:
        """This is a child of the process that made it."""
        return self._pid != os.getpid()

    def __enter__(self) -> None:
        me = threading.get_ident()
        if self.forked:
            raise ForkError("this consumer was made before fork(); make a new one in the child")
        if self._fetcher.busy:  # which iteration is without a turn, to be quick
            raise ConcurrentUseError(
                "the consumer is giving out records, to another thread or by way of a deserializer"
            )
        if self._owner != me:
            if not self._lock.acquire(blocking=False):
                raise ConcurrentUseError(
                    "the consumer is in use by another thread; only wakeup() may be called from it"
                )
            self._owner = me
        if self.closed:
            self._leave()
            raise ClosedError("the consumer was closed")
        self._depth += 1

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        self._leave()

    @contextlib.contextmanager
    def lent(self) -> Iterator[None]:
        """The calling thread has it, while the one at turn waits for this to end."""
        owner, self._owner = self._owner, threading.get_ident()
        try:
            yield
        finally:
            self._owner = owner

    def _leave(self) -> None:
        if self._depth == 0:
            self._owner = 0
            self._lock.release()
