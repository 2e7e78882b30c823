"""The room of the consumer protocol on a shard: its operations, in one place.

Operations take the time, check everything, and return an `Outcome`. What they refuse they raise as
ClientError with Kafka's code.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from kbroker.errors import BugError
from kbroker.group.classic.requests import HeartbeatRequest, JoinRequest, SyncRequest
from kbroker.group.consumer import classic_members
from kbroker.group.consumer.assignors import ASSIGNORS, Assignor, allowed_assignors
from kbroker.group.consumer.describe import NOT_ASKED, describe_group
from kbroker.group.consumer.group import ConsumerGroup
from kbroker.group.consumer.heartbeat import heartbeat
from kbroker.group.consumer.leave import fence_members
from kbroker.group.consumer.limits import GroupLimits
from kbroker.group.consumer.member import MemberState
from kbroker.group.consumer.metadata_hash import MetadataHashes
from kbroker.group.consumer.replay import Replay
from kbroker.group.consumer.requests import Heartbeat
from kbroker.group.consumer.resolving import Resolving
from kbroker.group.consumer.timeouts import Timeouts
from kbroker.group.group import Group
from kbroker.group.migration import Client
from kbroker.group.outcome import NOTHING, Now, Outcome
from kbroker.group.shard import Shard
from kbroker.uuids import random_uuid, uuid_text

_log = logging.getLogger(__name__)


def _new_member_id() -> str:
    return uuid_text(random_uuid())


class ConsumerProtocol:
    """Operations on the consumer groups of a shard. `new_id` makes ids for members without one."""

    def __init__(self, shard: Shard, new_id: Callable[[], str] = _new_member_id) -> None:
        self.shard = shard
        self.new_id = new_id
        self.limits = GroupLimits(shard)
        self.hashes = MetadataHashes(shard.topics)
        self.timeouts = Timeouts(shard.timers, self._fence)
        self.resolving = Resolving(self)
        shard.replays(Replay(shard).replayers())
        shard.when_loaded(self._loaded)
        shard.consumer = self

    # --- operations ---------------------------------------------------------------------------

    def heartbeat(self, request: Heartbeat, client: Client, now: Now) -> Outcome:
        """A member joins, reports, or leaves (ConsumerGroupHeartbeat)."""
        return heartbeat(self, request, client, now)

    def describe(self, group_id: str, operations: int = NOT_ASKED) -> Outcome:
        """A group with its members (ConsumerGroupDescribe); what the client may do with it."""
        return Outcome(response=describe_group(self, group_id, operations))

    def classic_join(self, group: Group, request: JoinRequest, client: Client, now: Now) -> Outcome:
        """JoinGroup of a classic member to a consumer group with members."""
        return classic_members.join(self, _consumer(group), request, client, now)

    def classic_sync(self, group: Group, request: SyncRequest, now: Now) -> Outcome:
        """SyncGroup of a classic member."""
        return classic_members.sync(self, _consumer(group), request, now)

    def classic_heartbeat(self, group: Group, request: HeartbeatRequest, now: Now) -> Outcome:
        """Heartbeat of a classic member."""
        return classic_members.heartbeat(self, _consumer(group), request, now)

    def classic_leave(
        self, group: Group, members: Sequence[tuple[str, str | None]], now: Now
    ) -> Outcome:
        """LeaveGroup: classic members leave, or an administrator removes members."""
        return classic_members.leave(self, _consumer(group), members, now)

    # --- what the operations ask --------------------------------------------------------------

    def find(self, group_id: str) -> ConsumerGroup | None:
        """The consumer group of that id, None where there is none or one of another kind."""
        group = self.shard.groups.get(group_id)
        return group if isinstance(group, ConsumerGroup) else None

    def assignor_names(self) -> list[str]:
        """Assignors that members may ask for; the first is the default."""
        return allowed_assignors(self.shard.settings.group_consumer_assignors)

    def assignor(self, name: str) -> Assignor:
        """The assignor of that name; the default where it is not allowed any more."""
        names = self.assignor_names()
        return ASSIGNORS[name if name in names else names[0]]

    # --- timers -------------------------------------------------------------------------------

    def _fence(
        self, group_id: str, member_id: str, why: str, epoch: int | None, now: Now
    ) -> Outcome:
        group = self.find(group_id)
        member = None if group is None else group.members.get(member_id)
        if group is None or member is None or (epoch is not None and member.epoch != epoch):
            return NOTHING
        _log.info("Group %s: member %s is fenced, %s timeout", group_id, member_id, why)
        return fence_members(self, group, [member], None, now)

    def _loaded(self, now: Now) -> Outcome:
        """Members get a whole session from now on; those that are to give up partitions, too."""
        for group_id, group in self.shard.groups.items():
            if not isinstance(group, ConsumerGroup):
                continue
            timeout_ms = self.limits.session_timeout_ms(group_id)
            for member in group.members.values():
                self.timeouts.session(group_id, member.member_id, timeout_ms, now)
                if member.state is MemberState.UNREVOKED_PARTITIONS:
                    self.timeouts.rebalance(group_id, member, now)
        return NOTHING


def _consumer(group: Group) -> ConsumerGroup:
    if not isinstance(group, ConsumerGroup):
        raise BugError(f"group {group.group_id} is no consumer group")
    return group
