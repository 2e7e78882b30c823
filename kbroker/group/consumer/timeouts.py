"""Timers of members. Each ends in the member being fenced: it has to join again, with nothing.

session:    no heartbeat; for classic members their own session timeout.
rebalance:  it has not given up in time what it was told to.
join, sync: a classic member that was told to rejoin, or that joined, has not gone on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from kbroker.errors import ClientError, ErrorCode
from kbroker.group.consumer.member import Member
from kbroker.group.outcome import NOTHING, Now, Outcome
from kbroker.group.timers import Timers

_log = logging.getLogger(__name__)

SESSION: Final = "consumer session"
REBALANCE: Final = "consumer rebalance"
JOIN: Final = "consumer join"
SYNC: Final = "consumer sync"

_RETRY_MS: Final = 500
"""When fencing could not be written, it is tried again so much later."""

_REFUSED_RETRY_MS: Final = 10_000
"""The same where the group could not do without it: members with whom it would have to become a
classic group sent what cannot be read."""

Fence = Callable[[str, str, str, int | None, Now], Outcome]
"""(group id, member id, why, the epoch it must still be in, now)"""


class Timeouts:
    """Timers by kind, group and member."""

    def __init__(self, timers: Timers, fence: Fence) -> None:
        self._timers = timers
        self._fence = fence

    def session(self, group_id: str, member_id: str, timeout_ms: int, now: Now) -> None:
        """The member is alive; it is given this long again."""
        self._set(SESSION, group_id, member_id, timeout_ms, now)

    def rebalance(self, group_id: str, member: Member, now: Now) -> None:
        """The member has its rebalance timeout to give up partitions."""
        self._set(
            REBALANCE, group_id, member.member_id, member.rebalance_timeout_ms, now, member.epoch
        )

    def join(self, group_id: str, member: Member, now: Now) -> None:
        """A classic member was told to rejoin; the first telling counts."""
        if (JOIN, group_id, member.member_id) not in self._timers:
            self._set(JOIN, group_id, member.member_id, member.rebalance_timeout_ms, now)

    def sync(self, group_id: str, member_id: str, timeout_ms: int, now: Now) -> None:
        """A classic member joined, and has to sync."""
        self._set(SYNC, group_id, member_id, timeout_ms, now)

    def cancel_rebalance(self, group_id: str, member_id: str) -> None:
        self._timers.cancel((REBALANCE, group_id, member_id))

    def cancel_join(self, group_id: str, member_id: str) -> None:
        self._timers.cancel((JOIN, group_id, member_id))

    def cancel_sync(self, group_id: str, member_id: str) -> None:
        self._timers.cancel((SYNC, group_id, member_id))

    def end_classic(self, group_id: str, member_id: str) -> None:
        """Cancel the timers of a member that speaks the consumer protocol from now on."""
        self.cancel_join(group_id, member_id)
        self.cancel_sync(group_id, member_id)

    def cancel_all(self, group_id: str, member_id: str) -> None:
        """The member is gone."""
        for kind in (SESSION, REBALANCE, JOIN, SYNC):
            self._timers.cancel((kind, group_id, member_id))

    def _set(  # noqa: PLR0917
        self,
        kind: str,
        group_id: str,
        member_id: str,
        timeout_ms: int,
        now: Now,
        epoch: int | None = None,
    ) -> None:
        def act(at: Now) -> Outcome:
            try:
                outcome = self._fence(group_id, member_id, kind, epoch, at)
            except ClientError as error:
                _log.warning("Group %s: member %s stays: %s", group_id, member_id, error)
                self._set(kind, group_id, member_id, _REFUSED_RETRY_MS, at, epoch)
                return NOTHING

            def then(error: ErrorCode) -> Outcome | None:
                if error:
                    self._set(kind, group_id, member_id, _RETRY_MS, at, epoch)
                return outcome.then(error) if outcome.then else None

            return outcome._replace(then=then)

        self._timers.schedule((kind, group_id, member_id), now.monotonic_ms + timeout_ms, act)
