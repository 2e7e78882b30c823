"""Disk worker: the thread that does the control plane's disk work of one log directory.

A disk may hang for as long as it likes, and the control thread answers heartbeats. So it waits for
no disk: it hands work to the worker of the directory and continues with the Completion.

A job is a list of steps, each for the folders of some partitions. The steps of one folder run in
the order in which they were submitted, whatever jobs they belong to: a topic that is created anew
comes after the deletion of its namesake. Otherwise jobs take turns, some milliseconds each, so that
the deletion of 8,000 folders does not delay the creation of one. What is for no folder in
particular (`run`) is a job of one step.

A stop drops the steps that have not begun (`close`). The next start completes or cleans what they
would have done.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar

from kbroker.errors import OperatorError
from kbroker.operations import Completion

HANG_S: Final = 1.0
"""A call that takes longer counts as hung."""
_TURN_S: Final = 0.005
_LOG: Final = logging.getLogger("kbroker.storage")

Post = Callable[[Callable[[], None]], None]
T = TypeVar("T")


class Step(NamedTuple):
    """Work for partition folders, some ms of it."""

    folders: Sequence[str]
    work: Callable[[], Any]


class _Queued:
    """A step in the queues of its folders."""

    __slots__ = ("done", "error", "result", "step")

    def __init__(self, step: Step) -> None:
        self.step = step
        self.done = False
        self.result: Any = None
        self.error: Exception | None = None


class _Job(Generic[T]):
    """Steps with what comes before and behind them. Results are those of the steps, in order."""

    def __init__(
        self,
        steps: Iterable[Step],
        first: Callable[[], object] | None,
        last: Callable[[list[Any]], T],
        dropped: Callable[[list[Any]], object] | None,
    ) -> None:
        self.steps = [_Queued(step) for step in steps]
        self.next = 0
        self.first = first
        self.last = last
        self.dropped = dropped
        self.completion: Completion[T] = Completion()

    def results(self) -> list[Any]:
        return [each.result for each in self.steps]


class DiskWorker:
    """Until it is opened, and after it is closed, work is done by the caller at once: nobody is
    served then. `run` and `run_steps` are the control thread's, `hung` is any thread's."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._post: Post | None = None
        self._thread: threading.Thread | None = None
        self._changed = threading.Condition()
        self._jobs: deque[_Job[Any]] = deque()
        self._folders: dict[str, deque[_Queued]] = {}
        self._closing = False
        self._call_began_s = 0.0  # of the call under way; 0: none
        self._reported = False

    def __len__(self) -> int:
        return len(self._jobs)

    @property
    def hung(self) -> bool:
        """Whether the call under way has taken longer than HANG_S."""
        began_s = self._call_began_s
        hung = began_s > 0 and time.monotonic() - began_s > HANG_S
        if hung and not self._reported:
            self._reported = True
            _LOG.warning("disk hung: directory=%s; changes there wait for it", self._name)
        return hung

    def open(self, post: Post) -> None:
        """Run work on a thread of its own from now on; `post` runs a callable on the control
        thread. Raises OperatorError where the system gives no thread."""
        thread = threading.Thread(target=self._run, name="disk", daemon=True)
        self._post = post
        try:
            thread.start()
        except RuntimeError as error:
            self._post = None
            raise OperatorError(
                f"cannot start a thread for the disk of {self._name}: {error}; raise the limit of "
                "processes (ulimit -u, TasksMax)"
            ) from None
        self._thread = thread

    def close(self) -> None:
        """Finish the call under way, drop what has not begun, and end the thread."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()
        self._post = self._thread = None
        jobs, self._jobs = self._jobs, deque()
        self._folders.clear()
        self._closing = False
        for job in jobs:
            if job.dropped is not None:
                job.dropped(job.results())

    def run(self, work: Callable[[], T]) -> Completion[T]:
        """Run `work`, which changes nothing that the control thread owns."""
        return self.run_steps([Step((), work)], last=lambda results: results[0])

    def run_steps(
        self,
        steps: Iterable[Step],
        *,
        first: Callable[[], object] | None = None,
        last: Callable[[list[Any]], T],
        dropped: Callable[[list[Any]], object] | None = None,
    ) -> Completion[T]:
        """Run `first`, the steps, then `last` with their results; the completion is its result. A
        step that raises fails the job: steps return the errors that they expect. `dropped` is
        called in place of the completion where a stop drops the rest, with the results so far
        (None for a step that did not run)."""
        job: _Job[T] = _Job(steps, first, last, dropped)
        with self._changed:
            for queued in job.steps:
                for folder in queued.step.folders:
                    self._folders.setdefault(folder, deque()).append(queued)
        if self._post is None:
            self._run_now(job)
            return job.completion
        with self._changed:
            self._jobs.append(job)
            self._changed.notify()
        return job.completion

    # ---- the thread, or the caller where there is none

    def _run_now(self, job: _Job[Any]) -> None:
        try:
            while not self._turn(job):
                pass
            result = job.last(job.results())
        except Exception as error:
            self._drop_steps(job)
            job.completion.fail(error)
        else:
            job.completion.resolve(result)

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._jobs and not self._closing:
                    self._changed.wait()
                if self._closing:
                    return
                job = self._jobs.popleft()
            self._run_turn(job)

    def _run_turn(self, job: _Job[Any]) -> None:
        try:
            if not self._turn(job):
                with self._changed:
                    self._jobs.append(job)
                return
            result = self._timed(lambda: job.last(job.results()))
        except Exception as error:
            self._drop_steps(job)
            self._hand_over(lambda error=error: job.completion.fail(error))  # type: ignore[misc]
        else:
            self._hand_over(lambda: job.completion.resolve(result))

    def _hand_over(self, finish: Callable[[], None]) -> None:
        assert self._post is not None
        self._post(finish)

    def _turn(self, job: _Job[Any]) -> bool:
        """Run steps of a job for one turn; True where it has no more."""
        until_s = time.monotonic() + _TURN_S
        if job.first is not None:
            first, job.first = job.first, None
            self._timed(first)
        while job.next < len(job.steps):
            queued = job.steps[job.next]
            self._run_step(queued)
            if queued.error is not None:
                raise queued.error
            job.next += 1
            if self._closing or time.monotonic() >= until_s:
                break
        return job.next >= len(job.steps)

    def _run_step(self, queued: _Queued) -> None:
        """Run it, after the steps of its folders that were submitted before."""
        if queued.done:
            return
        for folder in queued.step.folders:
            while (head := self._folders[folder][0]) is not queued:
                self._run_step(head)
        with self._changed:
            for folder in queued.step.folders:
                waiting = self._folders[folder]
                waiting.popleft()
                if not waiting:
                    del self._folders[folder]
        queued.done = True
        try:
            queued.result = self._timed(queued.step.work)
        except Exception as error:
            queued.error = error  # of its own job, whichever ran it

    def _drop_steps(self, job: _Job[Any]) -> None:
        """Take the steps of a failed job out of the queues of their folders."""
        with self._changed:
            for queued in job.steps:
                if queued.done:
                    continue
                queued.done = True
                for folder in queued.step.folders:
                    waiting = self._folders[folder]
                    waiting.remove(queued)
                    if not waiting:
                        del self._folders[folder]

    def _timed(self, work: Callable[[], T]) -> T:
        self._call_began_s = time.monotonic()
        try:
            return work()
        finally:
            self._call_began_s = 0.0
            if self._reported:
                self._reported = False
                _LOG.info("disk answers again: directory=%s", self._name)
