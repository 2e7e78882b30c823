"""AlterReplicaLogDirs: a partition moves to another directory while it is written to and read."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from kbroker.client import Consumer, Producer, TopicPartition
from tests.support import wire
from tests.support.kbroker import KbrokerProcess
from tests.support.processes import BrokerProcess
from tests.support.waits import wait_for
from tests.support.wire import DESCRIBE_LOG_DIRS, INCREMENTAL_ALTER_CONFIGS, WireConnection

ALTER_REPLICA_LOG_DIRS = 34
SLOW_S = 60
SMALL_SEGMENTS = {"log.segment.bytes": str(1 << 20), "log.segment.delete.delay.ms": "100"}
NONE, UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC, INVALID_ASSIGNMENT = 0, 3, 17, 39
STORAGE_ERROR, LOG_DIR_NOT_FOUND = 56, 57


@pytest.fixture
def second(tmp_path: Path) -> Path:
    return tmp_path / "second"


@pytest.fixture
def broker(start_kbroker: Callable[..., BrokerProcess], second: Path) -> Iterator[KbrokerProcess]:
    made = start_kbroker(SMALL_SEGMENTS, more_dirs=(second,))
    assert isinstance(made, KbrokerProcess)
    yield made


def alter(port: int, moves: dict[tuple[str, int], Path | str]) -> dict[tuple[str, int], int]:
    """Error codes by partition."""
    dirs: dict[str, dict[str, list[int]]] = {}
    for (topic, index), path in moves.items():
        dirs.setdefault(str(path), {}).setdefault(topic, []).append(index)
    body = {"dirs": [
        {"path": path, "topics": [{"name": name, "partitions": parts}
                                  for name, parts in topics.items()]}
        for path, topics in dirs.items()
    ]}  # fmt: skip
    with WireConnection(port) as connection:
        told = connection.call(ALTER_REPLICA_LOG_DIRS, 2, body)["results"]
    return {
        (one["topic_name"], part["partition_index"]): part["error_code"]
        for one in told for part in one["partitions"]
    }  # fmt: skip


def described(port: int) -> dict[str, dict[tuple[str, int, bool], dict[str, Any]]]:
    """What DescribeLogDirs tells: by directory, by topic, partition and whether it is a future one.
    """
    with WireConnection(port) as connection:
        told = connection.call(DESCRIBE_LOG_DIRS, 5, {"topics": None})["results"]
    return {
        one["log_dir"]: {
            (topic["name"], part["partition_index"], part["is_future_key"]): part
            for topic in one["topics"] for part in topic["partitions"]
        }
        for one in told
    }  # fmt: skip


def lives_in(broker: BrokerProcess, directory: Path, topic: str, index: int) -> bool:
    found = described(broker.port)
    moving = any((topic, index, True) in parts for parts in found.values())
    return (topic, index, False) in found[str(directory)] and not moving


def move(broker: BrokerProcess, topic: str, index: int, target: Path) -> None:
    assert alter(broker.port, {(topic, index): target}) == {(topic, index): NONE}
    wait_for("it lives there", lambda: lives_in(broker, target, topic, index), SLOW_S)


class Writer(threading.Thread):
    """Writes to one partition until it is told to stop, and notes what was acknowledged."""

    def __init__(self, broker: BrokerProcess, topic: str) -> None:
        super().__init__()
        self.broker, self.topic = broker, topic
        self.values: list[bytes] = []
        self.stopping = threading.Event()

    def run(self) -> None:
        number = 0
        with Producer(bootstrap_servers=self.broker.bootstrap) as producer:
            while not self.stopping.is_set():
                values = [b"%08d" % (number + i) + bytes(2000) for i in range(40)]
                sent = [producer.send(self.topic, value, partition=0) for value in values]
                for one in sent:
                    one.result(SLOW_S)
                self.values += values
                number += len(values)

    def __enter__(self) -> Writer:
        self.start()
        wait_for("some are written", lambda: len(self.values) > 1000, SLOW_S)
        return self

    def __exit__(self, *_: object) -> None:
        self.stopping.set()
        self.join()


def read(broker: BrokerProcess, topic: str, count: int) -> list[bytes]:
    with Consumer(bootstrap_servers=broker.bootstrap) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        consumer.seek_to_beginning()
        found: list[bytes] = []

        def all_read() -> bool:
            found.extend(one.value or b"" for one in consumer.poll(1.0))
            return len(found) >= count

        wait_for("all is read", all_read, SLOW_S)
    return found


@pytest.mark.timeout(300)
def test_to_and_fro_under_load(broker: KbrokerProcess, topic: str, second: Path) -> None:
    wire.create_topic(broker.port, topic, 1)
    with Writer(broker, topic) as writer:
        for target in (second, broker.data_dir, second):
            before = len(writer.values)
            move(broker, topic, 0, target)
            wait_for("it is written to", lambda: len(writer.values) > before, SLOW_S)  # noqa: B023
    assert read(broker, topic, len(writer.values)) == writer.values
    broker.kill()
    broker.start()
    assert read(broker, topic, len(writer.values)) == writer.values
    assert lives_in(broker, second, topic, 0)
    assert not (broker.data_dir / f"{topic}-0").exists()
    broker.stop()
    broker.start()
    assert read(broker, topic, len(writer.values)) == writer.values


@pytest.mark.timeout(300)
def test_a_compacted_log_keeps_its_holes_and_all_behind_them(
    start_kbroker: Callable[..., BrokerProcess], topic: str, second: Path
) -> None:
    """Also where the journal that it comes back to has entries that were compacted away since."""
    settings = {"log.cleaner.backoff.ms": "100", "log.cleaner.min.cleanable.ratio": "0.01",
                "log.cleanup.policy": "compact"}  # fmt: skip
    broker = start_kbroker({**SMALL_SEGMENTS, **settings}, more_dirs=(second,))
    wire.create_topic(broker.port, topic, 1)
    latest: dict[bytes, bytes] = {}

    def write(turn: int) -> None:
        with Producer(bootstrap_servers=broker.bootstrap, batch_size=1) as producer:
            for number in range(600):
                key, value = b"%d" % (number % 7), b"%d-%d" % (turn, number) + bytes(10_000)
                producer.send(topic, value, key=key, partition=0).result(SLOW_S)
                latest[key] = value

    def cleaned() -> int:
        return broker.log_text().count(f"cleaned {topic}-0")

    for turn, target in enumerate((second, broker.data_dir, second)):
        before = cleaned()
        write(turn)
        wait_for("it is cleaned", lambda: cleaned() > before, SLOW_S)  # noqa: B023
        move(broker, topic, 0, target)
        broker.kill()
        broker.start()
        end, found = last_values(broker, topic)
        assert found == latest and end == 600 * (turn + 1)


def last_values(broker: BrokerProcess, topic: str) -> tuple[int, dict[bytes, bytes]]:
    """The log's end, and by key what came last."""
    partition = TopicPartition(topic, 0)
    found: dict[bytes, bytes] = {}
    with Consumer(bootstrap_servers=broker.bootstrap) as consumer:
        consumer.assign([partition])
        consumer.seek_to_beginning()
        end = consumer.end_offsets([partition])[partition]

        def all_read() -> bool:
            found.update({one.key or b"": one.value or b"" for one in consumer.poll(1.0)})
            return consumer.position(partition) >= end

        wait_for("all is read", all_read, SLOW_S)
    return end, found


def throttle(broker: BrokerProcess, rate: int) -> None:
    configure(broker, "replica.alter.log.dirs.io.max.bytes.per.second", str(rate))


def configure(broker: BrokerProcess, name: str, value: str) -> None:
    config = {"name": name, "value": value, "config_operation": 0}
    resource = {"resource_type": 4, "resource_name": "1", "configs": [config]}
    with WireConnection(broker.port) as connection:
        told = connection.call(INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource]})
    assert told["responses"][0]["error_code"] == 0, told


@pytest.mark.timeout(300)
def test_a_kill_on_the_way_leaves_it_where_it_was_and_the_move_begins_anew(
    broker: KbrokerProcess, topic: str, second: Path
) -> None:
    wire.create_topic(broker.port, topic, 1)
    with Writer(broker, topic) as writer:
        pass
    throttle(broker, 200_000)
    assert alter(broker.port, {(topic, 0): second}) == {(topic, 0): NONE}
    future = described(broker.port)[str(second)][topic, 0, True]
    assert future["offset_lag"] > 0
    assert list(second.glob(f"{topic}-0.*-future"))
    broker.kill()
    broker.start()
    assert read(broker, topic, len(writer.values)) == writer.values
    assert described(broker.port)[str(second)][topic, 0, True]["offset_lag"] > 0
    throttle(broker, 1 << 40)
    broker.restart()  # the throttle that holds now is waited for a piece at a time
    wait_for("it lives there", lambda: lives_in(broker, second, topic, 0), SLOW_S)
    assert read(broker, topic, len(writer.values)) == writer.values


def test_a_move_is_called_off(broker: KbrokerProcess, topic: str, second: Path) -> None:
    wire.create_topic(broker.port, topic, 1)
    with Writer(broker, topic) as writer:
        pass
    throttle(broker, 200_000)
    assert alter(broker.port, {(topic, 0): second}) == {(topic, 0): NONE}
    assert alter(broker.port, {(topic, 0): broker.data_dir}) == {(topic, 0): NONE}
    assert (topic, 0, True) not in described(broker.port)[str(second)]
    throttle(broker, 1 << 40)
    wait_for("the copy is gone", lambda: not list(second.glob(f"{topic}-0.*")), SLOW_S)
    assert read(broker, topic, len(writer.values)) == writer.values


def test_what_is_refused(broker: KbrokerProcess, topic: str, second: Path) -> None:
    wire.create_topic(broker.port, topic, 1)
    long = "x" * 249
    first = broker.data_dir
    assert alter(broker.port, {(topic, 0): first / "no"}) == {(topic, 0): LOG_DIR_NOT_FOUND}
    assert alter(broker.port, {(topic, 7): second}) == {(topic, 7): UNKNOWN_TOPIC_OR_PARTITION}
    assert alter(broker.port, {(long, 0): second}) == {(long, 0): INVALID_TOPIC}
    assert alter(broker.port, {(topic, 0): first}) == {(topic, 0): NONE}
    configure(broker, "cordoned.log.dirs", str(second))
    assert alter(broker.port, {(topic, 0): second}) == {(topic, 0): INVALID_ASSIGNMENT}
    wire.create_topic(broker.port, f"{topic}-new", 3)
    assert len(list(first.glob(f"{topic}-new-*"))) == 3
    broker.stop()
    second.rename(second.with_name("away"))
    broker.start()
    assert alter(broker.port, {(topic, 0): second}) == {(topic, 0): STORAGE_ERROR}


@pytest.mark.timeout(300)
def test_commits_and_transactions_go_on(
    broker: KbrokerProcess, topic: str, second: Path
) -> None:
    """Of the coordinators' own logs, too."""
    wire.create_topic(broker.port, topic, 1)
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": broker.bootstrap, "transactional.id": "t"}
    )
    producer.init_transactions(SLOW_S)
    for turn in range(6):
        producer.begin_transaction()
        producer.produce(topic, b"%d" % turn, partition=0)
        producer.flush(SLOW_S)
        target = second if turn % 2 == 0 else broker.data_dir
        for name, index in partitions_of(broker, "__transaction_state", topic):
            move(broker, name, index, target)
        if turn % 2:
            producer.commit_transaction(SLOW_S)
        else:
            producer.abort_transaction(SLOW_S)
    with Consumer(
        bootstrap_servers=broker.bootstrap, isolation_level="read_committed", group_id="g"
    ) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        consumer.seek_to_beginning()
        found: list[bytes] = []

        def all_read() -> bool:
            found.extend(one.value or b"" for one in consumer.poll(1.0))
            return len(found) >= 3

        wait_for("the committed ones", all_read, SLOW_S)
        assert found == [b"1", b"3", b"5"]
        consumer.commit()
        for name, index in partitions_of(broker, "__consumer_offsets"):
            move(broker, name, index, second)
        consumer.commit()
    broker.kill()
    broker.start()
    with Consumer(bootstrap_servers=broker.bootstrap, group_id="g") as consumer:
        committed = consumer.committed([TopicPartition(topic, 0)])
        assert next(iter(committed.values())).offset > 0


def partitions_of(broker: BrokerProcess, *topics: str) -> list[tuple[str, int]]:
    """Those that hold something."""
    return sorted({
        (name, index)
        for parts in described(broker.port).values()
        for (name, index, _), part in parts.items()
        if name in topics and part["partition_size"]
    })  # fmt: skip


@pytest.mark.timeout(120)
def test_what_lies_in_the_way_is_put_aside(
    broker: KbrokerProcess, topic: str, second: Path
) -> None:
    """An old copy in the target is never taken for the partition, at the next start neither."""
    wire.create_topic(broker.port, topic, 1)
    stale = second / f"{topic}-0"
    shutil.copytree(broker.data_dir / stale.name, stale)
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        for number in range(100):
            producer.send(topic, b"%d" % number, partition=0)
    move(broker, topic, 0, second)
    assert len(list(second.glob(f"{topic}-0.*-stray"))) == 1
    broker.kill()
    broker.start()
    assert len(read(broker, topic, 100)) == 100
    assert lives_in(broker, second, topic, 0)
