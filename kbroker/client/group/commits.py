"""Commits of positions, and reading what was committed.

Nothing is committed that the application was not given: positions come from `Host.delivered`, or
from the caller. Commits leave in the order in which they were asked for, and callbacks of
asynchronous ones are called in that order, on the thread that polls. Belongs to that thread.
"""

from __future__ import annotations

import collections
import math
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

from kbroker.client.errors import (
    BrokerError,
    CommitFailedError,
    FencedInstanceIdError,
    KafkaError,
    RequestTimeoutError,
    TopicAuthorizationFailedError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
    error_name,
)
from kbroker.client.group.heart import LOST
from kbroker.client.group.room import GroupMetadata, Member, Room, log
from kbroker.client.partitions import (
    OffsetAndMetadata,
    OffsetsGiven,
    TopicPartition,
    checked_offsets,
)
from kbroker.errors import ErrorCode
from kbroker.protocol import ApiKey

__all__ = ["CommitCallback", "Commits", "Committed", "Offsets"]

Offsets = Mapping[TopicPartition, OffsetAndMetadata]
CommitCallback = Callable[[Offsets, KafkaError | None], None]
Ids = Mapping[str, uuid.UUID]
Committed = dict[TopicPartition, OffsetAndMetadata | None]

_WHO = frozenset({
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.STALE_MEMBER_EPOCH,
    ErrorCode.REBALANCE_IN_PROGRESS,
})  # fmt: skip
"""The commit was refused because of who sent it; the member knows what that means."""
_GONE = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
"""Refused for a topic that was deleted. The commits of other partitions are done."""
_UNKNOWN_S = 3.0  # a topic that brokers do not know for so long does not exist


def is_gone(error: KafkaError | None) -> bool:
    """Return whether a commit failed only because topics or partitions do not exist."""
    return isinstance(error, (UnknownTopicOrPartitionError, UnknownTopicIdError))


def may_succeed(error: KafkaError | None) -> bool:
    """Return whether the same commit is worth another try. A deleted topic does not come back."""
    return error is not None and error.retriable and not is_gone(error)


class _Pending:
    """An asynchronous commit, until its callback has been called."""

    def __init__(self, offsets: Offsets, callback: CommitCallback | None) -> None:
        self.offsets = offsets
        self.callback = callback
        self.done = False
        self.error: KafkaError | None = None


class _Question:
    """For committed offsets, until it was answered."""

    def __init__(
        self,
        commits: Commits,
        wanted: Collection[TopicPartition],
        done: Callable[[Committed | KafkaError], None],
        deadline: float,
    ) -> None:
        self._commits = commits
        self._wanted = wanted
        self._done = done
        self._deadline = deadline
        self._pause_s = commits.room.settings.retry_s[0]

    def ask(self) -> None:
        commits, wanted = self._commits, self._wanted
        ids = commits.room.topics.ids_of({one.topic for one in wanted})
        commits.room.wire.submit(
            ApiKey.OFFSET_FETCH,
            lambda version: commits.question(version, wanted, ids),
            lambda answer: self._answered(answer, ids),
            by_id=bool(ids),
        )

    def _answered(self, answer: Any, ids: Ids) -> None:
        commits = self._commits
        try:
            found = commits.read(answer, self._wanted, ids)
        except KafkaError as error:
            due = commits.room.clock() + self._pause_s
            if not error.retriable or due > self._deadline:
                self._done(error)
                return
            commits.later(due, self.ask)
            self._pause_s = min(self._pause_s * 2, commits.room.settings.retry_s[1])
            return
        self._done(found)


class Commits:
    """Commits of one consumer. member: None while it assigns partitions to itself.

    on_commit: told of each commit that succeeded (interceptors).
    """

    def __init__(self, room: Room, on_commit: Callable[[Offsets], None] | None = None) -> None:
        self.member: Member | None = None
        self.room = room
        self._on_commit = on_commit
        self._pending: collections.deque[_Pending] = collections.deque()
        self._later: list[tuple[float, Callable[[], None]]] = []
        self._auto_due = room.clock() + room.settings.auto_commit_interval_s
        self._auto_sent = False

    # --- what is called again and again -------------------------------------------------------

    def poll(self, now: float) -> float:
        """Commits in the background where that is due; seconds until something is."""
        for one in [one for one in self._later if one[0] <= now]:
            self._later.remove(one)
            one[1]()
        waits = [one[0] - now for one in self._later]
        if self.room.settings.auto_commit:
            if now >= self._auto_due and not self._auto_sent:
                self._auto_due = now + self.room.settings.auto_commit_interval_s
                self.auto(self._auto_done)
            waits.append(max(0.0, self._auto_due - now) if not self._auto_sent else math.inf)
        return min(waits, default=math.inf)

    def later(self, when: float, what: Callable[[], None]) -> None:
        """Calls it in the first poll behind this time."""
        self._later.append((when, what))

    def begin_anew(self) -> None:
        """Give up what was asked for: answers may have been lost."""
        self._auto_sent = False
        self._later = []
        for one in self._pending:
            if not one.done:
                one.error = KafkaError(
                    "an exception interrupted the consumer: the commit may have been done or not"
                )
                one.done = True

    def put_off(self) -> None:
        """An assignment is new: the next automatic commit is a whole interval away."""
        self._auto_due = self.room.clock() + self.room.settings.auto_commit_interval_s

    def auto(self, done: Callable[[KafkaError | None], None]) -> None:
        """Commits all delivered positions; `done` may be called at once, where there are none."""
        offsets = dict(self.room.host.delivered())
        if not offsets:
            done(None)
            return
        self._auto_sent = True

        def answered(error: KafkaError | None) -> None:
            self._auto_sent = False
            if error is not None and not may_succeed(error):
                log.warning("Group %s: automatic commit: %s", self._group, error)
            done(error)

        self._send(offsets, answered)

    def _auto_done(self, error: KafkaError | None) -> None:
        if may_succeed(error):
            self._auto_due = self.room.clock() + self.room.settings.retry_s[0]

    # --- commits of the application -----------------------------------------------------------

    def commit(self, offsets: OffsetsGiven | None, timeout_s: float, *, last: bool = False) -> None:
        """Commits and waits; tries again what passes. Asynchronous commits sent before are done
        when it returns. A topic that does not exist is waited for for 3 s, since it may have just
        been created; last: not at all. Other partitions are committed.

        Raises RequestTimeoutError, CommitFailedError where the member is out of its group,
        RebalanceInProgressError where polling goes first, and others of the broker.
        """
        chosen = self._chosen(offsets)
        deadline = self.room.clock() + timeout_s
        pause_s = self.room.settings.retry_s[0]
        gone_until_s = math.inf
        told: KafkaError | None = None
        while True:
            result: list[KafkaError | None] = []
            if chosen:
                self._send(chosen, result.append, deadline - self.room.clock())
            elif not self._pending:
                return
            while not result and (chosen or self._pending):
                left_s = deadline - self.room.clock()
                if left_s <= 0:
                    why = f": {told}" if told is not None else ""
                    raise RequestTimeoutError(
                        f"commit was not done within {timeout_s:g} s{why}"
                    ) from told
                self.room.wire.inbox.drain(left_s)
            self._call_back()
            error = result[0] if result else None
            if error is None:
                return
            now = self.room.clock()
            gone_until_s = min(gone_until_s, now + _UNKNOWN_S) if is_gone(error) else math.inf
            if not error.retriable or (is_gone(error) and (last or now >= gone_until_s)):
                raise error
            if told is None or not isinstance(error, RequestTimeoutError):
                told = error  # no answer tells less than one before
            self.pause(min(pause_s, deadline - self.room.clock()))
            pause_s = min(pause_s * 2, self.room.settings.retry_s[1])

    def pause(self, seconds: float) -> None:
        """Waits; the inbox is emptied meanwhile."""
        until = self.room.clock() + seconds
        while (left_s := until - self.room.clock()) > 0:
            self.room.wire.inbox.drain(left_s)

    def commit_async(self, offsets: OffsetsGiven | None, callback: CommitCallback | None) -> None:
        """Sends a commit once; the callback is told what came of it by a later poll or commit."""
        pending = _Pending(self._chosen(offsets), callback)
        self._pending.append(pending)

        def done(error: KafkaError | None) -> None:
            pending.done, pending.error = True, error
            if error is not None and callback is None:
                log.error("Group %s: asynchronous commit: %s", self._group, error)
            if isinstance(error, FencedInstanceIdError):
                self.room.first_error.append(error)
            self._call_back()

        if pending.offsets:
            self._send(pending.offsets, done)
        else:
            self.room.wire.inbox.put(lambda: done(None))

    def _call_back(self) -> None:
        while self._pending and self._pending[0].done:
            one = self._pending.popleft()
            if one.callback is not None:
                try:
                    one.callback(one.offsets, one.error)
                except Exception as error:
                    log.exception("Group %s: callback of a commit failed", self._group)
                    self.room.first_error.append(error)

    def finish(self, deadline: float) -> None:
        """Waits for asynchronous commits that are on their way."""
        while self._pending and (left_s := deadline - self.room.clock()) > 0:
            self.room.wire.inbox.drain(left_s)
            self._call_back()

    def forget(self) -> None:
        """The group has ended: nothing is to be called any more."""
        self.member = None
        self._pending.clear()
        self._later.clear()

    def _chosen(self, offsets: OffsetsGiven | None) -> dict[TopicPartition, OffsetAndMetadata]:
        if offsets is None:
            return dict(self.room.host.delivered())
        return checked_offsets(offsets)

    # --- the request --------------------------------------------------------------------------

    @property
    def _group(self) -> str:
        return self.room.settings.group_id

    def _send(
        self,
        offsets: Offsets,
        done: Callable[[KafkaError | None], None],
        within_s: float | None = None,
    ) -> None:
        member = self.member
        try:
            who = GroupMetadata(self._group) if member is None else member.identity()
        except KafkaError as error:
            refused = error
            self.room.wire.inbox.put(lambda: done(refused))
            return
        ids = self.room.topics.ids_of({one.topic for one in offsets})
        topics = _by_topic(offsets, ids)

        def values(version: int) -> Mapping[str, Any]:
            del version
            now = who if member is None else member.refreshed(who)
            return {
                "group_id": now.group_id,
                "generation_id_or_member_epoch": now.generation,
                "member_id": now.member_id,
                "group_instance_id": now.instance_id,
                "topics": topics,
            }

        began_s = self.room.clock()

        def answered(answer: Any) -> None:
            self.room.metrics.commits.note(self.room.clock() - began_s)
            error = self._judged(answer, who, ids)
            if error is None and self._on_commit is not None:
                self._on_commit(offsets)
            done(error)

        limit_s = self.room.settings.request_timeout_s if within_s is None else within_s
        self.room.wire.submit(
            ApiKey.OFFSET_COMMIT, values, answered, within_s=limit_s, by_id=bool(ids)
        )

    def _judged(self, answer: Any, who: GroupMetadata, ids: Ids) -> KafkaError | None:
        """What a commit's answer amounts to."""
        if isinstance(answer, KafkaError):
            return answer
        refused: list[str] = []
        gone: list[tuple[int, str]] = []
        for name, topic in _named(answer.topics, ids):
            for part in topic.partitions:
                code = int(part.error_code)
                if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                    refused.append(name)
                elif code in _GONE:
                    gone.append((code, f"{name}-{part.partition_index}"))
                    self._forget_id(code, name)
                elif code != ErrorCode.NONE:
                    return self._refused(code, who, f"{name}-{part.partition_index}")
        if refused:
            names = ", ".join(sorted(set(refused)))
            return TopicAuthorizationFailedError(
                ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"commit to {names}"
            )
        if gone:
            code, partition = gone[0]
            return BrokerError(code, f"commit of {partition} to group {self._group!r}")
        return None

    def _forget_id(self, code: int, topic: str) -> None:
        if code == ErrorCode.UNKNOWN_TOPIC_ID:
            self.room.topics.forget_id(topic, self.room.clock())

    def _refused(self, code: int, who: GroupMetadata, partition: str) -> KafkaError:
        if code in LOST or code == ErrorCode.REQUEST_TIMED_OUT:
            self.room.wire.forget()
        if code in _WHO:
            if self.member is not None:
                return self.member.commit_refused(code, who)
            return CommitFailedError(
                f"group {self._group!r} has members, and only they may commit ({error_name(code)})"
            )
        return BrokerError(code, f"commit of {partition} to group {self._group!r}")

    # --- committed offsets --------------------------------------------------------------------

    def committed(self, partitions: Collection[TopicPartition], timeout_s: float) -> Committed:
        """What is committed for each; None where nothing is. Waits for it."""
        result: list[Committed | KafkaError] = []
        deadline = self.room.clock() + timeout_s
        self.fetch_committed(partitions, result.append, deadline)
        while not result:
            now = self.room.clock()
            if now >= deadline:
                raise RequestTimeoutError(f"committed offsets were not told within {timeout_s:g} s")
            self.room.wire.inbox.drain(min(deadline - now, max(0.001, self.poll(now))))
        if isinstance(result[0], KafkaError):
            raise result[0]
        return result[0]

    def fetch_committed(
        self,
        partitions: Collection[TopicPartition],
        done: Callable[[Committed | KafkaError], None],
        deadline: float = math.inf,
    ) -> None:
        """As above, without waiting: `done` is called on the polling thread. What passes is tried
        again until the deadline."""
        _Question(self, [TopicPartition(*one) for one in partitions], done, deadline).ask()

    def question(
        self, version: int, wanted: Collection[TopicPartition], ids: Ids
    ) -> Mapping[str, Any]:
        """OffsetFetch of these."""
        indexes: dict[str, list[int]] = {}
        for topic, index in wanted:
            indexes.setdefault(topic, []).append(index)
        topics = [
            {"name": name, "topic_id": ids.get(name), "partition_indexes": found}
            for name, found in indexes.items()
        ]
        if version < 8:
            return {"group_id": self._group, "topics": topics, "require_stable": True}
        group = {"group_id": self._group, "member_epoch": -1, "topics": topics}
        return {"groups": [group], "require_stable": True}

    def read(self, answer: Any, wanted: Collection[TopicPartition], ids: Ids) -> Committed:
        """What its answer tells; raises what is wrong with it."""
        if isinstance(answer, KafkaError):
            raise answer
        group = answer.groups[0] if hasattr(answer, "groups") else answer
        if group.error_code != 0:
            if group.error_code in LOST:
                self.room.wire.forget()
            raise BrokerError(int(group.error_code), f"group {self._group!r}")
        found: Committed = dict.fromkeys(wanted)
        for name, topic in _named(group.topics, ids):
            for part in topic.partitions:
                partition = TopicPartition(name, int(part.partition_index))
                self._forget_id(int(part.error_code), partition.topic)
                if part.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise KafkaError(f"partition {partition} does not exist")
                if part.error_code != 0:
                    raise BrokerError(int(part.error_code), f"committed offset of {partition}")
                if part.committed_offset >= 0:
                    found[partition] = OffsetAndMetadata(
                        int(part.committed_offset),
                        part.metadata or "",
                        int(part.committed_leader_epoch),
                    )
        return found


def _named(topics: Iterable[Any], ids: Ids) -> Iterator[tuple[str, Any]]:
    """Yield topics of an answer with their names; the answer has names or ids."""
    names = {topic_id: name for name, topic_id in ids.items()}
    for topic in topics:
        yield str(getattr(topic, "name", None) or names.get(topic.topic_id, "?")), topic


def _by_topic(offsets: Offsets, ids: Ids) -> list[dict[str, Any]]:
    topics: dict[str, list[dict[str, Any]]] = {}
    for (topic, index), told in offsets.items():
        topics.setdefault(topic, []).append({
            "partition_index": index,
            "committed_offset": told.offset,
            "committed_leader_epoch": told.leader_epoch,
            "committed_metadata": told.metadata,
        })  # fmt: skip
    return [
        {"name": name, "topic_id": ids.get(name), "partitions": parts}
        for name, parts in topics.items()
    ]
