"""A consumer group: members, target assignment, and what is counted over the members.

Only `replay` changes it (and the upgrade, which fills a new one that is not in the shard yet).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from kbroker.errors import ClientError, ErrorCode
from kbroker.group.consumer import records
from kbroker.group.consumer.assignors import Assignment
from kbroker.group.consumer.member import Member, MemberState, Partitions
from kbroker.group.consumer.subscription import Subscriptions
from kbroker.group.group import SINCE_COMMIT, CommitCheck, OffsetExpiry
from kbroker.group.order import most_voted
from kbroker.group.outcome import CoordinatorRecord, Now

PROTOCOL_TYPE: Final = "consumer"
_NO_ASSIGNMENT: Final[Assignment] = {}


class ResolvedRegex(NamedTuple):
    """The topics that a regular expression named when the topics were at `version`."""

    topics: frozenset[str]
    version: int
    timestamp_ms: int


class ConsumerGroup:
    """A group of the consumer protocol; members of the classic one may be in it."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.protocol_type: str | None = PROTOCOL_TYPE
        self.epoch = 1
        self.metadata_hash = 0
        self.assignment_epoch = 1
        self.assignment_ms = 0
        self.members: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}
        self.target: dict[str, Assignment] = {}
        self.owners: dict[bytes, dict[int, str]] = {}
        self.regexes: dict[str, ResolvedRegex] = {}
        self.subscriptions = Subscriptions()
        self.server_assignors: Counter[str] = Counter()
        self.classic_members = 0
        self.classic_protocols: Counter[str] = Counter()
        self.has_partition_metadata = False
        self.fresh: tuple[int, int] | None = None
        """Version of the topics that the group's hash was taken of last, and its epoch then."""
        self.resolved_at: int | None = None
        """Version of the topics when the regular expressions were resolved last, in this run."""
        self.unresolved_ms = 0
        """When they were resolved last and the outcome could not be written."""
        self._partition_epochs: dict[bytes, dict[int, int]] = {}

    # --- what others ask ----------------------------------------------------------------------

    @property
    def kind(self) -> str:
        return "consumer"

    @property
    def state_name(self) -> str:
        if not self.members:
            return "Empty"
        if self.epoch > self.assignment_epoch:
            return "Assigning"
        target = self.assignment_epoch
        reconciled = all(member.is_reconciled(target) for member in self.members.values())
        return "Stable" if reconciled else "Reconciling"

    def is_empty(self) -> bool:
        return not self.members

    def is_dead(self) -> bool:
        return False

    def subscribed_to(self, topic: str) -> bool:
        return self.subscriptions.has(topic)

    def validate_offset_commit(
        self,
        member_id: str,
        instance_id: str | None,
        generation: int,
        *,
        transactional: bool,
        version: int,
    ) -> CommitCheck | None:
        """A member commits in its own epoch, or in an older one for what it has had since then.

        Without members anybody may commit who gives no epoch (consumers without a group, tools).
        """
        if generation < 0 and not self.members:
            return None
        if transactional and generation == -1 and not member_id and instance_id is None:
            return None
        member = self.member(member_id)
        if not transactional and not member.is_classic and version < 9:
            raise ClientError(
                ErrorCode.UNSUPPORTED_VERSION,
                "Members of the consumer protocol commit with OffsetCommit version 9 or later.",
            )
        if generation == member.epoch:
            return None
        if generation > member.epoch:
            raise _stale(member, f"Epoch {generation} is ahead of the member's, {member.epoch}.")

        def check(topic: str, topic_id: bytes, partition: int) -> None:
            assigned = member.assigned.get(topic_id, {}).get(partition)
            if assigned is None:
                assigned = member.revoking.get(topic_id, {}).get(partition)
            if assigned is None:
                raise _stale(member, f"{topic}-{partition} is not the member's.")
            if generation < assigned:
                raise _stale(
                    member, f"{topic}-{partition} was assigned in epoch {assigned}, not before."
                )

        return check

    def validate_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        if member_id is None and member_epoch < 0:
            return
        member = self.member(member_id or "")
        if member_epoch != member.epoch:
            raise _stale(member, f"Epoch {member_epoch} is not the member's, {member.epoch}.")

    def validate_offset_delete(self) -> None:
        """Whether a topic is subscribed to is asked for each."""

    def validate_delete(self) -> None:
        if self.members:
            raise ClientError(ErrorCode.NON_EMPTY_GROUP, f"Group {self.group_id} has members.")

    def on_offset_commit(self, member_id: str, now: Now) -> None:
        """A commit keeps no member of this protocol alive: only heartbeats do."""

    def offset_expiry(self) -> OffsetExpiry | None:
        """Of topics that nobody subscribes to any more."""
        return SINCE_COMMIT

    def tombstones(self) -> Sequence[CoordinatorRecord]:
        return records.group_tombstones(self.group_id, self.members, self.regexes)

    # --- members ------------------------------------------------------------------------------

    def member(self, member_id: str) -> Member:
        """The member; UNKNOWN_MEMBER_ID where there is none."""
        found = self.members.get(member_id)
        if found is None:
            raise ClientError(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"Member {member_id} is not a member of group {self.group_id}.",
            )
        return found

    def static_member(self, instance_id: str | None) -> Member | None:
        """The member of an instance id."""
        member_id = None if instance_id is None else self.static_members.get(instance_id)
        return None if member_id is None else self.member(member_id)

    def target_of(self, member_id: str, instance_id: str | None) -> Assignment:
        """The target assignment; a static member's is that of whom it replaces, too."""
        if instance_id is not None:
            member_id = self.static_members.get(instance_id, "")
        return self.target.get(member_id, _NO_ASSIGNMENT)

    def update_member(self, member: Member) -> None:
        """A member came or changed."""
        old = self.members.get(member.member_id)
        self.members[member.member_id] = member
        self._count(old, member)
        if old is not None:
            self._forget_epochs(old)
        for partitions in (member.assigned, member.revoking):
            self._note_epochs(partitions, member.epoch)
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id

    def remove_member(self, member_id: str) -> None:
        """A member is gone."""
        old = self.members.pop(member_id)
        self._count(old, None)
        self._forget_epochs(old)
        # An instance id that another member has taken over in the meantime stays with that one.
        if old.instance_id is not None and self.static_members.get(old.instance_id) == member_id:
            del self.static_members[old.instance_id]

    def _count(self, old: Member | None, new: Member | None) -> None:
        self.subscriptions.replace(old, new)
        for member, by in ((old, -1), (new, 1)):
            if member is None:
                continue
            if member.server_assignor is not None:
                _add(self.server_assignors, member.server_assignor, by)
            if member.is_classic:
                self.classic_members += by
                for name in member.protocol_names():
                    _add(self.classic_protocols, name, by)

    # --- partitions ---------------------------------------------------------------------------

    def partition_epoch(self, topic_id: bytes, partition: int) -> int:
        """The epoch of the member that has a partition, or has yet to give it up; -1 for none."""
        return self._partition_epochs.get(topic_id, {}).get(partition, -1)

    def waits_for_others(self, member: Member) -> bool:
        """Whether what a member lacks is still with others."""
        if member.state is not MemberState.UNRELEASED_PARTITIONS:
            return False
        return any(
            partition not in member.assigned.get(topic_id, {})
            and self.partition_epoch(topic_id, partition) != -1
            for topic_id, partitions in self.target.get(member.member_id, {}).items()
            for partition in partitions
        )

    def _forget_epochs(self, old: Member) -> None:
        for partitions in (old.assigned, old.revoking):
            for topic_id, mine in partitions.items():
                epochs = self._partition_epochs.get(topic_id)
                if epochs is None:
                    continue
                for partition in mine:
                    if epochs.get(partition) == old.epoch:
                        del epochs[partition]
                if not epochs:
                    del self._partition_epochs[topic_id]

    def _note_epochs(self, partitions: Partitions, epoch: int) -> None:
        for topic_id, mine in partitions.items():
            epochs = self._partition_epochs.setdefault(topic_id, {})
            for partition in mine:
                epochs[partition] = max(epoch, epochs.get(partition, epoch))

    # --- target -------------------------------------------------------------------------------

    def set_target(self, member_id: str, assignment: Assignment) -> None:
        """The target assignment of a member."""
        self._move_owners(member_id, self.target.get(member_id, _NO_ASSIGNMENT), assignment)
        self.target[member_id] = assignment

    def remove_target(self, member_id: str) -> None:
        """A member has no target assignment any more."""
        self._move_owners(member_id, self.target.pop(member_id, _NO_ASSIGNMENT), _NO_ASSIGNMENT)

    def _move_owners(self, member_id: str, old: Assignment, new: Assignment) -> None:
        """A partition that moved may be told of its new owner before its old one."""
        for topic_id in {*old, *new}:
            owners = self.owners.setdefault(topic_id, {})
            had, has = old.get(topic_id, frozenset()), new.get(topic_id, frozenset())
            for partition in had - has:
                if owners.get(partition) == member_id:
                    del owners[partition]
            owners.update(dict.fromkeys(has - had, member_id))
            if not owners:
                del self.owners[topic_id]

    def preferred_assignor(self, old: Member | None, new: Member | None) -> str | None:
        """The assignor that most members ask for, as if `new` were there in the place of `old`."""
        counts = Counter(self.server_assignors)
        for member, by in ((old, -1), (new, 1)):
            if member is not None and member.server_assignor is not None:
                _add(counts, member.server_assignor, by)
        return most_voted(counts)

    # --- classic members ----------------------------------------------------------------------

    def supports_classic(self, protocol_type: str, names: Collection[str]) -> bool:
        """Whether one who joins by JoinGroup shares a protocol with all that did."""
        if protocol_type != PROTOCOL_TYPE:
            return False
        if not self.members:
            return bool(names)
        return any(self.classic_protocols.get(name, 0) == self.classic_members for name in names)

    def only_classic_without(self, leaving: Iterable[Member]) -> bool:
        """Whether all that stay when these leave speak the classic protocol."""
        gone = list(leaving)
        classic = self.classic_members - sum(member.is_classic for member in gone)
        return classic == len(self.members) - len(gone)

    def regex_topics(self) -> Mapping[str, frozenset[str]]:
        """What each regular expression names."""
        return {regex: resolved.topics for regex, resolved in self.regexes.items()}


def _add(counts: Counter[str], name: str, by: int) -> None:
    counts[name] += by
    if not counts[name]:
        del counts[name]


def _stale(member: Member, message: str) -> ClientError:
    code = ErrorCode.ILLEGAL_GENERATION if member.is_classic else ErrorCode.STALE_MEMBER_EPOCH
    return ClientError(code, message)
