"""What a control thread has to ask of brokers, on threads beside it.

A broker that takes connections and never answers holds whoever asks it until a time limit. So the
control thread of a producer or consumer asks nobody itself: each errand has a key, a broker's node
for one, and those of one key run on one thread in their order. What comes of them is worked up by
`collect`, on the control thread again. A thread that has nothing to do for a while ends; those
that wait for a broker when the client is closed end with that wait.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

from kbroker.client.connection import Connection
from kbroker.client.native_threads import Empty, Lock, SimpleQueue, thread

__all__ = ["Errands"]

_IDLE_S = 10.0


class _Done(NamedTuple):
    """result: what the work returned, or the exception that it raised."""

    key: Hashable
    then: Callable[[Any], None]
    result: Any


class Errands:
    """Errands of one control thread, which alone calls it. name: of its threads. wake: called on
    another thread when there is something to be collected."""

    def __init__(self, name: str, wake: Callable[[], None]) -> None:
        self._name = name
        self._wake = wake
        self._lock = Lock()  # of `_queues`: a thread that ends takes its own away
        self._queues: dict[Hashable, SimpleQueue[Any]] = {}
        self._done: SimpleQueue[_Done] = SimpleQueue()
        self._left: dict[Hashable, int] = {}
        self._closed = False

    def busy(self, key: Hashable) -> bool:
        """True while an errand of this key is under way, or not collected."""
        return key in self._left

    def start(self, key: Hashable, work: Callable[[], Any], then: Callable[[Any], None]) -> None:
        """Runs `work` behind what was started with this key; `then` gets what it returned, or the
        exception that it raised."""
        with self._lock:
            jobs = self._queues.get(key)
            if jobs is None:
                jobs = SimpleQueue()
                thread(self._serve, f"{self._name}-ask", key, jobs).start()
                self._queues[key] = jobs
            jobs.put((work, then))
        self._left[key] = self._left.get(key, 0) + 1

    def collect(self) -> None:
        """Works up what has ended since."""
        while not self._done.empty():
            done = self._done.get()
            self._left[done.key] -= 1
            if self._left[done.key] == 0:
                del self._left[done.key]
            done.then(done.result)

    def close(self) -> None:
        """Its threads end, each as soon as it waits for nobody; what is done is given up."""
        with self._lock:
            self._closed = True
            for jobs in self._queues.values():
                jobs.put(None)
        while not self._done.empty():
            _drop(self._done.get().result)

    def _serve(self, key: Hashable, jobs: SimpleQueue[Any]) -> None:
        while True:
            try:
                job = jobs.get(timeout=_IDLE_S)
            except Empty:
                with self._lock:
                    if jobs.empty():
                        del self._queues[key]
                        return
                continue
            if job is None:
                return
            work, then = job
            try:
                result = work()
            except Exception as error:  # told to whoever collects
                result = error
            with self._lock:
                if self._closed:
                    _drop(result)
                    return
                self._done.put(_Done(key, then, result))
            del work, then, result, job
            self._wake()


def _drop(result: Any) -> None:
    """Nobody wants it any more."""
    if isinstance(result, Connection):
        result.close()
