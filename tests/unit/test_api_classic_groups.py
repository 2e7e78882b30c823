"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup as handlers: what the versions differ in, and what
is answered where the coordinator does not get to see the request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kbroker.api.addresses import java_address
from kbroker.api.dispatch import Dispatcher
from kbroker.errors import ErrorCode
from kbroker.group.slot import LOADING
from kbroker.protocol import ApiKey
from tests.support.control import ControlPlane, FakeRequest

PROTOCOLS = [{"name": "range", "metadata": b"\0" * 6}]
ControlWith = Callable[..., ControlPlane]


@pytest.fixture
def served(control_with: ControlWith) -> ControlPlane:
    """A control plane whose coordinators are there."""
    control = control_with(group_initial_rebalance_delay_ms="0", offsets_topic_num_partitions="2")
    control.call(ApiKey.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=["g"])
    return control


def finish(control: ControlPlane, request: FakeRequest) -> dict[str, Any]:
    """The answer, after what is due was done and written to disk."""
    control.services.groups.run_due(control.clock.monotonic_ms())
    if request.waits is not None:
        log, offset, _, _ = request.waits
        log.high_watermark = offset
        request.durable()
    return control.decoded(request)


def join(control: ControlPlane, version: int, **changes: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "group_id": "g", "session_timeout": 10_000, "member_id": "", "protocol_type": "consumer",
        "protocols": PROTOCOLS,
    }  # fmt: skip
    if version >= 1:
        fields["rebalance_timeout"] = 20_000
    return finish(control, control.send(ApiKey.JOIN_GROUP, version, **(fields | changes)))


def member_of(control: ControlPlane, version: int) -> Any:
    """Joins; the member as the coordinator has it."""
    answer = join(control, version)
    if answer["error_code"] == ErrorCode.MEMBER_ID_REQUIRED:
        answer = join(control, version, member_id=answer["member_id"])
    assert answer["error_code"] == 0
    slots = control.services.groups._slots
    group = next(slot.shard.groups["g"] for slot in slots if "g" in slot.shard.groups)
    return group.members[answer["member_id"]]  # type: ignore[attr-defined]


@pytest.mark.parametrize("version", range(10))
def test_join_versions(served: ControlPlane, version: int) -> None:
    member = member_of(served, version)
    assert member.session_timeout_ms == 10_000
    assert member.rebalance_timeout_ms == (20_000 if version else 10_000)
    assert member.identity.client_id == "client"
    assert member.identity.client_host == "/127.0.0.1"
    assert member.protocols == (("range", b"\0" * 6),)


@pytest.mark.parametrize("version", range(10))
def test_a_refused_join_has_no_protocol(served: ControlPlane, version: int) -> None:
    answer = join(served, version, member_id="nobody")
    assert answer["error_code"] == ErrorCode.UNKNOWN_MEMBER_ID
    assert (answer["member_id"], answer["generation_id"], answer["members"]) == ("nobody", -1, [])
    assert answer["protocol_name"] == (None if version >= 7 else "")


@pytest.mark.parametrize("version", [0, 6, 7, 9])
def test_a_join_while_the_partition_loads(served: ControlPlane, version: int) -> None:
    for slot in served.services.groups._slots:
        slot.state = LOADING
    answer = join(served, version)
    assert answer["error_code"] == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert answer["protocol_name"] == (None if version >= 7 else "")


def test_a_heartbeat_while_the_partition_loads_is_good(served: ControlPlane) -> None:
    for slot in served.services.groups._slots:
        slot.state = LOADING
    for version in range(5):
        answer = served.call(
            ApiKey.HEARTBEAT, version, group_id="g", generation_id=1, member_id="m"
        )
        assert answer["error_code"] == 0


BEAT = {
    "group_id": "g", "member_id": "m", "member_epoch": 0, "instance_id": None, "rack_id": None,
    "rebalance_timeout": 1000, "subscribed_topic_names": ["a"], "server_assignor": None,
    "topic_partitions": [],
}  # fmt: skip
WRONG_WHATEVER_THE_GROUP: list[tuple[ApiKey, dict[str, Any], ErrorCode]] = [
    (ApiKey.JOIN_GROUP, {"group_id": "", "session_timeout": 1}, ErrorCode.INVALID_GROUP_ID),
    (ApiKey.JOIN_GROUP, {"group_id": "g", "session_timeout": 1}, ErrorCode.INVALID_SESSION_TIMEOUT),
    (ApiKey.SYNC_GROUP, {"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
    (ApiKey.HEARTBEAT, {"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
    (ApiKey.LEAVE_GROUP, {"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
    (ApiKey.OFFSET_DELETE, {"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
    (ApiKey.CONSUMER_GROUP_HEARTBEAT, BEAT | {"group_id": ""}, ErrorCode.INVALID_REQUEST),
    (ApiKey.CONSUMER_GROUP_HEARTBEAT, BEAT | {"member_epoch": -9}, ErrorCode.INVALID_REQUEST),
    (
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        BEAT | {"server_assignor": "no such"},
        ErrorCode.UNSUPPORTED_ASSIGNOR,
    ),
]


@pytest.mark.parametrize("there", [True, False], ids=["loading", "not there"])
@pytest.mark.parametrize(("key", "fields", "code"), WRONG_WHATEVER_THE_GROUP)
def test_what_no_group_could_take_is_refused_before_the_groups_are_there(
    control_with: ControlWith, there: bool, key: ApiKey, fields: dict[str, Any], code: ErrorCode
) -> None:
    """Apache Kafka's coordinator looks at these before it looks for the group's partition."""
    control = control_with(offsets_topic_num_partitions="2")
    if there:
        control.call(ApiKey.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=["g"])
    for slot in control.services.groups._slots:
        slot.state = LOADING
    entry = control.dispatcher._table[key]
    for version in range(entry.low, entry.high + 1):
        told = dict(fields)
        if key == ApiKey.SYNC_GROUP and version >= 5:
            told |= {"protocol_type": "consumer", "protocol_name": "range"}
        answer = control.call(key, version, **told)
        assert answer["error_code"] == code, version
        if key == ApiKey.JOIN_GROUP:
            assert answer["protocol_name"] == (None if version >= 7 else "")


@pytest.mark.parametrize("version", range(6))
def test_leave_versions(served: ControlPlane, version: int) -> None:
    """One member's error is the whole's before version 3."""

    def leave(member_id: str) -> dict[str, Any]:
        who = {"members": [{"member_id": member_id}]} if version >= 3 else {"member_id": member_id}
        return finish(served, served.send(ApiKey.LEAVE_GROUP, version, group_id="g", **who))

    member = member_of(served, 3)
    for name, code in ((member.member_id, 0), ("nobody", ErrorCode.UNKNOWN_MEMBER_ID)):
        answer = leave(name)
        found = answer["members"][0]["error_code"] if version >= 3 else answer["error_code"]
        assert found == code


def test_sync_names_its_protocol_from_version_5_on(served: ControlPlane) -> None:
    member = member_of(served, 3)
    for version in range(6):
        named = {"protocol_type": None, "protocol_name": "range"} if version >= 5 else {}
        request = served.send(
            ApiKey.SYNC_GROUP, version, group_id="g", generation_id=1,
            member_id=member.member_id, assignments=[], **named,
        )  # fmt: skip
        expected = ErrorCode.INCONSISTENT_GROUP_PROTOCOL if version >= 5 else 0
        assert finish(served, request)["error_code"] == expected


def test_too_many_that_wait_are_sent_away(
    served: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Dispatcher, "_is_full", lambda self: True)
    assert join(served, 9)["error_code"] == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


@pytest.mark.parametrize(
    ("host", "told"),
    [
        ("127.0.0.1", "/127.0.0.1"),
        ("::1", "/0:0:0:0:0:0:0:1"),
        ("2001:db8::ff", "/2001:db8:0:0:0:0:0:ff"),
        ("::ffff:10.1.2.3", "/10.1.2.3"),
        ("", "/"),
    ],
)
def test_addresses_as_java_prints_them(host: str, told: str) -> None:
    assert java_address(host) == told
