"""Every request of the classic protocol in every state of a group, with everything that can be
wrong with it: the error codes are Apache Kafka 4.3's, in its order of checks."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kbroker.errors import ClientError, ErrorCode
from tests.support.classic import BOTH, DELAY_MS, REBALANCE_MS, SESSION_MS, Classic

E = ErrorCode
STATES = ("none", "Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Dead")
OTHER = (("other", b""),)


def in_state(state: str) -> tuple[Classic, list[str]]:
    """A coordinator whose group "g" is in a state; the members' ids, a static one last."""
    c = Classic()
    if state == "none":
        return c, ["c-x", "s-x"]
    names = c.completing(1)
    names.append(str(_static(c, names)["member_id"]))
    c.sync_all(names)
    if state == "Empty":
        c.leave(*names)
    elif state == "PreparingRebalance":
        c.join()
        c.join(names[0])
    elif state == "CompletingRebalance":
        c.rejoin_all(names)
        c.join(names[0])
    elif state == "Dead":
        c.room.unload()
    return c, names


def _static(c: Classic, names: list[str]):
    answer = c.join(instance_id="s")
    c.rejoin_all(names)
    return answer


@pytest.mark.parametrize("state", STATES)
def test_states_are_what_they_say(state: str) -> None:
    c, _ = in_state(state)
    assert ("none" if "g" not in c.shard.groups else c.state) == state


def everywhere(*codes: ErrorCode | None) -> list[tuple[str, ErrorCode | None]]:
    """(state, code) in the order of STATES; None: parked."""
    return list(zip(STATES, codes, strict=True))


UNKNOWN, ILLEGAL, FENCED = E.UNKNOWN_MEMBER_ID, E.ILLEGAL_GENERATION, E.FENCED_INSTANCE_ID
GONE, INCONSISTENT = E.COORDINATOR_NOT_AVAILABLE, E.INCONSISTENT_GROUP_PROTOCOL
REBALANCE, REQUIRED, NONE = E.REBALANCE_IN_PROGRESS, E.MEMBER_ID_REQUIRED, E.NONE

JOINS: dict[str, tuple[Callable, list]] = {
    "new": (lambda c, m: c.join(),
            everywhere(REQUIRED, REQUIRED, REQUIRED, REQUIRED, REQUIRED, GONE)),
    "new before version 4": (lambda c, m: c.join(version=3),
            everywhere(None, None, None, None, None, GONE)),
    "new static": (lambda c, m: c.join(instance_id="new"),
            everywhere(None, None, None, None, None, GONE)),
    "no protocols": (lambda c, m: c.join(protocols=()),
            everywhere(INCONSISTENT, INCONSISTENT, INCONSISTENT, INCONSISTENT, INCONSISTENT, GONE)),
    "no protocol type": (lambda c, m: c.join(protocol_type=""),
            everywhere(INCONSISTENT, INCONSISTENT, INCONSISTENT, INCONSISTENT, INCONSISTENT, GONE)),
    "other protocol": (lambda c, m: c.join(protocols=OTHER),
            everywhere(REQUIRED, REQUIRED, INCONSISTENT, INCONSISTENT, INCONSISTENT, GONE)),
    "other type": (lambda c, m: c.join(protocol_type="connect"),
            everywhere(REQUIRED, REQUIRED, INCONSISTENT, INCONSISTENT, INCONSISTENT, GONE)),
    "unknown id": (lambda c, m: c.join("nobody"),
            everywhere(UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, GONE)),
    "unknown id with known instance": (lambda c, m: c.join("nobody", instance_id="s"),
            everywhere(UNKNOWN, UNKNOWN, FENCED, FENCED, FENCED, GONE)),
    "known id with unknown instance": (lambda c, m: c.join(m[0], instance_id="new"),
            everywhere(UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, GONE)),
    "leader again": (lambda c, m: c.join(m[0]),
            everywhere(UNKNOWN, UNKNOWN, None, NONE, None, GONE)),
    "follower again": (lambda c, m: c.join(m[1]),
            everywhere(UNKNOWN, UNKNOWN, None, NONE, NONE, GONE)),
    "follower with other metadata": (lambda c, m: c.join(m[1], protocols=BOTH),
            everywhere(UNKNOWN, UNKNOWN, None, None, None, GONE)),
    "session too short": (lambda c, m: c.join(session_timeout_ms=5_999),
            everywhere(*[E.INVALID_SESSION_TIMEOUT] * 6)),
    "session too long": (lambda c, m: c.join(session_timeout_ms=1_800_001),
            everywhere(*[E.INVALID_SESSION_TIMEOUT] * 6)),
    "no group id": (lambda c, m: c.join(group_id=""), everywhere(*[E.INVALID_GROUP_ID] * 6)),
}  # fmt: skip

SYNCS: dict[str, tuple[Callable, list]] = {
    "follower": (lambda c, m: c.sync(m[1], generation(c)),
            everywhere(UNKNOWN, UNKNOWN, REBALANCE, None, NONE, GONE)),
    "leader": (lambda c, m: c.sync(m[0], generation(c)),
            everywhere(UNKNOWN, UNKNOWN, REBALANCE, NONE, NONE, GONE)),
    "unknown id": (lambda c, m: c.sync("nobody", generation(c)),
            everywhere(UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, GONE)),
    "fenced": (lambda c, m: c.sync("nobody", generation(c), instance_id="s"),
            everywhere(UNKNOWN, UNKNOWN, FENCED, FENCED, FENCED, GONE)),
    "unknown instance": (lambda c, m: c.sync(m[0], generation(c), instance_id="new"),
            everywhere(UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, GONE)),
    "earlier generation": (lambda c, m: c.sync(m[0], generation(c) - 1),
            everywhere(UNKNOWN, UNKNOWN, ILLEGAL, ILLEGAL, ILLEGAL, GONE)),
    "later generation": (lambda c, m: c.sync(m[0], generation(c) + 1),
            everywhere(UNKNOWN, UNKNOWN, ILLEGAL, ILLEGAL, ILLEGAL, GONE)),
    "other type": (lambda c, m: c.sync(m[0], generation(c), protocol_type="connect"),
            everywhere(UNKNOWN, UNKNOWN, INCONSISTENT, INCONSISTENT, INCONSISTENT, GONE)),
    "other protocol": (lambda c, m: c.sync(m[0], generation(c), protocol_name="other"),
            everywhere(UNKNOWN, UNKNOWN, INCONSISTENT, INCONSISTENT, INCONSISTENT, GONE)),
    "right names": (
            lambda c, m: c.sync(
                m[1], generation(c), protocol_type="consumer", protocol_name="range"),
            everywhere(UNKNOWN, UNKNOWN, REBALANCE, None, NONE, GONE)),
    "no group id": (lambda c, m: c.sync(m[0], 1, group_id=""),
            everywhere(*[E.INVALID_GROUP_ID] * 6)),
}  # fmt: skip

HEARTBEATS: dict[str, tuple[Callable, list]] = {
    "member": (lambda c, m: c.heartbeat(m[0], generation(c)),
            everywhere(UNKNOWN, UNKNOWN, REBALANCE, NONE, NONE, GONE)),
    "static member": (lambda c, m: c.heartbeat(m[1], generation(c), instance_id="s"),
            everywhere(UNKNOWN, UNKNOWN, REBALANCE, NONE, NONE, GONE)),
    "unknown id": (lambda c, m: c.heartbeat("nobody", generation(c)),
            everywhere(UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, GONE)),
    "fenced": (lambda c, m: c.heartbeat("nobody", generation(c), instance_id="s"),
            everywhere(UNKNOWN, UNKNOWN, FENCED, FENCED, FENCED, GONE)),
    "earlier generation": (lambda c, m: c.heartbeat(m[0], generation(c) - 1),
            everywhere(UNKNOWN, UNKNOWN, ILLEGAL, ILLEGAL, ILLEGAL, GONE)),
    "later generation": (lambda c, m: c.heartbeat(m[0], generation(c) + 1),
            everywhere(UNKNOWN, UNKNOWN, ILLEGAL, ILLEGAL, ILLEGAL, GONE)),
    "no group id": (lambda c, m: c.heartbeat(m[0], 1, group_id=""),
            everywhere(*[E.INVALID_GROUP_ID] * 6)),
}  # fmt: skip

LEAVES: dict[str, tuple[Callable, list]] = {
    "member": (lambda c, m: c.leave(m[0]),
            everywhere(UNKNOWN, UNKNOWN, NONE, NONE, NONE, GONE)),
    "by instance": (lambda c, m: c.leave(("", "s")),
            everywhere(UNKNOWN, UNKNOWN, NONE, NONE, NONE, GONE)),
    "by unknown instance": (lambda c, m: c.leave(("", "new")),
            everywhere(UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, GONE)),
    "by nothing": (lambda c, m: c.leave(("", None)),
            everywhere(UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, GONE)),
    "fenced": (lambda c, m: c.leave(("nobody", "s")),
            everywhere(UNKNOWN, UNKNOWN, FENCED, FENCED, FENCED, GONE)),
    "unknown id": (lambda c, m: c.leave("nobody"),
            everywhere(UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, GONE)),
    "no group id": (lambda c, m: c.leave(m[0], group_id=""),
            everywhere(*[E.INVALID_GROUP_ID] * 6)),
}  # fmt: skip


def generation(c: Classic) -> int:
    return c.group.generation if "g" in c.shard.groups else 1


def cases(table: dict) -> list:
    return [
        pytest.param(send, state, code, id=f"{state}: {name}")
        for name, (send, expected) in table.items()
        for state, code in expected
    ]


@pytest.mark.parametrize(("send", "state", "code"), cases(JOINS | {}))
def test_join(send: Callable, state: str, code: ErrorCode | None) -> None:
    c, names = in_state(state)
    answer = send(c, names)
    assert (answer.error if answer.came else None) == code


@pytest.mark.parametrize(("send", "state", "code"), cases(SYNCS))
def test_sync(send: Callable, state: str, code: ErrorCode | None) -> None:
    c, names = in_state(state)
    answer = send(c, names)
    assert (answer.error if answer.came else None) == code


@pytest.mark.parametrize(("send", "state", "code"), cases(HEARTBEATS))
def test_heartbeat(send: Callable, state: str, code: ErrorCode) -> None:
    c, names = in_state(state)
    assert send(c, names).error == code


@pytest.mark.parametrize(("send", "state", "code"), cases(LEAVES))
def test_leave(send: Callable, state: str, code: ErrorCode) -> None:
    c, names = in_state(state)
    answer = send(c, names)
    members = answer["members"]
    assert (members[0].get("error_code") if members else answer.error) == code


COMMITS = {
    "without ids": (("", None, -1),
        everywhere(None, NONE, UNKNOWN, UNKNOWN, UNKNOWN, GONE)),
    "member": (("m", None, 0), everywhere(None, UNKNOWN, NONE, REBALANCE, NONE, GONE)),
    "unknown id": (("nobody", None, 0), everywhere(None, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, GONE)),
    "fenced": (("nobody", "s", 0), everywhere(None, UNKNOWN, FENCED, FENCED, FENCED, GONE)),
    "earlier generation": (("m", None, -1),
        everywhere(None, UNKNOWN, ILLEGAL, ILLEGAL, ILLEGAL, GONE)),
}  # fmt: skip


@pytest.mark.parametrize(
    ("who", "state", "code"),
    [
        pytest.param(who, state, code, id=f"{state}: {name}")
        for name, (who, expected) in COMMITS.items()
        for state, code in expected
        if code is not None
    ],
)
def test_offset_commit(who: tuple, state: str, code: ErrorCode) -> None:
    c, names = in_state(state)
    member_id, instance_id, off = who
    told = -1 if not member_id else c.group.generation + off
    args = (names[0] if member_id == "m" else member_id, instance_id, told)
    try:
        c.group.validate_offset_commit(*args, transactional=False, version=9)
        got = NONE
    except ClientError as error:
        got = error.code
    assert got == code


def test_a_transactional_commit_without_ids_is_always_let_in() -> None:
    for state in STATES[1:5]:
        c, _ = in_state(state)
        c.group.validate_offset_commit("", None, -1, transactional=True, version=9)


@pytest.mark.parametrize(
    ("what", "codes"),
    [
        ("validate_delete", (NONE, *[E.NON_EMPTY_GROUP] * 3, E.GROUP_ID_NOT_FOUND)),
        ("validate_offset_delete", (NONE, NONE, NONE, NONE, E.GROUP_ID_NOT_FOUND)),
    ],
)
def test_administration(what: str, codes: tuple) -> None:
    for state, code in zip(STATES[1:], codes, strict=True):
        c, _ = in_state(state)
        try:
            getattr(c.group, what)()
            got = NONE
        except ClientError as error:
            got = error.code
        assert got == code, state


def test_offsets_of_another_protocol_type_are_not_deleted_while_it_has_members() -> None:
    c = Classic()
    c.stable(1, protocol_type="connect")
    with pytest.raises(ClientError) as raised:
        c.group.validate_offset_delete()
    assert raised.value.code == E.NON_EMPTY_GROUP


def test_the_error_names_the_member_that_asked() -> None:
    c, names = in_state("Stable")
    assert c.join("nobody")["member_id"] == "nobody"
    assert c.join(names[0], session_timeout_ms=1)["member_id"] == names[0]
    assert c.join(names[0], protocols=OTHER)["member_id"] == names[0]


def test_waits_stay_within_the_timeouts_that_the_states_rely_on() -> None:
    assert DELAY_MS < SESSION_MS < REBALANCE_MS
