"""Heartbeats that the data plane answers, on a broker that runs: order, bytes, sessions, threads.

The first heartbeat of a member in each generation goes to the coordinator, the others do not: so
those are answered while a hook keeps the GIL of the broker (see test_gil).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest
from kio.index import load_request_schema

from tests.support import messages
from tests.support.kbroker import KbrokerProcess
from tests.support.waits import wait_for
from tests.support.wire import FIND_COORDINATOR, WireConnection, call_once
from tests.wire.test_classic_groups import HEARTBEAT, JOIN, LEAVE, REBALANCE, UNKNOWN_MEMBER, Member
from tests.wire.test_gil import free, hold, is_held

SESSION_MS = 1_500
SETTINGS = {"group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "100"}


@pytest.fixture
def broker(start_kbroker: Callable[..., KbrokerProcess]) -> KbrokerProcess:
    started = start_kbroker(SETTINGS, hooks=True)
    find_coordinator(started)
    return started


@pytest.fixture
def member(broker: KbrokerProcess) -> Iterator[Callable[..., Member]]:
    made: list[Member] = []

    def make(group: str = "g", **joins: object) -> Member:
        made.append(Member(broker, group, **joins))
        return made[-1]

    yield make
    for one in made:
        one.connection.close()


def find_coordinator(broker: KbrokerProcess) -> None:
    call_once(broker.port, FIND_COORDINATOR, 4, {"key_type": 0, "coordinator_keys": ["g"]})


def known(one: Member) -> Member:
    """A member alone in its group, whose heartbeats the data plane answers from now on."""
    one.alone()
    assert one.heartbeat() == 0
    return one


def heartbeat_frame(one: Member, version: int, correlation_id: int, **fields: object) -> bytes:
    body = {"group_id": one.group, "generation_id": one.generation, "member_id": one.id, **fields}
    data = messages.encode(load_request_schema(HEARTBEAT, version), body)
    return messages.request_frame(HEARTBEAT, version, data, correlation_id)


@pytest.mark.parametrize("version", range(5))
def test_both_planes_answer_the_same_bytes(member: Callable[..., Member], version: int) -> None:
    one = member(f"v{version}").alone()
    frame = heartbeat_frame(one, version, 7)
    for _ in range(3):
        one.connection.send_bytes(frame)
    first, *others = [one.connection.receive_frame() for _ in range(3)]
    assert others == [first, first]
    assert messages.response_body(HEARTBEAT, version, first)[0] == 7


def test_they_do_not_wait_for_the_gil(
    member: Callable[..., Member], broker: KbrokerProcess
) -> None:
    one, static = known(member("a")), known(member("b", group_instance_id="i"))
    behind = member("c").alone()
    hold(broker)
    behind.ask(HEARTBEAT, 4, {"group_id": "c", "generation_id": 1, "member_id": behind.id})
    for _ in range(100):
        assert one.heartbeat() == static.heartbeat() == 0
        for instance in (None, "i"):
            static.connection.send_bytes(heartbeat_frame(static, 4, 9, group_instance_id=instance))
            static.connection.receive_frame()
    assert behind.connection.is_silent(0.01)
    assert is_held(broker)
    free(broker)
    assert behind.take()["error_code"] == 0


def test_a_heartbeat_does_not_overtake_what_was_sent_before_it(
    member: Callable[..., Member],
) -> None:
    """All in one segment: well, leave, unknown."""
    one = known(member())
    leave = {"group_id": "g", "members": [{"member_id": one.id}]}
    data = messages.encode(load_request_schema(LEAVE, 4), leave)
    one.connection.send_bytes(
        heartbeat_frame(one, 4, 1)
        + messages.request_frame(LEAVE, 4, data, 2)
        + heartbeat_frame(one, 4, 3)
    )
    assert one.connection.receive(HEARTBEAT, 4, 1)["error_code"] == 0
    assert one.connection.receive(LEAVE, 4, 2)["members"][0]["error_code"] == 0
    assert one.connection.receive(HEARTBEAT, 4, 3)["error_code"] == UNKNOWN_MEMBER


def test_nor_a_join_that_waits(member: Callable[..., Member]) -> None:
    """It is not even read before the join is answered, and then of another generation."""
    one, other = known(member()), member()
    other.begin_join()
    one.until_rebalance()
    other.connection.send_bytes(heartbeat_frame(one, 4, 99))
    assert other.connection.is_silent(0.2)
    one.begin_join().take()
    other.take()
    assert other.connection.receive(HEARTBEAT, 4, 99)["error_code"] == 22


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x00",
        b"\x02g",
        b"\x02g\x00\x00\x00\x01\x00\x00\x00",
        b"\x00\x00\x00\x00\x01\x02m\x00\x00",
        b"\xff\xff\xff\xff\x0f\x00\x00\x00\x01\x02m\x00\x00",
        b"\x02\xff\x00\x00\x00\x01\x02\xfe\x00\x00",
    ],
)
def test_what_cannot_be_read_is_the_coordinators(
    member: Callable[..., Member], broker: KbrokerProcess, body: bytes
) -> None:
    one = known(member())
    with WireConnection(broker.port) as connection:
        connection.send_bytes(messages.request_frame(HEARTBEAT, 4, body, 1))
        connection.wait_closed()
    assert one.heartbeat() == 0


def test_sessions_live_and_end_by_them(member: Callable[..., Member]) -> None:
    """Well for two sessions and more without a word to the coordinator; then silent, and out."""
    one = known(member(session_timeout=SESSION_MS))
    watcher = member("watcher")
    until = time.monotonic() + 2.5 * SESSION_MS / 1000
    while time.monotonic() < until:
        last = time.monotonic()
        assert one.heartbeat() == 0
        assert one.connection.is_silent(0.05)
    wait_for("the end of its session", lambda: group_state(watcher, one.group) == "Empty", 60)
    assert time.monotonic() - last >= SESSION_MS / 1000
    assert one.heartbeat() == UNKNOWN_MEMBER


def group_state(by: Member, group: str) -> str:
    answer = by.connection.call(15, 5, {"groups": [group]})
    return str(answer["groups"][0]["group_state"])


def test_nobody_is_well_once_the_end_of_a_generation_was_told(
    member: Callable[..., Member], broker: KbrokerProcess
) -> None:
    """Heartbeats of four connections run while generations come and go: after an answer that
    tells of the next one, none of the last is answered with "well"."""
    one = known(member())
    told = [one.generation]
    problems: list[str] = []
    done = threading.Event()

    def beat() -> None:
        with WireConnection(broker.port) as connection:
            while not done.is_set():
                newest = told[-1]
                body = {"group_id": "g", "generation_id": newest - 1, "member_id": one.id}
                if connection.call(HEARTBEAT, 4, body)["error_code"] == 0:
                    problems.append(f"generation {newest - 1} after {newest}")

    threads = [threading.Thread(target=beat) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(40):
        assert one.heartbeat() == 0
        body = one.joins | {"member_id": one.id}
        assert one.ask(JOIN, 9, body).take()["error_code"] == 0
        told.append(one.generation)
        assert one.heartbeat() == 0
        one.begin_sync((one.id, b"mine")).take()
    done.set()
    for thread in threads:
        thread.join()
    assert not problems
    assert told == list(range(1, 42))


def test_a_broker_that_starts_again(member: Callable[..., Member], broker: KbrokerProcess) -> None:
    one = known(member())
    broker.kill()
    broker.start()
    one.reconnect()
    wait_for("the group is loaded", lambda: one.heartbeat() == 0, 60)
    assert [one.heartbeat() for _ in range(3)] == [0, 0, 0]
    other = member()
    other.begin_join()
    one.until_rebalance()
    assert one.heartbeat() == REBALANCE
