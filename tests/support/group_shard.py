"""A coordinator's shard without a broker: a log in memory, a clock that the test turns.

Records go through their bytes on the way to replay, as they would through the log, and `restart`
builds the shard anew from them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from kbroker.errors import ClientError, ErrorCode
from kbroker.ext.pulses import Pulses
from kbroker.group.classic.protocol import ClassicProtocol
from kbroker.group.classic.requests import (
    HeartbeatRequest,
    JoinRequest,
    LeaveRequest,
    LeavingMember,
    SyncRequest,
)
from kbroker.group.consumer.group import ConsumerGroup
from kbroker.group.consumer.protocol import ConsumerProtocol
from kbroker.group.consumer.requests import Heartbeat
from kbroker.group.migration import Client
from kbroker.group.outcome import CoordinatorRecord, Now, Outcome, Reply
from kbroker.group.settings import GroupSettings
from kbroker.group.shard import Shard
from kbroker.group.unwritten import Unwritten
from kbroker.metadata.records import classic_group, consumer_group
from kbroker.metadata.records.codec import decode, encode
from tests.support.topics import FakeTopics

START_MS = 1_700_000_000_000
VALUES = {**classic_group.VALUES, **consumer_group.VALUES}
CLIENT = Client(1, "test", "/127.0.0.1")


class GroupShard:
    """A shard with the rooms of both protocols."""

    def __init__(self, topics: FakeTopics, **settings: Any) -> None:
        self.topics = topics
        self.settings = GroupSettings(**settings)
        self.log: list[CoordinatorRecord] = []
        self.at_ms = 0
        self.refuse: ErrorCode | None = None
        """The error with which the next append fails."""
        self._ids = itertools.count(1)
        self._build()

    def _build(self) -> None:
        self.shard = Shard(0, self.settings, self.topics, Pulses(), Unwritten())
        self.classic = ClassicProtocol(self.shard, lambda: f"uuid-{next(self._ids)}")
        self.consumer = ConsumerProtocol(self.shard, lambda: f"member-{next(self._ids)}")

    @property
    def now(self) -> Now:
        return Now(START_MS + self.at_ms, self.at_ms)

    def group(self, group_id: str = "g") -> ConsumerGroup:
        group = self.shard.groups[group_id]
        assert isinstance(group, ConsumerGroup)
        return group

    # --- the log ------------------------------------------------------------------------------

    def run(self, outcome: Outcome | None, reply: Reply | None = None) -> Any:
        """Carry out what an operation wants; its own answer."""
        answer = None
        while outcome is not None:
            error, self.refuse = (self.refuse, None) if outcome.records else (None, self.refuse)
            if error is None:
                for record in outcome.records:
                    stored = through_bytes(record)
                    self.log.append(stored)
                    # The classic room knows its own record again by its identity.
                    is_classic = isinstance(record.key, classic_group.GroupMetadataKey)
                    self.shard.replay(record if is_classic else stored)
            if outcome.response is not None:
                answer = outcome.response if error is None else {"error_code": error}
                if reply is not None:
                    reply(answer)
            outcome = outcome.then(error or ErrorCode.NONE) if outcome.then else None
        return answer

    def restart(self) -> None:
        """Load the log into a new shard."""
        self._build()
        for record in self.log:
            self.shard.replay(record)
        for outcome in self.shard.loaded(self.now):
            self.run(outcome)

    def advance(self, ms: int) -> None:
        """Let time pass, and do what falls due in it, each at its moment."""
        end = self.at_ms + ms
        while (due := self.shard.timers.next_ms()) is not None and due <= end:
            self.at_ms = max(self.at_ms, due)
            action = self.shard.timers.pop_due(self.at_ms)
            if action is not None:
                self.run(action(self.now))
        self.at_ms = end

    # --- requests -----------------------------------------------------------------------------

    def beat(
        self, member_id: str, epoch: int, owned: Mapping[bytes, Any] | None = None, **fields: Any
    ) -> dict[str, Any]:
        """A heartbeat; its answer, the assignment as {topic id: [partitions]}."""
        told = None if owned is None else [(t, tuple(mine)) for t, mine in owned.items()]
        client = fields.pop("client", CLIENT)
        request = Heartbeat(fields.pop("group_id", "g"), member_id, epoch, owned=told, **fields)
        answer = dict(self.run(self.consumer.heartbeat(request, client, self.now)))
        if "assignment" in answer:
            topics = answer["assignment"]["topic_partitions"]
            answer["assignment"] = {one["topic_id"]: one["partitions"] for one in topics}
        return answer

    def join(self, member_id: str, *topics: str, **fields: Any) -> dict[str, Any]:
        """A member joins, or joins again."""
        names = {} if "topic_regex" in fields else {"topic_names": topics}
        defaults = {"rebalance_timeout_ms": 60_000, **names}
        return self.beat(member_id, 0, {}, **(defaults | fields))

    def call(self, operation: Callable[..., Outcome], request: Any) -> list[Any]:
        """A classic request; the list that its answer is, or will be, in."""
        answers: list[Any] = []
        try:
            self.run(operation(request, answers.append, self.now), answers.append)
        except ClientError as error:
            answers.append({"error_code": error.code})
        return answers

    def classic_join(
        self, member_id: str, protocols: tuple[tuple[str, bytes], ...], **fields: Any
    ) -> list[Any]:
        given = {"version": 9, "group_id": "g", "instance_id": None, "client_id": "old",
                 "client_host": "/127.0.0.1", "session_timeout_ms": 45_000,
                 "rebalance_timeout_ms": 60_000, "protocol_type": "consumer"}  # fmt: skip
        request = JoinRequest(**(given | {"member_id": member_id, "protocols": protocols} | fields))
        answers = self.call(self.classic.join, request)
        self.advance(0)  # the initial delay, where it is zero
        return answers

    def classic_sync(
        self, member_id: str, generation: int, assignments: Mapping[str, bytes] | None = None
    ) -> list[Any]:
        given = tuple((assignments or {}).items())
        request = SyncRequest("g", generation, member_id, assignments=given)
        return self.call(self.classic.sync, request)

    def classic_beat(self, member_id: str, generation: int) -> int:
        (answer,) = self.call(self.classic.heartbeat, HeartbeatRequest("g", generation, member_id))
        return int(answer["error_code"])

    def classic_leave(self, *members: tuple[str, str | None]) -> Any:
        leaving = tuple(LeavingMember(*one) for one in members)
        (answer,) = self.call(self.classic.leave, LeaveRequest("g", leaving))
        return answer


def code_of(call: Callable[..., Any], *args: Any, **fields: Any) -> ErrorCode:
    """The code with which a request is refused."""
    with pytest.raises(ClientError) as caught:
        call(*args, **fields)
    return caught.value.code


def through_bytes(record: CoordinatorRecord) -> CoordinatorRecord:
    """The record as it is read back."""
    key = decode(type(record.key), 0, encode(record.key, 0))
    if record.value is None:
        return CoordinatorRecord(key)
    data = encode(record.value, record.version)
    value = decode(VALUES[record.key.SCHEMA.key], record.version, data)
    return CoordinatorRecord(key, value, record.version)
