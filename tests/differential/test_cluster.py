"""The APIs about brokers: who they are, where the data is, who leads, what is being moved."""

from __future__ import annotations

from typing import Any

from tests.differential.harness import Script, same


@same(range(5))
def test_api_versions(s: Script, version: int) -> None:
    """Each API that kbroker has, it has at Kafka's versions."""
    ours = {0, 1, 2, 3, 10, 18, 19, 20, 21, 22, 23, 32, 33, 35, 37, 43, 44, 45, 46, 60, 75}

    def keep(answer: dict[str, Any]) -> dict[str, Any]:
        return {
            "error_code": answer["error_code"],
            "api_keys": [row for row in answer["api_keys"] if row["api_key"] in ours],
        }

    names = {"client_software_name": "testbed", "client_software_version": "1.0"}
    s.call(18, version, names if version >= 3 else {}, keep=keep)


@same((3, 4))
def test_api_versions_with_bad_names(s: Script, version: int) -> None:
    for name, number in (("", "1"), ("a b", "1"), ("a", ""), ("a", "-1"), ("-a", "1"), ("a-", "1")):
        body = {"client_software_name": name, "client_software_version": number}
        s.call(18, version, body, keep=lambda answer: answer["error_code"])


@same(range(7))
def test_find_coordinator(s: Script, version: int) -> None:
    """This broker is the coordinator of each group and each transactional id."""
    for kind in (0, 1, 2, 3, -1) if version >= 1 else (0,):
        if version >= 4:
            s.until_coordinator(kind)
            s.call(10, version, {"key_type": kind, "coordinator_keys": ["a", "b", ""]})
            s.call(10, version, {"key_type": kind, "coordinator_keys": []})
        else:
            s.until_coordinator(kind)
            s.call(10, version, {"key": "a"} | ({"key_type": kind} if version >= 1 else {}))
            s.call(10, version, {"key": ""} | ({"key_type": kind} if version >= 1 else {}))


@same(range(3))
def test_describe_cluster(s: Script, version: int) -> None:
    s.call(60, version, {})
    s.call(60, version, {"include_cluster_authorized_operations": True})
    if version >= 1:
        s.call(60, version, {"endpoint_type": 2})
        s.call(60, version, {"endpoint_type": 0})
        s.call(60, version, {"endpoint_type": 7})
    if version >= 2:
        s.call(60, version, {"include_fenced_brokers": True})


@same()
def test_describe_topic_partitions(s: Script, version: int) -> None:
    first, second = s.topic("a", 3), s.topic("b", 2)
    both = [{"name": first}, {"name": second}]
    s.call(75, version, {"topics": both})
    for limit in (1, 2, 3, 4, 5, 100):
        s.call(75, version, {"topics": both, "response_partition_limit": limit})
    for limit in (0, -1):
        s.call(75, version, {"topics": both, "response_partition_limit": limit})
    for name, index in ((first, 1), (second, 0), (second, 1), (first, 9), (s.name("0"), 0)):
        cursor = {"topic_name": name, "partition_index": index}
        s.call(75, version, {"topics": both, "cursor": cursor})
    s.call(75, version, {"topics": both, "cursor": {"topic_name": first, "partition_index": -1}})
    s.call(75, version, {"topics": [{"name": s.name("unknown")}, {"name": first}]})
    s.call(75, version, {"topics": [{"name": s.name("bad name")}]})


@same(range(1, 6))
def test_describe_log_dirs(s: Script, version: int) -> None:
    topic = s.topic(partitions=2)
    s.produce(topic, s.batch(b"x" * 100))

    def keep(answer: dict[str, Any]) -> dict[str, Any]:
        for result in answer["results"]:
            result["topics"] = [t for t in result["topics"] if t["name"].startswith(s.prefix)]
        return answer

    s.call(35, version, {"topics": [{"topic": topic, "partitions": [0, 1]}]}, keep=keep)
    s.call(35, version, {"topics": [{"topic": topic, "partitions": [0, 9]}]}, keep=keep)
    s.call(35, version, {"topics": [{"topic": s.name("unknown"), "partitions": [0]}]}, keep=keep)
    s.call(35, version, {"topics": None}, keep=keep)
    s.call(35, version, {"topics": []}, keep=keep)


@same(range(3))
def test_elect_leaders(s: Script, version: int) -> None:
    """There is but one leader to have, and it leads already."""
    topic = s.topic(partitions=2)

    def elect(partitions: Any, kind: int = 0) -> None:
        body = {"topic_partitions": partitions, "timeout": 15000}
        s.call(43, version, body | ({"election_type": kind} if version >= 1 else {}))

    elect([{"topic": topic, "partitions": [0, 1]}])
    elect([{"topic": topic, "partitions": [0, 7]}])
    elect([{"topic": s.name("unknown"), "partitions": [0]}])
    elect([])
    if version >= 1:
        elect([{"topic": topic, "partitions": [0]}], 1)
        elect([{"topic": topic, "partitions": [0]}], 9)


@same((0, 1))
def test_alter_partition_reassignments(s: Script, version: int) -> None:
    topic = s.topic(partitions=2)

    def alter(name: str, index: int, replicas: list[int] | None) -> None:
        parts = [{"partition_index": index, "replicas": replicas}]
        s.call(45, version, {"topics": [{"name": name, "partitions": parts}], "timeout": 15000})

    for index, replicas in ((0, [1]), (0, None), (0, []), (0, [2]), (0, [1, 2]), (0, [1, 1]),
                            (9, [1]), (9, None), (0, [-1])):  # fmt: skip
        alter(topic, index, replicas)
    alter(s.name("unknown"), 0, [1])
    s.call(45, version, {"topics": [], "timeout": 15000})


@same()
def test_list_partition_reassignments(s: Script, version: int) -> None:
    topic = s.topic()
    for topics in (
        None, [], [{"name": topic, "partition_indexes": [0]}],
        [{"name": topic, "partition_indexes": [5]}],
        [{"name": s.name("unknown"), "partition_indexes": [0]}],
    ):  # fmt: skip
        s.call(46, version, {"topics": topics, "timeout": 15000})
