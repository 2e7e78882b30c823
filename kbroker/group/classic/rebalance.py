"""How a group comes from one generation to the next, and every timer of it.

Timers: each member's session; each pending member's (KIP-394); one for the join phase, which ends
it for those who have not joined; one for the sync phase, which removes who has not synced.
"""

from __future__ import annotations

import functools
import logging
from typing import Final

from kbroker.errors import ErrorCode
from kbroker.group.classic.answers import join_error, joined_as, sync_error, synced
from kbroker.group.classic.group import ClassicGroup, State
from kbroker.group.classic.member import Member
from kbroker.group.classic.replay import GroupRecords
from kbroker.group.outcome import NOTHING, Now, Outcome
from kbroker.group.shard import Shard
from kbroker.limits import PENDING_MEMBERS_MAX_CHARS, PENDING_MEMBERS_MAX_COUNT

_LOG: Final = logging.getLogger("kbroker.group")

_NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 5 * 60 * 1000
"""How long the first join of a member without an id may wait for its answer: a client that gave
up asks again without an id, and what it left behind must not pile up."""
_NOBODY_AGAIN_MS: Final = 1_000
"""Static members may ask for a rebalance timeout of nothing, and not come."""


class Rebalance:
    """The steps of a rebalance, and members that come and go."""

    def __init__(self, shard: Shard, records: GroupRecords) -> None:
        self._shard = shard
        self._timers = shard.timers
        self._records = records

    def watch(
        self, group: ClassicGroup, member: Member, now: Now, timeout_ms: int | None = None
    ) -> None:
        """The member's session begins anew; `timeout_ms` in place of its session timeout."""
        if member.expire is None:
            member.expire = functools.partial(self._session_over, group, member)
        wait_ms = member.session_timeout_ms if timeout_ms is None else timeout_ms
        self._timers.schedule(member.timer, now.monotonic_ms + wait_ms, member.expire)

    def expect(self, group: ClassicGroup, member_id: str, timeout_ms: int, now: Now) -> None:
        """A member id was given out; whoever asked for it is to join with it in time.

        A client that floods the group with such requests drives out its own earlier ones; of who
        floods many groups `unwritten` bounds what all ids hold.
        """
        most = min(PENDING_MEMBERS_MAX_COUNT, PENDING_MEMBERS_MAX_CHARS // len(member_id))
        while len(group.pending) >= most:
            self.forget_pending(group, next(iter(group.pending)))
        group.expect(member_id)
        over = functools.partial(self._pending_over, group, member_id)
        self._timers.schedule(_pending(group, member_id), now.monotonic_ms + timeout_ms, over)

    def forget_pending(self, group: ClassicGroup, member_id: str) -> None:
        """Nobody is waited for under this id any more."""
        group.forget_pending(member_id)
        self._timers.cancel(_pending(group, member_id))

    def admit(self, group: ClassicGroup, member: Member, protocol_type: str, now: Now) -> None:
        """A new member, whose join is parked."""
        if group.state is State.PREPARING and group.previous is State.EMPTY:
            group.grew_ms = now.monotonic_ms
        self.forget_pending(group, member.member_id)
        group.add(member, protocol_type)
        member.is_new = True
        self.watch(group, member, now, _NEW_MEMBER_JOIN_TIMEOUT_MS)

    def drop(self, group: ClassicGroup, member: Member) -> None:
        """A member is gone; if it still waits for an answer it learns that it is unknown."""
        self._timers.cancel(member.timer)
        join = group.take_join(member)
        if join is not None:
            join(join_error(ErrorCode.UNKNOWN_MEMBER_ID))
        self.answer_sync(member, ErrorCode.UNKNOWN_MEMBER_ID)
        group.remove(member)

    @staticmethod
    def answer_sync(member: Member, error: ErrorCode) -> bool:
        """Refuse a parked sync; False where there is none."""
        sync, member.sync = member.sync, None
        if sync is not None:
            sync(sync_error(error))
        return sync is not None

    def start_or_go_on(self, group: ClassicGroup, reason: str, now: Now) -> Outcome:
        """Something changed: begin a rebalance, or see whether the running one can go on."""
        if group.state in {State.STABLE, State.COMPLETING, State.EMPTY}:
            return self.prepare(group, reason, now)
        return self.go_on(group, now)

    def go_on(self, group: ClassicGroup, now: Now) -> Outcome:
        """End the join phase if everybody has joined; the initial one waits out its delay."""
        initial = group.previous is State.EMPTY
        if group.state is not State.PREPARING or initial or not group.all_joined:
            return NOTHING
        return self.complete(group, now)

    def prepare(self, group: ClassicGroup, reason: str, now: Now) -> Outcome:
        """Begin a rebalance. The first of a group gives others the time to come as well."""
        if group.state is State.COMPLETING:
            self.fail_syncs(group, ErrorCode.REBALANCE_IN_PROGRESS, now)
        group.unsynced.clear()
        self._timers.cancel(_sync(group))
        initial = group.state is State.EMPTY
        group.move(State.PREPARING, now)
        _LOG.info("group %r rebalances after generation %d: %.300r", group.group_id,
                  group.generation, reason)  # fmt: skip
        if initial:
            delay_ms = self._shard.settings.group_initial_rebalance_delay_ms
            group.grew_ms = now.monotonic_ms
            last_ms = now.monotonic_ms + max(group.rebalance_timeout_ms, delay_ms)
            self._wait_for_more(group, now.monotonic_ms + delay_ms, last_ms)
            return NOTHING
        if group.all_joined:
            return self.complete(group, now)
        self._collect_joins(group, now)
        return NOTHING

    def _wait_for_more(self, group: ClassicGroup, until_ms: int, last_ms: int) -> None:
        over = functools.partial(self._initial_over, group, last_ms)
        self._timers.schedule(_join(group), until_ms, over)

    def _initial_over(self, group: ClassicGroup, last_ms: int, now: Now) -> Outcome:
        """The delay is over; when somebody came it counts from then, up to the rebalance timeout.

        Apache Kafka waits another whole one: twice as long where all come at once."""
        delay_ms = self._shard.settings.group_initial_rebalance_delay_ms
        until_ms = min(group.grew_ms + delay_ms, last_ms)
        if until_ms > now.monotonic_ms:
            self._wait_for_more(group, until_ms, last_ms)
            return NOTHING
        return self.complete(group, now)

    def _collect_joins(self, group: ClassicGroup, now: Now, at_least_ms: int = 0) -> None:
        over = functools.partial(self.complete, group)
        delay_ms = max(group.rebalance_timeout_ms, at_least_ms)
        self._timers.schedule(_join(group), now.monotonic_ms + delay_ms, over)

    def complete(self, group: ClassicGroup, now: Now) -> Outcome:
        """End the join phase: dynamic members that have not joined are gone, the others are told
        of the next generation. Where nobody is left that is written down."""
        self._timers.cancel(_join(group))
        late = [m for m in group.members.values() if m.join is None and m.instance_id is None]
        for member in late:
            self.drop(group, member)
        if group.state is State.DEAD:
            return NOTHING
        if not group.elect() and group.members:
            _LOG.warning("group %r: nobody has joined; waiting on", group.group_id)
            self._collect_joins(group, now, _NOBODY_AGAIN_MS)
            return NOTHING
        group.next_generation(now)
        _LOG.info("group %r: generation %d has %d members (%d have not joined)", group.group_id,
                  group.generation, len(group.members), len(late))  # fmt: skip
        if not group.members:
            return Outcome([self._records.of(group, {})], then=functools.partial(_warn, group))
        self._tell_joined(group, now)
        return NOTHING

    def _tell_joined(self, group: ClassicGroup, now: Now) -> None:
        for member in group.members.values():
            join = group.take_join(member)
            if join is not None:
                join(joined_as(group, member))
            self.watch(group, member, now)
            member.is_new = False
            group.unsynced.add(member.member_id)
        over = functools.partial(self._sync_over, group, group.generation)
        self._timers.schedule(_sync(group), now.monotonic_ms + group.rebalance_timeout_ms, over)

    def has_synced(self, group: ClassicGroup, member: Member) -> None:
        """The member has sent its SyncGroup."""
        group.unsynced.discard(member.member_id)
        if not group.unsynced:
            self._timers.cancel(_sync(group))

    def fail_syncs(self, group: ClassicGroup, error: ErrorCode, now: Now) -> None:
        """The generation gets no assignments; who waits for one gets the error."""
        for member in group.members.values():
            member.assignment = b""
            if self.answer_sync(member, error):
                self.watch(group, member, now)

    def tell_assignments(self, group: ClassicGroup, now: Now) -> None:
        """Everybody who waits gets the assignment that the member now has."""
        for member in group.members.values():
            sync, member.sync = member.sync, None
            if sync is not None:
                sync(synced(group, member))
                self.watch(group, member, now)

    def cancel_timers(self, group: ClassicGroup) -> None:
        """The group is no longer this room's."""
        for name in (_join(group), _sync(group)):
            self._timers.cancel(name)
        for member in group.members.values():
            self._timers.cancel(member.timer)
            member.end()
            group.hold(member, 0)
        for member_id in list(group.pending):
            self.forget_pending(group, member_id)

    def _sync_over(self, group: ClassicGroup, generation: int, now: Now) -> Outcome:
        if generation != group.generation or group.state not in {State.COMPLETING, State.STABLE}:
            return NOTHING
        late = sorted(group.unsynced)
        for member_id in late:
            self.drop(group, group.members[member_id])
        return self.prepare(group, f"no sync from {', '.join(late)}", now) if late else NOTHING

    def _pending_over(self, group: ClassicGroup, member_id: str, now: Now) -> Outcome:
        group.forget_pending(member_id)
        return self._after_removal(group, now)

    def _session_over(self, group: ClassicGroup, member: Member, now: Now) -> Outcome:
        if member.waits:
            return NOTHING
        left_ms = member.left_ms(now.monotonic_ms)
        if left_ms:
            self.watch(group, member, now, left_ms)
            return NOTHING
        self.drop(group, member)
        if group.state in {State.STABLE, State.COMPLETING}:
            return self.prepare(group, f"the session of {member.member_id} is over", now)
        return self._after_removal(group, now)

    def _after_removal(self, group: ClassicGroup, now: Now) -> Outcome:
        """Was that the last one waited for? Here even the initial delay is cut short."""
        if group.state is State.PREPARING and group.all_joined:
            return self.complete(group, now)
        return NOTHING


def _warn(group: ClassicGroup, error: ErrorCode) -> None:
    """Without its record a restart finds the generation before, whose members then time out."""
    if error:
        _LOG.warning("group %r: empty, but that was not written: %s", group.group_id, error.name)


def _pending(group: ClassicGroup, member_id: str) -> tuple[str, str, str]:
    return ("classic-pending", group.group_id, member_id)


def _join(group: ClassicGroup) -> tuple[str, str]:
    return ("classic-join", group.group_id)


def _sync(group: ClassicGroup) -> tuple[str, str]:
    return ("classic-sync", group.group_id)
