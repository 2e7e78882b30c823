"""Coordinators that are broken on purpose. A model that lets one of them pass proves nothing."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from kbroker.group.classic.group import ClassicGroup
from kbroker.group.classic.heartbeat import ANSWERS
from kbroker.group.outcome import Outcome
from kbroker.group.rooms import Rooms
from kbroker.metadata.records.consumer_group import ConsumerGroupCurrentMemberAssignmentKey

Break = Callable[[Rooms], None]
_SELDOM = 40


def heartbeats_of_any_generation(rooms: Rooms) -> None:
    """A member that missed a rebalance is told that all is well."""
    heartbeat = rooms.classic.heartbeat

    def broken(request: Any, reply: Any, now: Any) -> Outcome:
        group = rooms.shard.groups.get(request.group_id)
        if isinstance(group, ClassicGroup):
            request = request._replace(generation=group.generation)
        outcome = heartbeat(request, reply, now)
        return ANSWERS[0] if outcome is ANSWERS[27] else outcome

    rooms.classic.heartbeat = broken  # type: ignore[method-assign]


def commits_of_anybody(rooms: Rooms) -> None:
    """A commit is taken from whoever sends it."""
    rooms.offsets._check_member = lambda request, now: None  # type: ignore[method-assign]


def commits_that_are_lost(rooms: Rooms) -> None:
    """Now and then a commit is answered and not written."""
    commit, turns = rooms.offsets.commit, itertools.count(1)

    def broken(request: Any, reply: Any, now: Any) -> Outcome:
        outcome = commit(request, reply, now)
        return outcome._replace(records=()) if next(turns) % _SELDOM == 0 else outcome

    rooms.offsets.commit = broken  # type: ignore[method-assign]


def members_that_never_expire(rooms: Rooms) -> None:
    """Sessions are watched, but it has no consequence."""
    over = rooms.classic._rebalance._session_over

    def broken(group: ClassicGroup, member: Any, now: Any) -> Outcome:
        rooms.classic._rebalance.watch(group, member, now)
        return over(group, member, now) if member.is_new else Outcome()

    rooms.classic._rebalance._session_over = broken  # type: ignore[method-assign]


def pulses_that_stay_open(rooms: Rooms) -> None:
    """Whose heartbeat was answered once is well as long as the member is there."""
    rooms.shard.pulses = _Deaf(rooms.shard.pulses)  # type: ignore[assignment]


class _Deaf:
    """Pulses, or one of them, that hear no `close`."""

    def __init__(self, real: Any) -> None:
        self._real = real

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def begin(self, *who: Any) -> _Deaf:
        return _Deaf(self._real.begin(*who))

    def close(self) -> None:
        pass


def syncs_that_are_forgotten(rooms: Rooms) -> None:
    """Now and then a member that waits for its assignment is not told."""
    tell, turns = rooms.classic._rebalance.tell_assignments, itertools.count(1)

    def broken(group: ClassicGroup, now: Any) -> None:
        for member in group.members.values():
            if member.sync is not None and next(turns) % _SELDOM == 0:
                member.sync = None
        tell(group, now)

    rooms.classic._rebalance.tell_assignments = broken  # type: ignore[method-assign]


def joins_that_are_answered_twice(rooms: Rooms) -> None:
    """An answer is given and parked all the same."""
    join, turns = rooms.classic.join, itertools.count(1)

    def broken(request: Any, reply: Any, now: Any) -> Outcome:
        outcome = join(request, reply, now)
        if outcome.response is None and next(turns) % _SELDOM == 0:
            reply({"error_code": 27})
        return outcome

    rooms.classic.join = broken  # type: ignore[method-assign]


def generations_written_wrong(rooms: Rooms) -> None:
    """What is written is not what the members are told."""
    of = rooms.classic._records.of

    def broken(group: ClassicGroup, assignments: Any) -> Any:
        record = of(group, assignments)
        if group.members:
            record.value.generation -= 1
        return record

    rooms.classic._records.of = broken  # type: ignore[method-assign]


def assignments_of_others(rooms: Rooms) -> None:
    """Now and then a member gets what the leader meant for another."""
    assign, turns = rooms.classic._syncs._assign, itertools.count(1)

    def broken(group: ClassicGroup, given: dict[str, bytes], now: Any) -> Outcome:
        if next(turns) % 10 == 0 and len(given) > 1:
            names = list(given)
            given[names[1]] = given[names[0]]
        return assign(group, given, now)

    rooms.classic._syncs._assign = broken  # type: ignore[method-assign]


def offsets_that_are_not_replayed(rooms: Rooms) -> None:
    """Now and then a restart passes over a committed offset."""
    replay, turns = rooms.shard.replay, itertools.count(1)

    def broken(record: Any) -> None:
        if next(turns) % 200 or not hasattr(record.key, "partition"):
            replay(record)

    rooms.shard.replay = broken  # type: ignore[method-assign]


def timeouts_that_are_not_replayed(rooms: Rooms) -> None:
    """A restart does not know how long its members may be silent."""
    read = rooms.classic._records._read

    def broken(group_id: str, value: Any) -> ClassicGroup:
        group = read(group_id, value)
        for member in group.members.values():
            member.session_timeout_ms += 1
        return group

    rooms.classic._records._read = broken  # type: ignore[method-assign]


def epochs_of_any_time(rooms: Rooms) -> None:
    """A member of the consumer protocol is never too late."""
    heartbeat = rooms.consumer.heartbeat

    def broken(request: Any, client: Any, now: Any) -> Outcome:
        group = rooms.consumer.find(request.group_id)
        member = None if group is None else group.members.get(request.member_id)
        if member is not None and request.member_epoch > 0 and member.epoch > 0:
            request = request._replace(member_epoch=member.epoch, owned=None)
        return heartbeat(request, client, now)

    rooms.consumer.heartbeat = broken  # type: ignore[method-assign]


def targets_given_at_once(rooms: Rooms) -> None:
    """A member is told of its target, whoever still has the partitions."""
    heartbeat = rooms.consumer.heartbeat

    def broken(request: Any, client: Any, now: Any) -> Outcome:
        outcome = heartbeat(request, client, now)
        group = rooms.consumer.find(request.group_id)
        target = {} if group is None else group.target.get(request.member_id)
        if outcome.response is None or request.member_epoch < 0 or not target:
            return outcome
        told = [{"topic_id": name, "partitions": list(what)} for name, what in target.items()]
        response = {**outcome.response, "assignment": {"topic_partitions": told}}
        return outcome._replace(response=response)

    rooms.consumer.heartbeat = broken  # type: ignore[method-assign]


def consumers_that_never_expire(rooms: Rooms) -> None:
    """Members of the consumer protocol are not fenced, however silent."""
    rooms.consumer.timeouts.session = lambda *args: None  # type: ignore[method-assign]


def members_that_are_not_replayed(rooms: Rooms) -> None:
    """Now and then a restart passes over what a member was assigned."""
    replay, turns = rooms.shard.replay, itertools.count(1)

    def broken(record: Any) -> None:
        assigned = isinstance(record.key, ConsumerGroupCurrentMemberAssignmentKey)
        if not assigned or record.value is None or next(turns) % _SELDOM:
            replay(record)

    rooms.shard.replay = broken  # type: ignore[method-assign]


CLASSIC: tuple[Break, ...] = (
    heartbeats_of_any_generation,
    commits_of_anybody,
    commits_that_are_lost,
    members_that_never_expire,
    pulses_that_stay_open,
    syncs_that_are_forgotten,
    joins_that_are_answered_twice,
    generations_written_wrong,
    assignments_of_others,
    offsets_that_are_not_replayed,
    timeouts_that_are_not_replayed,
)

CONSUMER: tuple[Break, ...] = (
    epochs_of_any_time,
    targets_given_at_once,
    consumers_that_never_expire,
    members_that_are_not_replayed,
    commits_of_anybody,
    commits_that_are_lost,
    offsets_that_are_not_replayed,
)
