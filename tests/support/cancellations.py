"""Cancellation of a task at each of its awaits, before and after what it awaits is there."""

from __future__ import annotations

import asyncio
import types
from collections.abc import Coroutine, Generator
from typing import Any

EARLY, LATE = False, True


class Cancelled(Exception):  # noqa: N818 - a result
    """The call was cancelled."""


@types.coroutine
def _watched(call: Coroutine[Any, Any, Any], at: int, late: bool) -> Generator[Any, Any, Any]:
    """Run `call`, and cancel the task at the at-th of its awaits (from 1 on) that suspends."""
    task = asyncio.current_task()
    assert task is not None
    count = 0
    send: Any = call.send
    value: Any = None
    while True:
        try:
            future = send(value)
        except StopIteration as end:
            return end.value
        count += 1
        if count == at and late and future is not None:
            future.add_done_callback(lambda _: task.cancel())  # before the task is woken
        elif count == at:
            task.get_loop().call_soon(task.cancel)
        try:
            send, value = call.send, (yield future)
        except BaseException as error:
            send, value = call.throw, error


async def cancel_at(call: Coroutine[Any, Any, Any], at: int, late: bool) -> Any:
    """Await `call` in a task that is cancelled at its at-th await: as soon as it waits, or with
    `late` once the awaited thing is done and the task not yet woken. Raises Cancelled."""
    task = asyncio.ensure_future(_task(call, at, late))
    await asyncio.wait([task])
    if task.cancelled():
        raise Cancelled
    return task.result()


async def _task(call: Coroutine[Any, Any, Any], at: int, late: bool) -> Any:
    return await _watched(call, at, late)
