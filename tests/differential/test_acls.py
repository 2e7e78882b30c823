"""Who may do what: each API with each right, beside Apache Kafka 4.3.

Every request is sent by a client that has one right, or a few; the answers of both brokers must be
the same. Requests change nothing that another one sees.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.differential.harness import Answer, Differ, Script
from tests.support import guarded as g
from tests.support.fixtures import SESSION_SETTINGS, _need_kbroker, _running
from tests.support.guarded import Row, acl
from tests.support.kafka import KafkaProcess
from tests.support.kbroker import KbrokerProcess
from tests.support.wire import create_topic, topic_id

pytestmark = pytest.mark.timeout(900)

TOPIC, GROUP, TXN = "there", "g", "x"
_SETTINGS = {**SESSION_SETTINGS, **g.SETTINGS}
_ids: dict[int, uuid.UUID] = {}
_named: dict[int, dict[uuid.UUID, str]] = {}


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Differ]:
    """Kafka and kbroker with an authorizer, alike but for topic ids."""
    _need_kbroker()
    kafka = KafkaProcess(tmp_path_factory.mktemp("guarded-kafka"), _SETTINGS)
    kbroker = KbrokerProcess(tmp_path_factory.mktemp("guarded"), _SETTINGS)
    for one in _running(kafka):
        for other in _running(kbroker):
            for broker in (one, other):
                g.guard(broker)
                create_topic(broker.port, TOPIC)
                _ids[broker.port] = topic_id(broker.port, TOPIC)
                script = Script(broker, "", 0)
                script.until_coordinator(0)
                script.until_coordinator(1)
                script.producer_id()
                names = (TOPIC, "__consumer_offsets", "__transaction_state")
                _named[broker.port] = {topic_id(broker.port, name): name for name in names}
                script.close()
            yield Differ(one, other)


# --- requests: what they ask of TOPIC, GROUP and TXN, and of others that are not there -----------

Case = tuple[int, int, Callable[[Script], Answer], Callable[[Answer], Any] | None]

_PART = {"partition_index": 0}


def _codes(answer: Answer) -> Any:
    return answer.get("error_code")


def _config_codes(answer: Answer) -> Any:
    return [{**one, "configs": bool(one["configs"])} for one in answer["results"]]


def _of_ours(answer: Answer) -> Any:
    names = (GROUP,)
    return [one for one in answer["groups"] if one["group_id"] in names]


def _offsets(by_id: bool) -> Callable[[Script], Answer]:
    def body(s: Script) -> Answer:
        part = {"partition_index": 0, "committed_offset": 5, "committed_leader_epoch": -1,
                "committed_metadata": ""}  # fmt: skip
        topics = [{"topic_id": _ids[s.broker.port]}, {"topic_id": uuid.UUID(int=7)}]
        named = [{"name": TOPIC}, {"name": "missing"}]
        return {
            "group_id": GROUP, "generation_id_or_member_epoch": -1, "member_id": "",
            "topics": [{**one, "partitions": [part]} for one in (topics if by_id else named)],
        }  # fmt: skip

    return body


def _fetched(version: int, null: bool = False) -> Callable[[Script], Answer]:
    def body(s: Script) -> Answer:
        topics: Any = [{"name": name, "partition_indexes": [0]} for name in (TOPIC, "missing")]
        if version >= 10:
            ids = (_ids[s.broker.port], uuid.UUID(int=7))
            topics = [{"topic_id": one, "partition_indexes": [0]} for one in ids]
        topics = None if null else topics
        if version < 8:
            return {"group_id": GROUP, "topics": topics}
        group = {"topics": topics} | ({"member_epoch": -1} if version >= 9 else {})
        return {"groups": [{"group_id": GROUP, **group}, {"group_id": "h", **group}]}

    return body


def _two(field: str = "name", **more: Any) -> list[Row]:
    return [{field: name, **more} for name in (TOPIC, "missing")]


def _produce(version: int, **batch: Any) -> Callable[[Script], Answer]:
    def body(s: Script) -> Answer:
        data = s.batch(b"v", **batch)
        if version >= 13:
            parts = [{"index": 0, "records": data}]
            names: Any = (_ids[s.broker.port], uuid.UUID(int=7))
            rows = [{"topic_id": one, "partition_data": parts} for one in names]
            return {"acks": -1, "timeout": 10000, "topic_data": rows}
        return s.produce_body({TOPIC: {0: data}, "missing": {0: data}}, version)

    return body


def _transactional(s: Script) -> Answer:
    body = _produce(9, producer_id=12345, producer_epoch=0, base_sequence=0, attributes=0x10)(s)
    return {**body, "transactional_id": TXN}


def _fetch(version: int, **more: Any) -> Callable[[Script], Answer]:
    def body(s: Script) -> Answer:
        part = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1}
        part |= {"current_leader_epoch": -1} if version >= 9 else {}
        names = [{"topic": TOPIC}, {"topic": "missing"}]
        ids = [{"topic_id": _ids[s.broker.port]}, {"topic_id": uuid.UUID(int=7)}]
        rows = [{**one, "partitions": [part]} for one in (ids if version >= 13 else names)]
        asked = {"max_wait": 0, "min_bytes": 0, "topics": rows, **more}
        return asked | ({"replica_id": -1} if version < 15 and "replica_id" not in more else {})

    return body


def _by_id(s: Script) -> Answer:
    ids = (_ids[s.broker.port], uuid.UUID(int=7))
    return {
        "topics": [{"topic_id": one, "name": None} for one in ids],
        "allow_auto_topic_creation": False, "include_topic_authorized_operations": True,
    }  # fmt: skip


def _settings(kind: int, name: str, key: str, incremental: bool) -> Row:
    config = {"name": key, "value": "1000"} | ({"config_operation": 0} if incremental else {})
    return {"resource_type": kind, "resource_name": name, "configs": [config]}


def _alter_configs(incremental: bool) -> Answer:
    rows = [
        (2, TOPIC, "retention.ms"), (2, "missing", "retention.ms"), (2, TOPIC + "x", "no.such"),
        (4, "", "background.threads"), (4, "7", "background.threads"),
        (32, GROUP, "consumer.session.timeout.ms"), (16, "m", "interval.ms"), (99, "u", "k"),
    ]  # fmt: skip
    asked = [_settings(*row, incremental) for row in rows]
    if incremental:
        asked.append(_settings(8, "1", "no.such.logger", True))
    return {"resources": asked, "validate_only": True}


def _fixed(body: Answer) -> Callable[[Script], Answer]:
    return lambda _: body


_FULL = {"include_topic_authorized_operations": True, "allow_auto_topic_creation": False}
_WHOLE = {"include_cluster_authorized_operations": True}
_MEMBER = {"group_id": GROUP, "generation_id": 3, "member_id": "nobody"}
_PRODUCER = {"producer_id": 12345, "producer_epoch": 0}
_MARKER = {"producer_id": 9, "producer_epoch": 0, "transaction_result": False,
           "coordinator_epoch": 0}  # fmt: skip
_NEW = {"num_partitions": 1, "replication_factor": 1, "configs": [], "assignments": []}
_STRANGE = acl(g.TOPIC, "strange", g.READ, principal="User:x", host="h")
_HERS = {**g.EVERYTHING, "host_filter": g.THERE, "resource_type_filter": 2}


def _plain(api: int, version: int, body: Answer, keep: Any = None) -> Case:
    return api, version, _fixed(body), keep


CASES: dict[str, Case] = {
    "produce": (0, 9, _produce(9), None),
    "produce by id": (0, 13, _produce(13), None),
    "produce transactional": (0, 9, _transactional, None),
    "fetch": (1, 11, _fetch(11), None),
    "fetch by id": (1, 16, _fetch(16), None),
    "fetch as a follower": (1, 11, _fetch(11, replica_id=2), None),
    "list offsets": _plain(2, 7, {
        "replica_id": -1, "topics": _two(partitions=[{**_PART, "timestamp": -2}])}),
    "metadata": _plain(3, 12, {"topics": _two(), **_FULL}),
    "metadata of all": _plain(3, 12, {"topics": None, **_FULL}),
    "metadata v1 of all": _plain(3, 1, {"topics": None}),
    "metadata of the cluster": _plain(3, 9, {"topics": [], **_FULL, **_WHOLE}),
    "metadata by id": (3, 12, _by_id, None),
    "commit": (8, 8, _offsets(False), None),
    "commit by id": (8, 10, _offsets(True), None),
    "committed v1": (9, 1, _fetched(1), None),
    "committed": (9, 7, _fetched(7), None),
    "committed of all": (9, 7, _fetched(7, null=True), None),
    "committed of groups": (9, 9, _fetched(9), None),
    "committed of groups, all": (9, 10, _fetched(10, null=True), None),
    "committed by id": (9, 10, _fetched(10), None),
    "find a group v3": _plain(10, 3, {"key": GROUP, "key_type": 0}),
    "find groups": _plain(10, 4, {"coordinator_keys": [GROUP, "h"], "key_type": 0}),
    "find a transaction v3": _plain(10, 3, {"key": TXN, "key_type": 1}),
    "find transactions": _plain(10, 4, {"coordinator_keys": [TXN, "y"], "key_type": 1}),
    "join": _plain(11, 7, {
        "group_id": "gj", "session_timeout": 10000, "rebalance_timeout": 10000, "member_id": "",
        "protocol_type": "consumer", "protocols": [{"name": "range", "metadata": b""}]}),
    "heartbeat": _plain(12, 4, _MEMBER),
    "leave v1": _plain(13, 1, {"group_id": GROUP, "member_id": "nobody"}),
    "leave": _plain(13, 4, {"group_id": GROUP, "members": [
        {"member_id": "nobody", "group_instance_id": None}]}),
    "sync": _plain(14, 5, {
        **_MEMBER, "protocol_type": "consumer", "protocol_name": "range", "assignments": []}),
    "sync without a protocol": _plain(14, 5, {
        **_MEMBER, "protocol_type": None, "protocol_name": None, "assignments": []}),
    "describe groups": _plain(15, 5, {
        "groups": [GROUP, "h"], "include_authorized_operations": True}),
    "list groups": _plain(16, 4, {"states_filter": []}, _of_ours),
    "create topics": _plain(19, 7, {
        "topics": [{"name": name, **_NEW} for name in (TOPIC, "new", "two", "two")],
        "timeout": 10000, "validate_only": True}),
    "delete topics": _plain(20, 5, {"topic_names": ["missing"], "timeout": 10000}),
    "delete topics by id": _plain(20, 6, {"timeout": 10000, "topics": [
        {"name": None, "topic_id": uuid.UUID(int=7)}, {"name": "missing", "topic_id": None}]}),
    "delete records": _plain(21, 2, {
        "topics": _two(partitions=[{**_PART, "offset": 0}]), "timeout": 10000}),
    "init a producer": _plain(22, 4, {"transactional_id": None, "transaction_timeout": 60000}),
    "epochs": _plain(23, 4, {"replica_id": -1, "topics": _two("topic", partitions=[
        {"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}])}),
    "add partitions": _plain(24, 3, {
        "v3_and_below_transactional_id": TXN, "v3_and_below_producer_id": 12345,
        "v3_and_below_producer_epoch": 0, "v3_and_below_topics": _two(partitions=[0])}),
    "add one partition": _plain(24, 3, {
        "v3_and_below_transactional_id": TXN, "v3_and_below_producer_id": 12345,
        "v3_and_below_producer_epoch": 0, "v3_and_below_topics": _two(partitions=[0])[:1]}),
    "verify partitions": _plain(24, 4, {"transactions": [
        {"transactional_id": TXN, **_PRODUCER, "verify_only": True,
         "topics": _two(partitions=[0])[:1]}]}),
    "add offsets": _plain(25, 3, {"transactional_id": TXN, **_PRODUCER, "group_id": GROUP}),
    "end": _plain(26, 3, {"transactional_id": TXN, **_PRODUCER, "committed": True}),
    "markers": _plain(27, 1, {"markers": [
        {**_MARKER, "topics": [{"name": "missing", "partition_indexes": [0, 1]}]}]}),
    "commit in a transaction": _plain(28, 3, {
        "transactional_id": TXN, "group_id": GROUP, **_PRODUCER, "generation_id": -1,
        "member_id": "", "group_instance_id": None, "topics": _two(partitions=[
            {**_PART, "committed_offset": 1, "committed_leader_epoch": -1,
             "committed_metadata": ""}])}),
    "describe acls": _plain(29, 3, _HERS),
    "create acls": _plain(30, 3, {"creations": [_STRANGE, {**_STRANGE, "principal": "x"}]}),
    "delete acls": _plain(31, 3, {"filters": [g.the_filter(_STRANGE)]}),
    "describe configs": _plain(32, 4, {"resources": [
        {"resource_type": kind, "resource_name": name, "configuration_keys": None}
        for kind, name in ((2, TOPIC), (2, "missing"), (4, "1"), (8, "1"), (32, GROUP), (16, "m"))
    ]}, _config_codes),
    "alter configs": _plain(33, 2, _alter_configs(False)),
    "alter log dirs": _plain(34, 2, {"dirs": [
        {"path": "/none", "topics": _two(partitions=[0])}]}),
    "describe log dirs": _plain(35, 4, {"topics": None}, _codes),
    "create partitions": _plain(37, 3, {
        "topics": _two(count=5, assignments=None), "timeout": 10000, "validate_only": True}),
    "delete groups": _plain(42, 2, {"groups_names": ["gone", "h"]}),
    "elect leaders": _plain(43, 2, {
        "election_type": 0, "topic_partitions": _two("topic", partitions=[0]), "timeout": 10000}),
    "alter configs bit by bit": _plain(44, 1, _alter_configs(True)),
    "reassign": _plain(45, 0, {"timeout": 10000, "topics": _two(partitions=[
        {**_PART, "replicas": None}])}),
    "reassignments": _plain(46, 0, {"timeout": 10000, "topics": [
        {"name": TOPIC, "partition_indexes": [0]}]}),
    "reassignments of all": _plain(46, 0, {"timeout": 10000, "topics": None}),
    "delete offsets": _plain(47, 0, {"group_id": GROUP, "topics": _two(partitions=[_PART])}),
    "quotas": _plain(48, 1, {"components": [], "strict": False}, _codes),
    "alter quotas": _plain(49, 1, {"validate_only": True, "entries": [
        {"entity": [{"entity_type": "user", "entity_name": "u"}],
         "ops": [{"key": "producer_byte_rate", "value": 1.0, "remove": False}]}]}),
    "users": _plain(50, 0, {"users": [{"name": "nobody"}]}),
    "alter users": _plain(51, 0, {
        "deletions": [{"name": "nobody", "mechanism": 1}], "upsertions": []}),
    "quorum": _plain(55, 2, {"topics": [
        {"topic_name": "__cluster_metadata", "partitions": [_PART]}]}, _codes),
    "features": _plain(57, 1, {
        "timeout": 10000, "validate_only": True, "feature_updates": [
            {"feature": "no.such", "max_version_level": 1, "upgrade_type": 1}]}),
    "cluster": _plain(60, 1, {**_WHOLE, "endpoint_type": 1}, lambda a: (
        a["error_code"], a["cluster_authorized_operations"])),
    "producers": _plain(61, 0, {"topics": [
        {"name": name, "partition_indexes": [0]} for name in ("missing", "bad name")]}),
    "unregister": _plain(64, 0, {"broker_id": 99}),
    "describe transactions": _plain(65, 0, {"transactional_ids": ["none", "y"]}),
    "list transactions": _plain(66, 0, {"state_filters": [], "producer_id_filters": []}, _codes),
    "consumer heartbeat": _plain(68, 1, {
        "group_id": "gc", "member_id": "m", "member_epoch": 5, "instance_id": None,
        "rack_id": None, "rebalance_timeout": -1, "subscribed_topic_names": [TOPIC],
        "subscribed_topic_regex": None, "server_assignor": None, "topic_partitions": None}),
    "describe consumer groups": _plain(69, 0, {
        "group_ids": ["gc", "h"], "include_authorized_operations": True}),
    "config resources": _plain(74, 1, {"resource_types": [2]}, _codes),
    "describe partitions": _plain(75, 0, {
        "topics": _two(), "response_partition_limit": 100, "cursor": None}),
    "add a voter": _plain(80, 0, {
        "cluster_id": "another", "timeout": 1000, "voter_id": 9,
        "voter_directory_id": uuid.UUID(int=9), "listeners": []}),
    "remove a voter": _plain(81, 0, {
        "cluster_id": "another", "voter_id": 9, "voter_directory_id": uuid.UUID(int=9)}),
}  # fmt: skip


# --- rights ------------------------------------------------------------------------------------

_OF_TOPICS = {"read": g.READ, "write": g.WRITE, "create": g.CREATE, "delete": g.DELETE,
              "alter": g.ALTER, "describe": g.DESCRIBE, "describe-configs": g.DESCRIBE_CONFIGS,
              "alter-configs": g.ALTER_CONFIGS, "all": g.ALL}  # fmt: skip
_GROUP_OPERATIONS = ("read", "delete", "describe", "describe-configs", "alter-configs", "all")
_OF_GROUPS = {name: _OF_TOPICS[name] for name in _GROUP_OPERATIONS}
_OF_CLUSTER = {"create": g.CREATE, "delete": g.DELETE, "alter": g.ALTER, "describe": g.DESCRIBE,
               "cluster-action": g.CLUSTER_ACTION, "describe-configs": g.DESCRIBE_CONFIGS,
               "alter-configs": g.ALTER_CONFIGS, "idempotent-write": g.IDEMPOTENT_WRITE,
               "all": g.ALL}  # fmt: skip
_OF_TXNS = {"write": g.WRITE, "describe": g.DESCRIBE, "2pc": g.TWO_PHASE_COMMIT, "all": g.ALL}


def _group(operation: int) -> Row:
    return acl(g.GROUP, GROUP, operation, pattern=g.PREFIXED)


RIGHTS: dict[str, list[Row]] = {
    "nothing": [],
    **{f"topic {name}": [acl(g.TOPIC, TOPIC, op)] for name, op in _OF_TOPICS.items()},
    **{f"topics {name}": [acl(g.TOPIC, "*", op)] for name, op in _OF_TOPICS.items()},
    **{f"group {name}": [_group(op)] for name, op in _OF_GROUPS.items()},
    **{f"cluster {name}": [acl(g.CLUSTER, "", op)] for name, op in _OF_CLUSTER.items()},
    **{f"transaction {name}": [acl(g.TRANSACTIONAL_ID, TXN, op)] for name, op in _OF_TXNS.items()},
    "consumer": [_group(g.READ), acl(g.TOPIC, TOPIC, g.READ)],
    "watcher": [_group(g.DESCRIBE), acl(g.TOPIC, TOPIC, g.DESCRIBE)],
    "cleaner": [_group(g.DELETE), acl(g.TOPIC, TOPIC, g.READ)],
    "producer": [acl(g.TRANSACTIONAL_ID, TXN, g.WRITE), acl(g.TOPIC, TOPIC, g.WRITE)],
    "mover": [acl(g.TRANSACTIONAL_ID, TXN, g.WRITE), _group(g.READ), acl(g.TOPIC, "*", g.READ)],
    "maker": [acl(g.TOPIC, "*", g.CREATE), acl(g.TOPIC, "*", g.DESCRIBE)],
    "all but": [acl(g.TOPIC, "*", g.ALL), acl(g.TOPIC, "th", g.READ, pattern=g.PREFIXED,
                                              permission=g.DENY)],
    "everything": [acl(g.TOPIC, "*", g.ALL), acl(g.GROUP, "*", g.ALL), acl(g.CLUSTER, "", g.ALL),
                   acl(g.TRANSACTIONAL_ID, "*", g.ALL)],
}  # fmt: skip
_SHORT = ("nothing", "topic read", "topics describe", "consumer", "cluster describe", "everything")


@pytest.mark.parametrize(
    "right",
    [name if name in _SHORT else pytest.param(name, marks=pytest.mark.long) for name in RIGHTS],
)
def test_every_request_with_a_right(brokers: Differ, now_ms: int, right: str) -> None:
    """All that a client gets that has this right."""

    def run(s: Script) -> None:
        s.ids = {**_named[s.broker.port], uuid.UUID(int=7): "of nothing"}
        s.source = g.THERE
        with g.granted(s.broker.port, *RIGHTS[right]):
            for name, (api, version, body, keep) in CASES.items():
                s.transcript.append((name, None))
                s.call(api, version, body(s), keep)

    brokers.compare(run, now_ms)
