"""Membership by the consumer protocol (KIP-848): one request, ConsumerGroupHeartbeat.

The coordinator keeps the target assignment and hands it to each member piece by piece; a member
gives up what it lacks, takes what is new, and tells what it has then (`_acknowledge`). Callbacks
run in poll. Heartbeats that carry news are sent from here, one at a time; between them the wire
sends those that only say "still here", of which an answer with an assignment comes up as well.
What is done at which error code is that of Apache Kafka's ConsumerMembershipManager.

Epochs: 0 joins, -1 leaves, -2 leaves for a while (static members). Belongs to the polling thread.
"""

from __future__ import annotations

import enum
import uuid
from collections.abc import Mapping
from typing import Any, NamedTuple

from kbroker.client.errors import (
    BrokerError,
    CommitFailedError,
    KafkaError,
    UnsupportedApiError,
    UnsupportedVersionError,
    error_name,
)
from kbroker.client.group.commits import Commits, may_succeed
from kbroker.client.group.heart import GOING_ON, LOST, Heart
from kbroker.client.group.room import GroupMetadata, Room, log
from kbroker.client.partitions import TopicPartition
from kbroker.errors import ErrorCode
from kbroker.protocol import ApiKey

__all__ = ["ConsumerMember", "State"]

_JOIN, _LEAVE, _LEAVE_STATIC = 0, -1, -2
_UNCHANGED_MS = -1
_FENCED = frozenset({ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID})

Ids = dict[uuid.UUID, frozenset[int]]


class State(enum.Enum):
    OUT = 0  # not in the group; poll joins
    JOINING = 1
    MEMBER = 2
    FATAL = 3


class _Change(NamedTuple):
    """An assignment on its way to be taken; at: the round in which it is. until: monotonic."""

    target: Ids
    new: frozenset[TopicPartition]
    at: int
    until: float
    pause_s: float


class ConsumerMember:
    """One member; its id is made here and kept as long as it lives (KIP-1082)."""

    def __init__(self, room: Room, commits: Commits) -> None:
        self.state = State.OUT
        self._room = room
        self._commits = commits
        self._member_id = str(uuid.uuid4())
        self._epoch = _JOIN
        self._target: Ids | None = None  # not reconciled yet
        self._owned: Ids = {}
        self._sent: dict[str, Any] = {}  # fields as the coordinator knows them
        self._hearts = 0  # so many were begun
        self._round = 0
        self._busy = False  # a heartbeat of ours, a commit or a look-up is on its way
        self._news = False  # a heartbeat is due that tells something
        self._lost = False  # what is owned has to be given up as lost
        self._not_before = 0.0
        self._looked_up = False

    # --- what others ask ----------------------------------------------------------------------

    def told(self) -> GroupMetadata:
        settings = self._room.settings
        epoch = self._live_epoch() if self.state is State.MEMBER else -1
        return GroupMetadata(settings.group_id, epoch, self._member_id, settings.instance_id)

    @property
    def settled(self) -> bool:
        quiet = not (self._busy or self._news or self._lost or self._target is not None)
        return self.state is State.MEMBER and quiet

    def identity(self) -> GroupMetadata:
        if self.state is not State.MEMBER:
            raise CommitFailedError(
                "the consumer is not in its group; it may have been fenced because"
                " poll was not called in time (max.poll.interval.ms)"
            )
        return self.told()

    def refreshed(self, sent: GroupMetadata) -> GroupMetadata:
        return sent._replace(generation=self._live_epoch())

    def commit_refused(self, code: int, sent: GroupMetadata) -> KafkaError:
        if code == ErrorCode.STALE_MEMBER_EPOCH and self.state is State.MEMBER:
            error = BrokerError(code, f"group {sent.group_id!r}")
            error.retriable = True  # sent again it carries the epoch that has come meanwhile
            return error
        return CommitFailedError(
            f"group {sent.group_id!r} has gone on without this member ({error_name(code)})"
        )

    def begin_anew(self) -> None:
        self._looked_up = False
        self._fence()

    def rejoin(self, reason: str) -> None:
        """The coordinator assigns when it wants to; there is nothing to ask for."""
        log.info("Group %s: no rebalance on demand: %s", self._room.settings.group_id, reason)

    def leave(self, reason: str) -> None:
        host = self._room.host
        owned = host.assigned()
        if owned:
            self._room.tell("on_revoked" if self.state is State.MEMBER else "on_lost", owned)
            host.assign_from_group(())
        self._room.beat(None)
        if self.state in (State.MEMBER, State.JOINING):
            log.info("Group %s: leaves: %s", self._room.settings.group_id, reason)
            api, values = self._leave_request()
            self._room.wire.submit(api, values, self._left, within_s=0.0)
        self._reset()
        self.state = State.OUT

    def _leave_request(self) -> tuple[ApiKey, dict[str, Any]]:
        static = self._room.settings.instance_id is not None
        values = {**self._still_here(), "member_epoch": _LEAVE_STATIC if static else _LEAVE}
        return ApiKey.CONSUMER_GROUP_HEARTBEAT, values

    def _left(self, answer: Any) -> None:
        if isinstance(answer, KafkaError) or answer.error_code != 0:
            log.warning("Group %s: leaving: %s", self._room.settings.group_id, answer)

    def _live_epoch(self) -> int:
        """The wire's heartbeats may have brought a later one than was worked up here."""
        heart = self._room.heart
        return self._epoch if heart is None else heart.epoch

    # --- poll ---------------------------------------------------------------------------------

    def poll(self, now: float) -> float:
        if self._room.heart is not None:
            self._room.heart.polled(now)
        due = self._room.topics.poll(now)
        if self._lost:
            self._give_up()
        if self.state is State.FATAL or self._busy:
            return due
        if now < self._not_before:
            return min(due, self._not_before - now)
        pattern = self._room.subscribed.pattern
        if pattern is not None and self._room.topics.version == 0:
            return due
        if self.state is State.OUT:
            self.state = State.JOINING
            self._epoch = _JOIN
            self._send()
        elif self.state is State.JOINING or self._news or self._wanted() != self._wanted_sent():
            self._send()
        elif self._target is not None:
            self._reconcile()
        return min(due, self._room.topics.poll(now))

    def _give_up(self) -> None:
        self._lost = False
        owned = self._room.host.assigned()
        if owned:
            self._room.tell("on_lost", owned)
        self._room.host.assign_from_group(())
        self._owned = {}

    # --- heartbeats with news -----------------------------------------------------------------

    def _still_here(self) -> dict[str, Any]:
        settings = self._room.settings
        return {
            "group_id": settings.group_id,
            "member_id": self._member_id,
            "member_epoch": self._live_epoch(),
            "instance_id": settings.instance_id,
            "rack_id": None,
            "rebalance_timeout": _UNCHANGED_MS,
            "subscribed_topic_names": None,
            "subscribed_topic_regex": None,
            "server_assignor": None,
            "topic_partitions": None,
        }

    def _wanted(self) -> dict[str, Any]:
        """Fields of a heartbeat that are sent when they change."""
        subscribed = self._room.subscribed
        names = sorted(subscribed.topics)
        regex = None if subscribed.regex is None else subscribed.regex.pattern
        return {"subscribed_topic_names": names, "subscribed_topic_regex": regex}

    def _wanted_sent(self) -> dict[str, Any]:
        names = ("subscribed_topic_names", "subscribed_topic_regex")
        return {name: self._sent.get(name) for name in names}

    def _fields(self) -> dict[str, Any]:
        """All that the coordinator may have to know."""
        settings = self._room.settings
        return {
            **self._wanted(),
            "rebalance_timeout": settings.poll_interval_ms,
            "server_assignor": settings.remote_assignor,
            "topic_partitions": [
                {"topic_id": topic_id, "partitions": sorted(found)}
                for topic_id, found in sorted(self._owned.items())
            ],
        }

    def _send(self) -> None:
        """A heartbeat with what has changed, or everything where the coordinator knows nothing."""
        joins = self.state is State.JOINING
        values = {**self._still_here(), "member_epoch": _JOIN if joins else self._live_epoch()}
        fields = self._fields()
        for name, value in fields.items():
            if joins or self._sent.get(name, self) != value:
                values[name] = value
        if fields["subscribed_topic_regex"] is None and self._sent.get("subscribed_topic_regex"):
            values["subscribed_topic_regex"] = ""  # no pattern any more
        if self._news:
            values["topic_partitions"] = fields["topic_partitions"]
        if joins:
            values["rack_id"] = self._room.settings.rack
        self._busy = True
        self._round += 1
        at = self._round

        def made(version: int) -> Mapping[str, Any]:
            if version < 1 and values["subscribed_topic_regex"]:
                raise UnsupportedApiError(
                    "the broker does not match patterns (ConsumerGroupHeartbeat 1);"
                    " subscribe to re.compile(...) instead"
                )
            # The wire's own heartbeats may have brought a new epoch while this one was waiting.
            return values if joins else {**values, "member_epoch": self._live_epoch()}

        self._room.wire.submit(
            ApiKey.CONSUMER_GROUP_HEARTBEAT,
            made,
            lambda answer: self._answered(answer, fields, at, joins),
        )

    def _answered(self, answer: Any, fields: Mapping[str, Any], at: int, joins: bool) -> None:
        if at != self._round:
            return
        self._busy = False
        if isinstance(answer, KafkaError) or answer.error_code != 0:
            self._failed(answer)
            return
        self._sent = dict(fields)
        self._news = False
        self._not_before = 0.0
        if joins:
            log.info("Group %s: joined", self._room.settings.group_id)
        self.state = State.MEMBER
        self._taken(answer, own=True)

    def _taken(self, answer: Any, *, own: bool) -> None:
        """An answer without an error: epoch, interval, and perhaps an assignment."""
        self._epoch = int(answer.member_epoch)
        heart = self._room.heart
        interval_s = answer.heartbeat_interval.total_seconds()
        if heart is None:
            self._start_heart(interval_s)
        elif own:
            heart.went_out(self._epoch, interval_s)
        if answer.assignment is not None:
            self._target = {
                one.topic_id: frozenset(int(index) for index in one.partitions)
                for one in answer.assignment.topic_partitions
            }
            self._looked_up = False

    def _start_heart(self, interval_s: float) -> None:
        settings = self._room.settings
        self._hearts += 1
        which = self._hearts
        heart = Heart(
            ApiKey.CONSUMER_GROUP_HEARTBEAT,
            self._still_here(),
            interval_s=interval_s,
            timeout_s=settings.request_timeout_s,
            poll_interval_s=settings.poll_interval_ms / 1000,
            leave=self._leave_request(),
            on_answer=lambda answer: self._beaten(answer, which),
            on_poll_expired=lambda: self._poll_expired(which),
            now=self._room.clock(),
        )
        self._room.beat(heart)

    def _beats(self, which: int) -> bool:
        return self._room.heart is not None and which == self._hearts

    def _beaten(self, answer: Any, which: int) -> None:
        """A heartbeat of the loop's was answered with more than "go on"."""
        if not self._beats(which):
            return
        if isinstance(answer, KafkaError) or answer.error_code != 0:
            self._failed(answer)
        elif answer.member_epoch >= self._epoch:  # else overtaken by an answer to one of ours
            self._taken(answer, own=False)

    def _poll_expired(self, which: int) -> None:
        if self._beats(which):
            log.warning(
                "Group %s: poll was not called for max.poll.interval.ms=%d; the member has left."
                " Take fewer records at a time, or more time", self._room.settings.group_id,
                self._room.settings.poll_interval_ms,
            )  # fmt: skip
            self._fence()

    # --- reconciliation -----------------------------------------------------------------------

    def _reconcile(self) -> None:
        """Brings what is owned to the target: commits, revokes, assigns, acknowledges."""
        assert self._target is not None
        names = self._room.topics.names_by_id()
        unknown = self._target.keys() - names.keys()
        if unknown and not self._looked_up:
            self._looked_up = True
            self._busy = True
            self._round += 1
            at = self._round
            self._room.topics.resolve(unknown, lambda: self._resolved(at))
            return
        target = {one: found for one, found in self._target.items() if one in names and found}
        if unknown:
            # What can be named is taken now; the rest is asked for again after a pause.
            self._looked_up = False
            self._not_before = self._room.clock() + self._room.settings.retry_s[1]
            if target == self._owned and self._sent.get("topic_partitions") is not None:
                return
        else:
            self._target = None
        new = frozenset(
            TopicPartition(names[one], index) for one, found in target.items() for index in found
        )
        self._room.metrics.rebalance_began()
        if new == self._room.host.assigned():
            self._acknowledge(target)
        elif self._room.settings.auto_commit and self._room.host.assigned():
            self._busy = True
            self._round += 1
            self._room.host.stop_fetching(self._room.host.assigned() - new)
            until = self._room.clock() + self._room.settings.poll_interval_ms / 1000
            pause_s = self._room.settings.retry_s[0]
            self._commit_first(_Change(target, new, self._round, until, pause_s))
        else:
            self._apply(target, new)

    def _resolved(self, at: int) -> None:
        if at == self._round:
            self._busy = False

    def _commit_first(self, change: _Change) -> None:
        """What was delivered, before anything is given up. What passes is tried again for as long
        as the coordinator waits."""
        if change.at == self._round:
            self._commits.auto(lambda error: self._committed(error, change))

    def _committed(self, error: KafkaError | None, change: _Change) -> None:
        if change.at != self._round:
            return
        now = self._room.clock()
        if may_succeed(error) and now + change.pause_s < change.until:
            pause_s = min(2 * change.pause_s, self._room.settings.retry_s[1])
            later = change._replace(pause_s=pause_s)
            self._commits.later(now + change.pause_s, lambda: self._commit_first(later))
            return
        self._busy = False
        if error is not None:
            log.warning(
                "Group %s: commit before a rebalance: %s", self._room.settings.group_id, error
            )
        self._apply(change.target, change.new)

    def _apply(self, target: Ids, new: frozenset[TopicPartition]) -> None:
        host = self._room.host
        owned = host.assigned()
        gone, added = owned - new, new - owned
        if gone:
            host.stop_fetching(gone)
            self._room.tell("on_revoked", gone)
        if self.state is not State.MEMBER:
            return  # the callback took so long, or did something, that the member is out
        host.assign_from_group(new)
        self._room.tell("on_assigned", added)
        self._commits.put_off()
        self._acknowledge(target)

    def _acknowledge(self, target: Ids) -> None:
        self._owned = target
        self._room.metrics.rebalance_ended()
        self._news = True
        self._not_before = 0.0
        self._send()

    # --- errors -------------------------------------------------------------------------------

    def _failed(self, answer: Any) -> None:
        """After any error the next heartbeat tells everything anew."""
        self._sent = {}
        self._news = self.state is State.MEMBER
        self._not_before = self._room.clock() + self._room.settings.retry_s[0]
        heart = self._room.heart
        if heart is not None and heart.stops_at(answer):
            # Heartbeats have ended with this answer; ours that succeeds next starts them anew.
            self._epoch = heart.epoch
            self._room.beat(None)
        if isinstance(answer, KafkaError):
            if not answer.retriable:
                self._fatal(_explained(answer))
            return
        code = int(answer.error_code)
        said = getattr(answer, "error_message", None)
        log.info("Group %s: heartbeat: %s", self._room.settings.group_id, error_name(code))
        if code in LOST:
            self._room.wire.forget()
        elif code in _FENCED:
            self._fence()
        elif code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            subject = f"group {self._room.settings.group_id!r}"
            self._room.first_error.append(BrokerError(code, subject, said))
        elif code not in GOING_ON:
            subject = f"group {self._room.settings.group_id!r}"
            self._fatal(_explained(BrokerError(code, subject, said)))

    def _fence(self) -> None:
        """Out of the group: what is owned is lost, and the next poll joins again."""
        self._room.metrics.rebalance_failed()
        self._reset()
        self.state = State.OUT
        self._lost = True
        self._not_before = 0.0

    def _reset(self) -> None:
        self._room.beat(None)
        self._round += 1
        self._busy = False
        self._news = False
        self._epoch = _JOIN
        self._target = None
        self._owned = {}
        self._sent = {}

    def _fatal(self, error: KafkaError) -> None:
        self._reset()
        self.state = State.FATAL
        self._lost = True
        self._room.first_error.append(error)

    def subscribed_anew(self) -> None:
        """After a fatal error a new subscription is a new try."""
        if self.state is State.FATAL:
            self.state = State.OUT


def _explained(error: KafkaError) -> KafkaError:
    if isinstance(error, UnsupportedVersionError) or (
        isinstance(error, UnsupportedApiError) and "subscribe" not in str(error)
    ):
        return UnsupportedApiError(
            "the broker does not offer group.protocol=consumer; use group.protocol=classic"
        )
    return error
