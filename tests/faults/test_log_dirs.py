"""Two log directories: each serves and fails for itself, and none is taken for what it is not.

kbroker alone: what the first directory's failure does is the same as before
(test_offline_directory); Apache Kafka on the same directories is tests/long/test_log_dirs_kafka.py.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kbroker import runfile
from kbroker.cli.scrape import scrape
from kbroker.client import Admin, Consumer, Producer, TopicPartition
from tests.faults.scenes import injected
from tests.faults.test_disk import KAFKA_STORAGE_ERROR, numbered
from tests.faults.test_offline_directory import command
from tests.support import wire
from tests.support.kbroker import KbrokerProcess
from tests.support.processes import BrokerProcess
from tests.support.waits import wait_for
from tests.support.wire import (
    CREATE_TOPICS,
    DESCRIBE_LOG_DIRS,
    METADATA,
    PRODUCE,
    WireConnection,
)
from tests.wire.test_connections import produce_body

LEADER_NOT_AVAILABLE = 5
PARTITIONS = 4
SLOW_S = 60
TOLD_S = 10
FSYNC = {"kbroker.durability": "fsync"}


@pytest.fixture
def second(tmp_path: Path) -> Path:
    return tmp_path / "second"


@pytest.fixture
def broker(
    start_kbroker: Callable[..., BrokerProcess], second: Path, topic: str
) -> Iterator[KbrokerProcess]:
    """A broker on two directories with a topic whose even partitions are in the first one."""
    made = start_kbroker(FSYNC, more_dirs=(second,))
    assert isinstance(made, KbrokerProcess)
    wire.create_topic(made.port, topic, PARTITIONS)
    assert in_directory(made.data_dir, topic) == [0, 2] and in_directory(second, topic) == [1, 3]
    yield made


def in_directory(directory: Path, topic: str) -> list[int]:
    names = [path.name for path in directory.glob(f"{topic}-*")]
    return sorted(int(name.rpartition("-")[2]) for name in names if name[-1].isdigit())


def write(broker: BrokerProcess, topic: str, count: int, partitions: range) -> list[bytes]:
    """Acknowledged records, in turns."""
    values = [f"{time.monotonic_ns()}-{number}".encode() for number in range(count)]
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        sent = [
            producer.send(topic, value, partition=partitions[number % len(partitions)])
            for number, value in enumerate(values)
        ]
        for one in sent:
            one.result(SLOW_S)
    return values


def read(broker: BrokerProcess, topic: str, count: int, partitions: range) -> list[bytes]:
    """So many records, or as many as come in time; sorted."""
    with Consumer(bootstrap_servers=broker.bootstrap) as consumer:
        consumer.assign([TopicPartition(topic, index) for index in partitions])
        consumer.seek_to_beginning()
        found: list[bytes] = []
        until = time.monotonic() + SLOW_S
        while len(found) < count and time.monotonic() < until:
            found += [one.value or b"" for one in consumer.poll(1.0)]
    return sorted(found)


def produce(connection: WireConnection, topic: str, number: int, partition: int) -> dict[str, Any]:
    body = produce_body(topic, numbered(number))
    body["topic_data"][0]["partition_data"][0]["index"] = partition
    answer = connection.call(PRODUCE, 9, body)
    part: dict[str, Any] = answer["responses"][0]["partition_responses"][0]
    return part


def refused(broker: KbrokerProcess, *directories: Path) -> str:
    """What a start on these says that is refused."""
    command = broker.command()
    at = command.index("--data-dir")
    words = [word for one in directories for word in ("--data-dir", str(one))]
    rest = command[at:]
    while "--data-dir" in rest:
        place = rest.index("--data-dir")
        del rest[place : place + 2]
    denied = subprocess.run(
        [*command[:at], *words, *rest], env=broker.environment(), capture_output=True, text=True,
        timeout=SLOW_S, check=False,
    )  # fmt: skip
    assert denied.returncode == 1, denied
    return denied.stderr


def test_what_was_acknowledged_outlives_a_kill(
    broker: KbrokerProcess, topic: str, second: Path
) -> None:
    values: list[bytes] = []
    for lost in (True, False, False):
        values += write(broker, topic, 200, range(PARTITIONS))
        broker.kill()
        for directory in (broker.data_dir, second):
            assert list(directory.glob(".kbroker-journal.*"))
            for segment in directory.glob(f"{topic}-*/*.log") if lost else ():
                segment.write_bytes(b"")  # a power cut has taken what was not synced
        broker.start()
        assert read(broker, topic, len(values), range(PARTITIONS)) == sorted(values)
    broker.stop()
    for directory in (broker.data_dir, second):
        assert (directory / ".kafka_cleanshutdown").exists()
        assert not list(directory.glob(".kbroker-journal.*"))


def test_a_directory_that_is_away_is_offline_and_nothing_is_made_in_its_place(
    broker: KbrokerProcess, topic: str, second: Path, tmp_path: Path
) -> None:
    values = write(broker, topic, 40, range(PARTITIONS))
    broker.stop()
    second.rename(tmp_path / "away")
    for there in (False, True):  # not there at all; the place where the disk is not mounted
        if there:
            second.mkdir()
        broker.start()
        with WireConnection(broker.port) as connection:
            (told,) = connection.call(METADATA, 9, {"topics": [{"name": topic}]})["topics"]
            folders = connection.call(DESCRIBE_LOG_DIRS, 5, {"topics": None})["results"]
            assert produce(connection, topic, 1, 1)["error_code"] == KAFKA_STORAGE_ERROR
        leaders = {one["partition_index"]: one["leader_id"] for one in told["partitions"]}
        assert leaders == {0: 1, 1: -1, 2: 1, 3: -1}
        assert [one["error_code"] for one in folders] == [0, KAFKA_STORAGE_ERROR]
        values += write(broker, topic, 10, range(0, PARTITIONS, 2))
        name = f"new-{there}-{topic}"
        wire.create_topic(broker.port, name, 3)
        assert in_directory(broker.data_dir, name) == [0, 1, 2]
        assert not any(second.iterdir()) if there else not second.exists()
        broker.stop()
    assert in_directory(broker.data_dir, topic) == [0, 2]
    second.rmdir()
    (tmp_path / "away").rename(second)
    broker.start()
    assert read(broker, topic, len(values), range(PARTITIONS)) == sorted(values)


def test_a_topic_that_is_deleted_and_made_again_meanwhile_is_not_served_from_an_old_copy(
    broker: KbrokerProcess, topic: str, second: Path, tmp_path: Path
) -> None:
    write(broker, topic, 40, range(PARTITIONS))
    broker.stop()
    second.rename(tmp_path / "away")
    broker.start()
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.delete_topics([topic])
    wire.create_topic(broker.port, topic, PARTITIONS)
    values = write(broker, topic, 8, range(PARTITIONS))
    broker.kill()
    (tmp_path / "away").rename(second)
    broker.start()
    assert read(broker, topic, len(values), range(PARTITIONS)) == sorted(values)
    assert in_directory(second, topic) == [] and not list(second.glob("*-stray"))
    wait_for("the old copy is removed", lambda: not list(second.glob("*-delete")), SLOW_S)


def test_directories_that_do_not_belong_together_are_refused(
    broker: KbrokerProcess, topic: str, second: Path, tmp_path: Path
) -> None:
    first = broker.data_dir
    broker.stop()
    assert "has no __cluster_metadata-0" in refused(broker, second)
    assert "has no __cluster_metadata-0" in refused(broker, second, first)
    assert "is the disk of" in refused(broker, tmp_path / "empty", second)
    shutil.copytree(second, tmp_path / "copy")
    assert "the same directory.id" in refused(broker, first, second, tmp_path / "copy")
    text = (second / "meta.properties").read_text()
    (second / "meta.properties").write_text(text.replace("node.id=1", "node.id=2"))
    assert "take it out of log.dirs" in refused(broker, first, second)
    (second / "meta.properties").write_text(text)
    broker.start()


def test_a_disk_that_fails_takes_its_own_partitions_and_no_others(
    broker: KbrokerProcess, topic: str, second: Path
) -> None:
    values = write(broker, topic, 40, range(PARTITIONS))
    journal = second / ".kbroker-journal.0"
    with WireConnection(broker.port) as connection:
        with injected(broker, "fdatasync", "error=EIO", journal):
            wait_for(
                "produce is refused",
                lambda: produce(connection, topic, 1, 1)["error_code"] == KAFKA_STORAGE_ERROR,
                TOLD_S,
            )
        line = "the journal cannot be written: Input/output error (errno 5)"
        wait_for("the log says why", lambda: line in broker.log_text(), TOLD_S)
        assert produce(connection, topic, 1, 3)["error_code"] == KAFKA_STORAGE_ERROR
        (told,) = connection.call(METADATA, 9, {"topics": [{"name": topic}]})["topics"]
        folders = connection.call(DESCRIBE_LOG_DIRS, 5, {"topics": None})["results"]
        new = {"name": f"{topic}-new", "num_partitions": 2, "replication_factor": 1}
        (created,) = connection.call(CREATE_TOPICS, 5, {"topics": [new]})["topics"]
    assert [
        (one["partition_index"], one["leader_id"], one["offline_replicas"])
        for one in told["partitions"]
    ] == [(0, 1, []), (1, -1, [1]), (2, 1, []), (3, -1, [1])]
    assert [one["error_code"] for one in folders] == [0, KAFKA_STORAGE_ERROR]
    assert created["error_code"] == 0 and in_directory(broker.data_dir, f"{topic}-new") == [0, 1]
    values += write(broker, topic, 20, range(0, PARTITIONS, 2))
    check_tools(broker, topic, second)
    assert broker.stop() == 1
    assert (broker.data_dir / ".kafka_cleanshutdown").exists()
    assert not (second / ".kafka_cleanshutdown").exists()
    broker.start()
    found = read(broker, topic, len(values), range(PARTITIONS))
    assert set(values) <= set(found)


def test_a_disk_that_hangs_holds_up_its_own_and_no_others(
    broker: KbrokerProcess, topic: str, second: Path
) -> None:
    write(broker, topic, 8, range(PARTITIONS))
    hang_s = 15
    with Producer(bootstrap_servers=broker.bootstrap) as slow, injected(
        broker, "fdatasync", f"delay_enter={hang_s}s:when=1", second / ".kbroker-journal.0"
    ):  # fmt: skip
        began = time.monotonic()
        late = slow.send(topic, b"late", partition=1)
        for _ in range(20):
            write(broker, topic, 10, range(0, PARTITIONS, 2))
        wire.create_topic(broker.port, f"new-{topic}", 1)
        assert not late.done() and time.monotonic() - began < hang_s
        late.result(SLOW_S)
    assert read(broker, topic, 209, range(PARTITIONS))[-1] == b"late"


def check_tools(broker: KbrokerProcess, topic: str, second: Path) -> None:
    info = runfile.running(broker.data_dir)
    assert info is not None
    found = scrape(info.http[0])
    for name, value in {
        "kafka_controller_kafkacontroller_offlinepartitionscount": 2,
        "kafka_server_replicamanager_offlinereplicacount": 2,
        "kafka_log_logmanager_offlinelogdirectorycount": 1,
    }.items():
        assert found.value(name) == value, name
    health = command("cluster", "health", "-b", broker.bootstrap)
    assert health.returncode == 1 and "log directories that are off: 1" in health.stdout
    folders = json.loads(command("cluster", "logdirs", "-b", broker.bootstrap, "-o", "json").stdout)
    assert [one["error"] is None for one in folders] == [True, False]
    status = command("status", "--data-dir", str(broker.data_dir), "-o", "json")
    assert json.loads(status.stdout)["offline_partitions"] == 2
    assert str(second) in command("check", "--data-dir", str(broker.data_dir)).stdout
    backup = str(second.with_name("backup"))
    made = command("backup", "create", backup, "--data-dir", str(broker.data_dir))
    verified = command("backup", "verify", backup)
    for one, output in ((made, made.stderr), (verified, verified.stdout)):
        assert one.returncode == 1 and "all good" not in output, one
        incomplete = [line.partition(" ")[0] for line in output.splitlines() if "whole" in line]
        assert incomplete == [f"{topic}-1", f"{topic}-3"], one


def test_a_log_that_cannot_be_opened_keeps_the_journal_of_its_directory(
    broker: KbrokerProcess, topic: str, second: Path
) -> None:
    values = write(broker, topic, 40, range(PARTITIONS))
    broker.kill()
    for segment in second.glob(f"{topic}-*/*.log"):
        segment.write_bytes(b"")  # a power cut has taken what was not synced
    epochs = second / f"{topic}-1" / "leader-epoch-checkpoint"
    epochs.unlink(missing_ok=True)
    epochs.mkdir()
    broker.start()
    assert f"{topic}-1 cannot be opened" in broker.log_text()
    with WireConnection(broker.port) as connection:
        for index, code in ((0, 0), (1, KAFKA_STORAGE_ERROR), (3, KAFKA_STORAGE_ERROR)):
            assert produce(connection, topic, 1, index)["error_code"] == code
    assert list(second.glob(".kbroker-journal.*"))
    broker.stop()
    epochs.rmdir()
    broker.start()
    assert set(values) <= set(read(broker, topic, len(values) + 1, range(PARTITIONS)))


def test_a_directory_at_its_limit_refuses_and_the_other_takes(
    start_kbroker: Callable[..., BrokerProcess], second: Path, topic: str
) -> None:
    settings = {"kbroker.disk.bytes.max": str(24 << 20), "log.cleanup.policy": "compact"}
    made = start_kbroker({**FSYNC, **settings}, more_dirs=(second,))  # nothing may go to make room
    wire.create_topic(made.port, topic, 2)
    with Producer(bootstrap_servers=made.bootstrap, delivery_timeout_ms=SLOW_S * 1000) as producer:

        def is_reached() -> bool:
            producer.send(topic, bytes(100_000), key=b"k", partition=1)
            return "is reached" in made.log_text()

        wait_for("the limit is reached", is_reached, SLOW_S)
        producer.send(topic, b"here", key=b"k", partition=0).result(SLOW_S)
        producer.close(0)  # what is refused still
        made.kill()


def test_a_folder_moved_by_hand_after_a_crash_gets_what_only_the_journal_has(
    broker: KbrokerProcess, topic: str, second: Path
) -> None:
    values = write(broker, topic, 100, range(PARTITIONS))
    broker.kill()
    for path in broker.data_dir.glob(f"{topic}-0/*.log"):
        path.write_bytes(b"")  # a power cut: the journal has it
    shutil.move(broker.data_dir / f"{topic}-0", second)
    broker.start()
    assert read(broker, topic, 100, range(PARTITIONS)) == sorted(values)
    assert in_directory(second, topic) == [0, 1, 3]
    broker.kill()
    broker.start()
    assert read(broker, topic, 100, range(PARTITIONS)) == sorted(values)
