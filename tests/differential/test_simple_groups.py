"""Committed offsets without members: OffsetCommit, OffsetFetch, OffsetDelete, and the APIs that
list, describe and delete groups."""

from __future__ import annotations

from typing import Any

from tests.differential.harness import Script, same
from tests.support.messages import ZERO_UUID
from tests.support.waits import wait_for

COMMIT, FETCH, DESCRIBE, LIST, DELETE, OFFSET_DELETE, CONFIGS = 8, 9, 15, 16, 42, 47, 44
BUSY = (14, 15, 16)
GROUP = 32

Parts = dict[int, tuple[int, str | None]]


def commit_body(
    s: Script, version: int, group: str, topics: dict[str, Parts], **fields: Any
) -> dict[str, Any]:
    """A commit of {topic: {partition: (offset, metadata)}}."""
    epoch = {"committed_leader_epoch": 0} if version >= 6 else {}
    body = {
        "group_id": group, "generation_id_or_member_epoch": -1, "member_id": "",
        "topics": [
            named(s, version, topic)
            | {
                "partitions": [
                    {"partition_index": index, "committed_offset": offset,
                     "committed_metadata": metadata} | epoch
                    for index, (offset, metadata) in parts.items()
                ]
            }
            for topic, parts in topics.items()
        ],
    }  # fmt: skip
    if version <= 4:
        body["retention_time"] = -1
    if version >= 7:
        body["group_instance_id"] = None
    return body | fields


def named(s: Script, version: int, topic: str) -> dict[str, Any]:
    if version < 10:
        return {"name": topic}
    known = {s.name(short[6:]): topic_id for topic_id, short in s.ids.items()}
    return {"topic_id": known.get(topic, ZERO_UUID)}


def ready(s: Script, *groups: str) -> None:
    """Waits until the coordinators of these groups are there, silently."""
    s.until_coordinator(0)

    def is_ready() -> bool:
        answer = s.connection.call(DESCRIBE, 5, {"groups": list(groups)})
        return all(one["error_code"] not in BUSY for one in answer["groups"])

    wait_for("the coordinators", is_ready, 30)


def fetch_all(s: Script, version: int, *groups: str) -> None:
    if version >= 8:
        member = {"member_id": None, "member_epoch": -1} if version >= 9 else {}
        asked = [{"group_id": group, "topics": None} | member for group in groups]
        s.call(FETCH, version, {"groups": asked, "require_stable": False})
    elif version >= 2:
        stable = {"require_stable": False} if version >= 7 else {}
        for group in groups:
            s.call(FETCH, version, {"group_id": group, "topics": None} | stable)


def fetch_some(s: Script, version: int, group: str, topics: dict[str, list[int]]) -> None:
    asked = [
        named(s, version, topic) | {"partition_indexes": parts} for topic, parts in topics.items()
    ]
    stable = {"require_stable": True} if version >= 7 else {}
    if version >= 8:
        member = {"member_id": None, "member_epoch": -1} if version >= 9 else {}
        body: dict[str, Any] = {"groups": [{"group_id": group, "topics": asked} | member]}
    else:
        body = {"group_id": group, "topics": asked}
    s.call(FETCH, version, body | stable)


@same(range(2, 11))
def test_commit(s: Script, version: int) -> None:
    """What is there, what is not, metadata of every kind, and the same again."""
    a, b, gone = s.topic("a", 2), s.topic("b"), s.name("gone")
    group = s.name("g")
    ready(s, group)
    parts: Parts = {0: (5, None), 1: (6, ""), 2: (7, "there is no such partition")}
    s.call(COMMIT, version, commit_body(s, version, group, {a: parts, gone: {0: (1, "")}}))
    fetch_all(s, 8, group)
    long: Parts = {0: (8, "x" * 4096), 1: (9, "x" * 4097)}
    s.call(COMMIT, version, commit_body(s, version, group, {a: long, b: {0: (-1, "minus")}}))
    s.call(COMMIT, version, commit_body(s, version, group, {gone: {0: (1, ""), 1: (2, "")}}))
    s.call(COMMIT, version, commit_body(s, version, group, {}))
    s.call(COMMIT, version, commit_body(s, version, group, {a: {}}))
    fetch_all(s, 8, group)


@same((2, 3, 4))
def test_commit_with_a_retention_time(s: Script, version: int) -> None:
    """Any number will do; what has expired goes some time later."""
    topic, group = s.topic("a"), s.name("g")
    ready(s, group)
    for retention_ms in (0, -2, 10**17, 2**63 - 1, -(2**63)):
        body = commit_body(s, version, group, {topic: {0: (1, "")}}, retention_time=retention_ms)
        s.call(COMMIT, version, body)
        fetch_all(s, 8, group)


@same((2, 5, 8, 9, 10))
def test_commit_of_strangers(s: Script, version: int) -> None:
    """Members and generations that no group knows."""
    topic = s.topic("a")
    new, old = s.name("new"), s.name("old")
    ready(s, new, old)
    s.call(COMMIT, 8, commit_body(s, 8, old, {topic: {0: (1, "")}}))
    for group in (new, old):
        for generation, member in ((0, ""), (1, "m"), (-1, "m")):
            fields: dict[str, Any] = {
                "generation_id_or_member_epoch": generation, "member_id": member,
            }  # fmt: skip
            body = commit_body(s, version, group, {topic: {0: (9, "")}}, **fields)
            s.call(COMMIT, version, body)
            if version >= 7:
                s.call(COMMIT, version, body | {"group_instance_id": "i"})
    fetch_all(s, 8, old)


@same(range(1, 11))
def test_fetch(s: Script, version: int) -> None:
    """Some, all, none; groups and topics that are not there."""
    a, b, gone = s.topic("a", 3), s.topic("b"), s.name("gone")
    group, nobody = s.name("g"), s.name("nobody")
    ready(s, group, nobody, "")
    commits: dict[str, Parts] = {a: {0: (5, "m"), 2: (7, None)}, b: {0: (2**62, "")}}
    s.call(COMMIT, 8, commit_body(s, 8, group, commits))
    fetch_all(s, version, group, nobody, "")
    for one in (group, nobody, ""):
        fetch_some(s, version, one, {a: [0, 1, 2, 9], b: [0], gone: [0, 1]})
        fetch_some(s, version, one, {})


@same((0,))
def test_the_empty_group_id(s: Script, version: int) -> None:
    """It is a group like others for commits, and none for OffsetDelete."""
    topic = s.topic("a")
    ready(s, "")
    s.call(COMMIT, 8, commit_body(s, 8, "", {topic: {0: (3, "")}}))
    fetch_some(s, 8, "", {topic: [0]})
    delete_offsets(s, "", {topic: [0]})
    s.call(DESCRIBE, 6, {"groups": [""], "include_authorized_operations": False})
    s.call(DELETE, 2, {"groups_names": [""]})
    fetch_some(s, 8, "", {topic: [0]})


def delete_offsets(s: Script, group: str, topics: dict[str, list[int]]) -> None:
    asked = [
        {"name": topic, "partitions": [{"partition_index": index} for index in parts]}
        for topic, parts in topics.items()
    ]
    s.call(OFFSET_DELETE, 0, {"group_id": group, "topics": asked})


@same((0,))
def test_offset_delete(s: Script, version: int) -> None:
    a, b, gone = s.topic("a", 2), s.topic("b"), s.name("gone")
    group, nobody = s.name("g"), s.name("nobody")
    ready(s, group, nobody)
    s.call(COMMIT, 8, commit_body(s, 8, group, {a: {0: (1, ""), 1: (2, "")}, b: {0: (3, "")}}))
    delete_offsets(s, nobody, {a: [0], gone: [0]})
    delete_offsets(s, group, {a: [0, 7], gone: [0, 1]})
    delete_offsets(s, group, {a: [0, 1], b: []})
    delete_offsets(s, group, {})
    fetch_all(s, 8, group)


@same(range(7))
def test_describe(s: Script, version: int) -> None:
    group, nobody = s.name("g"), s.name("nobody")
    topic = s.topic("a")
    ready(s, group, nobody)
    s.call(COMMIT, 8, commit_body(s, 8, group, {topic: {0: (1, "")}}))
    wanted = (False, True) if version >= 3 else (None,)
    for told in wanted:
        fields = {} if told is None else {"include_authorized_operations": told}
        s.call(DESCRIBE, version, {"groups": [group, nobody]} | fields)
        s.call(DESCRIBE, version, {"groups": []} | fields)


@same(range(6))
def test_list(s: Script, version: int) -> None:
    topic = s.topic("a")
    groups = [s.name(short) for short in ("g", "h")]
    ready(s, *groups)
    for group in groups:
        s.call(COMMIT, 8, commit_body(s, 8, group, {topic: {0: (1, "")}}))

    def own(answer: dict[str, Any]) -> dict[str, Any]:
        mine = [one for one in answer["groups"] if one["group_id"] in groups]
        return answer | {"groups": sorted(mine, key=lambda one: one["group_id"])}

    states: tuple[list[str], ...] = ([], ["Empty"], [" eMPTY ", "x"], ["Stable"], ["Nonsense"])
    types: tuple[list[str], ...] = ([], ["classic"], ["CONSUMER", "x"], ["x"])
    for state in states if version >= 4 else states[:1]:
        for kind in types if version >= 5 else types[:1]:
            body = ({"states_filter": state} if version >= 4 else {}) | (
                {"types_filter": kind} if version >= 5 else {}
            )
            s.call(LIST, version, body, keep=own)


@same(range(3))
def test_delete(s: Script, version: int) -> None:
    topic = s.topic("a")
    group, nobody = s.name("g"), s.name("nobody")
    ready(s, group, nobody)
    s.call(COMMIT, 8, commit_body(s, 8, group, {topic: {0: (1, "")}}))
    s.call(DELETE, version, {"groups_names": [group, nobody, group]})
    s.call(DELETE, version, {"groups_names": [group]})
    s.call(DELETE, version, {"groups_names": []})
    fetch_all(s, 8, group)
    s.call(DESCRIBE, 6, {"groups": [group], "include_authorized_operations": False})


@same((0, 1))
def test_group_configs(s: Script, version: int) -> None:
    """What may be set on a group, within the broker's bounds."""
    session, beat = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
    for changes in (
        {session: "50000", beat: "6000"}, {session: "44999"}, {session: "60001"}, {beat: "4999"},
        {beat: "15001"}, {session: "x"}, {"consumer.nonsense": "1"}, {"session.timeout.ms": "1"},
        {"share.session.timeout.ms": "1"}, {"streams.num.standby.replicas": "3"},
        {"consumer.assignment.interval.ms": "15001"}, {"share.delivery.count.limit": "1"},
        {"share.isolation.level": "x"}, {"streams.session.timeout.ms": "50000"},
    ):  # fmt: skip
        configs = [
            {"name": name, "config_operation": 0, "value": value}
            for name, value in changes.items()
        ]
        resource = {"resource_type": GROUP, "resource_name": s.name("g"), "configs": configs}
        s.call(CONFIGS, version, {"resources": [resource], "validate_only": False})


@same((7, 8, 10))
def test_a_group_name_too_long(s: Script, version: int) -> None:
    """More than a string of the protocol may hold."""
    topic = s.topic("a")
    ready(s, s.name("g"))
    for length in (32_767, 32_768, 100_000) if version >= 8 else (32_767,):
        s.call(COMMIT, version, commit_body(s, version, "x" * length, {topic: {0: (1, "")}}))
