"""Rights on the data plane: verdicts that connections remember, and ACLs that change under them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.reference.crafted_batches import Batch, Record
from tests.support import guarded as g
from tests.support import wire
from tests.support.guarded import acl, granted
from tests.support.kafka import tool_output
from tests.support.kbroker import KbrokerProcess
from tests.support.processes import BrokerProcess
from tests.support.waits import wait_for
from tests.support.wire import (
    DELETE_TOPICS,
    FETCH,
    FIND_COORDINATOR,
    LIST_OFFSETS,
    PRODUCE,
    WireConnection,
    call_once,
)
from tests.wire.test_classic_groups import Member

NO_TOPIC, NO_GROUP, NO_ID, UNKNOWN, UNKNOWN_ID = 29, 30, 53, 3, 100
OFFSET_FETCH = 9
BATCH = Batch(records=[Record(b"v")]).encode()

TOPIC_WRITE, TOPIC_READ = acl(g.TOPIC, "t", g.WRITE), acl(g.TOPIC, "t", g.READ)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KbrokerProcess]:
    """One that lets 127.0.0.1 do everything, and others nothing."""
    started = KbrokerProcess(tmp_path_factory.mktemp("guarded"), g.SETTINGS)
    started.start()
    try:
        g.guard(started)
        wire.create_topic(started.port, "t", 2)
        find = {"key_type": 0, "coordinator_keys": ["g"]}
        call_once(started.port, FIND_COORDINATOR, 4, find)
        yield started
    finally:
        started.kill()


@pytest.fixture
def other(broker: KbrokerProcess) -> Iterator[WireConnection]:
    with g.other(broker.port) as connection:
        yield connection


def produce(connection: WireConnection, *names: str, acks: int = -1) -> list[int]:
    """The error code of each topic."""
    rows = [{"name": name, "partition_data": [{"index": 0, "records": BATCH}]} for name in names]
    body = {"acks": acks, "timeout": 30000, "topic_data": rows}
    answer = connection.call(PRODUCE, 9, body)
    return [one["partition_responses"][0]["error_code"] for one in answer["responses"]]


def fetch_body(*names: str, session: int = 0, epoch: int = -1, **more: Any) -> dict[str, Any]:
    part = {"partition": 0, "current_leader_epoch": -1, "fetch_offset": 0,
            "partition_max_bytes": 1000}  # fmt: skip
    rows = [{"topic": name, "partitions": [part]} for name in names]
    return {"replica_id": -1, "max_wait": 0, "min_bytes": 0, "topics": rows,
            "session_id": session, "session_epoch": epoch, **more}  # fmt: skip


def fetch(connection: WireConnection, *names: str, **more: Any) -> list[int]:
    answer = connection.call(FETCH, 12, fetch_body(*names, **more))
    return [one["partitions"][0]["error_code"] for one in answer["responses"]]


def offsets(connection: WireConnection, *names: str, at: int = -1) -> list[int]:
    """Of partition 0 by meaning or by time; the error code of each."""
    rows = [{"name": name, "partitions": [{"partition_index": 0, "timestamp": at}]}
            for name in names]  # fmt: skip
    answer = connection.call(LIST_OFFSETS, 6, {"replica_id": -1, "topics": rows})
    assert [one["name"] for one in answer["topics"]] == list(names)
    return [part["error_code"] for one in answer["topics"] for part in one["partitions"]]


def test_a_right_comes_and_goes_on_a_live_connection(
    broker: KbrokerProcess, other: WireConnection
) -> None:
    assert produce(other, "t") == [NO_TOPIC] and fetch(other, "t") == [NO_TOPIC]
    for _ in range(2):
        with granted(broker.port, TOPIC_WRITE):
            assert produce(other, "t", "u") == [0, NO_TOPIC]
            assert fetch(other, "t") == [NO_TOPIC]
            assert produce(other, "t") == [0]
        assert produce(other, "t") == [NO_TOPIC]
        with granted(broker.port, TOPIC_READ):
            assert fetch(other, "u", "t") == [NO_TOPIC, 0]
            assert produce(other, "t") == [NO_TOPIC]
        assert fetch(other, "t") == [NO_TOPIC]


@pytest.mark.parametrize("at", [-1, 0])
def test_offsets_want_the_right_to_describe(
    broker: KbrokerProcess, other: WireConnection, at: int
) -> None:
    """Which whoever may read has; by meaning and by time, which the pool looks up."""
    assert offsets(other, "t", "u", at=at) == [NO_TOPIC] * 2
    for operation in (g.DESCRIBE, g.READ):
        with granted(broker.port, acl(g.TOPIC, "t", operation)):
            for _ in range(2):
                assert offsets(other, "u", "t", at=at) == [NO_TOPIC, 0]
            assert produce(other, "t") == [NO_TOPIC]
        assert offsets(other, "t", at=at) == [NO_TOPIC]
    with granted(broker.port, acl(g.TOPIC, "*", g.DESCRIBE)):
        assert offsets(other, "t", "u", at=at) == [0, UNKNOWN]


def test_what_may_not_be_seen_is_refused_as_often_as_it_is_named(other: WireConnection) -> None:
    rows = [{"name": "t", "partitions": [{"partition_index": 0, "timestamp": -1}] * 3}]
    answer = other.call(LIST_OFFSETS, 6, {"replica_id": -1, "topics": rows})
    (told,) = answer["topics"]
    assert [one["error_code"] for one in told["partitions"]] == [NO_TOPIC] * 3


def test_what_is_not_there_is_not_told_from_what_may_not_be_seen(
    broker: KbrokerProcess, other: WireConnection
) -> None:
    assert produce(other, "t", "u", "bad name") == [NO_TOPIC] * 3
    with granted(broker.port, acl(g.TOPIC, "*", g.ALL)):
        assert produce(other, "t", "u") == [0, UNKNOWN]
        assert fetch(other, "t", "u") == [0, UNKNOWN]


def test_a_topic_that_was_made_again_has_the_same_rights(
    broker: KbrokerProcess, other: WireConnection
) -> None:
    """Verdicts are kept by name; an id that is gone is said to be."""
    with granted(broker.port, acl(g.TOPIC, "again", g.WRITE)):
        for _ in range(2):
            wire.create_topic(broker.port, "again")
            made = wire.topic_id(broker.port, "again")
            row = {"topic_id": made, "partition_data": [{"index": 0, "records": BATCH}]}
            body = {"acks": -1, "timeout": 30000, "topic_data": [row]}
            for code in (0, 0):
                told = other.call(PRODUCE, 13, body)["responses"][0]["partition_responses"]
                assert told[0]["error_code"] == code
            call_once(broker.port, DELETE_TOPICS, 5, {"topic_names": ["again"], "timeout": 30000})
            told = other.call(PRODUCE, 13, body)["responses"][0]["partition_responses"]
            assert told[0]["error_code"] == UNKNOWN_ID
        assert produce(other, "again") == [UNKNOWN]
    assert produce(other, "again") == [NO_TOPIC]


def test_a_session_goes_on_whatever_may_be_read(
    broker: KbrokerProcess, other: WireConnection
) -> None:
    """Its epoch moves once for each request, also where the rights had to be asked for."""
    with granted(broker.port, TOPIC_READ):
        answer = other.call(FETCH, 12, fetch_body("t", "u", epoch=0))
        session = answer["session_id"]
        assert session and [one["partitions"][0]["error_code"] for one in answer["responses"]] == [
            0, NO_TOPIC
        ]  # fmt: skip
        assert other.call(FETCH, 12, fetch_body(session=session, epoch=1))["error_code"] == 0
    answer = other.call(FETCH, 12, fetch_body(session=session, epoch=2))
    codes = {one["topic"]: one["partitions"][0]["error_code"] for one in answer["responses"]}
    assert answer["error_code"] == 0 and codes == {"t": NO_TOPIC, "u": NO_TOPIC}
    with granted(broker.port, TOPIC_READ, acl(g.TOPIC, "u", g.READ)):
        answer = other.call(FETCH, 12, fetch_body(session=session, epoch=3))
        codes = {one["topic"]: one["partitions"][0]["error_code"] for one in answer["responses"]}
        assert answer["error_code"] == 0 and codes == {"t": 0, "u": UNKNOWN}


def test_a_fetch_that_waits_for_rights_waits_for_records_as_well(
    broker: KbrokerProcess, other: WireConnection
) -> None:
    wire.create_topic(broker.port, "slow")
    with granted(broker.port, acl(g.TOPIC, "slow", g.READ)):
        more = {"max_wait": 60_000, "min_bytes": 1}
        asked = other.send(FETCH, 12, fetch_body("slow", **more))
        with WireConnection(broker.port) as admin:
            assert produce(admin, "slow") == [0]
        (told,) = other.receive(FETCH, 12, asked)["responses"]
        assert told["partitions"][0]["error_code"] == 0 and told["partitions"][0]["records"]
        asked = other.send(FETCH, 12, fetch_body("slow", "hidden", **more))
        codes = [one["partitions"][0]["error_code"]
                 for one in other.receive(FETCH, 12, asked)["responses"]]  # fmt: skip
        assert codes == [0, NO_TOPIC], "what may not be read is told at once"


def test_many_requests_in_flight_while_a_right_comes_and_goes(
    broker: KbrokerProcess, other: WireConnection
) -> None:
    """Each is answered, in order, by one state or the other; the last by the last."""
    rows = [{"name": "t", "partition_data": [{"index": 0, "records": BATCH}]}]
    body = {"acks": -1, "timeout": 30000, "topic_data": rows}
    sent = []
    for number in range(5):
        with granted(broker.port, TOPIC_WRITE):
            sent += [(PRODUCE, other.send(PRODUCE, 9, body)) for _ in range(20)]
            sent += [(FETCH, other.send(FETCH, 12, fetch_body("t", f"n{number}")))]
    last = other.send(PRODUCE, 9, body)
    codes = set()
    for key, correlation in sent:
        answer = other.receive(key, 9 if key == PRODUCE else 12, correlation)
        if key == PRODUCE:
            codes.add(answer["responses"][0]["partition_responses"][0]["error_code"])
    answer = other.receive(PRODUCE, 9, last)
    assert answer["responses"][0]["partition_responses"][0]["error_code"] == NO_TOPIC
    assert codes <= {0, NO_TOPIC}


@pytest.mark.long
def test_more_names_than_are_remembered(broker: KbrokerProcess, other: WireConnection) -> None:
    """Twice, as what was too much is asked for again; and what is small is remembered then."""
    names = [f"{number:05}{'x' * 240}" for number in range(12_000)]
    with granted(broker.port, TOPIC_READ):
        for _ in range(2):
            assert fetch(other, "t", *names) == [0] + [NO_TOPIC] * len(names)
        assert fetch(other, "t") == [0]
    assert fetch(other, "t") == [NO_TOPIC]
    before = broker.resident_kib()
    for _ in range(5):
        assert fetch(other, *names)[0] == NO_TOPIC
    assert broker.resident_kib() < before + 64 * 1024


def test_heartbeats_stop_when_the_group_may_not_be_read(broker: KbrokerProcess) -> None:
    with granted(broker.port, acl(g.GROUP, "g", g.READ)):
        member = Member(broker, "g")
        member.connection.close()
        member.connection = g.other(broker.port)
        member.alone()
        assert [member.heartbeat() for _ in range(4)] == [0] * 4
    assert [member.heartbeat() for _ in range(3)] == [NO_GROUP] * 3
    with granted(broker.port, acl(g.GROUP, "g", g.READ)):
        assert [member.heartbeat() for _ in range(3)] == [0] * 3
    member.connection.close()


def test_groups_are_told_in_the_order_they_were_asked_for(
    broker: KbrokerProcess, other: WireConnection
) -> None:
    """Those that may be seen and those that may not."""
    asked = [{"group_id": name, "topics": None} for name in ("x", "g", "y")]
    with granted(broker.port, acl(g.GROUP, "g", g.DESCRIBE)):
        told = other.call(OFFSET_FETCH, 8, {"groups": asked})["groups"]
    assert [(one["group_id"], one["error_code"]) for one in told] == [
        ("x", NO_GROUP), ("g", 0), ("y", NO_GROUP)
    ]  # fmt: skip


def test_a_transaction_wants_its_id_and_its_topics(
    broker: KbrokerProcess, other: WireConnection
) -> None:
    """And the partitions of a topic that may not be written are not added to it."""
    call_once(broker.port, FIND_COORDINATOR, 4, {"key_type": 1, "coordinator_keys": ["x"]})

    def init() -> dict[str, Any]:
        body = {"transactional_id": "x", "transaction_timeout": 60_000}
        return other.call(wire.INIT_PRODUCER_ID, 4, body)

    def transactional(*names: str) -> list[int]:
        batch = Batch(
            records=[Record(b"v")], producer_id=made["producer_id"], attributes=0x10,
            producer_epoch=made["producer_epoch"], base_sequence=0,
        ).encode()  # fmt: skip
        ids = [wire.topic_id(broker.port, name) for name in names]
        rows = [{"topic_id": one, "partition_data": [{"index": 1, "records": batch}]}
                for one in ids]  # fmt: skip
        body = {"transactional_id": "x", "acks": -1, "timeout": 30000, "topic_data": rows}
        answer = other.call(PRODUCE, 13, body)
        return [one["partition_responses"][0]["error_code"] for one in answer["responses"]]

    wire.create_topic(broker.port, "t2", 2)
    with granted(broker.port, acl(g.TRANSACTIONAL_ID, "x", g.WRITE)):
        made = wait_for("a producer", lambda: (a := init())["error_code"] == 0 and a, 60)
        assert transactional("t", "t2") == [NO_TOPIC, NO_TOPIC]
        with granted(broker.port, TOPIC_WRITE):
            assert transactional("t", "t2") == [0, NO_TOPIC]
            told = call_once(broker.port, 65, 0, {"transactional_ids": ["x"]})
            (state,) = told["transaction_states"]
            assert [(one["topic"], list(one["partitions"])) for one in state["topics"]] == [
                ("t", [1])
            ]  # fmt: skip
    with granted(broker.port, TOPIC_WRITE, acl(g.TOPIC, "t2", g.WRITE)):
        assert transactional("t", "t2") == [NO_ID, NO_ID]


def test_without_acks_the_connection_ends(broker: KbrokerProcess) -> None:
    with g.other(broker.port) as connection:
        rows = [{"name": "t", "partition_data": [{"index": 0, "records": BATCH}]}]
        connection.send(PRODUCE, 9, {"acks": 0, "timeout": 30000, "topic_data": rows})
        connection.wait_closed(60)


def test_the_audit_tells_of_what_was_denied_and_who_changed_what(broker: KbrokerProcess) -> None:
    name = f"secret-{os.getpid()}"
    with granted(broker.port, acl(g.TOPIC, name, g.READ)), g.other(broker.port) as connection:
        for _ in range(100):
            assert produce(connection, name) == [NO_TOPIC]

    def lines() -> list[dict[str, Any]]:
        found = [json.loads(one) for one in broker.log_text().splitlines() if one[:1] == "{"]
        return [one for one in found if one["logger"] == "kbroker.audit"]

    wait_for("the audit", lambda: any(one.get("name") == name for one in lines()), 60)
    denied = [one for one in lines() if one.get("name") == name]
    assert len(denied) < 50, "not each request"
    assert denied[0] | {"ts": "", "rule": ""} == {
        "ts": "", "rule": "", "level": "info", "logger": "kbroker.audit", "msg": "denied",
        "principal": g.NOBODY, "host": g.THERE, "api": "PRODUCE", "operation": "WRITE",
        "resource": "TOPIC", "name": name,
    }  # fmt: skip
    told = [one for one in lines() if name in one.get("acl", "")]
    assert [one["msg"] for one in told] == ["ACL created", "ACL deleted"]
    assert all(one["host"] == g.HERE for one in told)

    def count() -> int:
        return sum(one.get("name") == name for one in lines())

    before = count()
    with g.other(broker.port) as connection:

        def is_told(times: int) -> bool:
            assert produce(connection, name) == [NO_TOPIC]
            return count() >= before + times

        for times in (1, 2):
            wait_for("who goes on to be told of", lambda n=times: is_told(n), 60, 0.2)


def test_the_audit_tells_of_offsets_that_were_denied(broker: KbrokerProcess) -> None:
    name = f"unseen-{os.getpid()}"
    with g.other(broker.port) as connection:
        assert offsets(connection, name) == [NO_TOPIC]

    def lines() -> list[dict[str, Any]]:
        found = [json.loads(one) for one in broker.log_text().splitlines() if name in one]
        return [one for one in found if one["logger"] == "kbroker.audit"]

    wait_for("the audit", lines, 60)
    assert [(one["api"], one["operation"]) for one in lines()] == [("LIST_OFFSETS", "DESCRIBE")]


def test_acls_and_super_users_after_a_start(
    start_kbroker: Callable[..., KbrokerProcess]
) -> None:
    """Nobody may do anything until it is allowed; a super user needs no ACL."""
    standard = {"authorizer.class.name": g.STANDARD}
    broker = start_kbroker(standard | {"super.users": "User:ANONYMOUS"})
    wire.create_topic(broker.port, "t")
    g.create(broker.port, [TOPIC_WRITE])
    broker.settings = {key: value for key, value in broker.settings.items() if "super" not in key}
    broker.restart()
    with g.other(broker.port) as connection, WireConnection(broker.port) as here:
        assert produce(connection, "t") == [0] and produce(here, "t") == [NO_TOPIC]
    told = call_once(broker.port, g.DESCRIBE_ACLS, 3, g.EVERYTHING)
    assert told["error_code"] == 31
    broker.settings = {key: value for key, value in broker.settings.items() if "auth" not in key}
    broker.restart()
    with WireConnection(broker.port) as here:
        assert produce(here, "t") == [0], "without an authorizer everybody may"


def tool(broker: BrokerProcess, *words: str) -> str:
    return tool_output("acls", "--bootstrap-server", broker.bootstrap, *words)


def test_kafkas_own_tool_makes_acls(broker: KbrokerProcess) -> None:
    """kafka-acls tells what is there when it is done."""
    told = tool(
        broker, "--add", "--producer", "--topic", "odd", "--allow-principal", "User:CN=a, O=b ☃",
        "--transactional-id", "tx", "--resource-pattern-type", "prefixed",
    )  # fmt: skip
    assert told.count("principal=User:CN=a, O=b ☃") >= 5
    assert "resourceType=TOPIC, name=odd, patternType=PREFIXED" in told
    rows = {**g.EVERYTHING, "principal_filter": "User:CN=a, O=b ☃"}
    assert g.told(broker.port, rows) == 5
    call_once(broker.port, g.DELETE_ACLS, 3, {"filters": [rows]})


@pytest.mark.long
def test_kafkas_own_tool_lists_and_removes_acls(broker: KbrokerProcess) -> None:
    who = ("--allow-principal", "User:tool")
    tool(broker, "--add", "--consumer", "--topic", "a", "--group", "b", *who)
    tool(broker, "--add", "--operation", "All", "--cluster", "--deny-principal", "User:tool",
         "--deny-host", "10.1.2.3")  # fmt: skip
    told = tool(broker, "--list", "--principal", "User:tool")
    assert told.count("principal=User:tool") == 4
    assert "host=10.1.2.3, operation=ALL, permissionType=DENY" in told
    tool(broker, "--remove", "--force", "--consumer", "--topic", "a", "--group", "b", *who)
    tool(broker, "--remove", "--force", "--operation", "All", "--cluster", "--deny-principal",
         "User:tool", "--deny-host", "10.1.2.3")  # fmt: skip
    assert "User:tool" not in tool(broker, "--list")
