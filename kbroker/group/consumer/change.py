"""What one operation changes in a consumer group: the steps that lead to its records.

The steps read the group as it is and what the operation has found out so far, and add records;
the group itself changes when those are replayed. The order of the steps is that of Apache Kafka:
member, regular expressions, group epoch, target assignment, the member's own assignment.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final

from kbroker.errors import ErrorCode
from kbroker.group.consumer import records
from kbroker.group.consumer.group import ConsumerGroup
from kbroker.group.consumer.member import Member, MemberState
from kbroker.group.consumer.reconcile import Owned, Step, Target, next_assignment
from kbroker.group.consumer.regex import check_regex
from kbroker.group.consumer.subscription import Subscriptions, TopicIdsOf
from kbroker.group.consumer.target import assignment_is_due, compute_target
from kbroker.group.outcome import CoordinatorRecord, Now, Outcome, Response

if TYPE_CHECKING:
    from kbroker.group.consumer.protocol import ConsumerProtocol

REGEX_REFRESH_MIN_INTERVAL_MS: Final = 10_000

After = Callable[[], Outcome | None]
Sees = Callable[[str], bool] | None


class RegexChange(Enum):
    """What became of a member's regular expression."""

    NONE = auto()
    UPDATED = auto()
    """It names topics that are not known yet: the group changes when they are."""
    RESOLVED = auto()


class Change:
    """An operation under way on `group`, which need not be in the shard yet."""

    def __init__(self, room: ConsumerProtocol, group: ConsumerGroup, now: Now) -> None:
        self.room = room
        self.group = group
        self.now = now
        self.records: list[CoordinatorRecord] = []
        self.epoch = group.epoch
        self._homogeneous: bool | None = None
        self._after: list[After] = []

    def after(self, do: After) -> None:
        """Do something once the records are replayed."""
        self._after.append(do)

    def outcome(self, response: Response | None) -> Outcome:
        """What the operation wants done."""
        after = tuple(self._after)
        if not after:
            return Outcome(self.records, response)

        def then(error: ErrorCode) -> Outcome | None:
            return None if error else _all(after)

        return Outcome(self.records, response, then)

    # --- the member ---------------------------------------------------------------------------

    def replace_member(self, old: Member, new: Member) -> None:
        """A static member is back under another id (its regular expression is seen to later)."""
        group_id = self.group.group_id
        self.records += records.member_tombstones(group_id, old.member_id)
        self.records += [
            records.member_metadata(group_id, new),
            records.target_member(
                group_id, new.member_id, self.group.target.get(old.member_id, {})
            ),
            records.current_assignment(group_id, new),
        ]
        if old.member_id != new.member_id:
            self.after(lambda: self.room.timeouts.cancel_all(group_id, old.member_id))

    def note_member(self, old: Member, new: Member) -> bool:
        """Write a member down that is new or has changed; whether it names other topics."""
        if new is old or new == old:
            return False
        self.records.append(records.member_metadata(self.group.group_id, new))
        return new.topic_names != old.topic_names

    def note_regex(self, old: Member, new: Member, sees: Sees = None) -> RegexChange:
        """See to a member's regular expression, and that all of the group are up to date."""
        group, regexes = self.group, self.group.subscriptions.regexes
        change, refresh = RegexChange.NONE, False
        if old.topic_regex != new.topic_regex:
            change = RegexChange.UPDATED
            if old.topic_regex and regexes.get(old.topic_regex) == 1:
                self.records.append(records.regex_tombstone(group.group_id, old.topic_regex))
            if not new.topic_regex:
                change = RegexChange.RESOLVED if old.topic_regex else change
            elif new.topic_regex not in regexes:
                check_regex(new.topic_regex)
                refresh = True
            elif new.topic_regex in group.regexes:
                change = RegexChange.RESOLVED
        if refresh or regexes:
            self._maybe_resolve(old, new, refresh, sees)
        return change

    def _maybe_resolve(self, old: Member, new: Member, refresh: bool, sees: Sees) -> None:
        """Resolve again where something is new, but not again and again."""
        last = next(iter(self.group.regexes.values()), None)
        resolved_ms = max(last.timestamp_ms if last else 0, self.group.unresolved_ms)
        if self.now.wall_ms <= resolved_ms + REGEX_REFRESH_MIN_INTERVAL_MS:
            return
        wanted = Subscriptions()
        wanted.regexes.update(self.group.subscriptions.regexes)
        wanted.replace(old if old.topic_regex in wanted.regexes else None, new)
        settings = self.room.shard.settings
        refresh = (
            refresh
            or len(wanted.regexes) != len(self.group.regexes)
            or last is None
            or self.group.resolved_at != self.room.shard.topics.version
            or self.now.wall_ms
            > last.timestamp_ms + settings.group_consumer_regex_refresh_interval_ms
        )
        if refresh and wanted.regexes:
            patterns, group_id = list(wanted.regexes), self.group.group_id
            self.after(lambda: self.room.resolving.begin(group_id, patterns, self.now, sees))

    # --- the group ----------------------------------------------------------------------------

    def maybe_refresh(self, bump: bool, old: Member, new: Member) -> None:
        """A new epoch where the member's subscription or the topics of the group are new."""
        group, topics = self.group, self.room.shard.topics
        fresh = group.fresh
        if not bump and fresh and fresh[0] == topics.version and group.epoch >= fresh[1]:
            return
        subscriptions = group.subscriptions.copy()
        joins = new.member_id not in group.members and group.static_member(new.instance_id) is None
        last_of = old.topic_regex if old.topic_regex != new.topic_regex else None
        if last_of and subscriptions.regexes.get(last_of) == 1 and last_of in group.regexes:
            subscriptions.resolve(group.regexes[last_of].topics, ())
        subscriptions.replace(old, new)
        metadata_hash = self.room.hashes.of_group(subscriptions.topics())
        self._homogeneous = subscriptions.is_homogeneous(len(group.members) + joins)
        if bump or metadata_hash != group.metadata_hash:
            self.epoch += 1
            self.records.append(records.group_epoch(group.group_id, self.epoch, metadata_hash))
        group.fresh = (topics.version, self.epoch)
        if group.has_partition_metadata:
            self.records.append(records.partition_metadata_tombstone(group.group_id))

    def target_for(self, old: Member, new: Member) -> Target:
        """The member's target assignment: a new one of the group where one is due."""
        group = self.group
        if group.assignment_epoch >= self.epoch or not self._assignment_is_due():
            return Target(group.assignment_epoch, group.target_of(new.member_id, new.instance_id))
        homogeneous = self._homogeneous
        if homogeneous is None:
            homogeneous = group.subscriptions.is_homogeneous(len(group.members))
        name = group.preferred_assignor(old, new) or ""
        target = compute_target(
            group, new, self.room.assignor(name), homogeneous, self.room.shard.topics
        )
        group_id = group.group_id
        for member_id, assignment in target.items():
            if assignment != group.target.get(member_id):
                self.records.append(records.target_member(group_id, member_id, assignment))
        self.records.append(records.target_epoch(group_id, self.epoch, self.now.wall_ms))
        return Target(self.epoch, target[new.member_id])

    def _assignment_is_due(self) -> bool:
        interval_ms = self.room.limits.assignment_interval_ms(self.group.group_id)
        return assignment_is_due(self.group.assignment_ms, interval_ms, self.now.wall_ms)

    def reconcile(
        self, member: Member, target: Target, *, changed: bool, owned: Owned | None
    ) -> Member:
        """The member's next step towards its target assignment."""
        if not changed and member.is_reconciled(target.epoch):
            return member
        group, topics = self.group, self.room.shard.topics
        ids_of = TopicIdsOf(topics, group.regex_topics())
        step = Step(target, frozenset(ids_of(member)), changed, group.partition_epoch, owned)
        new = next_assignment(member, step)
        if new == member:
            return new
        self.records.append(records.current_assignment(group.group_id, new))
        if not new.is_classic:
            self.after(lambda: self._watch_rebalance(new))
        return new

    def _watch_rebalance(self, member: Member) -> None:
        """Who is to give up partitions has its rebalance timeout for it."""
        timeouts, group_id = self.room.timeouts, self.group.group_id
        if member.state is MemberState.UNREVOKED_PARTITIONS:
            timeouts.rebalance(group_id, member, self.now)
        else:
            timeouts.cancel_rebalance(group_id, member.member_id)


def _all(after: tuple[After, ...]) -> Outcome | None:
    """Do all, and put what they want into one outcome."""
    outcomes = [one for do in after if (one := do()) is not None]
    if len(outcomes) < 2:
        return outcomes[0] if outcomes else None
    thens = [one.then for one in outcomes if one.then is not None]

    def then(error: ErrorCode) -> Outcome | None:
        return _all(tuple(_bound(do, error) for do in thens))

    return Outcome([record for one in outcomes for record in one.records], None, then)


def _bound(do: Callable[[ErrorCode], Outcome | None], error: ErrorCode) -> After:
    return lambda: do(error)


def partitions_answer(partitions: Any) -> list[dict[str, Any]]:
    """Partitions by topic id as answers tell them."""
    return [
        {"topic_id": topic_id, "partitions": sorted(mine)} for topic_id, mine in partitions.items()
    ]
