"""Durations of requests: the schemas give most of them as timedelta."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from datetime import timedelta  # at the start nothing else needs it

_DAY_S = 86_400


def milliseconds(duration: timedelta | int) -> int:
    """Whole milliseconds; what is beyond a timedelta comes as their number."""
    if isinstance(duration, int):
        return duration
    seconds = duration.days * _DAY_S + duration.seconds
    return seconds * 1000 + duration.microseconds // 1000


def client_timeout_ms(request: Any, _: object) -> int:
    """The `timeout` of a request: how long its client waits for the answer (registry.Timeout)."""
    return milliseconds(request.timeout)
