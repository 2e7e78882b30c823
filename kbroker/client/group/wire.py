"""The way to the group's coordinator: one thread that sends, waits and hands answers back.

`Wire.submit` may be called from any thread. Requests go out one after the other, as the protocol
would have it anyway: a coordinator answers a connection in order, and a JoinGroup may wait for
minutes. Answers are put into the inbox as functions to be called; the thread that polls the
consumer empties it, so that all state of the membership belongs to that thread alone.

Heartbeats are the loop's (`pulse`).
"""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from kbroker.client import native_threads
from kbroker.client.errors import (
    ClosedError,
    ConnectError,
    KafkaError,
    RequestTimeoutError,
    check,
)
from kbroker.client.group.heart import Heart
from kbroker.client.native_threads import Empty, Lock, SimpleQueue, Thread, get, is_current
from kbroker.ext.client_clock import monotonic
from kbroker.ext.client_flag import Flag
from kbroker.protocol import ApiKey

if TYPE_CHECKING:
    from kbroker.client.group.native import NativePulse

__all__ = ["Answer", "Brokers", "Channel", "Inbox", "Wire"]

_log = logging.getLogger("kbroker.client.group")

Answer = Any | KafkaError
"""Kio's dataclass, or what went wrong."""
Values = Mapping[str, Any]

_WITH_EPOCH = frozenset({ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.OFFSET_COMMIT})
"""Requests with a member epoch, which no heartbeat in flight may change meanwhile."""
_HOLD_S = 30.0


class Channel(Protocol):
    """A connection to a broker, used by one thread at a time; close() by any."""

    renew_at: float
    """Monotonic time at which it has to be replaced (SASL sessions end)."""

    @property
    def closed(self) -> bool: ...

    def version_of(self, api: ApiKey, *, by_id: bool = False) -> int: ...

    def call(
        self, api: ApiKey, values: Values, *, timeout_s: float | None = None, by_id: bool = False
    ) -> Any: ...

    def close(self) -> None: ...


class Brokers(Protocol):
    """How the group reaches brokers. Called on the wire's thread; raises KafkaError."""

    def any(self) -> Channel:
        """Some broker, to be asked for the coordinator; not closed by the caller."""

    def open(self, node_id: int) -> Channel:
        """A new connection."""


class Inbox:
    """What other threads have for the polling thread. wake: called after each put."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._queue: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._wake = wake
        self._closed = False

    def put(self, what: Callable[[], None]) -> None:
        self._queue.put(what)
        if self._closed:
            self.close()
        self._wake()

    def close(self) -> None:
        """Takes nothing any more, and gives up what is there."""
        self._closed = True
        with contextlib.suppress(Empty):
            while True:
                self._queue.get_nowait()

    def drain(self, timeout_s: float = 0.0) -> bool:
        """Calls what is there, in order; waits for the first one. False: there was nothing."""
        try:
            first = get(self._queue, timeout_s)
        except Empty:
            return False
        first()
        while not self._queue.empty():
            self._queue.get()()
        return True


class _Job(NamedTuple):
    """A request on its way. values: or a function of the version that makes them. by_id: they
    tell topics' ids."""

    api: ApiKey
    values: Values | Callable[[int], Values]
    done: Callable[[Answer], None]
    timeout_s: float | None
    deadline: float | None
    by_id: bool = False


class Wire:
    """One group's way to its coordinator.

    backoff_s: pause after a failed look-up. The thread is a daemon and ends with `close`.
    """

    def __init__(
        self, brokers: Brokers, group_id: str, inbox: Inbox, *, backoff_s: float, name: str
    ) -> None:
        self.inbox = inbox
        self._brokers = brokers
        self._group_id = group_id
        self._backoff_s = backoff_s
        self.pulse: NativePulse | None = None
        self._jobs: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._lock = Lock()
        self._channel: Channel | None = None
        self._closed = Flag()
        self._name = name
        self._thread: Thread | None = None

    # --- any thread ---------------------------------------------------------------------------

    def submit(
        self,
        api: ApiKey,
        values: Values | Callable[[int], Values],
        done: Callable[[Answer], None],
        *,
        timeout_s: float | None = None,
        within_s: float | None = None,
        by_id: bool = False,
    ) -> None:
        """Sends a request when those before it are answered. `done` is called by the inbox.

        timeout_s: for the answer, the channel's own by default. within_s: the coordinator has to
        be found in this time.
        """
        deadline = None if within_s is None else monotonic() + within_s
        job = _Job(api, values, done, timeout_s, deadline, by_id)
        self.run(lambda: self._serve(job))

    def run(self, job: Callable[[], None]) -> None:
        """Runs something on the wire's thread, behind what was submitted."""
        self._jobs.put(job)
        self._have_thread()

    def _have_thread(self) -> None:
        """Start the thread. An exception may come at any point: it tells itself that it runs, and
        of two only one does."""
        if self._thread is None and not self._closed.is_set():
            native_threads.thread(self._run, self._name).start()

    def post(self, what: Callable[[], None]) -> None:
        """Runs something on the polling thread."""
        self.inbox.put(what)

    @property
    def reached(self) -> bool:
        """There is a connection to the coordinator."""
        channel = self._channel
        return channel is not None and not channel.closed

    def beat(self, heart: Heart | None) -> None:
        """Heartbeats from now on, or none any more."""
        if self.pulse is not None:
            self.pulse.beat(heart)

    def forget(self) -> None:
        """The coordinator is not the coordinator any more: looked for before the next request."""
        with self._lock:
            channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()

    def interrupt(self) -> None:
        """Ends the request that is waited for, if there is one, with ConnectError."""
        self.forget()

    def finish(self, timeout_s: float) -> None:
        """Waits until all requests submitted are answered."""
        if self._thread is None and self._jobs.empty():
            return
        self._have_thread()
        done = Flag()
        self._jobs.put(done.set)
        done.wait(timeout_s)

    def close(self, timeout_s: float) -> None:
        """Ends the thread; requests that are not answered fail with ClosedError."""
        self._closed.set()
        self.beat(None)
        self._jobs.put(_nothing)
        self.forget()
        thread = self._thread
        if thread is not None and not is_current(thread):
            thread.join(timeout_s)

    def end(self) -> None:
        """After close(): what was not called yet will not be."""
        self.pulse = None
        self.inbox.close()
        if self._thread is None:
            while not self._jobs.empty():
                self._jobs.get()

    # --- the wire's thread --------------------------------------------------------------------

    def _run(self) -> None:
        with self._lock:
            if self._thread is not None or self._closed.is_set():
                return
            self._thread = native_threads.current()
        while not self._closed.is_set():
            job = self._jobs.get()
            try:
                job()
            except Exception as error:  # the thread must go on, whatever is wrong with one request
                _log.exception("Group %s: %s", self._group_id, error)
        while not self._jobs.empty():
            self._jobs.get()()
        self.forget()

    def _serve(self, job: _Job) -> None:
        try:
            answer: Answer = self._call(job)
        except KafkaError as error:
            if isinstance(error, ConnectError | RequestTimeoutError):
                self.forget()
            answer = error
        except Exception as error:
            _log.exception("Group %s: %s", self._group_id, job.api.name)
            answer = KafkaError(f"{job.api.name} failed: {error!r}")
        if self._closed.is_set() and isinstance(answer, ConnectError):
            answer = ClosedError("the consumer was closed")
        self.inbox.put(functools.partial(job.done, answer))
        del answer  # an error's traceback has this frame

    def _call(self, job: _Job) -> Any:
        channel = self._coordinator(job.deadline)
        pulse = self.pulse if job.api in _WITH_EPOCH else None
        if pulse is not None:
            pulse.hold(_HOLD_S)
        try:
            made = job.values
            if callable(made):
                made = made(channel.version_of(job.api, by_id=job.by_id))
            answer = channel.call(job.api, made, timeout_s=job.timeout_s, by_id=job.by_id)
            if pulse is not None and job.api is ApiKey.CONSUMER_GROUP_HEARTBEAT:
                pulse.heard(answer)
            return answer
        finally:
            if pulse is not None:
                pulse.release()

    def coordinator(self) -> Channel:
        """The connection to the coordinator, looked up until there is one or this is closed."""
        return self._coordinator(None)

    def _coordinator(self, deadline: float | None) -> Channel:
        """The connection to the coordinator, looked up until there is one."""
        while True:
            channel = self._channel
            if channel is not None and not channel.closed:
                if monotonic() < channel.renew_at:
                    return channel
                self.forget()
            if self._closed.is_set():
                raise ClosedError("the consumer was closed")
            try:
                found = self._look_up()
            except KafkaError as error:
                late = deadline is not None and monotonic() + self._backoff_s > deadline
                if not error.retriable or late or self._closed.wait(self._backoff_s):
                    raise
                continue
            with self._lock:
                self._channel = found
            return found

    def _look_up(self) -> Channel:
        channel = self._brokers.any()
        if channel.version_of(ApiKey.FIND_COORDINATOR) >= 4:
            values: Values = {"key_type": 0, "coordinator_keys": [self._group_id]}
            (answer,) = channel.call(ApiKey.FIND_COORDINATOR, values).coordinators
        else:
            answer = channel.call(ApiKey.FIND_COORDINATOR, {"key": self._group_id, "key_type": 0})
        check(answer.error_code, f"group {self._group_id!r}", answer.error_message)
        _log.info("Group %s: coordinator is broker %d", self._group_id, answer.node_id)
        return self._brokers.open(int(answer.node_id))

    def give_up(self, heart: Heart) -> None:
        """The application has not polled for max.poll.interval.ms."""
        if heart.leave is None:
            return
        try:
            api, values = heart.leave
            self._call(_Job(api, values, _ignored, None, monotonic()))
        except KafkaError as error:
            _log.warning("Group %s: leaving failed: %s", self._group_id, error)


def _nothing() -> None:
    """Wakes the wire's thread."""


def _ignored(answer: Answer) -> None:
    """Nobody waits for it."""
