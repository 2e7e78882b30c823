"""Regular expressions of groups being resolved: a slice at a time, so that others get their turn.

A thousand topics against five hundred expressions take seconds. Apache Kafka does it in a thread
beside its coordinator; here a timer goes on with it, a few milliseconds in each turn of the
control thread, one group after the other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from kbroker.errors import ErrorCode
from kbroker.group.consumer import records
from kbroker.group.consumer.group import ConsumerGroup
from kbroker.group.consumer.regex import Resolution
from kbroker.group.outcome import NOTHING, CoordinatorRecord, Now, Outcome

if TYPE_CHECKING:
    from kbroker.group.consumer.protocol import ConsumerProtocol

_TIMER: Final = "regular expressions"
_NEXT_SLICE_MS: Final = 1


class _Job(NamedTuple):
    group: ConsumerGroup
    resolution: Resolution
    version: int


class Resolving:
    """What is under way on a shard; at most one resolution a group. Lost with the shard: the next
    heartbeat of a member begins it again."""

    def __init__(self, room: ConsumerProtocol) -> None:
        self._room = room
        self._jobs: deque[_Job] = deque()

    def begin(
        self, group_id: str, patterns: list[str], now: Now, sees: Callable[[str], bool] | None
    ) -> Outcome | None:
        """Look up which topics a group's expressions name now, of those that may be seen by the
        member whose request it is, as in Apache Kafka."""
        group = self._room.find(group_id)
        if group is None or any(job.group is group for job in self._jobs):
            return None
        topics = self._room.shard.topics
        wanted = [one for one in patterns if one in group.subscriptions.regexes]
        job = _Job(group, Resolution(wanted, tuple(topics.names()), sees), topics.version)
        if job.resolution.go_on():
            return self._done(job, now)
        self._jobs.append(job)
        self._schedule(now)
        return None

    def _schedule(self, now: Now) -> None:
        timers = self._room.shard.timers
        timers.schedule(_TIMER, now.monotonic_ms + _NEXT_SLICE_MS, self._go_on)

    def _go_on(self, now: Now) -> Outcome:
        job = self._jobs.popleft()
        outcome = NOTHING
        if self._room.find(job.group.group_id) is job.group:
            if job.resolution.go_on():
                outcome = self._done(job, now)
            else:
                self._jobs.append(job)
        if self._jobs:
            self._schedule(now)
        return outcome

    def _done(self, job: _Job, now: Now) -> Outcome:
        """Write down what was found for the expressions that are still there."""
        group, version = job.group, job.version
        group_id = group.group_id
        subscriptions = group.subscriptions.copy()
        found: list[CoordinatorRecord] = []
        bump = False
        for pattern, matched in job.resolution.found.items():
            if pattern not in group.subscriptions.regexes:
                continue
            names = frozenset(matched)
            old = group.regexes[pattern].topics if pattern in group.regexes else frozenset()
            if names != old:
                bump = True
                subscriptions.resolve(old, names)
            found.append(records.regex(group_id, pattern, names, version, now.wall_ms))
        metadata_hash = self._room.hashes.of_group(subscriptions.topics())
        if bump or metadata_hash != group.metadata_hash:
            epoch = group.epoch + 1
            found.append(records.group_epoch(group_id, epoch, metadata_hash))
            group.fresh = (version, epoch)

        def then(error: ErrorCode) -> None:
            if error:
                group.unresolved_ms = now.wall_ms
            else:
                group.resolved_at = version

        return Outcome(found, None, then)
