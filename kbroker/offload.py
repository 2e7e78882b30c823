"""Offload: a thread for computations that take long, beside the control thread.

Clients take turns on it, however many computations each has asked for. Encodings go before
decodings, as an answer frees what its request holds: up to four, then a decoding has its turn. What
was asked for by a client that is gone is dropped. While requests that were decoded hold many bytes
no other is decoded.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Hashable
from typing import Any, Final, NamedTuple, TypeVar

from kbroker.operations import Completion, GoneError, settle

_ENCODINGS: Final = 4
"""In a row, while a decoding waits."""
HELD_MAX_BYTES: Final = 32 << 20
"""Of large requests that were decoded and not answered; as objects they take ten times as much."""
_LOG: Final = logging.getLogger("kbroker.server")

T = TypeVar("T")


class Asker(NamedTuple):
    """Asks for a computation: `key` is the client with which others take turns."""

    key: Hashable = None
    gone: Callable[[], bool] | None = None


_ANYBODY: Final = Asker()


class _Task(NamedTuple):
    work: Callable[[], Any]
    done: Completion[Any]
    asker: Asker
    holds: int

    def is_gone(self) -> bool:
        return self.asker.gone is not None and self.asker.gone()


class _Queue:
    """Tasks of clients that take turns."""

    def __init__(self) -> None:
        self._by_client: dict[Hashable, deque[_Task]] = {}

    def __bool__(self) -> bool:
        return bool(self._by_client)

    def put(self, task: _Task) -> None:
        self._by_client.setdefault(task.asker.key, deque()).append(task)

    def take(self) -> _Task:
        """The next task of the client that has waited longest for its turn."""
        key = next(iter(self._by_client))
        tasks = self._by_client.pop(key)
        task = tasks.popleft()
        if tasks:
            self._by_client[key] = tasks
        return task

    def take_gone(self) -> list[_Task]:
        """The tasks of clients that are gone."""
        taken: list[_Task] = []
        for key, tasks in list(self._by_client.items()):
            left: deque[_Task] = deque()
            for task in tasks:
                (taken if task.is_gone() else left).append(task)
            if left:
                self._by_client[key] = left
            else:
                del self._by_client[key]
        return taken


class Offload:
    """A thread for pure computations that take long (decoding and encoding what is large, checking
    signatures): they share the interpreter with the control thread instead of holding it. Until it
    is opened, after it is closed, and while the system gives no thread, the caller computes."""

    def __init__(self, name: str = "offload") -> None:
        """`name` is the thread's."""
        self._name = name
        self._post: Callable[[Callable[[], None]], None] | None = None
        self._thread: threading.Thread | None = None
        self._changed = threading.Condition()
        self._encodings = _Queue()
        self._decodings = _Queue()
        self._in_a_row = 0
        self._held_bytes = 0
        self._closing = False

    def open(self, post: Callable[[Callable[[], None]], None]) -> None:
        """Compute on the thread from now on; `post` runs a callable on the control thread."""
        self._post = post

    def close(self) -> None:
        """End after the computation under way."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()
        self._post = self._thread = None
        self._encodings, self._decodings = _Queue(), _Queue()
        self._closing = False

    def run(
        self,
        work: Callable[[], T],
        asker: Asker = _ANYBODY,
        *,
        encodes: bool = False,
        holds: int = 0,
    ) -> Completion[T]:
        """Compute; the completion has the result or what was raised: GoneError where the client
        has gone before. Whether it `encodes` an answer decides on its place. The result `holds` so
        many bytes of a request until they are released, whatever became of it."""
        done: Completion[T] = Completion()
        if self._post is None or not self._has_thread():
            self._held_bytes += holds
            settle(done, work)
            return done
        with self._changed:
            queue = self._encodings if encodes else self._decodings
            queue.put(_Task(work, done, asker, holds))
            self._changed.notify()
        return done

    def release(self, held: int) -> None:
        """Of a result that was held, so many bytes are no longer."""
        with self._changed:
            self._held_bytes -= held
            self._changed.notify()

    def drop_gone(self) -> None:
        """Drop what clients that are gone have asked for; to be called about once a second."""
        with self._changed:
            dropped = self._encodings.take_gone() + self._decodings.take_gone()
            self._held_bytes += sum(task.holds for task in dropped)
        for task in dropped:
            task.done.fail(GoneError())

    def _has_thread(self) -> bool:
        if self._thread is not None:
            return True
        thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            _LOG.warning("cannot start the thread %s: %s; the control thread computes", self._name,
                         error)  # fmt: skip
            return False
        self._thread = thread
        return True

    def _run(self) -> None:
        post = self._post
        assert post is not None
        while (task := self._next()) is not None:
            outcome: Completion[Any] = Completion()
            if task.is_gone():
                outcome.fail(GoneError())
            else:
                settle(outcome, task.work)
            post(lambda done=task.done, outcome=outcome: settle(done, outcome.result))  # type: ignore[misc]
            del task, outcome

    def _next(self) -> _Task | None:
        """Wait for a task; None at the end."""
        with self._changed:
            while not self._closing:
                decodes = bool(self._decodings) and self._held_bytes < HELD_MAX_BYTES
                if self._encodings and (self._in_a_row < _ENCODINGS or not decodes):
                    self._in_a_row += 1
                    return self._encodings.take()
                if decodes:
                    self._in_a_row = 0
                    task = self._decodings.take()
                    self._held_bytes += task.holds
                    return task
                self._changed.wait()
            return None
