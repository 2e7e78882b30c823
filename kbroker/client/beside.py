"""Calls on threads of their own, for asyncio."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

__all__ = ["beside", "ended"]

T = TypeVar("T")


def beside(work: Callable[[], T]) -> asyncio.Future[T]:
    """Run something rare, such as an end, on a thread that ends with it."""
    threads = ThreadPoolExecutor(1, "kbroker-async-end")
    future = asyncio.get_running_loop().run_in_executor(threads, work)
    threads.shutdown(wait=False)
    return future


async def ended(future: asyncio.Future[Any]) -> None:
    """Wait until a call on another thread has ended, however often the task is cancelled: what it
    changes must not change under the next call."""
    while not future.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait([future])
