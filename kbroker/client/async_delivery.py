"""Deliveries for asyncio: awaitables with the methods of asyncio.Future."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from kbroker.ext.client_delivery import BatchDelivery, Delivery

__all__ = ["DeliveryFuture", "call_from_outside"]

D = TypeVar("D", Delivery, BatchDelivery)


def call_from_outside(loop: asyncio.AbstractEventLoop, call: Callable[[], object]) -> None:
    """Have a loop call a function, from the control thread or the loop's own."""
    with contextlib.suppress(RuntimeError):  # the loop was closed: nobody waits any more
        loop.call_soon_threadsafe(call)


class DeliveryFuture(Generic[D]):
    """What asyncio.wait() and others ask of a future. It cannot be cancelled: what was sent is not
    called back."""

    __slots__ = ("_callbacks", "_loop", "delivery")

    delivery: D

    def __init__(self, delivery: D) -> None:
        self.delivery = delivery
        self._loop = asyncio.get_running_loop()
        self._callbacks: list[tuple[Callable[[Any], object], contextvars.Context]] | None = None

    def done(self) -> bool:
        """Return True once every record is delivered or has failed."""
        return self.delivery.done()

    def result(self) -> Any:
        """Return the outcome, or raise it. Raises InvalidStateError where there is none yet."""
        self._check()
        return self.delivery.result(0)

    def exception(self) -> BaseException | None:
        """Return why it failed, None where it did not. Raises InvalidStateError as above."""
        self._check()
        return self.delivery.exception(0)

    def _check(self) -> None:
        if not self.delivery.done():
            raise asyncio.InvalidStateError("the record has no outcome yet")

    def cancelled(self) -> bool:
        """Return False."""
        return False

    def cancel(self, msg: object = None) -> bool:
        """Return False: nothing is cancelled. Producer.purge() gives up what was not sent."""
        del msg
        return False

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """Return the loop that callbacks run on."""
        return self._loop

    def add_done_callback(
        self, callback: Callable[[Any], object], *, context: contextvars.Context | None = None
    ) -> None:
        """Call `callback` with this future on the loop, once there is an outcome."""
        entry = callback, context or contextvars.copy_context()
        if self._callbacks is not None:
            self._callbacks.append(entry)
            return
        self._callbacks = [entry]
        self.delivery.add_done_callback(lambda _: call_from_outside(self._loop, self._call_back))

    def remove_done_callback(self, callback: Callable[[Any], object]) -> int:
        """Forget a callback; return how often it was there."""
        callbacks = self._callbacks
        if callbacks is None:
            return 0
        left = [entry for entry in callbacks if entry[0] != callback]
        removed = len(callbacks) - len(left)
        callbacks[:] = left
        return removed

    def _call_back(self) -> None:
        callbacks, self._callbacks = self._callbacks or [], None
        for callback, context in callbacks:
            self._loop.call_soon(callback, self, context=context)
