"""What coordinators of groups have to bear: sizes, names, floods, the loss of their topic."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.support import wire
from tests.support.kbroker import KbrokerProcess
from tests.support.state_damage import check_is_told, flip
from tests.support.waits import wait_for
from tests.support.wire import FIND_COORDINATOR, WireConnection, call_once

OFFSET_COMMIT, OFFSET_FETCH, JOIN_GROUP, LIST_GROUPS = 8, 9, 11, 16
NOT_COORDINATOR, MEMBER_ID_REQUIRED = 16, 79


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., KbrokerProcess]]:
    """A kbroker with a topic `t` of two partitions and coordinators."""
    made: list[KbrokerProcess] = []

    def run(**settings: str) -> KbrokerProcess:
        named = {name.replace("_", "."): value for name, value in settings.items()}
        made.append(KbrokerProcess(tmp_path, named))
        made[0].start()
        wire.create_topic(made[0].port, "t", 2)
        find(made[0])
        return made[0]

    yield run
    for broker in made:
        broker.kill()


def find(broker: KbrokerProcess) -> None:
    call_once(broker.port, FIND_COORDINATOR, 4, {"key_type": 0, "coordinator_keys": ["g"]})


def commit(group: str, topics: dict[str, dict[int, int]]) -> dict[str, Any]:
    """The body of an OffsetCommit 8."""
    return {
        "group_id": group, "generation_id_or_member_epoch": -1, "member_id": "",
        "group_instance_id": None,
        "topics": [
            {
                "name": topic,
                "partitions": [
                    {"partition_index": index, "committed_offset": offset,
                     "committed_leader_epoch": -1, "committed_metadata": ""}
                    for index, offset in parts.items()
                ],
            }
            for topic, parts in topics.items()
        ],
    }  # fmt: skip


def codes(answer: dict[str, Any]) -> list[int]:
    return [one["error_code"] for topic in answer["topics"] for one in topic["partitions"]]


def fetched(connection: WireConnection, group: str) -> dict[tuple[str, int], int]:
    asked = [{"group_id": group, "topics": None}]
    (found,) = connection.call(OFFSET_FETCH, 8, {"groups": asked, "require_stable": True})["groups"]
    assert found["error_code"] == 0
    return {
        (topic["name"], one["partition_index"]): one["committed_offset"]
        for topic in found["topics"]
        for one in topic["partitions"]
    }


def join(group: str, member: str = "", instance: str | None = None) -> dict[str, Any]:
    """The body of a JoinGroup 5."""
    return {
        "group_id": group, "session_timeout": 30_000, "rebalance_timeout": 60_000,
        "member_id": member, "group_instance_id": instance, "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"x" * 100}],
    }  # fmt: skip


def rss_kib(broker: KbrokerProcess) -> int:
    assert broker.process is not None
    status = Path(f"/proc/{broker.process.pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0])


@pytest.mark.long
def test_a_hundred_thousand_topics_in_one_commit(start) -> None:
    """Each is answered, and nothing of it stays."""
    broker = start()
    with WireConnection(broker.port, timeout_s=60) as connection:
        assert codes(connection.call(OFFSET_COMMIT, 8, commit("g", {"t": {0: 5}}))) == [0]
        body = commit("g", {f"topic-{n}": {0: 1} for n in range(100_000)} | {"t": {1: 6, 7: 7}})
        before = rss_kib(broker)
        assert sorted(codes(connection.call(OFFSET_COMMIT, 8, body))) == [0] + [3] * 100_001
        assert rss_kib(broker) < before + 192 * 1024
        assert fetched(connection, "g") == {("t", 0): 5, ("t", 1): 6}


NAMES = ("", " ", "a\0b", "../../etc", "x" * 32_767, "\N{PILE OF POO}" * 8_191, "\r\n", "é",
         "e\u0301", "%s", "__consumer_offsets", "\ufeff", "a/b:c", "\x7f")  # fmt: skip


def test_group_names_of_every_kind(start) -> None:
    """Java's hash decides where they are; they are found again, one by one, after a restart too."""
    broker = start()
    for turn in range(2):
        with WireConnection(broker.port, timeout_s=60) as connection:
            for number, name in enumerate(NAMES):
                if not turn:
                    body = commit(name, {"t": {0: number}})
                    assert codes(connection.call(OFFSET_COMMIT, 8, body)) == [0]
                wait_for("it is loaded", lambda c=connection, n=name: not group_error(c, n), 60)
                assert fetched(connection, name) == {("t", 0): number}
            filters: dict[str, Any] = {"states_filter": [], "types_filter": []}
            listed = connection.call(LIST_GROUPS, 5, filters)["groups"]
            assert sorted(one["group_id"] for one in listed) == sorted(NAMES)
        broker.kill()
        broker.start()


def group_error(connection: WireConnection, group: str) -> int:
    asked = [{"group_id": group, "topics": []}]
    answer = connection.call(OFFSET_FETCH, 8, {"groups": asked, "require_stable": False})
    return int(answer["groups"][0]["error_code"])


Waiting = list[tuple[WireConnection, int]]


def parked(stack: ExitStack, broker: KbrokerProcess, count: int) -> Waiting:
    """Members that wait for an initial rebalance that takes a minute, and their correlation ids."""
    waiting = []
    for number in range(count):
        connection = stack.enter_context(WireConnection(broker.port))
        group, instance = f"group-{number}", f"instance-{number}"
        waiting.append((connection, connection.send(JOIN_GROUP, 5, join(group, "", instance))))
    return waiting


def test_whoever_waits_is_told_when_the_topic_goes(start) -> None:
    broker = start(group_initial_rebalance_delay_ms="60000")
    with ExitStack() as stack, WireConnection(broker.port) as other:
        assert codes(other.call(OFFSET_COMMIT, 8, commit("g", {"t": {0: 1}}))) == [0]
        waiting = parked(stack, broker, 5)
        wait_for("they wait", lambda: len(listed(other)) == 6, 60)
        deleted = {"topics": [{"name": "__consumer_offsets"}], "timeout": 10_000}
        assert other.call(wire.DELETE_TOPICS, 6, deleted)["responses"][0]["error_code"] == 0
        for connection, number in waiting:
            assert connection.receive(JOIN_GROUP, 5, number)["error_code"] == NOT_COORDINATOR
        assert codes(other.call(OFFSET_COMMIT, 8, commit("g", {"t": {0: 1}}))) == [NOT_COORDINATOR]
        find(broker)
        assert fetched(other, "g") == {}
        assert codes(other.call(OFFSET_COMMIT, 8, commit("g", {"t": {0: 2}}))) == [0]


def listed(connection: WireConnection) -> list[str]:
    body: dict[str, Any] = {"states_filter": [], "types_filter": []}
    return [one["group_id"] for one in connection.call(LIST_GROUPS, 5, body)["groups"]]


def test_a_stop_does_not_wait_for_members(start) -> None:
    broker = start(group_initial_rebalance_delay_ms="60000")
    with ExitStack() as stack, WireConnection(broker.port) as other:
        waiting = parked(stack, broker, 5)
        wait_for("they wait", lambda: len(listed(other)) == 5, 60)
        began = time.monotonic()
        broker.stop()
        assert time.monotonic() - began < 30
        for connection, number in waiting:
            assert connection.receive(JOIN_GROUP, 5, number)["error_code"] == NOT_COORDINATOR


def test_a_member_that_floods_joins(start) -> None:
    """Thousands of joins on one connection: others are served, and little of it stays."""
    broker = start()
    with WireConnection(broker.port) as flood, WireConnection(broker.port) as other:
        rounds = 5
        before = 0
        for turn in range(rounds):
            numbers = [flood.send(JOIN_GROUP, 5, join("flooded")) for _ in range(2_000)]
            assert codes(other.call(OFFSET_COMMIT, 8, commit("g", {"t": {0: turn}}))) == [0]
            answers = [flood.receive(JOIN_GROUP, 5, number) for number in numbers]
            assert {one["error_code"] for one in answers} == {MEMBER_ID_REQUIRED}
            before = before or rss_kib(broker)
        assert rss_kib(broker) < before + 64 * 1024
        assert fetched(other, "g") == {("t", 0): rounds - 1}


def test_a_flipped_byte_costs_no_more_than_its_batch(
    start: Callable[..., KbrokerProcess], capsys: pytest.CaptureFixture[str]
) -> None:
    """Of two groups of one partition the first one's only commit is damaged: it has none, the other
    one goes on, and the damage is told wherever somebody looks."""
    broker = start(offsets_topic_num_partitions="1")
    for group in ("hit", "sound"):
        assert codes(call_once(broker.port, OFFSET_COMMIT, 8, commit(group, {"t": {0: 5}}))) == [0]
    assert broker.stop() == 0
    (log,) = broker.data_dir.glob("__consumer_offsets-0/*.log")
    flip(log, 70)
    broker.start()
    with WireConnection(broker.port) as connection:
        wait_for(
            "the groups are loaded",
            lambda: connection.call(LIST_GROUPS, 4, {"states_filter": []})["error_code"] == 0,
            10,
        )
        told = connection.call(LIST_GROUPS, 4, {"states_filter": []})
        assert [one["group_id"] for one in told["groups"]] == ["sound"]
        assert fetched(connection, "hit") == {}
        assert fetched(connection, "sound") == {("t", 0): 5}
        assert codes(connection.call(OFFSET_COMMIT, 8, commit("hit", {"t": {1: 6}}))) == [0]
        assert fetched(connection, "hit") == {("t", 1): 6}
    check_is_told(broker, capsys, "group", log)
    with WireConnection(broker.port) as connection:
        assert fetched(connection, "hit") == {("t", 1): 6}
