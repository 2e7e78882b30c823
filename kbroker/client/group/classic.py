"""Membership by the classic protocol: JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

    UNJOINED --join--> PREPARING --answer--> COMPLETING --assignment--> STABLE
       ^-- the member or its generation is not known (any more); on_lost --|

A rebalance is made in poll only, and its callbacks run there. Eager: everything is revoked before
each join. Cooperative (KIP-429): partitions are kept, what the new assignment lacks is revoked
after it has come, and that brings a rebalance of its own. What is done at which error code is
Apache Kafka's ConsumerCoordinator's. Belongs to the polling thread.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any

from kbroker.client.errors import (
    BrokerError,
    CommitFailedError,
    CorruptDataError,
    KafkaError,
    RebalanceInProgressError,
    error_name,
)
from kbroker.client.group.assignors import COOPERATIVE, EAGER, Assignor, Subscription
from kbroker.client.group.commits import Commits, may_succeed
from kbroker.client.group.embedded import read_assignment, write_subscription
from kbroker.client.group.heart import AT_ONCE, GOING_ON, LOST, Heart
from kbroker.client.group.leader import Leader
from kbroker.client.group.room import NO_MEMBER, GroupMetadata, Room, log
from kbroker.errors import ErrorCode
from kbroker.protocol import ApiKey

__all__ = ["ClassicMember", "State"]

_CONSUMER = "consumer"
_NO_GENERATION = -1
_JOIN_LAPSE_S = 5.0
_REASON_MAX_CHARS = 255


class State(enum.Enum):
    UNJOINED = 0
    PREPARING = 1
    COMPLETING = 2
    STABLE = 3


class ClassicMember:
    """One member. protocol: what its assignors share, EAGER or COOPERATIVE."""

    def __init__(
        self, room: Room, commits: Commits, assignors: Sequence[Assignor], protocol: str
    ) -> None:
        self.state = State.UNJOINED
        self._room = room
        self._commits = commits
        self._assignors = {one.name: one for one in assignors}
        self._protocol = protocol
        self._leader = Leader(room, protocol)
        self._id = GroupMetadata(room.settings.group_id, instance_id=room.settings.instance_id)
        self._assignor = ""
        self._joined_topics: frozenset[str] | None = None
        self._rejoin = True
        self._reason = ""
        self._prepared = False
        self._round = 0  # of a rebalance; answers of an earlier one are stale
        self._busy = False
        self._not_before = 0.0
        self._prepare_until: float | None = None
        self._asked_s = 0.0  # when JoinGroup or SyncGroup was sent

    # --- what others ask ----------------------------------------------------------------------

    def told(self) -> GroupMetadata:
        return self._id

    def refreshed(self, sent: GroupMetadata) -> GroupMetadata:
        return sent

    @property
    def settled(self) -> bool:
        return self.state is State.STABLE and not self._rejoin

    def identity(self) -> GroupMetadata:
        if self.state is State.STABLE:
            return self._id
        if self.state is State.UNJOINED:
            raise CommitFailedError(
                "the consumer is not in its group; it may have been thrown out because"
                " poll was not called in time (max.poll.interval.ms)"
            )
        raise self._rebalancing("a rebalance goes on; poll first, then commit")

    def commit_refused(self, code: int, sent: GroupMetadata) -> KafkaError:
        unchanged = sent == self._id
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            self.rejoin("offset commit failed since group is already rebalancing")
            return self._rebalancing("the group rebalances; poll first, then commit again")
        if code == ErrorCode.FENCED_INSTANCE_ID and unchanged:
            return BrokerError(code, f"group.instance.id {sent.instance_id!r}")
        if not unchanged and self.state is State.PREPARING:
            return self._rebalancing("the member has moved on to another generation; poll first")
        if code != ErrorCode.FENCED_INSTANCE_ID:
            self._reset(code, ApiKey.OFFSET_COMMIT)
        return CommitFailedError(
            f"group {sent.group_id!r} has gone on without this member ({error_name(code)})"
        )

    def begin_anew(self) -> None:
        self._leader.resign()
        self._joined_topics = None
        self._not_before = 0.0
        self._set_id(_NO_GENERATION, self._id.member_id)
        self.state = State.UNJOINED
        self._start_over("an exception interrupted the consumer")

    def rejoin(self, reason: str) -> None:
        if not self._rejoin:
            log.info("Group %s: joins again: %s", self._id.group_id, reason)
            self._rejoin, self._reason = True, reason

    def leave(self, reason: str) -> None:
        """Static members do not tell the coordinator: they are expected back."""
        owned = self._room.host.assigned()
        if owned:
            known = self._id.generation != _NO_GENERATION and self._id.member_id != NO_MEMBER
            kept = known and self.state not in (State.PREPARING, State.COMPLETING)
            self._room.tell("on_revoked" if kept else "on_lost", owned)
            self._room.host.assign_from_group(())
        self._room.beat(None)
        if self._leave_request is not None:
            if self._busy:
                self._room.wire.interrupt()
            api, values = self._leave_request
            values["members"][0]["reason"] = reason[:_REASON_MAX_CHARS]
            self._room.wire.submit(api, values, self._left, within_s=0.0)
        self._set_id(_NO_GENERATION, NO_MEMBER)
        self.state = State.UNJOINED
        self._start_over("joins after it has left")

    @property
    def _leave_request(self) -> tuple[ApiKey, dict[str, Any]] | None:
        who = self._id
        if who.instance_id is not None or who.member_id == NO_MEMBER:
            return None
        members = [{"member_id": who.member_id, "group_instance_id": None, "reason": ""}]
        return ApiKey.LEAVE_GROUP, {"group_id": who.group_id, "members": members}

    def _left(self, answer: Any) -> None:
        if isinstance(answer, KafkaError) or answer.error_code != 0:
            log.warning("Group %s: leaving: %s", self._id.group_id, answer)

    # --- the rebalance ------------------------------------------------------------------------

    def poll(self, now: float) -> float:
        if self._room.heart is not None:
            self._room.heart.polled(now)
        due = self._room.topics.poll(now)
        self._check()
        while self._rejoin and not self._busy:
            if now < self._not_before:
                return min(due, self._not_before - now)
            if not self._step(now):
                break
        return min(due, self._room.topics.poll(now))

    def _check(self) -> None:
        """Whether something has changed that the group must know."""
        topics = self._room.subscribed.topics
        if self._joined_topics is not None and topics != self._joined_topics:
            self.rejoin("subscription has changed")
        elif self._leader.outdated():
            self.rejoin("cached metadata has changed")

    def _step(self, now: float) -> bool:
        """The next thing of a rebalance; False: it waits for an answer."""
        if self._room.topics.version == 0 and self._room.subscribed.pattern is not None:
            return False
        if not self._prepared:
            return self._prepare(now)
        self._join()
        return False

    def _prepare(self, now: float) -> bool:
        """Commits and revokes before the member joins."""
        if self._room.settings.auto_commit and self.state is State.STABLE:
            if self._prepare_until is None:
                self._prepare_until = now + self._room.settings.poll_interval_ms / 1000
            if self._protocol == EAGER:
                self._room.host.stop_fetching(self._room.host.assigned())
            self._busy = True
            self._round += 1
            at = self._round
            self._commits.auto(lambda error: self._committed(error, at))
            return not self._busy
        self._revoke()
        return True

    def _committed(self, error: KafkaError | None, at: int) -> None:
        if at != self._round:
            return
        self._busy = False
        now = self._room.clock()
        until = self._prepare_until
        if may_succeed(error) and until is not None and now < until:
            self._not_before = now + self._room.settings.retry_s[0]
            return
        self._revoke()

    def _revoke(self) -> None:
        """Gives up what may not be kept through the rebalance."""
        self._prepared, self._prepare_until = True, None
        self._leader.resign()
        host = self._room.host
        owned = host.assigned()
        if self._id.generation == _NO_GENERATION or self._id.member_id == NO_MEMBER:
            if owned:
                self._room.tell("on_lost", owned)
                host.assign_from_group(())
        elif self._protocol == EAGER:
            if owned:
                self._room.tell("on_revoked", owned)
            host.assign_from_group(())
        else:
            topics = self._room.subscribed.topics
            gone = {one for one in owned if one.topic not in topics}
            if gone:
                host.stop_fetching(gone)
                self._room.tell("on_revoked", gone)
                host.assign_from_group(owned - gone)

    def _join(self) -> None:
        settings = self._room.settings
        self.state = State.PREPARING
        self._busy = True
        self._round += 1
        at = self._round
        self._room.beat(None)
        topics = self._room.subscribed.topics
        self._joined_topics = topics
        owned = tuple(sorted(self._room.host.assigned()))
        protocols = []
        for name, assignor in self._assignors.items():
            data = assignor.user_data(sorted(topics))
            told = Subscription(
                tuple(sorted(topics)), data, owned, self._id.generation, settings.rack
            )
            protocols.append({"name": name, "metadata": write_subscription(told)})
        values = {
            "group_id": settings.group_id,
            "session_timeout": settings.session_timeout_ms,
            "rebalance_timeout": settings.poll_interval_ms,
            "member_id": self._id.member_id,
            "group_instance_id": settings.instance_id,
            "protocol_type": _CONSUMER,
            "protocols": protocols,
            "reason": self._reason[:_REASON_MAX_CHARS],
        }
        log.info("Group %s: joins: %s", settings.group_id, self._reason or "first time")
        self._room.metrics.rebalance_began()
        self._asked_s = self._room.clock()
        limit_s = max(settings.request_timeout_s, settings.poll_interval_ms / 1000 + _JOIN_LAPSE_S)
        sent = self._id
        self._room.wire.submit(
            ApiKey.JOIN_GROUP, values, lambda answer: self._joined(answer, sent, at),
            timeout_s=limit_s,
        )  # fmt: skip

    def _joined(self, answer: Any, sent: GroupMetadata, at: int) -> None:
        if at != self._round:
            return
        if isinstance(answer, KafkaError) or answer.error_code != 0:
            if getattr(answer, "error_code", 0) == ErrorCode.MEMBER_ID_REQUIRED:
                self._set_id(_NO_GENERATION, str(answer.member_id))
                self._reason = "need to re-join with the given member-id"
            self._failed(answer, ApiKey.JOIN_GROUP, sent)
            return
        self._room.metrics.joins.note(self._room.clock() - self._asked_s)
        if answer.protocol_type not in (None, _CONSUMER):
            code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
            self._raise(BrokerError(code, f"group of type {answer.protocol_type!r}"))
            return
        self._assignor = str(answer.protocol_name)
        if self._assignor not in self._assignors:
            self._raise(CorruptDataError(f"coordinator chose assignor {self._assignor!r}"))
            return
        self.state = State.COMPLETING
        self._set_id(int(answer.generation_id), str(answer.member_id))
        self._start_heart()
        if answer.leader != answer.member_id:
            self._sync([], at)
            return
        self._leader.lead(
            self._assignors[self._assignor], answer, lambda made: self._assigned(made, at)
        )

    def _assigned(self, made: list[dict[str, Any]] | Exception, at: int) -> None:
        """The leader has an assignment for everybody, or its assignor failed."""
        if at != self._round:
            return
        if isinstance(made, Exception):
            self._raise(made)
        else:
            self._sync(made, at)

    def _sync(self, assignments: list[dict[str, Any]], at: int) -> None:
        values = {
            "group_id": self._id.group_id,
            "generation_id": self._id.generation,
            "member_id": self._id.member_id,
            "group_instance_id": self._id.instance_id,
            "protocol_type": _CONSUMER,
            "protocol_name": self._assignor,
            "assignments": assignments,
        }
        sent = self._id
        self._asked_s = self._room.clock()
        # The coordinator waits for the leader as long as members may take to come back.
        limit_s = max(
            self._room.settings.request_timeout_s,
            self._room.settings.poll_interval_ms / 1000 + _JOIN_LAPSE_S,
        )
        self._room.wire.submit(
            ApiKey.SYNC_GROUP, values, lambda answer: self._synced(answer, sent, at),
            timeout_s=limit_s,
        )  # fmt: skip

    def _synced(self, answer: Any, sent: GroupMetadata, at: int) -> None:
        if at != self._round:
            return
        if isinstance(answer, KafkaError) or answer.error_code != 0:
            self._failed(answer, ApiKey.SYNC_GROUP, sent)
            return
        self._room.metrics.syncs.note(self._room.clock() - self._asked_s)
        told = (getattr(answer, "protocol_type", None), getattr(answer, "protocol_name", None))
        if told[0] not in (None, _CONSUMER) or told[1] not in (None, self._assignor):
            self._raise(BrokerError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"SyncGroup: {told}"))
            return
        self._busy = False
        self._prepared = False
        self._rejoin, self._reason = False, ""
        self.state = State.STABLE
        try:
            self._take(bytes(answer.assignment))
        except CorruptDataError as error:
            self._raise(error)

    def _take(self, data: bytes) -> None:
        """The assignment has come: revokes, assigns, and tells."""
        assignment = read_assignment(data)
        new = frozenset(assignment.partitions)
        host = self._room.host
        if not all(self._room.subscribed.covers(one.topic) for one in new):
            self.rejoin("received assignment does not match the current subscription")
            return
        owned = host.assigned()
        added, gone = new - owned, owned - new
        if self._protocol == COOPERATIVE and gone:
            host.stop_fetching(gone)
            self._room.tell("on_revoked", gone)
            self.rejoin("need to revoke partitions and re-join")
        if self._room.subscribed.pattern is not None and self._joined_topics is not None:
            # The leader may know of a topic that matches and that was not seen here yet.
            more = {one.topic for one in new} - self._joined_topics
            self._joined_topics |= more
            self._room.subscribed.topics |= more
        try:
            assignor = self._assignors[self._assignor]
            assignor.on_assignment(assignment, self._id.generation)
        except Exception as error:
            log.exception("Group %s: on_assignment failed", self._id.group_id)
            self._room.first_error.append(error)
        self._commits.put_off()
        host.assign_from_group(new)
        self._room.tell("on_assigned", added)
        self._room.metrics.rebalance_ended()

    # --- heartbeats ---------------------------------------------------------------------------

    def _start_heart(self) -> None:
        settings = self._room.settings
        who = self._id
        values = {
            "group_id": who.group_id,
            "generation_id": who.generation,
            "member_id": who.member_id,
            "group_instance_id": who.instance_id,
        }
        leave = self._leave_request
        if leave is not None:
            leave[1]["members"][0]["reason"] = "consumer poll timeout has expired."
        heart = Heart(
            ApiKey.HEARTBEAT,
            values,
            interval_s=settings.heartbeat_interval_s,
            timeout_s=settings.request_timeout_s,
            poll_interval_s=settings.poll_interval_ms / 1000,
            leave=leave,
            on_answer=lambda answer: self._beaten(answer, who),
            on_poll_expired=lambda: self._poll_expired(who),
            now=self._room.clock(),
        )
        self._room.beat(heart)

    def _beaten(self, answer: Any, sent: GroupMetadata) -> None:
        if sent != self._id or isinstance(answer, KafkaError):
            return
        code = int(answer.error_code)
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            if self.state is State.STABLE:
                self.rejoin("group is already rebalancing")
        elif code in (
            ErrorCode.ILLEGAL_GENERATION,
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.FENCED_INSTANCE_ID,
        ):
            self._reset(code, ApiKey.HEARTBEAT)
            if code == ErrorCode.FENCED_INSTANCE_ID:
                subject = f"group.instance.id {sent.instance_id!r}"
                self._room.first_error.append(BrokerError(code, subject))
        elif code not in GOING_ON:
            self._room.first_error.append(BrokerError(code, f"group {sent.group_id!r}"))

    def _poll_expired(self, sent: GroupMetadata) -> None:
        if sent == self._id:
            log.warning(
                "Group %s: poll was not called for max.poll.interval.ms=%d; the member has left."
                " Take fewer records at a time, or more time", sent.group_id,
                self._room.settings.poll_interval_ms,
            )  # fmt: skip
            self._set_id(_NO_GENERATION, NO_MEMBER)
            self.state = State.UNJOINED
            self._start_over("consumer pro-actively leaving the group")

    # --- errors -------------------------------------------------------------------------------

    def _failed(self, answer: Any, api: ApiKey, sent: GroupMetadata) -> None:
        """JoinGroup or SyncGroup went wrong: joins again, or tells the application."""
        self._room.metrics.rebalance_failed()
        self._busy = False
        self._prepared = self._prepared and self.state is not State.UNJOINED
        self._rejoin = True
        if isinstance(answer, KafkaError):
            code = answer.code if isinstance(answer, BrokerError) else None
            passing = answer.retriable
        else:
            code = int(answer.error_code)
            passing = code in AT_ONCE or code in LOST
            passing = passing or code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        name = error_name(code) if code is not None else repr(answer)
        log.info("Group %s: %s failed: %s", self._id.group_id, api.name, name)
        if code is not None and code in LOST:
            self._room.wire.forget()
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
            if sent == self._id or api is ApiKey.JOIN_GROUP:
                self._reset(code, api)
        elif code != ErrorCode.MEMBER_ID_REQUIRED:
            self._reason = f"rebalance failed due to {name}"
        self.state = State.PREPARING if self.state is not State.UNJOINED else self.state
        if not passing:
            error = answer if isinstance(answer, KafkaError) else None
            subject = f"{api.name} of group {self._id.group_id!r}"
            self._raise(error or BrokerError(code or 0, subject))
        elif code not in AT_ONCE:
            self._not_before = self._room.clock() + self._room.settings.retry_s[0]

    def _raise(self, error: Exception) -> None:
        """For the application; polling again joins again."""
        self._busy = False
        self._rejoin = True
        self._not_before = self._room.clock() + self._room.settings.retry_s[0]
        self._room.first_error.append(error)

    def _reset(self, code: int, api: ApiKey) -> None:
        """The coordinator does not know the member, or is in another generation."""
        same_member = code == ErrorCode.ILLEGAL_GENERATION
        self._set_id(_NO_GENERATION, self._id.member_id if same_member else NO_MEMBER)
        self.state = State.UNJOINED
        self._start_over(f"encountered {error_name(code)} from {api.name} response")

    def _start_over(self, reason: str) -> None:
        self._round += 1
        self._busy = False
        self._prepared = False
        self._prepare_until = None
        self._room.beat(None)
        self._rejoin, self._reason = True, reason

    def _set_id(self, generation: int, member_id: str) -> None:
        self._id = self._id._replace(generation=generation, member_id=member_id)

    def _rebalancing(self, why: str) -> RebalanceInProgressError:
        error = BrokerError(
            int(ErrorCode.REBALANCE_IN_PROGRESS), f"group {self._id.group_id!r}", why
        )
        assert isinstance(error, RebalanceInProgressError)
        return error
