"""Operations: work of the control thread that runs in slices and waits without holding the thread.

An operation is a generator. It yields None at a slice point, where other work may run, or a
Completion, to be resumed with its result or with its error. Its code reads from top to bottom:

    topics = yield from plan(request)                 # yields None between topics
    yield store.append(records, publish)              # durable, and in the image
    return response

An operation ends exactly once: with what it returns, with what it raises, or cancelled. One that
only reads is cancelled when its client is gone, a change when that was before its first wait.
At its deadline OperationTimeoutError is raised at the yield where it waits, or waits next; what it
waited for goes on.

Owned by the control thread. Another thread resolves a Completion through the mailbox
(kbroker.server.control.Mailbox).
"""

from __future__ import annotations

import heapq
import logging
import time
from collections import deque
from collections.abc import Callable, Container, Generator, Iterable
from itertools import count
from typing import Any, Final, Generic, TypeVar

from kbroker.errors import ClientError, ErrorCode

_LOG: Final = logging.getLogger("kbroker.server")

FIRST_SLICE_NS: Final = 2_000_000
"""Of an operation that has just arrived: most end within it."""
SLICE_NS: Final = 5_000_000
_DEADLINES_LEAST: Final = 64
"""Deadlines kept before those of ended operations are looked for."""

K = TypeVar("K")
T = TypeVar("T")
Steps = Generator[Any, Any, T]
"""Yields None or Completions; returns the result of the operation."""


class OperationTimeoutError(ClientError):
    """The deadline of the operation is over."""

    def __init__(self) -> None:
        super().__init__(ErrorCode.REQUEST_TIMED_OUT)


class GoneError(Exception):
    """The client has gone: nobody waits for the result."""


class Completion(Generic[T]):
    """A result that comes later, or the error in its place. Set once, on the control thread."""

    __slots__ = ("_callbacks", "_error", "_result", "done")

    def __init__(self) -> None:
        self.done = False
        self._result: T | None = None
        self._error: BaseException | None = None
        self._callbacks: list[Callable[[Completion[T]], object]] = []

    @classmethod
    def of(cls, result: T) -> Completion[T]:
        """Return a completion that has its result."""
        made = cls()
        made.resolve(result)
        return made

    def resolve(self, result: T) -> None:
        """Set the result and run the callbacks; what one raises does not keep the others."""
        self._result = result
        self._finish()

    def fail(self, error: BaseException) -> None:
        """Set the error in place of a result."""
        self._error = error
        self._finish()

    def _finish(self) -> None:
        if self.done:
            raise RuntimeError("a completion was set twice")
        self.done = True
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            try:
                callback(self)
            except Exception:
                _LOG.exception("a callback of a completion failed")

    def on_done(self, callback: Callable[[Completion[T]], object]) -> None:
        """Call `callback` with this completion once it is set; at once where it is."""
        if self.done:
            callback(self)
        else:
            self._callbacks.append(callback)

    @property
    def error(self) -> BaseException | None:
        """The error, None where there is none or the outcome is not known yet."""
        return self._error

    def result(self) -> T:
        """Return the result. Raises the error in its place."""
        if not self.done:
            raise RuntimeError("the completion is not set yet")
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value]


class Turn(Completion[None]):
    """A wait before anything has begun: a change that waits for it may still be cancelled."""

    __slots__ = ()


def joined(completions: Iterable[Completion[Any]]) -> Completion[None]:
    """Return the completion that is set when all are; the first error in their order where one
    failed."""
    listed = list(completions)
    joint: Completion[None] = Completion()
    left = len(listed)

    def on_done(_: Completion[Any]) -> None:
        nonlocal left
        left -= 1
        if left > 0:
            return
        error = next((each.error for each in listed if each.error is not None), None)
        if error is None:
            joint.resolve(None)
        else:
            joint.fail(error)

    if not listed:
        joint.resolve(None)
    for each in listed:
        each.on_done(on_done)
    return joint


class Meter:
    """The time of the control thread that a request has used in its operations (ns)."""

    __slots__ = ("_running_since_ns", "_used_ns")

    def __init__(self) -> None:
        self._used_ns = 0
        self._running_since_ns = 0

    @property
    def used_ns(self) -> int:
        """The time up to now."""
        if self._running_since_ns:
            return self._used_ns + time.monotonic_ns() - self._running_since_ns
        return self._used_ns

    def begin(self, now_ns: int) -> None:
        """Note that a slice begins."""
        self._running_since_ns = now_ns

    def end(self) -> None:
        """Note that the slice is over."""
        self._used_ns = self.used_ns
        self._running_since_ns = 0


OnEnd = Callable[[Any, BaseException | None], object]
"""Called with what an operation returns, and with what it raises."""


def collect(values: Iterable[T]) -> Steps[list[T]]:
    """Return the values as a list; each is computed in a step of its own."""
    found = []
    for value in values:
        found.append(value)
        yield
    return found


def mapping(pairs: Iterable[tuple[K, T]]) -> Steps[dict[K, T]]:
    """Return the pairs as a dictionary; each is added in a step of its own."""
    found: dict[K, T] = {}
    for key, value in pairs:
        found[key] = value
        yield
    return found


def unique(values: Iterable[T]) -> Steps[dict[T, None]]:
    """Return the values once each, in the order of their first places."""
    found: dict[T, None] = {}
    for value in values:
        found[value] = None
        yield
    return found


def split(values: Iterable[T], chosen: Container[T]) -> Steps[tuple[list[T], list[T]]]:
    """Return the values that are among the chosen ones, and the others."""
    among: list[T] = []
    others: list[T] = []
    for value in values:
        (among if value in chosen else others).append(value)
        yield
    return among, others


def run_to_end(steps: Steps[T]) -> T:
    """Take steps that wait for nothing, one after the other; what they return."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]


class Operation:
    """One operation: its steps and its deadline (monotonic ms)."""

    __slots__ = ("_ended", "_gone", "_meter", "_on_cancel", "_on_end", "_steps", "_value",
                 "changes", "deadline_ms", "overdue", "waits_for")  # fmt: skip

    def __init__(  # noqa: PLR0917
        self,
        steps: Steps[Any],
        on_end: OnEnd,
        on_cancel: Callable[[], object] | None,
        deadline_ms: int | None,
        meter: Meter,
        gone: Callable[[], bool] | None = None,
    ) -> None:
        self._meter = meter
        self._gone = gone
        self.changes = False
        """Whether it goes on without its client once it has waited for more than a Turn."""
        self._steps = steps
        self._on_end = on_end
        self._on_cancel = on_cancel
        self._value: Any = None
        self._ended = False
        self.deadline_ms = deadline_ms
        self.overdue = False
        """Whether its deadline was over while it did not wait."""
        self.waits_for: Completion[Any] | None = None

    @property
    def ended(self) -> bool:
        """Whether it has returned, raised or was cancelled."""
        return self._ended

    def is_given_up(self) -> bool:
        """Whether its client is gone and it may be cancelled."""
        return self._gone is not None and self._gone()

    def run(self, slice_ns: int, error: BaseException | None = None) -> bool:
        """Run until the slice is over, it waits or it ends; `error` is raised at its last yield.
        True where it can go on at once."""
        begun_ns = time.monotonic_ns()
        until_ns = begun_ns + slice_ns
        steps = self._steps
        self._meter.begin(begun_ns)
        try:
            while True:
                if error is not None:
                    raised, error = error, None
                    waited = steps.throw(raised)
                else:
                    value, self._value = self._value, None
                    waited = steps.send(value)
                if waited is None:
                    if time.monotonic_ns() < until_ns:
                        continue
                    return True
                if self.changes and not isinstance(waited, Turn):
                    self._gone = None
                if not waited.done or time.monotonic_ns() >= until_ns:
                    self.waits_for = waited
                    return False
                error, self._value = waited.error, waited._result
        except StopIteration as stop:
            self._end(stop.value, None)
        except Exception as raised:
            self._end(None, raised)
        finally:
            self._meter.end()
        return False

    def _end(self, value: Any, error: BaseException | None) -> None:
        self._ended = True
        try:
            self._on_end(value, error)
        except Exception:
            _LOG.exception("the end of an operation failed")

    def resume_with(self, completion: Completion[Any]) -> BaseException | None:
        """Take the outcome that it waited for; the error to raise in it."""
        self.waits_for = None
        self._value = completion._result
        return completion.error

    def cancel(self) -> None:
        """End it without a result: GeneratorExit at its yield, then its `on_cancel`."""
        if self._ended:
            return
        self._ended = True
        self._steps.close()
        if self._on_cancel is not None:
            self._on_cancel()


class Operations:
    """The operations of the control thread: runs those that can go on in turn, a slice each."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        """`now_ms` is the monotonic clock of deadlines."""
        self._now_ms = now_ms
        self._ready: deque[tuple[Operation, BaseException | None]] = deque()
        self._waiting: set[Operation] = set()
        self._deadlines: list[tuple[int, int, Operation]] = []
        self._deadlines_most = _DEADLINES_LEAST
        self._number = count()
        self._stopped = False

    def __len__(self) -> int:
        return len(self._ready) + len(self._waiting)

    @property
    def ready(self) -> bool:
        """Whether an operation can go on now."""
        return bool(self._ready)

    def start(
        self,
        steps: Steps[Any],
        on_end: OnEnd,
        *,
        on_cancel: Callable[[], object] | None = None,
        deadline_ms: int | None = None,
        meter: Meter | None = None,
        gone: Callable[[], bool] | None = None,
        changes: bool = False,
    ) -> Operation:
        """Run the first slice; `on_end` is called with the result or the error. Once `gone` it is
        cancelled, unless it `changes` something and has waited."""
        operation = Operation(steps, on_end, on_cancel, deadline_ms, meter or Meter(), gone)
        operation.changes = changes
        self._run(operation, FIRST_SLICE_NS, None)
        if deadline_ms is not None and not operation.ended:
            self._drop_ended_deadlines()
            heapq.heappush(self._deadlines, (deadline_ms, next(self._number), operation))
        return operation

    def spawn(self, steps: Steps[Any], purpose: str) -> Completion[Any]:
        """Start work of the broker's own; an error is logged with its purpose, and is the
        completion's."""
        done: Completion[Any] = Completion()

        def on_end(value: Any, error: BaseException | None) -> None:
            if error is None:
                done.resolve(value)
                return
            _LOG.error("%s failed: %s", purpose, error,
                       exc_info=None if isinstance(error, ClientError) else error)  # fmt: skip
            done.fail(error)

        self.start(steps, on_end)
        return done

    def run_slice(self) -> None:
        """Run one slice of the operation that has waited longest for it."""
        if self._ready:
            operation, error = self._ready.popleft()
            if operation.is_given_up():
                self._drop(operation)
            elif not operation.ended:
                self._run(operation, SLICE_NS, error)

    def _run(self, operation: Operation, slice_ns: int, error: BaseException | None) -> None:
        if operation.run(slice_ns, error):
            self._ready.append((operation, None))
        elif not operation.ended:
            completion = operation.waits_for
            assert completion is not None
            if operation.overdue and not completion.done:
                self._raise_timeout(operation)
            else:
                self._waiting.add(operation)
                completion.on_done(lambda done: self._resume(operation, done))
        if self._stopped and not operation.ended:
            self._drop(operation)

    def _resume(self, operation: Operation, completion: Completion[Any]) -> None:
        if operation.waits_for is completion and not operation.ended:
            self._waiting.discard(operation)
            self._ready.append((operation, operation.resume_with(completion)))

    def drop_gone(self) -> None:
        """Cancel operations whose clients are gone; to be called about once a second."""
        for operation in [*self._waiting, *(each for each, _ in self._ready)]:
            if operation.is_given_up():
                self._drop(operation)
        self._ready = deque(each for each in self._ready if not each[0].ended)

    # ---- deadlines

    def next_due_ms(self) -> int | None:
        """The next deadline (monotonic ms), None where there is none."""
        while self._deadlines and self._deadlines[0][2].ended:
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    def run_due(self) -> None:
        """Raise OperationTimeoutError in operations whose deadline is over."""
        while (due_ms := self.next_due_ms()) is not None and due_ms <= self._now_ms():
            operation = heapq.heappop(self._deadlines)[2]
            if operation in self._waiting:
                self._raise_timeout(operation)
            else:
                operation.overdue = True

    def _raise_timeout(self, operation: Operation) -> None:
        self._waiting.discard(operation)
        operation.waits_for = None
        operation.overdue = False
        self._ready.append((operation, OperationTimeoutError()))

    def _drop_ended_deadlines(self) -> None:
        """Drop deadlines of operations that have ended, where those may be most of them."""
        if len(self._deadlines) < self._deadlines_most:
            return
        self._deadlines = [each for each in self._deadlines if not each[2].ended]
        heapq.heapify(self._deadlines)
        self._deadlines_most = max(2 * len(self._deadlines), _DEADLINES_LEAST)

    # ---- the end

    def stop(self) -> None:
        """Cancel all operations, and each that is started from here on once it waits."""
        self._stopped = True
        for operation in [*self._waiting, *(each for each, _ in self._ready)]:
            self._drop(operation)
        self._ready.clear()

    def _drop(self, operation: Operation) -> None:
        self._waiting.discard(operation)
        operation.waits_for = None
        try:
            operation.cancel()
        except Exception:
            _LOG.exception("an operation failed when it was cancelled")


def settle(completion: Completion[T], work: Callable[[], T]) -> None:
    """Set the completion to what `work` returns or raises."""
    try:
        result = work()
    except Exception as error:
        completion.fail(error)
    else:
        completion.resolve(result)
