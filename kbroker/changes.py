"""Changes of the metadata, one at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from kbroker.operations import (
    Completion,
    Meter,
    Operations,
    OperationTimeoutError,
    Steps,
    Turn,
)  # fmt: skip

T = TypeVar("T")


class Changes:
    """Runs one operation at a time, in the order of arrival: each change of the metadata is planned
    on an image that no other change alters."""

    def __init__(self, operations: Operations, now_ms: Callable[[], int]) -> None:
        self._operations = operations
        self._now_ms = now_ms
        self._busy = False
        self._queue: deque[Turn] = deque()

    def run(
        self,
        steps: Steps[T],
        deadline_ms: int | None = None,
        meter: Meter | None = None,
        gone: Callable[[], bool] | None = None,
    ) -> Completion[T]:
        """Run `steps` alone, to their end: a client that gives up does not cut a change off that
        has begun to be written. One that has not begun at its deadline fails with
        OperationTimeoutError; the completion of one whose client was `gone` before is never set.
        """
        done: Completion[T] = Completion()

        def on_end(value: Any, error: BaseException | None) -> None:
            if error is None:
                done.resolve(value)
            else:
                done.fail(error)

        self._operations.start(
            self._alone(steps, deadline_ms), on_end, on_cancel=steps.close, meter=meter,
            gone=gone, changes=True,
        )  # fmt: skip
        return done

    def _alone(self, steps: Steps[T], deadline_ms: int | None) -> Steps[T]:
        yield from self._enter()
        try:
            if deadline_ms is not None and self._now_ms() >= deadline_ms:
                raise OperationTimeoutError
            return (yield from steps)
        finally:
            self._leave()

    def _enter(self) -> Steps[None]:
        if not self._busy:
            self._busy = True
            return
        turn = Turn()
        self._queue.append(turn)
        try:
            yield turn
        except BaseException:
            if turn.done:
                self._leave()
            else:
                self._queue.remove(turn)
            raise

    def _leave(self) -> None:
        if self._queue:
            self._queue.popleft().resolve(None)
        else:
            self._busy = False
