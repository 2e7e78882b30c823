"""What a group's membership has cost: counts and times, told by Kafka's names.

The polling thread writes; whoever asks for metrics reads numbers that may be a moment old.
"""

from __future__ import annotations

from collections.abc import Callable

from kbroker.ext.client_clock import monotonic

__all__ = ["GroupMetrics", "Meter"]


class Meter:
    """How often something happened and how long it took, in seconds."""

    def __init__(self) -> None:
        self.count = 0
        self.sum_s = 0.0
        self.max_s = 0.0

    def note(self, took_s: float) -> None:
        """It happened once more."""
        self.count += 1
        self.sum_s += took_s
        self.max_s = max(self.max_s, took_s)

    def times_ms(self, name: str) -> dict[str, float]:
        """Mean and maximum in ms."""
        mean_s = self.sum_s / self.count if self.count else 0.0
        return {f"{name}-avg": mean_s * 1e3, f"{name}-max": self.max_s * 1e3}


class GroupMetrics:
    """Of one member. callbacks: of the rebalance listener, by its methods' names."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self.commits = Meter()
        self.joins = Meter()
        self.syncs = Meter()
        self.rebalances = Meter()
        self.failed_rebalances = 0
        self.callbacks = {name: Meter() for name in ("on_assigned", "on_revoked", "on_lost")}
        self._clock = clock
        self._began_s: float | None = None
        self._ended_s: float | None = None

    def rebalance_began(self) -> None:
        """Unless one goes on already."""
        if self._began_s is None:
            self._began_s = self._clock()

    def rebalance_ended(self) -> None:
        """The member has what it was given."""
        if self._began_s is not None:
            self._ended_s = self._clock()
            self.rebalances.note(self._ended_s - self._began_s)
            self._began_s = None

    def rebalance_failed(self) -> None:
        """It begins anew, or the member is out."""
        if self._began_s is not None:
            self.failed_rebalances += 1

    def told(self) -> dict[str, float]:
        """By the names of Kafka's consumer-coordinator-metrics."""
        since_s = -1.0 if self._ended_s is None else self._clock() - self._ended_s
        found = {
            "commit-total": self.commits.count,
            "join-total": self.joins.count,
            "sync-total": self.syncs.count,
            "rebalance-total": self.rebalances.count,
            "rebalance-latency-total": self.rebalances.sum_s * 1e3,
            "failed-rebalance-total": self.failed_rebalances,
            "last-rebalance-seconds-ago": since_s,
            **self.commits.times_ms("commit-latency"),
            **self.joins.times_ms("join-time"),
            **self.syncs.times_ms("sync-time"),
            **self.rebalances.times_ms("rebalance-latency"),
        }
        for name, meter in self.callbacks.items():
            found |= meter.times_ms(f"partition-{name.removeprefix('on_')}-latency")
        return found
