"""What classic members hold in memory: bounded, and gone with the member."""

from __future__ import annotations

import gc
import logging
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from sys import getsizeof

import pytest

from kbroker.errors import ErrorCode
from kbroker.group import unwritten
from kbroker.group.classic.group import ClassicGroup
from kbroker.group.classic.member import Identity
from kbroker.group.unwritten import bytes_of, id_bytes
from kbroker.protocol import ApiKey
from tests.support.classic import RANGE, SESSION_MS, Classic
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


BATCH_BYTES_MAX = 1_048_588  # of __consumer_offsets


@pytest.mark.parametrize(
    ("size", "codec", "code"),
    [
        (BATCH_BYTES_MAX - 1_000, 0, ErrorCode.NONE),
        (BATCH_BYTES_MAX, 0, ErrorCode.UNKNOWN_SERVER_ERROR),
        (BATCH_BYTES_MAX, 1, ErrorCode.NONE),
    ],
)
def test_metadata_that_no_record_holds_is_refused(
    control_with: Callable[..., ControlPlane], size: int, codec: int, code: ErrorCode
) -> None:
    """The member would wait for the others, and then be told the same by its SyncGroup."""
    control = control_with(offsets_topic_compression_codec=str(codec))
    start(control)
    protocols = [{"name": "a", "metadata": bytes(size)}, {"name": "b", "metadata": bytes(size)}]
    assert join(control, "new", 1, protocols=protocols)["error_code"] == code
    described = control.call(ApiKey.DESCRIBE_GROUPS, 5, groups=["new"])["groups"][0]
    assert (described["group_state"] == "CompletingRebalance") == (code == ErrorCode.NONE)


def test_metadata_of_which_a_record_holds_what_is_selected_is_taken(control: ControlPlane) -> None:
    start(control)
    protocols = [
        {"name": "small", "metadata": b"1"},
        {"name": "large", "metadata": bytes(BATCH_BYTES_MAX)},
    ]
    joined = join(control, "new", 1, protocols=protocols)
    assert (joined["error_code"], joined["protocol_name"]) == (ErrorCode.NONE, "small")
    synced = control.call(
        ApiKey.SYNC_GROUP, 3, group_id="new", generation_id=joined["generation_id"],
        member_id=joined["member_id"], group_instance_id="i", assignments=[],
    )  # fmt: skip
    assert synced["error_code"] == ErrorCode.NONE


@pytest.mark.parametrize(
    ("names", "selected"),
    [(["range"] * 6, "range"), (["range"] * 6 + ["other"], "other")],
)
def test_what_a_member_names_twice_is_not_held(
    control: ControlPlane, names: list[str], selected: str
) -> None:
    """As it would be neither in the record nor counted."""
    start(control)
    protocols = [{"name": name, "metadata": metadata(n)} for n, name in enumerate(names)]
    joined = join(control, "g", 1, protocols=protocols)
    assert joined["protocol_name"] == selected
    slots = control.services.groups._slots
    (group,) = (slot.shard.groups["g"] for slot in slots if "g" in slot.shard.groups)
    assert isinstance(group, ClassicGroup)
    assert group.members[str(joined["member_id"])].protocols == (
        (selected, metadata(names.index(selected))),
    )


ONE = bytes_of(RANGE, Identity("c-uuid1", None, "c", "/127.0.0.1"))
"""What a member of these tests holds."""


@pytest.fixture
def two_fit(monkeypatch: pytest.MonkeyPatch) -> Classic:
    """A coordinator whose members may hold as much as two of them do."""
    monkeypatch.setattr(unwritten, "UNWRITTEN_MEMBERS_MAX_BYTES", 2 * ONE)
    return Classic()


def test_members_that_never_sync_hold_so_much_and_no_more(two_fit: Classic) -> None:
    c = two_fit
    first, second = c.completing(2)
    assert c.shard.unwritten.bytes == 2 * ONE
    assert c.join(group_id="other").error == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert "other" not in c.shard.groups
    c.leave(second)
    assert c.shard.unwritten.bytes == ONE
    assert c.join(group_id="other").error == ErrorCode.MEMBER_ID_REQUIRED
    assert c.shard.unwritten.bytes > ONE
    c.leave(first)
    c.pass_ms(SESSION_MS)
    assert c.shard.unwritten.bytes == 0


def test_ids_that_were_given_out_hold_so_much_and_no_more(two_fit: Classic) -> None:
    """Whoever asks for ids in many groups and never joins with them is refused until their
    sessions are over; who joins with one needs room for the rest of itself only (KIP-394)."""
    c = two_fit
    answers = [c.join(group_id=f"g{number}") for number in range(10)]
    required, refused = ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert [answer.error for answer in answers] == [required] * 2 + [refused] * 8
    assert ONE < c.shard.unwritten.bytes < 2 * ONE
    assert len(c.shard.groups) == 2
    assert not c.join(answers[0]["member_id"], group_id="g0").came
    c.pass_ms(SESSION_MS)
    assert c.shard.unwritten.bytes == ONE
    assert c.join(group_id="g2").error == required


def test_an_id_that_is_given_back_holds_nothing(two_fit: Classic) -> None:
    c = two_fit
    name = c.id_of()
    assert c.shard.unwritten.bytes == id_bytes(name)
    c.leave(name)
    assert c.shard.unwritten.bytes == 0


def test_members_whose_generation_is_written_hold_nothing(two_fit: Classic) -> None:
    c = two_fit
    names = c.stable(2)
    assert c.shard.unwritten.bytes == 0
    assert c.join(group_id="other").error == ErrorCode.MEMBER_ID_REQUIRED
    pending = c.shard.unwritten.bytes
    c.rejoin_all(names)
    assert c.shard.unwritten.bytes == pending + 2 * ONE
    c.sync_all(names)
    assert c.shard.unwritten.bytes == pending


def test_a_member_that_joins_again_with_no_more_is_let_in(two_fit: Classic) -> None:
    c = two_fit
    names = c.stable(2)
    c.shard.unwritten.bytes = 2 * ONE
    more = ((RANGE[0][0], RANGE[0][1] + b"x"),)
    assert c.join(names[0], protocols=more).error == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert c.rejoin_all(names)[1].error == ErrorCode.NONE
    assert c.state == "CompletingRebalance"


def test_what_was_not_selected_is_in_no_record(two_fit: Classic) -> None:
    c = two_fit
    c.stable(1, protocols=(*RANGE, ("other", b"12345")))
    assert c.shard.unwritten.bytes == getsizeof("other") + 5


@pytest.mark.parametrize("char", ["a", "\N{PILE OF POO}"])
def test_long_ids_count(char: str) -> None:
    """A client id is in the member id, too, and one odd character makes all four times as wide."""
    c = Classic()
    c.completing(1, client_id="c" * 30_000 + char)
    assert c.shard.unwritten.bytes >= 2 * getsizeof("c" * 30_000 + char)


def test_a_new_member_wants_room_for_its_ids(two_fit: Classic) -> None:
    long = "i" * ONE
    for ids in ({"client_id": long}, {"instance_id": long}):
        error = two_fit.join(group_id="other", **ids).error
        assert error == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


@pytest.mark.parametrize("refused", [ErrorCode.NONE, ErrorCode.INVALID_REQUEST])
def test_a_static_member_that_comes_back_is_counted_once(refused: ErrorCode) -> None:
    c = Classic()
    answer = c.join(instance_id="i")
    c.pass_ms(3_000)
    c.sync_all([answer["member_id"]])
    c.append_error = refused
    assert c.join(instance_id="i").error == refused
    assert (c.state, c.shard.unwritten.bytes) == ("Stable", 0)


@pytest.mark.parametrize("instance_id", ["i", None])
def test_a_group_that_could_not_be_founded_holds_nothing(instance_id: str | None) -> None:
    c = Classic()
    c.append_error = ErrorCode.INVALID_REQUEST
    assert c.join(instance_id=instance_id).error == ErrorCode.INVALID_REQUEST
    assert c.shard.unwritten.bytes == 0


def test_a_partition_that_is_given_up_holds_nothing() -> None:
    c = Classic()
    c.completing(2)
    c.id_of()
    c.room.unload()
    assert c.shard.unwritten.bytes == 0
