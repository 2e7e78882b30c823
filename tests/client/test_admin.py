"""Admin against both brokers: what they both serve, with results and errors as they come."""

from __future__ import annotations

import asyncio
import gc
import inspect
import re
import socket
import subprocess
import sys
import threading
import uuid
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from kbroker.client import Admin, AsyncAdmin, NewTopic, OffsetAndMetadata, TopicPartition
from kbroker.client.admin_configs import BROKER, GROUP, TOPIC, ConfigOp
from kbroker.client.errors import (
    BrokerIdNotRegisteredError,
    ClosedError,
    ConfigError,
    ConnectError,
    GroupIdNotFoundError,
    InconsistentClusterIdError,
    InvalidConfigError,
    InvalidPartitionsError,
    KafkaError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from kbroker.client.offsets import EARLIEST, LATEST
from kbroker.client.operations import AclOperation
from kbroker.protocol import ApiKey
from tests.support import async_admin
from tests.support.middle import Middle
from tests.support.processes import BrokerProcess
from tests.support.waits import free_ports, wait_for


@pytest.fixture
def admin(target: BrokerProcess) -> Iterator[Admin]:
    with Admin(bootstrap_servers=target.bootstrap, default_api_timeout_ms=20_000) as made:
        yield made


def test_topics(admin: Admin, topic: str):
    other = f"{topic}-other"
    made = admin.create_topics([NewTopic(topic, 3, 1, {"retention.ms": "5000"}), NewTopic(other)])
    assert made[topic].partitions == 3 and made[topic].topic_id.int
    wait_for(
        "the topics to be told",
        lambda: {topic, other} <= {info.name for info in admin.list_topics()},
        60,
    )
    assert [info.name for info in admin.list_topics(pattern=re.compile(re.escape(topic)))] == [
        topic
    ]
    told = admin.describe_topics([topic, made[topic].topic_id])
    assert told[topic] == told[made[topic].topic_id]
    assert [part.index for part in told[topic].partitions] == [0, 1, 2]
    admin.create_partitions({topic: 5})
    wait_for(
        "the partitions to be told",
        lambda: len(admin.describe_topics([topic])[topic].partitions) == 5,
        60,
    )
    admin.delete_topics([other, made[topic].topic_id])
    wait_for("the topic to be gone", lambda: admin.describe_topics([topic]).errors, 60)
    with pytest.raises(UnknownTopicOrPartitionError, match=topic):
        admin.describe_topics([topic])[topic]


def test_what_fails_is_named_and_the_rest_is_done(admin: Admin, topic: str):
    admin.create_topic(topic)
    with pytest.raises(TopicAlreadyExistsError, match=topic):
        admin.create_topic(topic)
    more = [NewTopic(topic), NewTopic(f"{topic}-2"), NewTopic(f"{topic}-3", partitions=0)]
    made = admin.create_topics(more, partial=True)
    assert isinstance(made.errors[topic], TopicAlreadyExistsError)
    assert isinstance(made.errors[f"{topic}-3"], InvalidPartitionsError)
    assert set(made.succeeded) == {f"{topic}-2"} and len(made) == 3
    with pytest.raises(TopicAlreadyExistsError):
        made[topic]
    with pytest.raises(TopicAlreadyExistsError):
        made.checked()
    with pytest.raises(KafkaError, match="no-such"):
        admin.delete_topics([f"{topic}-2", "no-such"])
    wait_for(
        "the topic to be gone",
        lambda: f"{topic}-2" not in {info.name for info in admin.list_topics()},
        60,
    )
    assert not admin.describe_topics([uuid.uuid4()]).succeeded
    dry = admin.create_topic(f"{topic}-dry", partitions=2, validate_only=True)
    assert dry.name == f"{topic}-dry"
    assert f"{topic}-dry" not in {info.name for info in admin.list_topics()}


def test_assignments_say_where_replicas_are(admin: Admin, topic: str):
    node = admin.describe_cluster().brokers[0][0]
    made = admin.create_topics([NewTopic(topic, assignments={0: [node], 1: [node]})])
    assert made[topic].partitions == 2


def test_records_and_offsets(admin: Admin, target: BrokerProcess, topic: str):
    admin.create_topic(topic, partitions=2)
    producer = Producer({"bootstrap.servers": target.bootstrap})
    for number in range(10):
        producer.produce(topic, b"%d" % number, partition=0)
    assert producer.flush(20) == 0
    key = TopicPartition(topic, 0)
    assert admin.list_offsets({key: LATEST})[key].offset == 10
    assert admin.delete_records({key: 4}) == {key: 4}
    assert admin.list_offsets({key: EARLIEST})[key].offset == 4
    some = admin.list_offsets({key: LATEST, (topic, 7): LATEST, ("not-there", 0): LATEST})
    assert some[key].offset == 10 and set(some.errors) == {(topic, 7), ("not-there", 0)}
    with pytest.raises(UnknownTopicOrPartitionError):
        some["not-there", 0]
    assert admin.delete_records({key: -1})[key] == 10
    with pytest.raises(KafkaError, match=f"{topic}.*no partition 7"):
        admin.delete_records({(topic, 7): 1})
    part = admin.delete_records({(topic, 7): 1, (topic, 1): 0}, partial=True)
    assert part[topic, 1] == 0 and set(part.errors) == {(topic, 7)}


def test_configs(admin: Admin, topic: str):
    admin.create_topic(topic, configs={"cleanup.policy": "delete"})
    key, name = (TOPIC, topic), "delete.retention.ms"
    admin.alter_configs({
        key: [ConfigOp(name, "77"), ConfigOp("cleanup.policy", "compact", "append")]
    })  # fmt: skip
    told = {entry.name: entry for entry in admin.describe_configs([key])[key]}
    assert told[name].value == "77" and told[name].source == "topic"
    assert set((told["cleanup.policy"].value or "").split(",")) == {"compact", "delete"}
    admin.alter_configs({key: [ConfigOp(name, operation="delete")]})
    (entry,) = admin.describe_configs([key], keys=[name])[key]
    assert entry.is_default
    with pytest.raises(InvalidConfigError, match=topic):
        admin.alter_configs({key: [ConfigOp(name, "soon")]})
    with pytest.raises(ValueError, match="write one of set"):
        admin.alter_configs({key: [ConfigOp(name, "1", "put")]})
    node = str(admin.describe_cluster().brokers[0][0])
    resources = [(BROKER, node), key, (TOPIC, "no-such")]
    every = admin.describe_configs(resources)
    assert every[BROKER, node] and set(every.errors) == {(TOPIC, "no-such")}


def test_settings_are_numbers_or_text(admin: Admin, topic: str):
    admin.create_topic(
        topic, configs={"retention.ms": 1000, "preallocate": True, "min.cleanable.dirty.ratio": 0.5}
    )
    described = admin.describe_configs([(TOPIC, topic)])[TOPIC, topic]
    told = {each.name: each.value for each in described}
    assert told["retention.ms"] == "1000" and told["preallocate"] == "true"
    assert told["min.cleanable.dirty.ratio"] == "0.5"
    with pytest.raises(TypeError, match=r"retention\.ms: bytes is neither str nor a number"):
        admin.create_topic("other", configs={"retention.ms": b"1"})  # type: ignore[dict-item]
    with pytest.raises(TypeError, match="topic: NoneType is not str"):
        admin.create_topic(None)  # type: ignore[arg-type]


def test_groups(admin: Admin, target: BrokerProcess, topic: str):
    admin.create_topic(topic, partitions=2)
    group = f"group-of-{topic}"
    admin.alter_group_offsets(group, {(topic, 0): 3, (topic, 1): 4})
    held = admin.list_group_offsets([group, "no-such"])
    assert held["no-such"] == {}
    assert {key: at.offset for key, at in held[group].items()} == {(topic, 0): 3, (topic, 1): 4}
    told_by = {(topic, 0): OffsetAndMetadata(5, "mine", 0), (topic, 1): OffsetAndMetadata(6)}
    admin.alter_group_offsets(group, told_by, metadata="all")
    held = admin.list_group_offsets([group])
    assert held[group] == told_by | {(topic, 1): OffsetAndMetadata(6, "all")}
    with pytest.raises(ValueError, match="negative"):
        admin.alter_group_offsets(group, {(topic, 0): -1})
    listed = {listing.group_id: listing for listing in admin.list_groups()}
    assert listed[group].state == "Empty"
    assert group not in {listing.group_id for listing in admin.list_groups(states=["Stable"])}
    told = admin.describe_groups([group, "no-such"])
    assert told[group].state == "Empty" and told[group].members == ()
    with pytest.raises(GroupIdNotFoundError):
        told["no-such"]
    admin.delete_group_offsets(group, [(topic, 0)])
    assert set(admin.list_group_offsets([group])[group]) == {(topic, 1)}
    assert admin.remove_members(group) == {}
    with pytest.raises(KafkaError, match="nobody"):
        admin.remove_members(group, ["nobody"])
    deleted = admin.delete_groups([group, "no-such"], partial=True)
    assert deleted[group] is None and isinstance(deleted.errors["no-such"], GroupIdNotFoundError)
    key = (GROUP, group)
    admin.alter_configs({key: [ConfigOp("consumer.session.timeout.ms", "7000")]})
    (entry,) = admin.describe_configs([key], keys=["consumer.session.timeout.ms"])[key]
    assert entry.value == "7000"


def test_cluster(admin: Admin, topic: str):
    info = admin.describe_cluster(fenced=True)
    assert info.cluster_id and len(info.brokers) == 1 and info.fenced == ()
    admin.create_topic(topic, partitions=2)

    def logs() -> set[tuple[str, int]]:
        (folders,) = admin.describe_log_dirs().values()
        assert all(folder.error is None and folder.total_bytes > 0 for folder in folders)
        return {(p.topic, p.partition) for folder in folders for p in folder.partitions}

    wait_for("logs to be told", lambda: logs() >= {(topic, 0), (topic, 1)}, 60)
    features = admin.describe_features()
    assert features.features["metadata.version"].level > 0
    assert features.epoch >= 0


def test_what_may_be_done_is_told_where_it_is_asked_for(admin: Admin, topic: str):
    """Without an authorizer all that there is to be done, of each kind of thing."""
    admin.create_topic(topic)
    admin.alter_group_offsets(topic, {(topic, 0): 0})
    assert admin.describe_cluster().operations is None
    assert admin.describe_topics([topic])[topic].operations is None
    assert admin.describe_groups([topic])[topic].operations is None
    own = admin.describe_cluster(operations=True).operations
    assert own is not None and {AclOperation.CREATE, AclOperation.CLUSTER_ACTION} <= own
    told = admin.describe_topics([topic, "none"], operations=True)
    assert told[topic].operations == {
        AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE, AclOperation.DELETE,
        AclOperation.ALTER, AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    }  # fmt: skip
    assert list(told.errors) == ["none"]
    group = admin.describe_groups([topic], operations=True)[topic]
    assert group.operations is not None
    assert group.operations >= {AclOperation.READ, AclOperation.DELETE, AclOperation.DESCRIBE}


def test_who_belongs_to_the_cluster(admin: Admin):
    with pytest.raises(BrokerIdNotRegisteredError, match="77"):
        admin.unregister_broker(77)
    someone = uuid.uuid4()
    listeners = {"CONTROLLER": ("127.0.0.1", 9)}
    with pytest.raises(InconsistentClusterIdError):
        admin.add_voter(77, someone, listeners, cluster_id="another")
    with pytest.raises(InconsistentClusterIdError):
        admin.remove_voter(77, someone, cluster_id="another")


def test_a_broker_that_is_not_there():
    address = f"127.0.0.1:{free_ports(1)[0]}"
    with (
        Admin(bootstrap_servers=address, default_api_timeout_ms=300) as admin,
        pytest.raises(ConnectError, match="no broker listens"),
    ):
        admin.list_topics()


def test_settings():
    with pytest.raises(ConfigError, match=r"did you mean bootstrap\.servers"):
        Admin(bootstrap_server="a:1")
    with pytest.raises(ConfigError, match=r"bootstrap\.servers: 'a:b'"):
        Admin({"bootstrap.servers": "a:b"})
    with pytest.raises(ConfigError, match=r"bootstrap\.controllers: 'a:b'"):
        Admin(bootstrap_controllers="a:b")
    with pytest.raises(ConfigError, match="exclude each other"):
        Admin(bootstrap_controllers="a:1", bootstrap_servers="a:1")


def test_a_closed_admin_says_so(kbroker: BrokerProcess):
    admin = Admin(bootstrap_servers=kbroker.bootstrap)
    admin.describe_cluster()
    admin.close()
    admin.close()
    with pytest.raises(ClosedError):
        admin.describe_cluster()


def test_close_ends_the_calls_of_other_threads():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        admin = Admin(bootstrap_servers=f"127.0.0.1:{silent.getsockname()[1]}")
        told: list[BaseException] = []

        def call() -> None:
            try:
                admin.describe_cluster()
            except BaseException as error:
                told.append(error)

        thread = threading.Thread(target=call)
        thread.start()
        asked = silent.accept()[0]
        with asked:
            assert asked.recv(100)  # its ApiVersions; nobody answers
            admin.close()
        thread.join(60)
        assert isinstance(told[0], ClosedError)


def test_close_waits_for_the_calls_of_other_threads(kbroker: BrokerProcess):
    began = threading.Event()
    told: list[object] = []
    middle = Middle(int(ApiKey.DESCRIBE_CLUSTER), lambda _, answer: began.set() or _late(answer))
    middle.to = kbroker.port
    admin = Admin(bootstrap_servers=f"127.0.0.1:{middle.port}")

    def call() -> None:
        told.append(admin.describe_cluster())

    thread = threading.Thread(target=call)
    thread.start()
    assert began.wait(60)
    admin.close(20)
    thread.join(60)
    middle.close()
    assert len(told) == 1
    with pytest.raises(ClosedError):
        admin.describe_cluster()


def _late(answer: bytes) -> bytes:
    threading.Event().wait(0.3)
    return answer


def test_a_child_of_fork_is_told_and_leaves_the_parent_alone(kbroker: BrokerProcess):
    program = """
import os, sys, gc
from kbroker.client import Admin
from kbroker.client.errors import ForkError
admin = Admin(bootstrap_servers=sys.argv[1])
admin.describe_cluster()
child = os.fork()
if child == 0:
    try:
        admin.describe_cluster()
    except ForkError:
        admin.close()
        del admin
        gc.collect()
        os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
before = admin.metrics()["connection-creation-total"]
admin.describe_cluster()
assert admin.metrics()["connection-creation-total"] == before
"""
    done = subprocess.run(
        [sys.executable, "-c", program, kbroker.bootstrap],
        check=False, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


def test_a_string_is_no_list_of_names(admin: Admin):
    calls: list[tuple[Any, str]] = [
        (admin.create_topics, "t9"),
        (admin.delete_topics, "t9"),
        (admin.describe_topics, "t9"),
        (admin.describe_groups, "g9"),
        (admin.delete_groups, "g9"),
        (admin.list_group_offsets, "g9"),
        (admin.describe_transactions, "x9"),
        (admin.fence_producers, "x9"),
        (admin.describe_scram_users, "alice"),
        (admin.describe_tokens, "User:alice"),
        (lambda one: admin.remove_members("g9", one), "i9"),
        (lambda one: admin.list_groups(states=one), "Stable"),
        (lambda one: admin.list_groups(types=one), "classic"),
        (lambda one: admin.list_transactions(states=one), "Ongoing"),
        (lambda one: admin.create_token(renewers=one), "User:alice"),
        (lambda one: admin.describe_configs([(TOPIC, "t9")], keys=one), "retention.ms"),
    ]
    for call, name in calls:
        with pytest.raises(TypeError, match=re.escape(f"write [{name!r}]")):
            call(name)


def test_a_time_is_in_whole_ms(admin: Admin, topic: str):
    with pytest.raises(TypeError, match="whole numbers of ms"):
        admin.list_offsets({(topic, 0): 1.5})  # type: ignore[dict-item]


def test_an_admin_is_in_no_reference_cycle(kbroker: BrokerProcess):
    gc.collect()
    gc.disable()
    try:
        admin = Admin(bootstrap_servers=kbroker.bootstrap)
        admin.list_topics()
        cluster = weakref.ref(admin._cluster)
        admin.close()
        del admin
        assert cluster() is None
    finally:
        gc.enable()


def test_metrics(kbroker: BrokerProcess):
    with Admin(bootstrap_servers=kbroker.bootstrap) as admin:
        admin.list_topics()
        told = admin.metrics()
        assert told["connection-count"] == told["connection-creation-total"] == 1
        assert told["metadata-request-total"] == 1 and told["failed-connection-total"] == 0


def test_a_connection_that_idled_or_aged_is_replaced(kbroker: BrokerProcess, topic: str):
    with Admin(
        bootstrap_servers=kbroker.bootstrap, connections_max_idle_ms=1, metadata_max_age_ms=0
    ) as admin:
        admin.create_topic(topic)
        cluster = admin._cluster
        cluster.topic(topic)
        before = admin.metrics()

        def again() -> bool:
            cluster.topic(topic)
            return all(
                admin.metrics()[name] > before[name]
                for name in ("connection-creation-total", "metadata-request-total")
            )

        wait_for("another connection and request", again, 60)


def test_many_threads_share_an_admin(kbroker: BrokerProcess, topic: str):
    with Admin(bootstrap_servers=kbroker.bootstrap) as admin:
        failures: list[BaseException] = []

        def work(number: int) -> None:
            try:
                for turn in range(5):
                    name = f"{topic}-{number}-{turn}"
                    admin.create_topic(name, partitions=1)
                    assert len(admin.describe_topics([name])[name].partitions) == 1
                    admin.delete_topics([name])
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert not failures


def test_no_socket_is_left_behind_by_threads(kbroker: BrokerProcess):
    def sockets() -> int:
        links = []
        for fd in Path("/proc/self/fd").iterdir():
            try:
                links.append(str(fd.readlink()))
            except OSError:
                continue
        return sum(link.startswith("socket:") for link in links)

    before = sockets()
    with Admin(bootstrap_servers=kbroker.bootstrap) as admin:
        thread = threading.Thread(target=admin.describe_cluster)
        thread.start()
        thread.join()
        wait_for("the thread's connection to be closed", lambda: sockets() == before, 60)
        admin.describe_cluster()
        assert sockets() > before
    assert sockets() == before


def test_async_admin(kbroker: BrokerProcess, topic: str):
    async def work() -> None:
        async with AsyncAdmin(bootstrap_servers=kbroker.bootstrap) as admin:
            names = [f"{topic}-{number}" for number in range(8)]
            await asyncio.gather(*(admin.create_topic(name, partitions=2) for name in names))
            told = await admin.describe_topics(names)
            assert all(len(told[name].partitions) == 2 for name in names)
            with pytest.raises(TopicAlreadyExistsError):
                await admin.create_topic(names[0])
            await admin.delete_topics(names)

    asyncio.run(work())


def test_the_stub_of_async_admin_is_as_the_generator_writes_it():
    assert async_admin.TARGET.read_text() == async_admin.source()


def test_async_admin_has_every_method_of_admin():
    def methods(kind: type[Any]) -> dict[str, list[str]]:
        return {
            name: list(inspect.signature(method).parameters)
            for name, method in inspect.getmembers(kind, inspect.isfunction)
            if not name.startswith("_")
        }

    assert methods(AsyncAdmin) == methods(Admin)
    assert all(
        inspect.iscoroutinefunction(method) or name.startswith("_")
        for name, method in inspect.getmembers(AsyncAdmin, inspect.isfunction)
    )
