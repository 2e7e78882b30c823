"""What classic members hold in memory: gone with the member, with no help of the collector."""

from __future__ import annotations

import gc
import logging
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kbroker.errors import ErrorCode
from kbroker.protocol import ApiKey
from tests.support.control import ControlPlane

METADATA_BYTES = 100_000
ROUNDS = 30


@contextmanager
def keeps_nothing() -> Iterator[None]:
    """Less than a single member's metadata is left, with the collector off as in a quiet broker."""
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        yield
        left = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
        gc.enable()
    assert left < ROUNDS * METADATA_BYTES / 10, left


def metadata(number: int) -> bytes:
    return bytes([number]) * METADATA_BYTES


def join(control: ControlPlane, group: str, number: int, **changes: object) -> dict[str, object]:
    """A static member joins, alone, and is told so."""
    request = control.send(ApiKey.JOIN_GROUP, 5, **{
        "group_id": group, "session_timeout": 30_000, "rebalance_timeout": 60_000,
        "member_id": "", "group_instance_id": "i", "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": metadata(number)}], **changes,
    })  # fmt: skip
    control.clock.advance(3_000)
    control.services.groups.run_due(control.clock.monotonic_ms())
    return control.decoded(request)


def start(control: ControlPlane) -> None:
    """The rooms are built, and every request has been served once."""
    control.call(ApiKey.FIND_COORDINATOR, 4, coordinator_keys=["g"], key_type=0)
    control.call(ApiKey.DESCRIBE_GROUPS, 5, groups=["g"])
    control.call(
        ApiKey.SYNC_GROUP, 3, group_id="g", generation_id=1, member_id="",
        group_instance_id=None, assignments=[],
    )  # fmt: skip
    visit(control, 0)


def visit(control: ControlPlane, number: int) -> None:
    """A member joins a group of its own and leaves."""
    group = f"g{number}"
    assert join(control, group, number)["error_code"] == 0
    gone = control.call(
        ApiKey.LEAVE_GROUP, 4, group_id=group,
        members=[{"member_id": "", "group_instance_id": "i"}],
    )  # fmt: skip
    assert gone["members"][0]["error_code"] == 0


def test_a_member_that_has_left_leaves_nothing(control: ControlPlane) -> None:
    start(control)
    with keeps_nothing():
        for number in range(ROUNDS):
            visit(control, number)


def test_a_static_member_that_was_replaced_leaves_nothing(control: ControlPlane) -> None:
    start(control)
    with keeps_nothing():
        for number in range(ROUNDS):
            assert join(control, "g", number)["error_code"] == 0
        control.call(
            ApiKey.LEAVE_GROUP, 4, group_id="g",
            members=[{"member_id": "", "group_instance_id": "i"}],
        )  # fmt: skip


def test_a_session_that_is_over_leaves_nothing(control: ControlPlane) -> None:
    start(control)
    with keeps_nothing():
        for number in range(ROUNDS):
            assert join(control, f"g{number}", number)["error_code"] == 0
        control.clock.advance(60_000)
        control.services.groups.run_due(control.clock.monotonic_ms())
        described = control.call(ApiKey.DESCRIBE_GROUPS, 5, groups=["g1"])
        assert described["groups"][0]["group_state"] == "Empty"


def test_assignments_that_no_record_holds_leave_nothing(
    control: ControlPlane, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)  # it would keep the error, and with it what was refused
    start(control)
    with keeps_nothing():
        for number in range(ROUNDS):
            group = f"g{number}"
            joined = join(control, group, number, protocols=[{"name": "range", "metadata": b""}])
            told = control.call(
                ApiKey.SYNC_GROUP, 3, group_id=group, generation_id=joined["generation_id"],
                member_id=joined["member_id"], group_instance_id="i",
                assignments=[{"member_id": joined["member_id"], "assignment": bytes(1_100_000)}],
            )  # fmt: skip
            assert told["error_code"] == ErrorCode.UNKNOWN_SERVER_ERROR
