"""What the control thread has done on a log directory's disk, and an end to the wait for it.

A disk may hang for as long as it likes, and the control thread answers heartbeats. So what it has
to write is done by a thread of the directory, piece by piece in their order. What gets on is waited
for, as many logs take their time; what has stood for a second, or has taken several, is not. What
was to follow follows when the disk is back.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, Final, TypeVar

from kbroker.errors import KbrokerError

WAIT_S: Final = 1.0
"""For a step."""
WAIT_ALL_S: Final = 5.0
_LOG: Final = logging.getLogger("kbroker.storage")

Post = Callable[[Callable[[], None]], None]
T = TypeVar("T")


class DiskWorker:
    """Of the control thread. Until it is opened, and after it is closed, all is done by the caller
    and waited for: nobody is served then."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._post: Post | None = None
        self._executor: ThreadPoolExecutor | None = None
        self.steps = 0
        """Of what is being done; counted by it, where it has many."""
        self._late: deque[tuple[Future[Any], Callable[[Any], object]]] = deque()

    @property
    def late(self) -> bool:
        """Whether something is under way that is not waited for any more."""
        return bool(self._late)

    def open(self, post: Post) -> None:
        """From now on in a thread of its own; `post` has something done by the control thread."""
        self._post = post

    def close(self) -> None:
        """Wait for what is under way, and let follow what was to."""
        if self._executor is not None:
            self._executor.shutdown()
        self._post = self._executor = None
        self._go_on()

    def do(
        self, work: Callable[[], T], then: Callable[[T], object], *, patient: bool = False
    ) -> bool:
        """Have `work` done, which changes nothing of the control thread's, then `then` by the
        caller, with what it gave. Raises what either raises. False where it stands for too long, or
        something before it does: `then` is called later, and what is raised then is logged.
        `patient`: it may take as long as it takes."""
        if self._post is None:
            then(work())
            return True
        if self._executor is None:
            self._executor = ThreadPoolExecutor(1, "disk")
        future = self._executor.submit(work)
        if patient:
            wait([future])
            self._go_on()
        if not self._late and self._is_soon_over(future):
            then(future.result())
            return True
        if not self._late:
            _LOG.warning("the disk of %s does not answer: changes there are late", self._name)
        self._late.append((future, then))
        post = self._post
        future.add_done_callback(lambda _: post(self._go_on))
        return False

    def _is_soon_over(self, future: Future[Any]) -> bool:
        ends_s = time.monotonic() + WAIT_ALL_S
        seen = -1
        while seen != self.steps and time.monotonic() < ends_s:
            seen = self.steps
            if wait([future], WAIT_S).done:
                return True
        return False

    def _go_on(self) -> None:
        """With those that are over, in their order."""
        while self._late and self._late[0][0].done():
            future, then = self._late.popleft()
            try:
                then(future.result())
            except (KbrokerError, OSError) as error:
                _LOG.error("a late change in %s: %s", self._name, error)
            except Exception:  # what comes behind it has its turn
                _LOG.exception("a late change in %s", self._name)
