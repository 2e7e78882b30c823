"""The coordinators' runtime: answers that come once, what waits, timers, settings, topics."""

from __future__ import annotations

import pytest
from kio.index import load_request_schema

from kbroker.clock import FakeClock, SystemClock
from kbroker.config.broker import BrokerConfig
from kbroker.errors import ClientError, DiskError, ErrorCode
from kbroker.group.codes import coordinator_code
from kbroker.group.committed import Committed, pack, unpack
from kbroker.group.outcome import Outcome
from kbroker.group.pending import PendingOffsets
from kbroker.group.settings import settings_of
from kbroker.limits import PARKED_REQUESTS_MAX_COUNT
from kbroker.protocol import ApiKey
from kbroker.server.control import Mailbox
from tests.support.control import FakeRequest
from tests.support.messages import encode

JOIN = {
    "group_id": "g", "session_timeout": 30_000, "rebalance_timeout": 60_000, "member_id": "",
    "group_instance_id": "i", "protocol_type": "consumer",
    "protocols": [{"name": "range", "metadata": b""}],
}  # fmt: skip


@pytest.fixture
def groups(control):
    control.create("a", 2)
    control.call(ApiKey.FIND_COORDINATOR, 4, coordinator_keys=["g"], key_type=0)
    return control


def test_a_join_waits_and_is_answered_once(groups, caplog):
    request = groups.send(ApiKey.JOIN_GROUP, 5, **JOIN)
    assert request.answer is None and groups.dispatcher.parked.requests == 1
    assert groups.dispatcher.parked.bytes == len(request.body)
    groups.clock.advance(3_000)
    groups.services.groups.run_due(groups.clock.monotonic_ms())
    assert groups.decoded(request)["error_code"] == 0
    assert (groups.dispatcher.parked.requests, groups.dispatcher.parked.bytes) == (0, 0)
    assert not caplog.text


def test_a_second_answer_is_told_and_dropped(groups, caplog):
    replies = []

    def operation(rooms, reply, now):
        replies.append(reply)
        return Outcome(response={"error_code": 1})

    request = serve_operation(groups, operation)
    replies[0]({"error_code": 2})
    assert groups.decoded(request)["error_code"] == 1
    assert "answered twice" in caplog.text


def serve_operation(groups, operation):
    """A request of a group that runs this operation."""
    entry = groups.dispatcher._table[ApiKey.HEARTBEAT]
    groups.dispatcher._table[ApiKey.HEARTBEAT] = entry._replace(
        handler=lambda request, context: context.groups.handle("g", context.answer, operation)
    )
    asked = {"group_id": "g", "generation_id": 1, "member_id": "m", "group_instance_id": None}
    request = FakeRequest(
        ApiKey.HEARTBEAT, 4, encode(load_request_schema(ApiKey.HEARTBEAT, 4), asked)
    )
    groups.dispatcher.serve(request)
    return request


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (KeyError("bug"), ErrorCode.UNKNOWN_SERVER_ERROR),
        (ClientError(ErrorCode.UNKNOWN_MEMBER_ID), ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_a_reply_that_was_kept_before_it_went_wrong_is_called_in_vain(groups, caplog, error, code):
    replies = []

    def operation(rooms, reply, now):
        replies.append(reply)
        raise error

    request = serve_operation(groups, operation)
    assert groups.decoded(request)["error_code"] == code
    caplog.clear()
    replies[0]({"error_code": 2})
    replies[0].fail(ErrorCode.NOT_COORDINATOR)
    assert groups.decoded(request)["error_code"] == code
    assert groups.dispatcher.parked.requests == 0
    groups.services.groups.stop()
    assert not caplog.text


def test_what_goes_wrong_after_the_answer_is_told_and_no_more(groups, caplog):
    def then(error):
        raise KeyError("bug")

    request = serve_operation(
        groups, lambda rooms, reply, now: Outcome(response={"error_code": 1}, then=then)
    )
    assert groups.decoded(request)["error_code"] == 1
    assert "after its answer" in caplog.text and "twice" not in caplog.text


def test_what_may_wait_is_bounded(groups):
    groups.dispatcher.parked.requests = PARKED_REQUESTS_MAX_COUNT
    request = groups.send(ApiKey.JOIN_GROUP, 5, **JOIN)
    assert groups.decoded(request)["error_code"] == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    asked = {"group_id": "g", "generation_id": 1, "member_id": "m", "group_instance_id": None}
    answer = groups.call(ApiKey.HEARTBEAT, 4, **asked)
    assert answer["error_code"] == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_heartbeat_does_not_wait_for_the_disk(groups):
    for index in range(50):
        groups.log("__consumer_offsets", index).durable = False
    joined = groups.send(ApiKey.JOIN_GROUP, 5, **JOIN)
    groups.clock.advance(3_000)
    groups.services.groups.run_due(groups.clock.monotonic_ms())
    member = groups.decoded(joined)["member_id"] if joined.waits is None else None
    if member is None:
        joined.waits[0].high_watermark = joined.waits[1]
        joined.durable()
        member = groups.decoded(joined)["member_id"]
        joined.waits[0].high_watermark = 0
    fields = {"group_id": "g", "generation_id": 1, "member_id": member}
    synced = groups.send(
        ApiKey.SYNC_GROUP, 3, **fields, group_instance_id="i",
        assignments=[{"member_id": member, "assignment": b"all"}],
    )  # fmt: skip
    assert synced.answer is None and synced.waits is not None
    beat = groups.call(ApiKey.HEARTBEAT, 4, **fields, group_instance_id="i")
    assert beat["error_code"] == 0
    log, offset, _, _ = synced.waits
    log.high_watermark = offset
    synced.durable()
    assert groups.decoded(synced)["assignment"] == b"all"


def test_stopping_answers_whoever_waits(groups):
    request = groups.send(ApiKey.JOIN_GROUP, 5, **JOIN)
    groups.services.groups.stop()
    assert groups.decoded(request)["error_code"] == ErrorCode.NOT_COORDINATOR
    request = groups.send(ApiKey.JOIN_GROUP, 5, **JOIN)
    assert groups.decoded(request)["error_code"] == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_a_disk_that_hangs_is_waited_for_once(groups, monkeypatch):
    waits = []

    def append(log, batches, *, leader_epoch, room_wait_ms):
        waits.append(room_wait_ms)
        raise ClientError(ErrorCode.REQUEST_TIMED_OUT)

    monkeypatch.setattr(type(groups.log("__consumer_offsets")), "append", append)
    partition = {"partition_index": 0, "committed_offset": 5, "committed_metadata": None}
    for _ in range(3):
        answer = groups.call(
            ApiKey.OFFSET_COMMIT, 8, group_id="g", generation_id_or_member_epoch=-1, member_id="",
            topics=[{"name": "a", "partitions": [partition]}],
        )  # fmt: skip
        code = answer["topics"][0]["partitions"][0]["error_code"]
        assert code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert waits[0] > 0 and waits[1:] == [0, 0]


def test_a_full_disk_is_told_once(groups, monkeypatch, caplog):
    kind = type(groups.log("__consumer_offsets"))
    append, full = kind.append, [True, True, True, False, True]

    def refuse(log, *args, **kwargs):
        if full.pop(0):
            raise DiskError("x", OSError(28, "full"))
        return append(log, *args, **kwargs)

    monkeypatch.setattr(kind, "append", refuse)
    partition = {"partition_index": 0, "committed_offset": 5, "committed_metadata": None}
    for told in (1, 1, 1, 1, 2):
        groups.call(
            ApiKey.OFFSET_COMMIT, 8, group_id="g", generation_id_or_member_epoch=-1, member_id="",
            topics=[{"name": "a", "partitions": [partition]}],
        )  # fmt: skip
        assert caplog.text.count("takes no record") == told


def test_expiry_gives_way_to_requests(control_with):
    control = control_with(offsets_retention_minutes="1")
    control.create("big")
    control.call(ApiKey.FIND_COORDINATOR, 4, coordinator_keys=["g"], key_type=0)
    groups = control.services.groups
    slot = next(slot for slot in groups._slots if slot is groups._slot("g"))
    old = pack(Committed(1))
    for number in range(6):
        for partition in range(5_000):
            slot.rooms.offsets.put(f"g{number}", "big", partition, old)
    control.clock.advance(600_000)
    groups.run_due(control.clock.monotonic_ms())
    left = [len(slot.rooms.offsets.committed)]
    while left[-1]:
        control.clock.advance(1)
        groups.run_due(control.clock.monotonic_ms())
        left.append(len(slot.rooms.offsets.committed))
    assert left == [20_000, 10_000, 0]
    assert not slot.shard.groups
    largest = max(len(batch) for _, batch in slot.log.batches)
    assert largest < 200_000


@pytest.mark.parametrize(
    ("error", "code"),
    (
        (ClientError(ErrorCode.UNKNOWN_MEMBER_ID), ErrorCode.UNKNOWN_MEMBER_ID),
        (ClientError(ErrorCode.MESSAGE_TOO_LARGE), ErrorCode.UNKNOWN_SERVER_ERROR),
        (ClientError(ErrorCode.RECORD_LIST_TOO_LARGE), ErrorCode.UNKNOWN_SERVER_ERROR),
        (ClientError(ErrorCode.REQUEST_TIMED_OUT), ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (DiskError("x", "gone"), ErrorCode.NOT_COORDINATOR),
        (DiskError("x", OSError(28, "full")), ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (OSError(5, "broken"), ErrorCode.NOT_COORDINATOR),
        (ValueError(), ErrorCode.UNKNOWN_SERVER_ERROR),
    ),
)
def test_errors_of_the_log_become_those_of_a_coordinator(error, code):
    assert coordinator_code(error) == code


def test_topics_as_the_metadata_has_them(groups):
    topics = groups.services._group_host.topics
    version = topics.version
    info = topics.by_name("a")
    assert (info.name, info.partitions, info.racks) == ("a", 2, ())
    assert topics.by_id(info.topic_id) is info and topics.by_id(bytes(16)) is None
    assert set(topics.names()) == {"a", "__consumer_offsets"}
    wanted = [{"name": "a", "count": 5, "assignments": None}]
    groups.call(ApiKey.CREATE_PARTITIONS, 3, topics=wanted)
    assert topics.version > version and topics.by_name("a").partitions == 5
    groups.call(ApiKey.DELETE_TOPICS, 6, topics=[{"name": "a"}])
    assert topics.by_name("a") is None


def test_settings_of_a_group_are_those_of_the_metadata(groups):
    settings = groups.services._group_host.settings()
    assert settings.group_min_session_timeout_ms == 6_000
    assert settings.group_consumer_assignors == ("uniform", "range")
    assert not settings.configs_of("g")
    resource = {"resource_type": 32, "resource_name": "g",
                "configs": [{"name": "consumer.session.timeout.ms", "config_operation": 0,
                             "value": "50000"}]}  # fmt: skip
    answer = groups.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource])
    assert answer["responses"][0]["error_code"] == 0
    assert settings.configs_of("g") == {"consumer.session.timeout.ms": "50000"}


def test_the_migration_policy_is_taken_in_any_case():
    config = BrokerConfig({"group.consumer.migration.policy": "UPGRADE"})
    settings = settings_of(config, lambda group: {})
    assert settings.group_consumer_migration_policy == "upgrade"


def test_the_mailbox_keeps_the_order_and_gives_way():
    woken, done, clock = [], [], FakeClock()
    mailbox = Mailbox(lambda: woken.append(1))
    for number in range(10):
        mailbox.post(lambda number=number: (done.append(number), clock.advance(2)))
    mailbox.post(lambda: 1 / 0)
    mailbox.post(lambda: done.append("last"))
    assert len(woken) == 12
    mailbox.run(clock)
    assert done == [0, 1, 2] and mailbox
    while mailbox:
        mailbox.run(SystemClock())
    assert done == [*range(10), "last"]


@pytest.mark.parametrize(
    "value",
    (Committed(0), Committed(2**62, 7, "m\N{SNOWMAN}", 5, 6, bytes(range(16)))),
)
def test_packing(value):
    assert unpack(pack(value)) == value


def test_later_commits_of_transactions_win_whichever_ends_first():
    pending = PendingOffsets()
    key = ("g", "t", 0)
    pending.put(1, key, b"1")
    pending.put(2, key, b"2")
    pending.put(1, ("g", "t", 1), b"x")
    assert pending.has(*key) and pending.has_group("g") and len(pending) == 2
    assert pending.end(2) == [(key, b"2")]
    assert pending.has(*key)
    assert pending.end(1) == [(("g", "t", 1), b"x")]
    assert not pending.has_group("g") and not list(pending)
    pending.put(3, key, b"3")
    pending.overrule(key)
    pending.put(4, key, b"4")
    pending.abort(4)
    assert pending.has(*key) and pending.end(3) == []
    pending.put(5, key, b"5")
    pending.put(5, key, b"6")
    pending.drop(key)
    assert pending.end(5) == [] and not len(pending)
