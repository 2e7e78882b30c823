"""Producer and consumer with three nodes of Apache Kafka: they die, come back, hand leaders on."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kbroker.client import Admin, Consumer, NewTopic, Producer, TopicPartition
from kbroker.client.errors import LogTruncationError, UnsupportedApiError
from tests.client.traffic import (
    PARTITIONS,
    SLOW_S,
    AsyncFollower,
    AsyncSender,
    Follower,
    Sender,
    goes_on,
    read_alike,
    reckon,
    running,
)
from tests.support.kafka_cluster import KafkaCluster, KafkaNode
from tests.support.waits import free_ports, wait_for

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


@pytest.fixture
def admin(kafka_cluster: KafkaCluster) -> Iterator[Admin]:
    with Admin(bootstrap_servers=kafka_cluster.bootstrap) as made:
        yield made


@pytest.fixture
def topic(admin: Admin, topic: str) -> str:
    admin.create_topics([NewTopic(f"nodes-{topic}", PARTITIONS, 3)])
    return f"nodes-{topic}"


def leaders(admin: Admin, topic: str) -> dict[int, int]:
    """Of the partitions that have one."""
    info = admin.describe_topics([topic])[topic]
    return {part.index: part.leader for part in info.partitions if part.leader >= 0}


@contextmanager
def stopped(node: KafkaNode) -> Iterator[None]:
    """The process stands still, connections and all."""
    assert node.process is not None
    node.process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        node.process.send_signal(signal.SIGCONT)


def caught_up(reader: Follower, sender: Sender) -> None:
    wait_for("all is read", lambda: reader.count() >= sender.count(), SLOW_S)


@pytest.mark.parametrize("how", ["threads", "asyncio"])
def test_each_node_is_killed_in_turn(kafka_cluster: KafkaCluster, topic: str, how: str):
    send, follow = (Sender, Follower) if how == "threads" else (AsyncSender, AsyncFollower)
    sender = send(kafka_cluster.bootstrap, topic)
    readers = [
        follow(kafka_cluster.bootstrap, topic),
        Follower(kafka_cluster.bootstrap, topic, columns=True),
    ]
    with running(*readers):
        with running(sender):
            for node in kafka_cluster.nodes:
                goes_on("records are acknowledged", sender.count)
                node.kill()
                goes_on("without one node", sender.count, 400)
                for reader in readers:
                    goes_on("they are read without one node", reader.count)
                node.start()
            goes_on("with all nodes", sender.count)
        for reader in readers:
            caught_up(reader, sender)
    assert not sender.refused
    log = reckon(kafka_cluster.bootstrap, sender)
    for reader in readers:
        read_alike(reader, log)


def test_all_nodes_go_and_come_back(kafka_cluster: KafkaCluster, topic: str):
    sender = Sender(kafka_cluster.bootstrap, topic)
    reader = Follower(kafka_cluster.bootstrap, topic)
    with running(reader):
        with running(sender):
            for _ in range(2):
                goes_on("records are acknowledged", sender.count)
                kafka_cluster.kill()
                kafka_cluster.start()
            goes_on("with all nodes", sender.count)
            goes_on("they are read", reader.count)
        caught_up(reader, sender)
    assert not sender.refused
    read_alike(reader, reckon(kafka_cluster.bootstrap, sender))


def test_a_node_stands_still_and_goes_on(kafka_cluster: KafkaCluster, topic: str):
    """Its connections stay, and when it goes on it believes that it leads."""
    limits = {"request_timeout_ms": 4000}
    sender = Sender(kafka_cluster.bootstrap, topic, **limits)
    reader = Follower(kafka_cluster.bootstrap, topic, **limits)
    with running(reader):
        with running(sender):
            for node in kafka_cluster.nodes[:2]:
                goes_on("records are acknowledged", sender.count)
                with stopped(node):
                    goes_on("without one node", sender.count, 400)
                    goes_on("they are read without one node", reader.count, 400)
                goes_on("behind it", sender.count, 400)
        caught_up(reader, sender)
    assert not sender.refused
    read_alike(reader, reckon(kafka_cluster.bootstrap, sender))


def test_leaders_move(kafka_cluster: KafkaCluster, admin: Admin, topic: str):
    """By reassignment, with the old leader gone from the replicas, and by election."""
    sender = Sender(kafka_cluster.bootstrap, topic, metadata_max_age_ms=600_000)
    reader = Follower(kafka_cluster.bootstrap, topic, metadata_max_age_ms=600_000)
    every = [(topic, at) for at in range(PARTITIONS)]
    with running(reader):
        with running(sender):
            for shift in (1, 2, 3):
                goes_on("records are acknowledged", sender.count)
                pair = [(shift + at) % 3 + 1 for at in range(2)]
                admin.alter_reassignments(dict.fromkeys(every, pair))
                wait_for("they have moved", lambda: not admin.list_reassignments(every), SLOW_S)
                admin.elect_leaders(every, partial=True)
                wait_for(
                    "leaders elsewhere",
                    lambda first=pair[0]: set(leaders(admin, topic).values()) == {first},
                    SLOW_S,
                )
                goes_on("records behind the move", sender.count, 400)
                goes_on("they are read", reader.count)
        caught_up(reader, sender)
    assert not sender.refused
    read_alike(reader, reckon(kafka_cluster.bootstrap, sender))


def test_a_topic_is_deleted_and_made_again(kafka_cluster: KafkaCluster, admin: Admin, topic: str):
    first, second = (Sender(kafka_cluster.bootstrap, topic) for _ in range(2))
    reader = Follower(kafka_cluster.bootstrap, topic, metadata_max_age_ms=600_000)
    going = Sender(kafka_cluster.bootstrap, topic, metadata_max_age_ms=600_000)
    with running(reader):
        with running(first):
            goes_on("records are acknowledged", first.count, 1200)
        caught_up(reader, first)
        with running(going):
            goes_on("a producer that stays", going.count)
            admin.delete_topics([topic])
            wait_for("it is gone", lambda: admin.describe_topics([topic]).errors, SLOW_S)
            admin.create_topics([NewTopic(topic, PARTITIONS, 3)])
            goes_on("it goes on in the new one", going.count, 400)
        reader_began = {at: len(seen) for at, seen in reader.seen.items()}
        with running(second):
            goes_on("records are acknowledged", second.count, 1200)
        last = {at: max(found.values()) for at, found in second.acked.items()}
        wait_for(
            "the new topic is read to its end",
            lambda: all(seen[-1][0] >= last[at] for at, seen in reader.seen.items()),
            SLOW_S,
        )
    assert reader_began
    for at, seen in reader.seen.items():
        new = seen[max(i for i, (offset, _) in enumerate(seen) if offset == 0) :]
        assert [offset for offset, _ in new] == list(range(len(new))), f"partition {at}"


def test_the_follower_in_the_rack_is_read(kafka_cluster: KafkaCluster, admin: Admin, topic: str):
    """KIP-392: while the leader stands still, and behind the follower's death."""
    sender = Sender(kafka_cluster.bootstrap, topic)
    with running(sender):
        goes_on("records are acknowledged", sender.count, 30_000)
    leader = leaders(admin, topic)[0]
    rack = leader % 3 + 1
    reader = Follower(
        kafka_cluster.bootstrap, topic, partitions=1, client_rack=f"rack-{rack}",
        max_partition_fetch_bytes=4096, queued_max_messages_kbytes=4, max_poll_records=10,
    )  # fmt: skip

    def read_from() -> int:
        assert reader.consumer is not None
        return reader.consumer._fetcher.state(topic, 0)["leader"]

    with running(reader):
        goes_on("it reads", reader.count, 50)
        wait_for("the follower is read", lambda: read_from() == rack, SLOW_S)
        with stopped(kafka_cluster.node(leader)):
            goes_on("the leader is not needed", reader.count, 500)
            assert read_from() == rack
        kafka_cluster.node(rack).kill()
        wait_for("another is read", lambda: read_from() not in (-1, rack), SLOW_S)
        wait_for("all is read", lambda: reader.count() >= len(sender.acked[0]), SLOW_S)
        kafka_cluster.start()
    assert [number for _, number in reader.seen[0]] == sorted(sender.acked[0])


def in_sync(admin: Admin, topic: str) -> set[int]:
    return set(admin.describe_topics([topic])[topic].partitions[0].isr)


@pytest.mark.parametrize("reset", ["earliest", "none"])
def test_a_truncated_log_is_noticed(
    kafka_cluster: KafkaCluster, admin: Admin, topic: str, reset: str
):
    """KIP-320: a replica that lacks records is elected. What comes in their place is read."""
    name = f"{topic}-unclean"
    settings = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
    admin.create_topics([NewTopic(name, configs=settings, assignments={0: [1, 2]})])
    where = TopicPartition(name, 0)
    one, two = kafka_cluster.node(1), kafka_cluster.node(2)
    with (
        Producer(bootstrap_servers=kafka_cluster.bootstrap, acks="all") as producer,
        Consumer(bootstrap_servers=kafka_cluster.bootstrap, auto_offset_reset=reset) as consumer,
    ):
        for number in range(100):
            producer.send(name, b"old %d" % number, partition=0)
        producer.flush(SLOW_S)
        wait_for("two are in sync", lambda: in_sync(admin, name) == {1, 2}, SLOW_S)
        consumer.assign([where])
        consumer.seek(where, 0)
        with stopped(two):
            wait_for("one is in sync", lambda: in_sync(admin, name) == {1}, SLOW_S)
            for number in range(100, 300):
                producer.send(name, b"lost %d" % number, partition=0)
            producer.flush(SLOW_S)
            found = []

            def all_read() -> bool:
                found.extend(consumer.poll(0.5))
                return len(found) == 300

            wait_for("all is read", all_read, SLOW_S)
            one.kill()
        try:
            wait_for("the other leads", lambda: leaders(admin, name).get(0) == 2, SLOW_S)
            ends = fifty_more(producer, name)
            assert ends[0] < 300
            if reset == "none":
                with pytest.raises(LogTruncationError) as told:
                    wait_for("it is told", lambda: consumer.poll(0.5), SLOW_S)
                assert told.value.offset == ends[0]
                consumer.seek(where, told.value.offset)
            again = []

            def new_read() -> bool:
                again.extend(consumer.poll(0.5))
                return len(again) >= 50

            wait_for("what came instead is read", new_read, SLOW_S)
            assert [record.value for record in again] == [b"new %d" % i for i in range(50)]
            assert again[0].offset == ends[0]
        finally:
            kafka_cluster.start()


def fifty_more(producer: Producer, name: str) -> list[int]:
    """Their offsets."""
    sent = [producer.send(name, b"new %d" % i, partition=0) for i in range(50)]
    return [one.result(SLOW_S).offset for one in sent]


def test_all_nodes_move_to_other_ports(kafka_cluster: KafkaCluster, topic: str):
    """KIP-1102: no known broker answers any more, but the bootstrap addresses do."""
    ports = free_ports(3)
    to_be = ",".join(f"127.0.0.1:{port}" for port in ports)
    every = f"{kafka_cluster.bootstrap},{to_be}"
    sender = Sender(every, topic)
    reader = Follower(every, topic)
    member = Follower(every, topic, group_id=f"moves-{topic}")
    with running(reader, member):
        with running(sender):
            goes_on("records are acknowledged", sender.count)
            goes_on("the member reads", member.count)
            kafka_cluster.kill()
            for node, port in zip(kafka_cluster.nodes, ports, strict=True):
                node.port = port
            kafka_cluster.start()
            goes_on("at the new addresses", sender.count)
            goes_on("they are read", reader.count)
            goes_on("by the member as well", member.count)
        caught_up(reader, sender)
    assert not sender.refused
    read_alike(reader, reckon(kafka_cluster.bootstrap, sender))


def test_controllers_are_spoken_to(kafka_cluster: KafkaCluster):
    """KIP-919."""
    ports = ",".join(f"127.0.0.1:{node.controller_port}" for node in kafka_cluster.nodes)
    with Admin(bootstrap_controllers=ports, default_api_timeout_ms=20_000) as admin:
        told = admin.describe_cluster()
        assert {(node, port) for node, _, port, _ in told.brokers} == {
            (node.node_id, node.controller_port) for node in kafka_cluster.nodes
        }
        assert told.controller_id in (1, 2, 3)
        assert {one.node_id for one in admin.describe_quorum().voters} == {1, 2, 3}
        with pytest.raises(UnsupportedApiError, match=r"bootstrap\.servers"):
            admin.list_topics()
