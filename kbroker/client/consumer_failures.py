"""Failures of the partitions of a consumer, and the pauses that grow with them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from kbroker.client.partitions import TopicPartition
from kbroker.ext.client_clock import monotonic

__all__ = ["Failures"]

_CALM_S = 3.0


class _Known(NamedTuple):
    """since_s: when the first one was noted; due_s: when the next try is due (monotonic)."""

    failures: int
    since_s: float
    due_s: float


class Failures:
    """Failures in a row. A partition that has had none for 3 s since its last try begins anew; that
    its leader was found is no success yet, since the leader may refuse each fetch.

    pause_s: the pause after so many failures."""

    def __init__(self, pause_s: Callable[[int], float]) -> None:
        self._pause_s = pause_s
        self._known: dict[TopicPartition, _Known] = {}

    def note(self, where: TopicPartition) -> tuple[float, float]:
        """Note a failure; return since when it fails and when to try again."""
        now = monotonic()
        known = self._known.get(where)
        if known is None or now > known.due_s + _CALM_S:
            known = _Known(0, now, now)
        due_s = now + self._pause_s(known.failures + 1)
        self._known[where] = _Known(known.failures + 1, known.since_s, due_s)
        return known.since_s, due_s

    def forget(self, where: TopicPartition) -> None:
        """Begin anew."""
        self._known.pop(where, None)
