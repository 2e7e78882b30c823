"""A call on a thread of its own: neither the application's threads nor others' waits hold it up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

__all__ = ["beside"]

T = TypeVar("T")


def beside(work: Callable[[], T]) -> asyncio.Future[T]:
    """For what is rare, as an end. The thread ends with it."""
    threads = ThreadPoolExecutor(1, "kbroker-async-end")
    future = asyncio.get_running_loop().run_in_executor(threads, work)
    threads.shutdown(wait=False)
    return future
