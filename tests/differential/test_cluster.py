"""The APIs about brokers: who they are, where the data is, who leads, what is being moved."""

from __future__ import annotations

import uuid
from typing import Any

from tests.differential.harness import Script, same


@same(range(5))
def test_api_versions(s: Script, version: int) -> None:
    """Each API that kbroker has, it has at Kafka's versions."""
    ours = {0, 1, 2, 3, 10, 18, 19, 20, 21, 22, 23, 29, 30, 31, 32, 33, 34, 35, 37, 43, 44,
            45, 46, 55, 57, 60, 64, 74, 75, 80, 81}  # fmt: skip

    def keep(answer: dict[str, Any]) -> dict[str, Any]:
        return {
            "error_code": answer["error_code"],
            "api_keys": [row for row in answer["api_keys"] if row["api_key"] in ours],
            **{field: answer[field] for field in ("supported_features", "finalized_features")
               if field in answer},
        }  # fmt: skip

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


@same((1, 2))
def test_alter_replica_log_dirs(s: Script, version: int) -> None:
    """Every replica is where it can be."""
    topic = s.topic(partitions=2)
    own = str(s.broker.data_dir)
    for path in (own, f"{own}/other", "relative", ""):
        topics = [{"name": topic, "partitions": [0, 1, 7]},
                  {"name": s.name("unknown"), "partitions": [0]},
                  {"name": "x" * 245, "partitions": [0]}]  # fmt: skip
        s.call(34, version, {"dirs": [{"path": path, "topics": topics}]})
    s.call(34, version, {"dirs": []})


@same(range(3))
def test_describe_quorum(s: Script, version: int) -> None:
    def ask(*topics: tuple[str, list[int]]) -> None:
        body = [{"topic_name": name, "partitions": [{"partition_index": one} for one in indexes]}
                for name, indexes in topics]  # fmt: skip
        s.call(55, version, {"topics": body}, keep=quorum)

    own = "__cluster_metadata"
    ask((own, [0]))
    ask((own, [1]))
    ask((own, [0, 0]))
    ask((own, [0]), (own, [0]))
    ask((s.name("t"), [0]), (own, [0]))
    ask()


def quorum(answer: dict[str, Any]) -> dict[str, Any]:
    """Offsets and times are each broker's own; so is the epoch of a controller. kbroker has no
    controller listener, and names none unless its settings do."""
    for topic in answer["topics"]:
        for part in topic["partitions"]:
            part["leader_epoch"] = part["leader_epoch"] > 0
            part["high_watermark"] = part["high_watermark"] > 0
            for replica in part["current_voters"]:
                replica["log_end_offset"] = replica["log_end_offset"] > 0
                replica["replica_directory_id"] = bool(replica.get("replica_directory_id"))
                for field in ("last_fetch_timestamp", "last_caught_up_timestamp"):
                    replica[field] = replica.get(field, -1) > 0
    for node in answer.get("nodes", ()):
        del node["listeners"]
    return answer


@same(range(3))
def test_update_features(s: Script, version: int) -> None:
    def update(*updates: tuple[str, int, int], **fields: Any) -> None:
        rows = [{"feature": name, "max_version_level": level,
                 **({"upgrade_type": kind} if version else {"allow_downgrade": kind > 1})}
                for name, level, kind in updates]  # fmt: skip
        s.call(57, version, {"feature_updates": rows, "timeout": 15000} | fields)

    update()
    update(("group.version", 1, 1), ("kraft.version", 1, 1), ("metadata.version", 30, 1))
    for bad in (("group.version", 0, 1), ("group.version", 2, 1), ("no.such", 1, 1),
                ("no.such", 0, 1), ("metadata.version", 31, 1), ("metadata.version", 29, 2),
                ("metadata.version", 29, 3), ("metadata.version", 3, 2), ("kraft.version", 0, 2),
                ("kraft.version", 0, 1), ("share.version", 1, 2), ("share.version", 1, 9),
                ("transaction.version", -1, 2)):  # fmt: skip
        update(bad)
        update(("streams.version", 1, 1), bad)
    if version:
        down = {"feature": "streams.version", "max_version_level": 0, "upgrade_type": 2}
        s.call(57, version, {"feature_updates": [down], "timeout": 15000, "validate_only": True})
        for kind, level in ((2, 0), (1, 1)):
            update(("streams.version", level, kind))
            s.until_feature("streams.version", level)


@same()
def test_unregister_what_is_not_there(s: Script, version: int) -> None:
    for node in (7, -1):
        s.call(64, 0, {"broker_id": node})


@same((0, 1))
def test_add_raft_voter(s: Script, version: int) -> None:
    ends = [{"name": "CONTROLLER", "host": "127.0.0.1", "port": 1}]
    directory = uuid.UUID(int=7)
    for node, place, cluster, listeners in (
        (1, directory, None, ends), (-1, directory, None, ends), (2, None, None, ends),
        (2, directory, "other", ends), (2, directory, None, []),
        (1, directory, None, [{"name": "ELSE", "host": "h", "port": 1}]),
    ):  # fmt: skip
        body = {"cluster_id": cluster, "timeout": 1000, "voter_id": node,
                "voter_directory_id": place, "listeners": listeners}  # fmt: skip
        s.call(80, version, body)


@same()
def test_remove_raft_voter(s: Script, version: int) -> None:
    for node, place, cluster in ((1, uuid.UUID(int=7), None), (2, uuid.UUID(int=7), None),
                                 (1, None, None), (-1, uuid.UUID(int=7), None),
                                 (1, uuid.UUID(int=7), "other")):  # fmt: skip
        s.call(81, 0, {"cluster_id": cluster, "voter_id": node, "voter_directory_id": place})


@same((0, 1))
def test_list_config_resources(s: Script, version: int) -> None:
    s.topic()

    def keep(answer: dict[str, Any]) -> dict[str, Any]:
        answer["config_resources"] = [
            one for one in answer["config_resources"]
            if one.get("resource_type") in (4, 8) or one["resource_name"].startswith(s.prefix)
        ]  # fmt: skip
        return answer

    for kind, key, value in ((16, "interval.ms", "1000"),
                             (32, "consumer.session.timeout.ms", "46000")):  # fmt: skip
        row = {"name": key, "config_operation": 0, "value": value}
        name = s.name(f"r{kind}")
        resource = {"resource_type": kind, "resource_name": name, "configs": [row]}
        s.call(44, 1, {"resources": [resource]})
        s.until_config(name, key, value, kind)
    if version == 0:
        s.call(74, 0, {}, keep=keep)
        return
    for kinds in ([], [2], [4], [8], [16], [32], [2, 4], [2, 2], [0], [2, 7], [127]):
        s.call(74, 1, {"resource_types": kinds}, keep=keep)


@same((1, 2, 3))
def test_acls_without_an_authorizer(s: Script, version: int) -> None:
    topic, alice = 2, "User:alice"
    wanted = {"resource_type_filter": 1, "resource_name_filter": None, "pattern_type_filter": 1,
              "principal_filter": None, "host_filter": None, "operation": 1,
              "permission_type": 1}  # fmt: skip
    s.call(29, version, wanted)
    made = {"resource_type": topic, "resource_name": "t", "resource_pattern_type": 3,
            "principal": alice, "host": "*", "operation": 3, "permission_type": 3}  # fmt: skip
    s.call(30, version, {"creations": [made, made | {"resource_name": ""}]})
    s.call(30, version, {"creations": []})
    s.call(31, version, {"filters": [wanted, wanted | {"principal_filter": alice}]})
    s.call(31, version, {"filters": []})
