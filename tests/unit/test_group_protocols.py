"""`group.coordinator.rebalance.protocols` without `consumer`: consumer groups are refused.

ApiVersions tells of their APIs all the same, as in Apache Kafka, where neither they nor the feature
`group.version` depend on this setting.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kbroker.api import publish
from kbroker.errors import ErrorCode
from kbroker.protocol import ApiKey
from tests.support.control import ControlPlane

BEAT = {
    "group_id": "g", "member_id": "m", "member_epoch": 0, "instance_id": None, "rack_id": None,
    "rebalance_timeout": 60_000, "subscribed_topic_names": ["a"], "server_assignor": None,
    "topic_partitions": [],
}  # fmt: skip


@pytest.fixture
def serving(control_with: Callable[..., ControlPlane]) -> Callable[[str], ControlPlane]:
    """A control plane with coordinators that takes these protocols."""

    def make(protocols: str) -> ControlPlane:
        control = control_with(group_coordinator_rebalance_protocols=protocols)
        control.call(ApiKey.FIND_COORDINATOR, 4, coordinator_keys=["g"], key_type=0)
        return control

    return make


def beat(control: ControlPlane, version: int) -> int:
    more = {"subscribed_topic_regex": None} if version else {}
    answer = control.call(ApiKey.CONSUMER_GROUP_HEARTBEAT, version, **BEAT, **more)
    return int(answer["error_code"])


def describe(control: ControlPlane, version: int) -> list[int]:
    fields: dict[str, Any] = {"group_ids": ["g", "h"], "include_authorized_operations": False}
    answer = control.call(ApiKey.CONSUMER_GROUP_DESCRIBE, version, **fields)
    return [group["error_code"] for group in answer["groups"]]


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize(
    ("protocols", "is_on"),
    [("classic", False), ("classic,streams", False), ("classic,consumer", True)],
)
def test_only_where_the_setting_has_them(
    serving: Callable[[str], ControlPlane], protocols: str, is_on: bool, version: int
) -> None:
    control = serving(protocols)
    refused = ErrorCode.UNSUPPORTED_VERSION
    assert beat(control, version) == (ErrorCode.NONE if is_on else refused)
    other = ErrorCode.GROUP_ID_NOT_FOUND if is_on else refused
    assert describe(control, version) == [ErrorCode.NONE if is_on else refused, other]


def test_api_versions_tells_of_them_all_the_same(
    serving: Callable[[str], ControlPlane],
) -> None:
    control = serving("classic")
    publish.tell_versions(control.services)
    keys = {entry[0]: entry[1:3] for entry in control.data_plane.engine.keys}
    assert keys[ApiKey.CONSUMER_GROUP_HEARTBEAT] == (0, 1)
    assert keys[ApiKey.CONSUMER_GROUP_DESCRIBE] == (0, 1)


def test_classic_groups_go_on(serving: Callable[[str], ControlPlane]) -> None:
    joined = serving("classic").call(
        ApiKey.JOIN_GROUP, 9, group_id="g", session_timeout=30_000, rebalance_timeout=60_000,
        member_id="", group_instance_id=None, protocol_type="consumer",
        protocols=[{"name": "range", "metadata": b""}], reason=None,
    )  # fmt: skip
    assert joined["error_code"] == ErrorCode.MEMBER_ID_REQUIRED
