"""The state machines of members without a broker: a fake clock, requests seen, answers made."""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Callable, Collection, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from kbroker.client.errors import (
    CommitFailedError,
    ConnectError,
    FencedInstanceIdError,
    RebalanceInProgressError,
)
from kbroker.client.group.assignors import Assignment, make_assignors
from kbroker.client.group.classic import ClassicMember
from kbroker.client.group.commits import Commits
from kbroker.client.group.consumer_member import ConsumerMember
from kbroker.client.group.embedded import read_subscription, write_assignment
from kbroker.client.group.port import RebalanceListener
from kbroker.client.group.room import GroupSettings, Room
from kbroker.client.group.subscribed import Subscribed
from kbroker.client.group.topics import TopicsWatch
from kbroker.client.partitions import OffsetAndMetadata, TopicPartition
from kbroker.errors import ErrorCode
from kbroker.protocol import ApiKey

TOPIC_ID = uuid.UUID(int=7)
P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Wire:
    """Keeps what is sent until the test answers it."""

    def __init__(self) -> None:
        self.sent: list[tuple[ApiKey, Any, Callable[[Any], None]]] = []
        self.inbox = SimpleNamespace(put=lambda what: what(), drain=lambda _=0.0: False)
        self.heart: Any = None
        self.forgotten = 0

    def submit(self, api: ApiKey, values: Any, done: Callable[[Any], None], **_: Any) -> None:
        self.sent.append((api, values(9) if callable(values) else values, done))

    def beat(self, heart: Any) -> None:
        self.heart = heart

    def forget(self) -> None:
        self.forgotten += 1

    def interrupt(self) -> None:
        self.forgotten += 1


class Play(RebalanceListener):
    """A member with its host and its wire."""

    def __init__(self, protocol: str, **settings: Any) -> None:
        self.now = 100.0
        self.wire = Wire()
        self.owned: frozenset[TopicPartition] = frozenset()
        self.read: dict[TopicPartition, OffsetAndMetadata] = {}
        self.story: list[tuple[str, frozenset[TopicPartition]]] = []
        given = {
            "group_id": "g", "instance_id": None, "rack": None, "session_timeout_ms": 45_000,
            "heartbeat_interval_s": 3.0, "poll_interval_ms": 300_000, "retry_s": (0.1, 1.0),
            "request_timeout_s": 30.0, "auto_commit": False, "auto_commit_interval_s": 5.0,
            "remote_assignor": None, "exclude_internal": True,
        }  # fmt: skip
        wire: Any = self.wire
        topics = TopicsWatch(wire, max_age_s=300, retry_s=(0.1, 1.0), create=False)
        self.room = Room(
            GroupSettings(**{**given, **settings}), self, wire, Subscribed(), topics,
            lambda: self.now,
        )  # fmt: skip
        self.commits = Commits(self.room)
        if protocol == "consumer":
            self.member: Any = ConsumerMember(self.room, self.commits)
        else:
            self.member = ClassicMember(self.room, self.commits, *make_assignors([protocol]))
        self.commits.member = self.member
        self.room.subscribed.set(["t"], self)
        topics.want(frozenset({"t"}))

    def assigned(self) -> frozenset[TopicPartition]:
        return self.owned

    def assign_from_group(self, partitions: Collection[TopicPartition]) -> None:
        self.owned = frozenset(partitions)

    def stop_fetching(self, partitions: Collection[TopicPartition]) -> None:
        self.story.append(("stopped", frozenset(partitions)))

    def delivered(self) -> Mapping[TopicPartition, OffsetAndMetadata]:
        return self.read

    def wake(self) -> None:
        """Nobody waits."""

    def on_assigned(self, partitions: Collection[TopicPartition]) -> None:
        self.story.append(("assigned", frozenset(partitions)))

    def on_revoked(self, partitions: Collection[TopicPartition]) -> None:
        self.story.append(("revoked", frozenset(partitions)))

    def on_lost(self, partitions: Collection[TopicPartition]) -> None:
        self.story.append(("lost", frozenset(partitions)))

    def poll(self) -> float:
        due: float = self.member.poll(self.now)
        self.room.raise_first()
        return due

    def expect(self, api: ApiKey) -> tuple[Any, Callable[[Any], None]]:
        """The request of that API that was sent; metadata are answered on the way."""
        self.poll()
        for _ in range(5):
            key, values, done = self.wire.sent.pop(0)
            if key is api:
                return values, done
            assert key is ApiKey.METADATA, key
            done(metadata())
            self.poll()
        raise AssertionError(f"no {api.name}")

    def quiet(self) -> bool:
        """Nothing is sent but questions for metadata."""
        self.poll()
        self.wire.sent = [one for one in self.wire.sent if one[0] is not ApiKey.METADATA]
        return not self.wire.sent

    def join(self, generation: int = 1, *partitions: TopicPartition) -> None:
        """A classic rebalance from end to end, as a follower."""
        _, joined = self.expect(ApiKey.JOIN_GROUP)
        joined(join_answer(generation))
        _, synced = self.expect(ApiKey.SYNC_GROUP)
        synced(sync_answer(*partitions))


def metadata() -> Any:
    parts = [SimpleNamespace(partition_index=at, replica_nodes=(1,)) for at in range(2)]
    topic = SimpleNamespace(
        error_code=0, name="t", topic_id=TOPIC_ID, is_internal=False, partitions=parts
    )
    return SimpleNamespace(brokers=[SimpleNamespace(node_id=1, rack=None)], topics=[topic])


def join_answer(generation: int, *, error: int = 0, member_id: str = "m") -> Any:
    return SimpleNamespace(
        error_code=error, generation_id=generation, member_id=member_id, leader="other",
        protocol_type="consumer", protocol_name="range", members=(),
    )  # fmt: skip


def sync_answer(*partitions: TopicPartition, error: int = 0) -> Any:
    data = write_assignment(Assignment(partitions))
    return SimpleNamespace(error_code=error, assignment=data)


def failed(code: ErrorCode) -> Any:
    return SimpleNamespace(error_code=int(code), error_message=None)


def beat_answer(epoch: int, *indexes: int, assigned: bool = True) -> Any:
    found = [SimpleNamespace(topic_id=TOPIC_ID, partitions=indexes)] if indexes else []
    return SimpleNamespace(
        error_code=0, member_epoch=epoch, heartbeat_interval=datetime.timedelta(seconds=5),
        assignment=SimpleNamespace(topic_partitions=found) if assigned else None,
    )  # fmt: skip


def test_a_member_joins_with_the_id_that_it_is_given() -> None:
    play = Play("range")
    values, done = play.expect(ApiKey.JOIN_GROUP)
    assert (values["member_id"], values["rebalance_timeout"]) == ("", 300_000)
    done(join_answer(-1, error=ErrorCode.MEMBER_ID_REQUIRED, member_id="m-1"))
    values, done = play.expect(ApiKey.JOIN_GROUP)  # at once
    assert values["member_id"] == "m-1"
    done(join_answer(4, member_id="m-1"))
    with pytest.raises(RebalanceInProgressError):
        play.member.identity()
    values, done = play.expect(ApiKey.SYNC_GROUP)
    assert (values["generation_id"], values["assignments"]) == (4, [])
    done(sync_answer(P0))
    assert play.story == [("assigned", frozenset({P0}))]
    assert play.member.identity() == ("g", 4, "m-1", None)


@pytest.mark.parametrize(
    ("code", "member_id"),
    [(ErrorCode.UNKNOWN_MEMBER_ID, ""), (ErrorCode.ILLEGAL_GENERATION, "m")],
)
def test_who_is_not_known_has_lost_what_it_had(code: ErrorCode, member_id: str) -> None:
    play = Play("range")
    play.join(1, P0)
    play.wire.heart.on_answer(failed(code))
    with pytest.raises(CommitFailedError):
        play.member.identity()
    values, _ = play.expect(ApiKey.JOIN_GROUP)
    assert values["member_id"] == member_id
    assert play.story[-1] == ("lost", frozenset({P0}))
    assert play.owned == frozenset()


def test_an_eager_member_commits_and_revokes_before_it_joins() -> None:
    play = Play("range", auto_commit=True)
    play.join(1, P0, P1)
    play.read = {P0: OffsetAndMetadata(5)}
    play.wire.heart.on_answer(failed(ErrorCode.REBALANCE_IN_PROGRESS))
    values, done = play.expect(ApiKey.OFFSET_COMMIT)
    assert values["generation_id_or_member_epoch"] == 1
    assert play.story[-1] == ("stopped", frozenset({P0, P1}))
    assert play.quiet()  # no join before the commit is answered
    done(SimpleNamespace(topics=[]))
    values, _ = play.expect(ApiKey.JOIN_GROUP)
    assert play.story[-1] == ("revoked", frozenset({P0, P1}))
    assert read_subscription(values["protocols"][0]["metadata"]).owned == ()


def test_a_topic_that_is_gone_holds_up_no_join() -> None:
    play = Play("range", auto_commit=True)
    play.join(1, P0, P1)
    play.read = {P0: OffsetAndMetadata(5)}
    play.wire.heart.on_answer(failed(ErrorCode.REBALANCE_IN_PROGRESS))
    for code in (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
        _, done = play.expect(ApiKey.OFFSET_COMMIT)
        assert play.quiet()
        part = SimpleNamespace(partition_index=0, error_code=int(code))
        done(SimpleNamespace(topics=[SimpleNamespace(name="t", partitions=[part])]))
        play.now += 1.0
    play.expect(ApiKey.JOIN_GROUP)


def test_a_cooperative_member_revokes_what_has_gone_and_joins_again() -> None:
    play = Play("cooperative-sticky")
    _, joined = play.expect(ApiKey.JOIN_GROUP)
    answer = join_answer(1)
    answer.protocol_name = "cooperative-sticky"
    joined(answer)
    play.expect(ApiKey.SYNC_GROUP)[1](sync_answer(P0, P1))
    play.wire.heart.on_answer(failed(ErrorCode.REBALANCE_IN_PROGRESS))
    values, joined = play.expect(ApiKey.JOIN_GROUP)
    assert play.owned == {P0, P1}
    assert read_subscription(values["protocols"][0]["metadata"]).owned == (P0, P1)
    answer.generation_id = 2
    joined(answer)
    play.expect(ApiKey.SYNC_GROUP)[1](sync_answer(P0))
    assert play.story[-2:] == [("revoked", frozenset({P1})), ("assigned", frozenset())]
    assert play.owned == {P0}
    values, _ = play.expect(ApiKey.JOIN_GROUP)
    assert values["reason"] == "need to revoke partitions and re-join"


def test_answers_of_an_earlier_round_are_stale() -> None:
    play = Play("range")
    play.join(1, P0)
    play.member.rejoin("test")
    _, late = play.expect(ApiKey.JOIN_GROUP)
    play.member.commit_refused(ErrorCode.UNKNOWN_MEMBER_ID, play.member.told())
    if not any(one[0] is ApiKey.JOIN_GROUP for one in play.wire.sent):
        play.poll()
    late(join_answer(9))
    assert play.member.told().generation == -1


def test_what_passes_is_tried_again_after_a_pause() -> None:
    play = Play("range")
    _, done = play.expect(ApiKey.JOIN_GROUP)
    done(failed(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
    assert 0 < play.poll() <= 0.1
    assert play.quiet()
    play.now += 0.2
    _, done = play.expect(ApiKey.JOIN_GROUP)
    done(ConnectError("gone"))
    play.now += 0.2
    _, done = play.expect(ApiKey.JOIN_GROUP)
    done(failed(ErrorCode.NOT_COORDINATOR))
    assert play.wire.forgotten == 1


def test_who_is_fenced_is_told() -> None:
    play = Play("range", instance_id="i")
    play.join(1, P0)
    play.wire.heart.on_answer(failed(ErrorCode.FENCED_INSTANCE_ID))
    with pytest.raises(FencedInstanceIdError):
        play.room.raise_first()


def test_an_assignment_is_taken_and_acknowledged() -> None:
    play = Play("consumer")
    values, done = play.expect(ApiKey.CONSUMER_GROUP_HEARTBEAT)
    assert (values["member_epoch"], values["subscribed_topic_names"]) == (0, ["t"])
    done(beat_answer(1, 0, 1))
    values, done = play.expect(ApiKey.CONSUMER_GROUP_HEARTBEAT)
    assert play.owned == {P0, P1}
    assert values["topic_partitions"] == [{"topic_id": TOPIC_ID, "partitions": [0, 1]}]
    assert (values["member_epoch"], values["subscribed_topic_names"]) == (1, None)
    done(beat_answer(1, assigned=False))
    assert play.quiet()
    assert play.member.settled
    play.wire.heart.on_answer(beat_answer(2, 0))  # the loop's heartbeat brought it
    values, _ = play.expect(ApiKey.CONSUMER_GROUP_HEARTBEAT)
    assert play.story[-2:] == [("revoked", frozenset({P1})), ("assigned", frozenset())]
    assert values["topic_partitions"] == [{"topic_id": TOPIC_ID, "partitions": [0]}]


def test_a_commit_before_partitions_go_is_tried_again() -> None:
    play = Play("consumer", auto_commit=True)
    play.expect(ApiKey.CONSUMER_GROUP_HEARTBEAT)[1](beat_answer(1, 0, 1))
    play.expect(ApiKey.CONSUMER_GROUP_HEARTBEAT)[1](beat_answer(1, assigned=False))
    play.read = {P1: OffsetAndMetadata(5)}
    play.wire.heart.on_answer(beat_answer(2, 0))
    for passing in (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.STALE_MEMBER_EPOCH):
        _, done = play.expect(ApiKey.OFFSET_COMMIT)
        part = SimpleNamespace(partition_index=1, error_code=int(passing))
        done(SimpleNamespace(topics=[SimpleNamespace(name="t", partitions=[part])]))
        assert play.quiet() and play.owned == {P0, P1}, "nothing is given up meanwhile"
        play.now += 1.0
        play.commits.poll(play.now)
    _, done = play.expect(ApiKey.OFFSET_COMMIT)
    done(SimpleNamespace(topics=[]))
    assert play.story[-2:] == [("revoked", frozenset({P1})), ("assigned", frozenset())]
    assert play.room.metrics.rebalances.count == 2


@pytest.mark.parametrize("code", [ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID])
def test_a_fenced_member_joins_anew_with_nothing(code: ErrorCode) -> None:
    play = Play("consumer")
    play.expect(ApiKey.CONSUMER_GROUP_HEARTBEAT)[1](beat_answer(3, 0))
    play.expect(ApiKey.CONSUMER_GROUP_HEARTBEAT)[1](beat_answer(3, assigned=False))
    before = play.member.told().member_id
    play.wire.heart.on_answer(failed(code))
    values, _ = play.expect(ApiKey.CONSUMER_GROUP_HEARTBEAT)
    assert play.story[-1] == ("lost", frozenset({P0}))
    assert (values["member_epoch"], values["member_id"]) == (0, before)
    assert values["topic_partitions"] == []


def test_after_an_error_everything_is_told_again() -> None:
    play = Play("consumer")
    play.expect(ApiKey.CONSUMER_GROUP_HEARTBEAT)[1](beat_answer(3, 0))
    play.expect(ApiKey.CONSUMER_GROUP_HEARTBEAT)[1](failed(ErrorCode.NOT_COORDINATOR))
    assert play.wire.forgotten == 1
    play.now += 1.0
    values, _ = play.expect(ApiKey.CONSUMER_GROUP_HEARTBEAT)
    assert values["subscribed_topic_names"] == ["t"]
    assert values["rebalance_timeout"] == 300_000
    assert values["topic_partitions"] == [{"topic_id": TOPIC_ID, "partitions": [0]}]


@pytest.mark.parametrize(("instance", "epoch"), [(None, -1), ("i", -2)])
def test_members_leave_by_an_epoch(instance: str | None, epoch: int) -> None:
    play = Play("consumer", instance_id=instance)
    play.expect(ApiKey.CONSUMER_GROUP_HEARTBEAT)[1](beat_answer(3, 0))
    play.expect(ApiKey.CONSUMER_GROUP_HEARTBEAT)[1](beat_answer(3, assigned=False))
    play.member.leave("test")
    api, values, _ = play.wire.sent.pop()
    assert (api, values["member_epoch"]) == (ApiKey.CONSUMER_GROUP_HEARTBEAT, epoch)
    assert play.story[-1] == ("revoked", frozenset({P0}))
