"""The disk as a whole: old records make room, then produce is refused, and taken again."""

from __future__ import annotations

import itertools
import json
import random
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from kbroker.cli import root
from tests.reference.crafted_batches import Batch, Record, values_of
from tests.support import wire
from tests.support.processes import BrokerProcess
from tests.support.waits import wait_for
from tests.support.wire import (
    DELETE_TOPICS,
    FETCH,
    FIND_COORDINATOR,
    INCREMENTAL_ALTER_CONFIGS,
    LIST_OFFSETS,
    PRODUCE,
    WireConnection,
)
from tests.wire.test_connections import fetch_body, produce_body

OFFSET_COMMIT, OFFSET_FETCH = 8, 9
KAFKA_STORAGE_ERROR, OFFSET_OUT_OF_RANGE = 56, 1
MIB = 1 << 20
CAP = 24 * MIB
BATCH_BYTES = 200_000
# What may come between two looks: the journal's next file, an index that grows.
SLACK = 4 * MIB
_keys = itertools.count()
BEGUN, ENDED = "is reached and there is nothing left to delete", "there is room on the disk again"
# One segment, which is being written to: nothing of it can go.
WHOLE = {"segment.bytes": str(1 << 30)}
SMALL = {"segment.bytes": str(MIB), "file.delete.delay.ms": "600000"}


@pytest.fixture
def broker(start_kbroker: Callable[..., BrokerProcess]) -> Iterator[BrokerProcess]:
    yield start_kbroker({"kbroker.disk.bytes.max": str(CAP), "offsets.topic.num.partitions": "1"})


@pytest.fixture
def connection(broker: BrokerProcess) -> Iterator[WireConnection]:
    with WireConnection(broker.port) as made:
        yield made


def batch_of(size: int = BATCH_BYTES) -> bytes:
    record = Record(b"." * size, key=b"%d" % next(_keys))
    return Batch(records=[record], base_timestamp=int(time.time() * 1000)).encode()


def produce(connection: WireConnection, topic: str, size: int = BATCH_BYTES) -> dict[str, Any]:
    answer = connection.call(PRODUCE, 9, produce_body(topic, batch_of(size)))
    part: dict[str, Any] = answer["responses"][0]["partition_responses"][0]
    return part


def fill(connection: WireConnection, topic: str, size: int) -> None:
    for _ in range(size // BATCH_BYTES):
        assert produce(connection, topic)["error_code"] == 0


def fill_until_refused(connection: WireConnection, topic: str, most: int = 2 * CAP) -> int:
    """Offset of the first record that was refused."""
    for _ in range(most // BATCH_BYTES):
        part = produce(connection, topic)
        if part["error_code"] != 0:
            assert part["error_code"] == KAFKA_STORAGE_ERROR
            assert "disk has reached the limit" in part["error_message"]
            return next_offset(connection, topic)
    raise AssertionError("never refused")


def next_offset(connection: WireConnection, topic: str, timestamp: int = -1) -> int:
    partition = {"partition_index": 0, "timestamp": timestamp}
    asked = {"replica_id": -1, "topics": [{"name": topic, "partitions": [partition]}]}
    answer = connection.call(LIST_OFFSETS, 6, asked)
    return int(answer["topics"][0]["partitions"][0]["offset"])


def log_start(connection: WireConnection, topic: str) -> int:
    return next_offset(connection, topic, -2)


def fetch(connection: WireConnection, topic: str, offset: int) -> dict[str, Any]:
    answer = connection.call(FETCH, 11, fetch_body(topic, offset))
    part: dict[str, Any] = answer["responses"][0]["partitions"][0]
    return part


def configure_broker(connection: WireConnection, **settings: str) -> None:
    configs = [
        {"name": name.replace("_", "."), "value": value, "config_operation": 0}
        for name, value in settings.items()
    ]
    resource = {"resource_type": 4, "resource_name": "", "configs": configs}
    answer = connection.call(INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource]})
    assert answer["responses"][0]["error_code"] == 0, answer


def takes(connection: WireConnection, topic: str) -> Callable[[], bool]:
    return lambda: produce(connection, topic)["error_code"] == 0


def file_bytes(broker: BrokerProcess) -> int:
    """Of the data directory; blocks prepared ahead do not count."""
    return sum(path.stat().st_size for path in files(broker.data_dir))


def files(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_file())


def test_the_oldest_closed_segments_of_all_topics_make_room(
    broker: BrokerProcess, connection: WireConnection
) -> None:
    """Of topics that delete: the one written first is emptied first, but for its active segment."""
    for name in ("first", "second"):
        wire.create_topic(broker.port, name, 1, SMALL)
    wire.create_topic(broker.port, "kept", 1, SMALL | {"cleanup.policy": "compact"})
    fill(connection, "kept", 3 * MIB)
    fill(connection, "first", 5 * MIB)
    fill(connection, "second", 2 * CAP)
    assert log_start(connection, "kept") == 0
    assert 0 < log_start(connection, "first") < next_offset(connection, "first")
    assert log_start(connection, "second") > 0
    # What is left of the first topic is its active segment, and is served.
    assert fetch(connection, "first", log_start(connection, "first"))["records"]
    assert fetch(connection, "first", 0)["error_code"] == OFFSET_OUT_OF_RANGE
    assert CAP // 2 < file_bytes(broker) < CAP + SLACK
    assert BEGUN not in broker.log_text()


@pytest.mark.parametrize(
    ("segment_bytes", "cleaner"),
    [
        (6 * MIB, {"log.cleaner.io.max.bytes.per.second": "6000000"}),
        (MIB, {}),
    ],
    ids=["one large segment, slowly", "many small ones, at once"],
)
def test_compaction_keeps_within_the_limit(
    start_kbroker: Callable[..., BrokerProcess], segment_bytes: int, cleaner: dict[str, str]
) -> None:
    """What it writes, and what it has replaced, make the oldest records of other topics go."""
    settings = {"kbroker.disk.bytes.max": str(CAP), "log.cleaner.backoff.ms": "3600000"} | cleaner
    broker = start_kbroker(settings)
    compacted = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
    wire.create_topic(
        broker.port, "kept", 1, SMALL | compacted | {"segment.bytes": str(segment_bytes)}
    )
    wire.create_topic(broker.port, "old", 1, SMALL)
    peak = 0

    def cleaned() -> bool:
        nonlocal peak
        with suppress(FileNotFoundError):
            peak = max(peak, file_bytes(broker))
        fill(connection, "old", BATCH_BYTES)
        return "cleaned kept-0 up to offset" in broker.log_text()

    with WireConnection(broker.port) as connection:
        fill(connection, "kept", 13 * MIB)
        fill(connection, "old", CAP)
        configure_broker(connection, log_cleaner_backoff_ms="100")  # now it begins
        wait_for("the cleaner is done", cleaned, 60, 0.01)
    assert CAP // 2 < peak < CAP + SLACK
    assert BEGUN not in broker.log_text()


def test_who_finds_no_room_waits_for_the_next_look(broker: BrokerProcess) -> None:
    """Faster than the disk is looked at, in network threads and in the I/O pool: all is taken."""
    noise = random.Random(1).randbytes(900_000)
    data = Batch(records=[Record(noise)], base_timestamp=int(time.time() * 1000)).encode()
    topics = {"plain": SMALL, "again": SMALL | {"compression.type": "lz4"}}
    for name, settings in topics.items():
        wire.create_topic(broker.port, name, 1, settings)
    with ExitStack() as connections:
        writers = [
            (name, connections.enter_context(WireConnection(broker.port)))
            for name in [*topics] * 2
        ]
        for _ in range(8):  # of four in flight on each of four connections: 115 MB
            sent = [
                (writer, writer.send(PRODUCE, 9, produce_body(name, data, 1)))
                for name, writer in writers
                for _ in range(4)
            ]
            for writer, correlation_id in sent:
                answer = writer.receive(PRODUCE, 9, correlation_id)
                assert answer["responses"][0]["partition_responses"][0]["error_code"] == 0
    assert file_bytes(broker) < CAP + SLACK
    assert BEGUN not in broker.log_text()


def test_then_produce_is_refused_until_there_is_room(
    broker: BrokerProcess, connection: WireConnection
) -> None:
    wire.create_topic(broker.port, "old", 1, SMALL)
    wire.create_topic(broker.port, "full", 1, WHOLE)
    fill(connection, "old", 2 * MIB)
    end = fill_until_refused(connection, "full")
    assert log_start(connection, "old") > 0 == log_start(connection, "full")
    assert file_bytes(broker) < CAP + SLACK
    wait_for("the log tells", lambda: BEGUN in broker.log_text(), 60)
    # Fetch goes on, and so do commits; a retry and another topic are refused alike.
    assert len(values_of(fetch(connection, "full", end - 1)["records"])) == 1
    assert commit(connection, "full", 7) == 0
    assert committed(connection, "full") == 7
    for topic in ("full", "old"):
        assert produce(connection, topic)["error_code"] == KAFKA_STORAGE_ERROR
    broker.restart()
    with WireConnection(broker.port) as again:
        fill_until_refused(again, "full")
        assert committed(again, "full") == 7
        again.call(DELETE_TOPICS, 5, {"topic_names": ["full"], "timeout": 9000})
        wait_for("there is room", takes(again, "old"), 60)
    assert broker.log_text().count(BEGUN) == 2 and broker.log_text().count(ENDED) == 1


def test_an_idempotent_producer_comes_through_a_shortage(
    broker: BrokerProcess, connection: WireConnection
) -> None:
    """librdkafka tries again until there is room: everything arrives, once and in order."""
    wire.create_topic(broker.port, "full", 1, WHOLE)
    wire.create_topic(broker.port, "topic", 1, WHOLE)
    fill_until_refused(connection, "full")
    errors: list[Any] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
    for number in range(50):
        producer.produce("topic", b"%d" % number, on_delivery=lambda e, _: e and errors.append(e))
    assert producer.flush(1) > 0, "refused"
    connection.call(DELETE_TOPICS, 5, {"topic_names": ["full"], "timeout": 9000})
    assert producer.flush(30) == 0
    assert not errors
    records = fetch(connection, "topic", 0)["records"]
    assert [value for _, value in values_of(records)] == [b"%d" % n for n in range(50)]


def test_the_command_line_shows_where_the_space_is(
    broker: BrokerProcess, connection: WireConnection, capsys: pytest.CaptureFixture[str]
) -> None:
    """A second connection to the broker tells the limits that hold."""
    wire.create_topic(broker.port, "topic", 2, SMALL)
    fill(connection, "topic", 3 * MIB)
    configure_broker(connection, kbroker_disk_free_bytes_min="1048576")

    def found() -> dict[str, Any] | None:
        """Checkpoints are written now and then, between the two looks as well."""
        assert root.run(["log", "sizes", "-D", str(broker.data_dir), "-o", "json"]) == 0
        told: dict[str, Any] = json.loads(capsys.readouterr().out)
        return told if told["bytes"] == file_bytes(broker) else None

    told = wait_for("the bytes that are there", found, 60)
    assert told is not None
    assert (told["bytes_max"], told["free_bytes_min"]) == (CAP, MIB)
    assert [one["segments"] > 1 for one in told["partitions"]] == [True, False]
    assert root.run(["status", "-D", str(broker.data_dir)]) == 0
    assert "MiB of at most 24.0 MiB, " in capsys.readouterr().out


def test_status_tells_that_produce_is_refused(
    broker: BrokerProcess, connection: WireConnection, capsys: pytest.CaptureFixture[str]
) -> None:
    wire.create_topic(broker.port, "topic", 1, WHOLE)
    line = "produce:    refused, kbroker.disk.bytes.max is reached\n"

    def told() -> tuple[Any, bool]:
        assert root.run(["status", "-D", str(broker.data_dir), "-o", "json"]) == 0
        refused = json.loads(capsys.readouterr().out)["produce_refused"]
        assert root.run(["status", "-D", str(broker.data_dir)]) == 0
        return refused, line in capsys.readouterr().out

    assert told() == (None, False)
    fill_until_refused(connection, "topic")
    wait_for("it is told", lambda: told() == ("kbroker.disk.bytes.max", True), 60)
    connection.call(DELETE_TOPICS, 5, {"topic_names": ["topic"], "timeout": 9000})
    wait_for("it is told", lambda: told() == (None, False), 60)


def test_limits_change_while_the_broker_runs(
    broker: BrokerProcess, connection: WireConnection
) -> None:
    """Off, on again, and the other one: what must stay free."""
    wire.create_topic(broker.port, "topic", 1, WHOLE)
    fill_until_refused(connection, "topic")
    configure_broker(connection, kbroker_disk_bytes_max="-1")
    wait_for("no limit", takes(connection, "topic"), 60)
    fill(connection, "topic", 4 * MIB)
    configure_broker(connection, kbroker_disk_free_bytes_min=str(1 << 60))
    wait_for("a limit", lambda: produce(connection, "topic")["error_code"] == 56, 60)
    assert fetch(connection, "topic", 0)["records"]
    configure_broker(connection, kbroker_disk_free_bytes_min="0")
    wait_for("no limit", takes(connection, "topic"), 60)


def commit(connection: WireConnection, topic: str, offset: int) -> int:
    """The error of a commit by a group without members."""
    partition = {"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}
    body = {"group_id": "g", "generation_id_or_member_epoch": -1, "member_id": "",
            "topics": [{"name": topic, "partitions": [partition]}]}  # fmt: skip

    def attempt() -> int:
        connection.call(FIND_COORDINATOR, 1, {"key": "g", "key_type": 0})
        answer = connection.call(OFFSET_COMMIT, 8, body)
        return int(answer["topics"][0]["partitions"][0]["error_code"])

    wait_for("the coordinator has loaded", lambda: attempt() not in (14, 15, 16), 60)
    return attempt()


def committed(connection: WireConnection, topic: str) -> int:
    body = {"group_id": "g", "topics": [{"name": topic, "partition_indexes": [0]}]}

    def ask() -> dict[str, Any]:
        return connection.call(OFFSET_FETCH, 7, body)

    wait_for("the coordinator has loaded", lambda: ask()["error_code"] == 0, 60)
    return int(ask()["topics"][0]["partitions"][0]["committed_offset"])


def test_retention_by_time_frees_space_under_a_steady_stream(
    start_kbroker: Callable[..., BrokerProcess],
) -> None:
    """Nobody set segment.ms: the segment that is written to is closed while it is small."""
    broker = start_kbroker({"log.retention.check.interval.ms": "200"})
    wire.create_topic(broker.port, "topic", 1, {"retention.ms": "1000"})
    wire.create_topic(
        broker.port, "slow", 1, {"retention.ms": "1000", "segment.ms": str(7 * 86_400_000)}
    )
    with WireConnection(broker.port) as connection:

        def deleted() -> bool:
            for topic in ("topic", "slow"):
                assert produce(connection, topic, 100)["error_code"] == 0
            return log_start(connection, "topic") > 0

        wait_for("the oldest records are gone", deleted, 60, 0.05)
        assert log_start(connection, "slow") == 0, "what was set holds"


def test_segments_adapt_so_that_a_small_limit_is_enough_for_many_partitions(
    start_kbroker: Callable[..., BrokerProcess],
) -> None:
    """Nobody set a segment size: retention and the disk's limit find closed segments to delete."""
    broker = start_kbroker(
        {"kbroker.disk.bytes.max": str(2 * CAP), "log.retention.check.interval.ms": "200"}
    )
    short = {"retention.bytes": str(4 * MIB), "file.delete.delay.ms": "0"}
    wire.create_topic(broker.port, "short", 1, short)
    wire.create_topic(broker.port, "wide", 6)
    with WireConnection(broker.port) as connection:
        fill(connection, "short", CAP)
        kept = broker.partition_dir("short", 0)
        wait_for("retention", lambda: sum(f.stat().st_size for f in files(kept)) < 7 * MIB, 60)
        for index in [*range(6)] * (CAP // BATCH_BYTES):
            body = produce_body("wide", batch_of())
            body["topic_data"][0]["partition_data"][0]["index"] = index  # type: ignore[index]
            answer = connection.call(PRODUCE, 9, body)
            assert answer["responses"][0]["partition_responses"][0]["error_code"] == 0
    assert file_bytes(broker) < 2 * CAP + SLACK
    assert BEGUN not in broker.log_text()
