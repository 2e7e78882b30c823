"""A consumer's group: what the consumer calls.

One thread at a time, the one that polls; only `on_event` and what the wire does come from others.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Any

from kbroker.client.errors import ConfigError, KafkaError
from kbroker.client.group.assignors import make_assignors
from kbroker.client.group.classic import ClassicMember
from kbroker.client.group.commits import CommitCallback, Commits, Committed, Offsets
from kbroker.client.group.consumer_member import ConsumerMember
from kbroker.client.group.native import NativePulse
from kbroker.client.group.port import Host, RebalanceListener
from kbroker.client.group.room import GroupMetadata, GroupSettings, Member, Room, log
from kbroker.client.group.subscribed import Subscribed, SubscriptionPattern, Target
from kbroker.client.group.topics import TopicsWatch
from kbroker.client.group.wire import Brokers, Inbox, Wire
from kbroker.client.partitions import OffsetsGiven, TopicPartition
from kbroker.ext.client_clock import monotonic

if TYPE_CHECKING:
    from kbroker.client.config import ConsumerConfig
    from kbroker.ext.client_heartbeat import HeartbeatDriver

__all__ = ["Group"]

_CLOSE_LAPSE_S = 1.0
_CLOSE_LOOK_UP_S = 2.0  # of a coordinator that is to be told of the leave
_numbers = itertools.count(1)


class Group:
    """Membership, subscription and commits of one consumer.

    brokers: the way to the cluster (`ClusterBrokers`). heartbeat: hangs in the loop that brokers
    hand connections to. on_commit: told of commits that succeeded. Raises ConfigError where there
    is no group.id, or for assignors that do not go together.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        brokers: Brokers,
        host: Host,
        *,
        heartbeat: HeartbeatDriver,
        on_commit: Callable[[Offsets], None] | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        settings = _settings(config)
        wire = Wire(
            brokers,
            settings.group_id,
            Inbox(host.wake),
            backoff_s=settings.retry_s[0],
            name=f"kbroker-group-{next(_numbers)}",
        )
        wire.pulse = NativePulse(heartbeat, wire)
        self._heartbeat = heartbeat
        topics = TopicsWatch(
            wire,
            max_age_s=config.metadata_max_age_ms / 1000,
            retry_s=settings.retry_s,
            create=config.allow_auto_create_topics,
        )
        self._room = Room(settings, host, wire, Subscribed(), topics, clock)
        self._commits = Commits(self._room, on_commit)
        self._matched = 0
        self._closed = False
        self._classic = config.group_protocol.lower() == "classic"
        self._member: Member
        if self._classic:
            try:
                assignors, protocol = make_assignors(config.partition_assignment_strategy)
            except ValueError as error:
                raise ConfigError(str(error)) from error
            self._member = ClassicMember(self._room, self._commits, assignors, protocol)
        else:
            self._member = ConsumerMember(self._room, self._commits)

    # --- subscription -------------------------------------------------------------------------

    def subscribe(self, target: Target, listener: RebalanceListener | None = None) -> None:
        """Names, a compiled pattern that is matched here, or a SubscriptionPattern that the broker
        matches. Replaces what was subscribed to; takes effect in poll. No names: unsubscribes."""
        if isinstance(target, SubscriptionPattern) and self._classic:
            raise ConfigError(
                "a SubscriptionPattern needs group.protocol=consumer; use re.compile(...)"
            )
        subscribed = self._room.subscribed
        target = target if isinstance(target, str) else _listed(target)
        if not isinstance(target, str) and target == []:
            self.unsubscribe()
            return
        subscribed.set(target, listener)
        self._commits.member = self._member
        if subscribed.pattern is not None:
            self._room.topics.want(None)
            self._match()
        else:
            self._room.topics.want(subscribed.topics)
        if isinstance(self._member, ConsumerMember):
            self._member.subscribed_anew()

    def unsubscribe(self) -> None:
        """Leaves the group; on_revoked is called first."""
        if self._room.subscribed.active:
            self._member.leave("the consumer unsubscribed from all topics")
            self._room.subscribed.clear()
            self._room.topics.want(frozenset())
            self._commits.member = None
            self._room.raise_first()

    @property
    def subscription(self) -> frozenset[str]:
        """Topics subscribed to; with a pattern those that match."""
        return self._room.subscribed.topics

    @property
    def active(self) -> bool:
        """Something is subscribed to, be it a pattern that matches nothing yet."""
        return self._room.subscribed.active

    @property
    def settled(self) -> bool:
        """No rebalance goes on, as far as this member knows."""
        return not self._room.subscribed.active or self._member.settled

    def _match(self) -> None:
        """Applies the pattern to the topics that are known now."""
        topics = self._room.topics
        hidden = self._room.settings.exclude_internal
        self._matched = topics.version
        self._room.subscribed.match(
            name for name, shape in topics.known.items() if not (hidden and shape.internal)
        )

    # --- poll ---------------------------------------------------------------------------------

    def poll(self) -> float:
        """Rebalances, callbacks, automatic commits: whatever is due. Seconds until more is.

        Does not wait for answers. Raises what the application has to see.
        """
        self._room.wire.inbox.drain()
        # Before anything is sent: who was fenced does not join again by itself.
        self._room.raise_first()
        now = self._room.clock()
        due = math.inf
        if self._room.subscribed.active:
            if self._matched != self._room.topics.version:
                self._match()
            due = self._member.poll(now)
        due = min(due, self._commits.poll(now))
        self._room.raise_first()
        return due

    def begin_anew(self) -> None:
        """Join anew after an exception that may have split a change of the membership. Partitions
        that are owned are lost, and commits that were not answered fail."""
        log.warning(
            "Group %s: an exception interrupted a call of the consumer; the member joins anew",
            self._room.settings.group_id,
        )
        self._room.topics.begin_anew()
        self._commits.begin_anew()
        if self._room.subscribed.active:
            self._commits.member = self._member
            self._member.begin_anew()
        else:
            self._commits.member = None

    def on_event(self) -> None:
        """The control thread: the loop has posted EVENT_HEARTBEAT."""
        pulse = self._room.wire.pulse
        if pulse is not None:
            pulse.on_event()

    def enforce_rebalance(self, reason: str = "") -> None:
        """The next poll joins again (classic protocol)."""
        if not self._room.subscribed.active:
            raise KafkaError("nothing is subscribed to")
        self._member.rejoin(reason or "rebalance enforced by user")

    def metadata(self) -> GroupMetadata:
        """Who this member is now."""
        if self._room.subscribed.active:
            return self._member.told()
        return GroupMetadata(
            self._room.settings.group_id, instance_id=self._room.settings.instance_id
        )

    # --- offsets ------------------------------------------------------------------------------

    def commit(self, offsets: OffsetsGiven | None, timeout_s: float) -> None:
        """See Commits.commit."""
        self._commits.commit(offsets, timeout_s)

    def commit_async(self, offsets: OffsetsGiven | None, callback: CommitCallback | None) -> None:
        """See Commits.commit_async."""
        self._commits.commit_async(offsets, callback)

    def committed(self, partitions: Collection[TopicPartition], timeout_s: float) -> Committed:
        """See Commits.committed."""
        return self._commits.committed(partitions, timeout_s)

    def fetch_committed(
        self,
        partitions: Collection[TopicPartition],
        done: Callable[[Committed | KafkaError], None],
    ) -> None:
        """See Commits.fetch_committed."""
        self._commits.fetch_committed(partitions, done)

    def metrics(self) -> dict[str, float]:
        """Of membership and commits, by Kafka's names; any thread. Times in ms."""
        sent, _ = self._heartbeat.counts
        age_s, longest_s = self._heartbeat.times
        return self._room.metrics.told() | {
            "assigned-partitions": len(self._room.host.assigned()),
            "heartbeat-total": sent,
            "heartbeat-response-time-max": longest_s * 1e3,
            "last-heartbeat-seconds-ago": age_s,
        }

    # --- the end ------------------------------------------------------------------------------

    def close(self, timeout_s: float = 30.0, *, offsets: Offsets | None = None) -> None:
        """Commit `offsets` if commits are automatic, revoke partitions, and leave the group. Raises
        what a listener raised. The commit waits for the coordinator as long as it may; the leave
        only looks it up."""
        if self._closed:
            return
        self._closed = True
        deadline = self._room.clock() + timeout_s
        if self._room.settings.auto_commit and offsets:
            try:
                left_s = max(0.0, deadline - self._room.clock())
                self._commits.commit(offsets, left_s, last=True)
            except KafkaError as error:
                log.warning("Group %s: last commit: %s", self._room.settings.group_id, error)
        self._commits.finish(deadline)
        try:
            if self._room.subscribed.active:
                self._member.leave("the consumer is being closed")
                self._room.subscribed.clear()
        finally:
            left_s = max(0.0, deadline - self._room.clock())
            reached = self._room.wire.reached
            self._room.wire.finish(left_s if reached else min(left_s, _CLOSE_LOOK_UP_S))
            left_s = max(0.0, deadline - self._room.clock())
            self._room.wire.close(min(left_s, _CLOSE_LAPSE_S))
        self._room.raise_first()

    def stop(self) -> None:
        """Ends the group's thread, without a word to the coordinator; what close() leaves to do.
        Nothing of it refers to itself from then on."""
        self._closed = True
        self._room.beat(None)
        self._room.wire.close(_CLOSE_LAPSE_S)
        self._room.wire.end()
        self._room.topics.forget()
        self._commits.forget()


def _listed(target: Any) -> Any:
    """Names as a list, so that they can be looked at twice."""
    if isinstance(target, SubscriptionPattern) or not isinstance(target, Iterable):
        return target
    return list(target)


def _settings(config: ConsumerConfig) -> GroupSettings:
    if not config.group_id:
        raise ConfigError("group.id is needed to subscribe, to commit and to read commits")
    return GroupSettings(
        group_id=config.group_id,
        instance_id=config.group_instance_id,
        rack=config.client_rack or None,
        session_timeout_ms=config.session_timeout_ms,
        heartbeat_interval_s=config.heartbeat_interval_ms / 1000,
        poll_interval_ms=config.max_poll_interval_ms,
        retry_s=(config.retry_backoff_ms / 1000, config.retry_backoff_max_ms / 1000),
        request_timeout_s=config.request_timeout_ms / 1000,
        auto_commit=config.enable_auto_commit,
        auto_commit_interval_s=config.auto_commit_interval_ms / 1000,
        remote_assignor=config.group_remote_assignor,
        exclude_internal=config.exclude_internal_topics,
    )
