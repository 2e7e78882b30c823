"""Threads, locks, queues and sockets of the client that no library has patched.

gevent and eventlet replace those of Python's own modules by ones for greenlets, whether this module
is imported before or after. The client's threads are real ones all the same: they run while
greenlets wait, and must not wait for a greenlet. Its locks and sockets go from thread to thread.
What a caller waits for lets other greenlets go on: see ext/greenlets.pyx.
"""

from __future__ import annotations

import _thread
import logging
import select
import socket
import sys
import threading
from _queue import Empty, SimpleQueue
from collections.abc import Callable
from typing import Any, TypeVar

from kbroker.ext.client_clock import monotonic_ns
from kbroker.ext.client_flag import Flag
from kbroker.ext.greenlets import (
    begin_native,
    cooperative,
    end_native,
    patched,
    rest_until,
    thread_ident,
)

__all__ = [
    "Empty",
    "Lock",
    "SimpleQueue",
    "Thread",
    "current",
    "get",
    "is_current",
    "native_poll",
    "of_socket",
    "per_thread",
    "thread",
    "wait_for_io",
]

T = TypeVar("T")

_FOREVER_NS = 2**63 - 1
_log = logging.getLogger("kbroker.client")


def _original(module: Any, name: str) -> Any:
    """Return a function or type of a module as it was before anything patched it."""
    gevent = getattr(sys.modules.get("gevent.monkey"), "get_original", None)
    eventlet = sys.modules.get("eventlet.patcher")
    if gevent is not None:
        return gevent(module.__name__, name)
    if eventlet is not None:
        return getattr(eventlet.original(module.__name__), name)
    return getattr(module, name)


_start_thread: Callable[..., int] = _original(_thread, "start_new_thread")
Lock: Callable[[], threading.Lock] = _original(_thread, "allocate_lock")
_poll = _original(select, "poll")
_originals = {name: _original(socket, name) for name in ("socket", "getaddrinfo", "getnameinfo")}


def of_socket(name: str) -> Any:
    """Return what the module `socket` has: an application may have replaced it for its proxy or
    resolver. Where a library has patched it for greenlets, the original."""
    return _originals[name] if patched() else getattr(socket, name)


def native_poll() -> select.poll:
    """Return a new poll object, which blocks the thread."""
    made: select.poll = _poll()
    return made


class NativeThread:
    """A real thread, where `threading.Thread` would be a greenlet. Always a daemon."""

    def __init__(self, target: Callable[..., None], name: str, args: tuple[Any, ...]) -> None:
        self.name = name
        self.ident: int | None = None
        self._target: Callable[..., None] | None = target
        self._args = args
        self._ended = Flag()

    def start(self) -> None:
        """Start it. It is the current thread once `target` is called."""
        _start_thread(self._run, ())

    def is_alive(self) -> bool:
        """True from its start to its end."""
        return self.ident is not None and not self._ended.is_set()

    def join(self, timeout: float | None = None) -> None:
        """Wait until it has ended; other greenlets go on meanwhile."""
        self._ended.wait(timeout)

    def _run(self) -> None:
        target, self._target = self._target, None
        assert target is not None
        begin_native()
        self.ident = thread_ident()
        _running[self.ident] = self
        try:
            target(*self._args)
        except SystemExit:
            pass
        except BaseException:
            _log.exception("thread %s ended by an exception", self.name)
        finally:
            end_native()
            del _running[self.ident]
            del target
            self._args = ()
            self._ended.set()


Thread = threading.Thread | NativeThread
_running: dict[int, NativeThread] = {}


def thread(target: Callable[..., None], name: str, *args: Any) -> Thread:
    """Return a daemon thread that is not started yet."""
    if patched():
        return NativeThread(target, name, args)
    return threading.Thread(target=target, name=name, args=args, daemon=True)


def current() -> Thread:
    """Return the thread that the caller runs on, which `thread` has made."""
    return _running.get(thread_ident()) or threading.current_thread()


def is_current(thread: Thread | None) -> bool:
    """True where the caller runs on this thread."""
    return thread is not None and thread.ident == thread_ident()


def per_thread(kind: type[T]) -> T:
    """Return an object whose attributes each thread has for itself, and each greenlet where there
    are any: `kind` is called once for each of them."""
    own: T = type(kind.__name__, (kind, threading.local), {})()
    return own


def get(queue: SimpleQueue[T], timeout_s: float) -> T:
    """Return what is first in a queue; raises Empty after `timeout_s`. A greenlet lets others go on
    while it waits."""
    if timeout_s <= 0:
        return queue.get_nowait()
    if not cooperative():
        return queue.get(timeout=timeout_s)
    began_ns = monotonic_ns()
    until_ns = began_ns + int(timeout_s * 1e9)
    while queue.empty() and monotonic_ns() < until_ns:
        rest_until(began_ns, until_ns)
    return queue.get_nowait()


def wait_for_io(fd: int, events: int, until_s: float) -> None:
    """Wait in a greenlet until the descriptor is ready. Raises TimeoutError at `until_s`, of the
    monotonic clock."""
    began_ns = monotonic_ns()
    until_ns = int(min(until_s * 1e9, _FOREVER_NS))
    ready = native_poll()
    ready.register(fd, events)
    while not ready.poll(0):
        if monotonic_ns() >= until_ns:
            raise TimeoutError
        rest_until(began_ns, until_ns)
