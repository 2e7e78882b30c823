"""Offload: a thread for computations that take long, beside the control thread."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from kbroker.operations import Completion, settle

T = TypeVar("T")


class Offload:
    """A thread for pure computations that take long (decoding and encoding what is large, checking
    signatures): they share the interpreter with the control thread instead of holding it. Until it
    is opened, and after it is closed, the caller computes."""

    def __init__(self, name: str = "offload") -> None:
        """`name` is the thread's."""
        self._name = name
        self._post: Callable[[Callable[[], None]], None] | None = None
        self._executor: ThreadPoolExecutor | None = None

    def open(self, post: Callable[[Callable[[], None]], None]) -> None:
        """Compute on the thread from now on; `post` runs a callable on the control thread."""
        self._post = post

    def close(self) -> None:
        """End after the computation under way."""
        if self._executor is not None:
            self._executor.shutdown(cancel_futures=True)
        self._post = self._executor = None

    def run(self, work: Callable[[], T]) -> Completion[T]:
        """Compute; the completion has the result or what was raised."""
        done: Completion[T] = Completion()
        post = self._post
        if post is None:
            settle(done, work)
            return done
        if self._executor is None:
            self._executor = ThreadPoolExecutor(1, self._name)
        future = self._executor.submit(work)
        future.add_done_callback(
            lambda future: None if future.cancelled()
            else post(lambda: settle(done, future.result))
        )  # fmt: skip
        return done
