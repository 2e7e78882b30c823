"""What administrators change is told in the audit, each API with what it did."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from kbroker.api import registry
from kbroker.metadata.records.cluster import FeatureLevelRecord, RegisterBrokerRecord
from kbroker.protocol import ApiKey
from kbroker.security.principals import Principal
from kbroker.storage.log_directory import LogDirectory
from kbroker.storage.manager import LogManager, PartitionSpec
from tests.support import guarded as g
from tests.support.control import ControlPlane
from tests.support.ports import FakeLog
from tests.support.sasl_control import Stand

ALICE = Principal("User", "alice")
#: What changes nothing: it asks, logs in, or is answered with an error or with "done already".
ASKING = {
    ApiKey.FETCH, ApiKey.LIST_OFFSETS, ApiKey.METADATA, ApiKey.OFFSET_FETCH,
    ApiKey.FIND_COORDINATOR, ApiKey.DESCRIBE_GROUPS, ApiKey.LIST_GROUPS, ApiKey.SASL_HANDSHAKE,
    ApiKey.API_VERSIONS, ApiKey.OFFSET_FOR_LEADER_EPOCH, ApiKey.DESCRIBE_ACLS,
    ApiKey.DESCRIBE_CONFIGS, ApiKey.DESCRIBE_LOG_DIRS, ApiKey.SASL_AUTHENTICATE,
    ApiKey.DESCRIBE_DELEGATION_TOKEN, ApiKey.ELECT_LEADERS, ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    ApiKey.LIST_PARTITION_REASSIGNMENTS, ApiKey.DESCRIBE_CLIENT_QUOTAS,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, ApiKey.DESCRIBE_QUORUM, ApiKey.DESCRIBE_CLUSTER,
    ApiKey.DESCRIBE_PRODUCERS, ApiKey.DESCRIBE_TRANSACTIONS, ApiKey.LIST_TRANSACTIONS,
    ApiKey.CONSUMER_GROUP_DESCRIBE, ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
    ApiKey.LIST_CONFIG_RESOURCES, ApiKey.DESCRIBE_TOPIC_PARTITIONS, ApiKey.ADD_RAFT_VOTER,
    ApiKey.REMOVE_RAFT_VOTER,
}  # fmt: skip
#: What clients do as their daily work; an administrator who does the same cannot be told apart.
WORKING = {
    ApiKey.PRODUCE, ApiKey.OFFSET_COMMIT, ApiKey.JOIN_GROUP, ApiKey.HEARTBEAT, ApiKey.SYNC_GROUP,
    ApiKey.INIT_PRODUCER_ID, ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.END_TXN, ApiKey.TXN_OFFSET_COMMIT, ApiKey.CONSUMER_GROUP_HEARTBEAT,
    ApiKey.PUSH_TELEMETRY,
}  # fmt: skip


class Admin:
    """A broker that an administrator changes: topic `t` of two partitions, group `g`."""

    def __init__(self, directory: Path) -> None:
        self.stand = Stand(
            directory, authorizer_class_name="kbroker", super_users="User:alice; User:ANONYMOUS",
            delegation_token_secret_key="hush", offsets_topic_num_partitions="1",
        )  # fmt: skip
        self.control: ControlPlane = self.stand.control
        self.control.create("t", 2)
        self.control.call(ApiKey.FIND_COORDINATOR, 4, coordinator_keys=["g"], key_type=0)

    def __call__(self, key: ApiKey, version: int, /, **fields: Any) -> dict[str, Any]:
        """A request of alice's."""
        return self.stand.call(ALICE, key, version, **fields)

    def commit(self) -> None:
        """Group `g` has read both partitions of `t`."""
        partitions = [
            {"partition_index": index, "committed_offset": 1, "committed_metadata": ""}
            for index in range(2)
        ]
        self(
            ApiKey.OFFSET_COMMIT, 8, group_id="g", generation_id_or_member_epoch=-1, member_id="",
            topics=[{"name": "t", "partitions": partitions}],
        )  # fmt: skip

    def token(self) -> dict[str, Any]:
        """A token of alice's."""
        return self(
            ApiKey.CREATE_DELEGATION_TOKEN, 3, owner_principal_type=None,
            owner_principal_name=None, renewers=[], max_lifetime=-1,
        )  # fmt: skip

    def join(self) -> None:
        """A static member of group `g`."""
        self.stand.send(
            ALICE, ApiKey.JOIN_GROUP, 7, group_id="g", session_timeout=10_000,
            rebalance_timeout=10_000, member_id="", group_instance_id="one",
            protocol_type="consumer", protocols=[{"name": "range", "metadata": b""}],
        )  # fmt: skip

    def two_directories(self, moves: bool = False) -> None:
        """`t-0` in the first of two log directories, or on its way to the second."""
        plane = self.control
        ids = [plane.store.meta.directory_id, b"B" * 16]
        paths = [plane.store.directory, plane.store.directory.parent / "other"]
        paths[1].mkdir()
        both = [LogDirectory(path, place, ids[place]) for place, path in enumerate(paths)]
        plane.services.logs = LogManager(both, FakeLog)
        topic = plane.store.image.topics["t"]
        plane.services.logs.start([PartitionSpec("t", topic.id, 0, {}, 0, ids[0])])
        moving = {("t", 0): SimpleNamespace(target=both[1])} if moves else {}
        plane.services.moves = SimpleNamespace(
            get=moving.get, cancel=moving.pop, begin=lambda *_: None
        )


class Told(NamedTuple):
    """A request, what goes before it, and the lines of the audit that it makes."""

    key: ApiKey
    version: int
    fields: Callable[[Admin], dict[str, Any]]
    lines: Callable[[Admin, dict[str, Any]], list[tuple[str, dict[str, str]]]]


def case(
    key: ApiKey, version: int, what: str, told: dict[str, str],
    before: Callable[[Admin], Any] = lambda _: None, /, **fields: Any,
) -> Told:  # fmt: skip
    """One that makes one line."""

    def asked(admin: Admin) -> dict[str, Any]:
        before(admin)
        return fields

    return Told(key, version, asked, lambda *_: [(what, told)])


def _of_topic(**fields: Any) -> list[dict[str, Any]]:
    return [{"name": "t", **fields}]


def _setting(**more: Any) -> list[dict[str, Any]]:
    configs = [{"name": "retention.ms", "value": "5", **more}]
    return [{"resource_type": 2, "resource_name": "t", "configs": configs}]


def _written(admin: Admin) -> None:
    admin.control.log("t").hold(0, 5, 5, 5)


def _forget_broker(admin: Admin) -> None:
    admin.control.store.append([RegisterBrokerRecord(broker_id=7)])


def _low_feature(admin: Admin) -> None:
    admin.control.store.append([FeatureLevelRecord("group.version", 0)])


def _old_quorum(admin: Admin) -> None:
    admin.control.store.quorum.kraft_version = 0
    admin.control.store.quorum.voters = None


def _feature(name: str, before: Callable[[Admin], None]) -> Told:
    return case(
        ApiKey.UPDATE_FEATURES, 2, "feature changed", {"feature": name, "level": "1"}, before,
        feature_updates=[{"feature": name, "max_version_level": 1, "upgrade_type": 1}],
    )  # fmt: skip


def _to_directory(what: str, place: int, moves: bool) -> Told:
    """`t-0` is asked for in one of the two directories."""

    def path(admin: Admin) -> str:
        return str(admin.control.services.logs.directories[place].path.absolute())

    def fields(admin: Admin) -> dict[str, Any]:
        admin.two_directories(moves)
        return {"dirs": [{"path": path(admin), "topics": _of_topic(partitions=[0])}]}

    return Told(ApiKey.ALTER_REPLICA_LOG_DIRS, 2, fields, lambda admin, _: [
        (what, {"topic": "t", "partition": "0", "directory": path(admin)})])  # fmt: skip


def _token(key: ApiKey, what: str, told: Callable[[str, int], dict[str, str]], **more: Any) -> Told:
    """A request about a token; what it is told by is never the token's password."""
    made: list[str] = []

    def fields(admin: Admin) -> dict[str, Any]:
        token = admin.token()
        made[:] = [token["token_id"]]
        return {"hmac": token["hmac"], **more}

    return Told(
        key, 2, fields,
        lambda _, answer: [(what, told(made[0], answer["expiry_timestamp"]))],
    )  # fmt: skip


_ACL = g.acl(g.TOPIC, "t", g.READ)
_TOPIC = {"name": "new", "num_partitions": 3, "replication_factor": 1, "configs": []}
_MARKER = {"producer_id": 9, "producer_epoch": 0, "coordinator_epoch": 0,
           "topics": _of_topic(partition_indexes=[1])}  # fmt: skip
_PASSWORD = {"name": "u", "mechanism": 1, "iterations": 4096, "salt": b"s" * 16,
             "salted_password": b"p" * 32}  # fmt: skip

CASES = {
    "leave": case(
        ApiKey.LEAVE_GROUP, 4, "member removed", {"group": "g", "instance": "one"}, Admin.join,
        group_id="g", members=[{"member_id": "", "group_instance_id": "one"}]),
    "create topics": case(
        ApiKey.CREATE_TOPICS, 7, "topic created", {"topic": "new", "partitions": "3"},
        topics=[_TOPIC]),
    "delete topics": case(
        ApiKey.DELETE_TOPICS, 5, "topic deleted", {"topic": "t"}, topic_names=["t"]),
    "delete records": case(
        ApiKey.DELETE_RECORDS, 2, "records deleted",
        {"topic": "t", "partition": "0", "before": "4"}, _written,
        topics=_of_topic(partitions=[{"partition_index": 0, "offset": 4}])),
    "abort": case(
        ApiKey.WRITE_TXN_MARKERS, 1, "marker written",
        {"topic": "t", "partition": "1", "producer_id": "9", "done": "aborted"},
        markers=[{**_MARKER, "transaction_result": False}]),
    "commit": case(
        ApiKey.WRITE_TXN_MARKERS, 1, "marker written",
        {"topic": "t", "partition": "1", "producer_id": "9", "done": "committed"},
        markers=[{**_MARKER, "transaction_result": True}]),
    "create acls": case(
        ApiKey.CREATE_ACLS, 3, "ACL created", {}, creations=[_ACL]),
    "delete acls": case(
        ApiKey.DELETE_ACLS, 3, "ACL deleted", {},
        lambda admin: admin(ApiKey.CREATE_ACLS, 3, creations=[_ACL]),
        filters=[g.the_filter(_ACL)]),
    "alter configs": case(
        ApiKey.ALTER_CONFIGS, 2, "settings changed",
        {"kind": "topic", "name": "t", "settings": "retention.ms"}, resources=_setting()),
    "alter configs bit by bit": case(
        ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, "settings changed",
        {"kind": "topic", "name": "t", "settings": "retention.ms"},
        resources=_setting(config_operation=0)),
    "a move": _to_directory("partition moves", 1, moves=False),
    "a move that is not wanted any more": _to_directory("partition stays", 0, moves=True),
    "create partitions": case(
        ApiKey.CREATE_PARTITIONS, 3, "partitions added", {"topic": "t", "before": "2"},
        topics=_of_topic(count=5, assignments=None)),
    "make a token": Told(
        ApiKey.CREATE_DELEGATION_TOKEN, 3,
        lambda _: {"owner_principal_type": None, "owner_principal_name": None, "renewers": [],
                   "max_lifetime": -1},
        lambda _, answer: [
            ("token made", {"owner": "User:alice", "token": answer["token_id"]})]),
    "renew a token": _token(
        ApiKey.RENEW_DELEGATION_TOKEN, "token renewed",
        lambda token, end_ms: {"token": token, "at_ms": str(end_ms)}, renew_period=5000),
    "end a token": _token(
        ApiKey.EXPIRE_DELEGATION_TOKEN, "token made to end",
        lambda token, end_ms: {"token": token, "at_ms": str(end_ms)}, expiry_time_period=-1),
    "end a token later": _token(
        ApiKey.EXPIRE_DELEGATION_TOKEN, "token made to end",
        lambda token, end_ms: {"token": token, "at_ms": str(end_ms)}, expiry_time_period=5000),
    "delete groups": case(
        ApiKey.DELETE_GROUPS, 2, "group deleted", {"group": "g"}, Admin.commit,
        groups_names=["g"]),
    "delete offsets": case(
        ApiKey.OFFSET_DELETE, 0, "offsets deleted",
        {"group": "g", "topic": "t", "partitions": "0,1"}, Admin.commit, group_id="g",
        topics=_of_topic(partitions=[{"partition_index": index} for index in range(5)])),
    "quotas": case(
        ApiKey.ALTER_CLIENT_QUOTAS, 1, "quotas changed", {"entity": "user=u"},
        validate_only=False, entries=[{
            "entity": [{"entity_type": "user", "entity_name": "u"}],
            "ops": [{"key": "producer_byte_rate", "value": 5.0, "remove": False}]}]),
    "users": case(
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, "credentials of a user changed",
        {"user": "u", "mechanism": "SCRAM-SHA-256", "done": "set"},
        deletions=[], upsertions=[_PASSWORD]),
    "a feature": _feature("group.version", _low_feature),
    "kraft.version": _feature("kraft.version", _old_quorum),
    "unregister": case(
        ApiKey.UNREGISTER_BROKER, 0, "broker unregistered", {"node": "7"}, _forget_broker,
        broker_id=7),
}  # fmt: skip


@pytest.fixture
def admin(tmp_path: Path) -> Iterator[Admin]:
    one = Admin(tmp_path / "data")
    yield one
    one.control.close()


def test_every_api_is_here() -> None:
    """Whoever adds one says whether it changes something, and if so how that is told."""
    changing = {one.key for one in CASES.values()}
    assert not (changing & ASKING or changing & WORKING or ASKING & WORKING)
    assert set(registry.table()) == changing | ASKING | WORKING


@pytest.mark.parametrize("name", CASES)
def test_what_was_changed_is_told(
    admin: Admin, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Who did it, from where, by which request, to what; and no secret."""
    key, version, fields, lines = CASES[name]
    asked = fields(admin)
    with caplog.at_level(logging.INFO, logger="kbroker.audit"):
        caplog.clear()
        answer = admin(key, version, **asked)
    found = [(one.getMessage(), one.fields) for one in caplog.records]
    wanted = lines(admin, answer)
    assert [what for what, _ in found] == [what for what, _ in wanted], answer
    who = {"principal": "User:alice", "host": "127.0.0.1", "api": key.name}
    for (_, told), (_, more) in zip(found, wanted, strict=True):
        assert told | who | more == told


def test_what_was_not_done_is_not_told(admin: Admin, caplog: pytest.LogCaptureFixture) -> None:
    """Offsets that were not there, and a write that the disk does not take."""
    offsets = _of_topic(partitions=[{"partition_index": 0}])
    admin.commit()
    with caplog.at_level(logging.INFO, logger="kbroker.audit"):
        log = admin.control.logs.get("__consumer_offsets", 0)
        log.append = lambda *_, **__: (_ for _ in ()).throw(OSError(5, "no"))
        assert admin(ApiKey.OFFSET_DELETE, 0, group_id="g", topics=offsets)["error_code"]
        del log.append
        for _ in range(2):
            admin(ApiKey.OFFSET_DELETE, 0, group_id="g", topics=offsets)
    told = [one.getMessage() for one in caplog.records if one.name == "kbroker.audit"]
    assert told == ["offsets deleted"]
