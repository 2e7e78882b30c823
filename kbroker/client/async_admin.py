"""The admin client under asyncio: each call of Admin, run by a few threads of its own.

There is no second implementation: the methods are made from Admin's when the module is loaded,
and async_admin.pyi, which type checkers read, is written from them by
`python -m tests.support.async_admin`.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from kbroker.client.admin_client import Admin
from kbroker.client.beside import beside

__all__ = ["AsyncAdmin"]

_THREADS = 4  # as many calls at a time; what they wait for is brokers


class AsyncAdmin:
    """Admin with methods to be awaited. A cancelled call goes on in its thread to its end.

    `async with AsyncAdmin(bootstrap_servers="localhost:9092") as admin: await admin...`
    """

    def __init__(self, config: Mapping[str, Any] | None = None, /, **settings: Any) -> None:
        self._admin = Admin(config, **settings)
        self.config = self._admin.config
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="kbroker-admin")

    async def __aenter__(self) -> AsyncAdmin:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self, timeout_s: float = 0.0) -> None:
        """See Admin.close."""
        try:
            await beside(lambda: self._admin.close(timeout_s))
        finally:  # when it is cancelled too: the threads end once their calls do
            self._threads.shutdown(wait=False, cancel_futures=True)
        await beside(self._threads.shutdown)


def _awaited(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    async def call(self: AsyncAdmin, *arguments: Any, **named: Any) -> Any:
        bound = functools.partial(getattr(self._admin, name), *arguments, **named)
        return await asyncio.get_running_loop().run_in_executor(self._threads, bound)

    return call


for _name, _method in inspect.getmembers(Admin, inspect.isfunction):
    if not _name.startswith("_") and _name not in vars(AsyncAdmin):
        setattr(AsyncAdmin, _name, _awaited(_name, _method))
