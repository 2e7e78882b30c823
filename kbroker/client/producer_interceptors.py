"""A producer's interceptors: objects that see each record of send(), as Java's ProducerInterceptor;
those of send_batch(), which are no objects, they do not see.

    on_send(topic, value, key, partition, headers, timestamp_ms)    what goes on in their place
                                                                    (six things), or None: the same
    on_acknowledgement(metadata, error)     delivered, or failed: then metadata tells topic and
                                            partition, -1 where it is not known, and no more
    close()

Each of them may lack any of the methods; what they raise is logged, and nothing else.
"""

from __future__ import annotations

import logging
import operator
from collections.abc import Callable, Sequence
from typing import Any

from kbroker.ext.client_delivery import Delivery, RecordMetadata

__all__ = ["Interceptors"]

_log = logging.getLogger("kbroker.client.producer")


class Interceptors:
    """In the order in which they are asked."""

    def __init__(self, given: Sequence[Any]) -> None:
        self._given = tuple(given)
        self._on_send = _methods(given, "on_send")
        self._told = _methods(given, "on_acknowledgement")

    def __bool__(self) -> bool:
        return bool(self._given)

    def on_send(self, *record: Any) -> tuple[Any, ...]:
        """What they make of topic, value, key, partition, headers and timestamp_ms."""
        for method in self._on_send:
            try:
                changed = method(*record)
                if changed is not None:
                    topic, value, key, partition, headers, timestamp_ms = changed
                    record = topic, value, key, partition, headers, timestamp_ms
            except Exception:
                _log.exception("%r raised; the record goes on without it", method)
        return record

    def acknowledging(
        self, then: Callable[[Delivery], object] | None
    ) -> Callable[[Delivery], object]:
        """The callback of a delivery that tells them, and the user's."""
        if then is not None and not callable(then):
            raise TypeError(f"on_delivery: {type(then).__name__} cannot be called")

        def acknowledged(delivery: Delivery) -> None:
            found = delivery.wait(0)
            if isinstance(found, BaseException):
                self.failed(delivery.topic, delivery.partition, found)
            else:
                self._tell(found, None)
            if then is not None:
                then(delivery)

        return acknowledged

    def failed(self, topic: Any, partition: Any, error: BaseException) -> None:
        """Of a record that was not taken or not delivered."""
        known = operator.index(partition) if hasattr(partition, "__index__") else -1
        self._tell(RecordMetadata(topic, known, -1, -1, -1, -1), error)

    def _tell(self, metadata: RecordMetadata, error: BaseException | None) -> None:
        for method in self._told:
            try:
                method(metadata, error)
            except Exception:
                _log.exception("%r raised", method)

    def close(self) -> None:
        """The producer is closed."""
        for method in _methods(self._given, "close"):
            try:
                method()
            except Exception:
                _log.exception("%r raised", method)


def _methods(given: Sequence[Any], name: str) -> list[Callable[..., Any]]:
    return [getattr(each, name) for each in given if hasattr(each, name)]
