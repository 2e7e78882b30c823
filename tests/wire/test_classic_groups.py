"""Classic groups on a broker that runs: parked requests, kills, floods, and what is too large.

Rules and errors are tested beside Kafka (tests/differential) and in every state (tests/unit); here
it is what needs sockets, a disk and a process.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.processes import BrokerProcess
from tests.support.waits import wait_for
from tests.support.wire import FIND_COORDINATOR, WireConnection, call_once

JOIN, HEARTBEAT, LEAVE, SYNC = 11, 12, 13, 14
NOT_COORDINATOR, UNKNOWN_MEMBER, REBALANCE, MEMBER_ID_REQUIRED, FULL = 16, 25, 27, 79, 81
METADATA = b"\x00\x00\x00\x00\x00\x01\x00\x01t\xff\xff\xff\xff"
StartBroker = Callable[..., BrokerProcess]

pytestmark = pytest.mark.usefixtures("kbroker")


class Member:
    """A member with a connection of its own."""

    def __init__(self, broker: BrokerProcess, group: str, **joins: Any) -> None:
        self.broker = broker
        self.group = group
        self.id = ""
        self.generation = -1
        self.joins = {
            "group_id": group, "session_timeout": 10_000, "rebalance_timeout": 10_000,
            "protocol_type": "consumer", "protocols": [{"name": "range", "metadata": METADATA}],
        } | joins  # fmt: skip
        self.connection = WireConnection(broker.port)
        self._asked = (0, 0, 0)

    def ask(self, api: int, version: int, body: dict[str, Any]) -> Member:
        self._asked = (api, version, self.connection.send(api, version, body))
        return self

    def take(self) -> dict[str, Any]:
        answer = self.connection.receive(*self._asked)
        if self._asked[0] == JOIN:
            self.id = answer["member_id"] or self.id
            self.generation = answer["generation_id"]
        return answer

    def begin_join(self) -> Member:
        """Send the JoinGroup that counts."""
        body = self.joins | {"member_id": self.id}
        if not self.id and "group_instance_id" not in self.joins:
            assert self.ask(JOIN, 9, body).take()["error_code"] == MEMBER_ID_REQUIRED
            body["member_id"] = self.id
        return self.ask(JOIN, 9, body)

    def begin_sync(self, *assignments: tuple[str, bytes]) -> Member:
        body = {
            "group_id": self.group, "generation_id": self.generation, "member_id": self.id,
            "assignments": [{"member_id": m, "assignment": a} for m, a in assignments],
        }  # fmt: skip
        return self.ask(SYNC, 4, body)

    def heartbeat(self) -> int:
        body = {"group_id": self.group, "generation_id": self.generation, "member_id": self.id}
        return int(self.connection.call(HEARTBEAT, 4, body)["error_code"])

    def until_rebalance(self) -> None:
        wait_for("a rebalance", lambda: self.heartbeat() == REBALANCE, 60)

    def alone(self) -> Member:
        """The only member of a stable group."""
        assert self.begin_join().take()["error_code"] == 0
        assert self.begin_sync((self.id, b"mine")).take()["assignment"] == b"mine"
        return self

    def reconnect(self) -> None:
        self.connection.close()
        self.connection = WireConnection(self.broker.port)


@pytest.fixture
def broker(kbroker: BrokerProcess) -> BrokerProcess:
    call_once(kbroker.port, FIND_COORDINATOR, 4, {"key_type": 0, "coordinator_keys": ["g"]})
    return kbroker


@pytest.fixture
def member(broker: BrokerProcess, group: str) -> Iterator[Callable[..., Member]]:
    """Makes members, of the test's own group unless told otherwise."""
    made: list[Member] = []

    def make(group: str = group, **joins: Any) -> Member:
        made.append(Member(broker, group, **joins))
        return made[-1]

    yield make
    for one in made:
        one.connection.close()


@pytest.fixture
def group(request: pytest.FixtureRequest) -> str:
    return f"group of {request.node.name}"


def pair(member: Callable[..., Member], *groups: str) -> tuple[Member, Member]:
    """Two members of a generation that wait for nothing yet; the first leads."""
    a, b = member(*groups).alone(), member(*groups)
    b.begin_join()
    a.until_rebalance()
    a.begin_join().take()
    b.take()
    return a, b


def test_a_member_that_waits_does_not_hold_up_others_of_its_group(member) -> None:
    a, b = pair(member)
    b.begin_sync()
    assert b.connection.is_silent(0.2)
    assert a.heartbeat() == 0
    a.begin_sync((b.id, b"for b"))
    assert b.take()["assignment"] == b"for b"
    assert a.take()["assignment"] == b""


def test_a_connection_that_dies_while_it_waits(member) -> None:
    """Its member stays until its session is over; when it comes back in time all is well."""
    a, b = pair(member)
    b.begin_sync()
    b.reconnect()
    a.begin_sync((b.id, b"for b")).take()
    assert b.heartbeat() == 0
    assert b.begin_sync().take()["assignment"] == b"for b"


def test_the_join_that_another_one_replaces_is_answered(member, broker) -> None:
    a = member().alone()
    b = member()
    b.begin_join()
    a.until_rebalance()  # the first of the two joins has come
    again = Member(broker, b.group)
    again.id = b.id
    again.begin_join()
    assert b.take()["error_code"] == REBALANCE
    a.begin_join()
    assert again.take()["generation_id"] == a.take()["generation_id"] == 2
    again.connection.close()


@pytest.mark.parametrize(
    "name", ["a", " ", "\n", "ä" * 100, "x" * 32_767, "../..", "%s{}'\"", "\x00", "🙂"]
)
def test_group_names_of_every_kind(member, name: str) -> None:
    one = member(name).alone()
    assert one.heartbeat() == 0
    one.ask(LEAVE, 4, {"group_id": name, "members": [{"member_id": one.id}]})
    assert one.take()["members"][0]["error_code"] == 0


def test_assignments_of_megabytes_are_refused_and_harm_nobody(member, group: str) -> None:
    other = member("beside " + group).alone()
    a, b = pair(member)
    b.begin_sync()
    a.begin_sync((b.id, bytes(4 << 20)))
    assert (a.take()["error_code"], b.take()["error_code"]) == (-1, -1)
    assert other.heartbeat() == 0
    a.until_rebalance()
    a.begin_join()
    b.begin_join().take()
    a.take()
    b.begin_sync()
    a.begin_sync((b.id, b"small")).take()
    assert b.take()["assignment"] == b"small"


def test_a_flood_of_joins_costs_little_and_harms_nobody(member, broker, group: str) -> None:
    """What asks for member ids and never joins with them drives out only its own."""
    other = member("beside " + group).alone()
    flood = member()
    before_kib = broker.resident_kib()
    body = flood.joins | {"member_id": ""}
    for _ in range(150):  # and a heartbeat in time, however slow the machine
        asked = [flood.connection.send(JOIN, 9, body) for _ in range(100)]
        for correlation_id in asked:
            error = flood.connection.receive(JOIN, 9, correlation_id)["error_code"]
            assert error == MEMBER_ID_REQUIRED
        assert other.heartbeat() == 0
    assert broker.resident_kib() - before_kib < 64 * 1024


def test_a_request_that_lies_about_its_protocols_closes_the_connection(broker) -> None:
    head = struct.pack(">hhih", 11, 0, 1, -1)
    body = b"\x00\x01g" + struct.pack(">i", 10_000) + b"\x00\x00" + b"\x00\x01c"
    with WireConnection(broker.port) as connection:
        data = head + body + struct.pack(">i", 1 << 30)
        connection.send_bytes(struct.pack(">i", len(data)) + data)
        connection.wait_closed()


@pytest.mark.parametrize("stop", ["kill", "stop"])
def test_members_go_on_after_a_restart(start_kbroker: StartBroker, stop: str) -> None:
    """In the generation that was written, with the assignments that were told."""
    broker = start_kbroker({"group.initial.rebalance.delay.ms": "0"})
    call_once(broker.port, FIND_COORDINATOR, 4, {"key_type": 0, "coordinator_keys": ["g"]})
    a, b = pair(lambda *groups: Member(broker, *(groups or ("g",))))
    b.begin_sync()
    a.begin_sync((a.id, b"for a"), (b.id, b"for b")).take()
    b.take()
    late = Member(broker, "g")
    late.begin_join()
    a.until_rebalance()
    getattr(broker, stop)()
    if stop == "stop":
        assert late.take()["error_code"] == NOT_COORDINATOR
    late.connection.wait_closed()
    broker.start()
    for one in (a, b):
        one.reconnect()
        wait_for("the group is loaded", lambda one=one: one.heartbeat() == 0, 60)
        assert one.begin_sync().take()["assignment"] in {b"for a", b"for b"}
    late.reconnect()
    assert late.begin_join().take()["error_code"] == UNKNOWN_MEMBER
    for one in (a, b, late):
        one.connection.close()


def test_a_full_group_refuses_who_is_too_many(start_kbroker: StartBroker) -> None:
    settings = {"group.initial.rebalance.delay.ms": "0", "group.max.size": "1"}
    broker = start_kbroker(settings)
    call_once(broker.port, FIND_COORDINATOR, 4, {"key_type": 0, "coordinator_keys": ["g"]})
    a, b = Member(broker, "g").alone(), Member(broker, "g")
    assert b.ask(JOIN, 9, b.joins | {"member_id": ""}).take()["error_code"] == FULL
    assert a.heartbeat() == 0
    for one in (a, b):
        one.connection.close()
