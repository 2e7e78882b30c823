"""With durability=fsync no reader sees, and no acks=all producer is told of, what is not synced.

The syncs are held up by strace, so that the time between append and sync can be looked at.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest

from tests.faults.scenes import injected
from tests.reference.crafted_batches import Batch, Record, batch, values_of
from tests.support import wire
from tests.support.processes import BrokerProcess
from tests.support.waits import wait_for
from tests.support.wire import (
    DELETE_RECORDS,
    DELETE_TOPICS,
    FETCH,
    LIST_OFFSETS,
    OFFSET_FOR_LEADER_EPOCH,
    PRODUCE,
    WireConnection,
)
from tests.wire.test_connections import fetch_body, produce_body

HOLD_S = 3
UNKNOWN_TOPIC_OR_PARTITION, REQUEST_TIMED_OUT = 3, 7


def slow_syncs(broker: BrokerProcess, seconds: int = HOLD_S) -> AbstractContextManager[None]:
    """Every fdatasync takes so much longer."""
    return injected(broker, "fdatasync", f"delay_enter={seconds}s")


def end_offset(port: int, topic: str) -> int:
    part = {"partition_index": 0, "timestamp": -1}
    body = {"replica_id": -1, "topics": [{"name": topic, "partitions": [part]}]}
    answer = wire.call_once(port, LIST_OFFSETS, 7, body)
    return int(answer["topics"][0]["partitions"][0]["offset"])


@pytest.mark.timeout(120)
def test_nothing_unsynced_is_seen(start_kbroker: Callable[..., BrokerProcess], topic: str) -> None:
    broker = start_kbroker()
    wire.create_topic(broker.port, topic)
    wire.call_once(broker.port, PRODUCE, 9, produce_body(topic, batch(b"before")))
    with slow_syncs(broker), WireConnection(broker.port) as producer:
        waiting = producer.send(PRODUCE, 9, produce_body(topic, batch(b"held")))
        assert producer.is_silent(0.5)
        assert end_offset(broker.port, topic) == 1
        answer = wire.call_once(broker.port, FETCH, 11, fetch_body(topic, 1))
        part = answer["responses"][0]["partitions"][0]
        assert (part["high_watermark"], part["error_code"]) == (1, 0)
        assert not part["records"]
        quick = wire.call_once(broker.port, PRODUCE, 9, produce_body(topic, batch(b"1"), acks=1))
        assert quick["responses"][0]["partition_responses"][0]["base_offset"] == 2
        assert producer.is_silent(0.1)
        held = producer.receive(PRODUCE, 9, waiting)
        assert held["responses"][0]["partition_responses"][0]["base_offset"] == 1
        seen = wire.call_once(broker.port, FETCH, 11, fetch_body(topic, 1))
        records = seen["responses"][0]["partitions"][0]["records"]
        assert values_of(records)[0] == (1, b"held")


@pytest.mark.timeout(120)
@pytest.mark.parametrize("codec", ["producer", "gzip"])
def test_a_producer_waits_as_long_as_it_said(
    start_kbroker: Callable[..., BrokerProcess], topic: str, codec: str
) -> None:
    """Also one whose batch an I/O thread rewrote. What was appended stays, and is synced."""
    broker = start_kbroker({"compression.type": codec})
    wire.create_topic(broker.port, topic)
    with slow_syncs(broker):
        body = produce_body(topic, batch(b"late")) | {"timeout": 1000}
        answer = wire.call_once(broker.port, PRODUCE, 9, body)
        part = answer["responses"][0]["partition_responses"][0]
        assert part["error_code"] == REQUEST_TIMED_OUT
    wait_for("the record is there", lambda: end_offset(broker.port, topic) == 1, 60)


@pytest.mark.timeout(120)
def test_a_producer_that_waits_hears_of_its_topics_deletion(
    start_kbroker: Callable[..., BrokerProcess], topic: str
) -> None:
    """As in Apache Kafka: there is no such partition, while the disk is well."""
    broker = start_kbroker()
    wire.create_topic(broker.port, topic)
    with (
        slow_syncs(broker),
        WireConnection(broker.port) as admin,
        WireConnection(broker.port) as producer,
    ):
        body = {"topics": [{"name": topic}], "timeout": 30_000}
        deleting = admin.send(DELETE_TOPICS, 6, body)
        assert admin.is_silent(0.5)
        waiting = producer.send(PRODUCE, 9, produce_body(topic, batch(b"held")))
        deleted = admin.receive(DELETE_TOPICS, 6, deleting)
        assert deleted["responses"][0]["error_code"] == 0
        answer = producer.receive(PRODUCE, 9, waiting)
        part = answer["responses"][0]["partition_responses"][0]
        assert part["error_code"] == UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.timeout(120)
def test_page_cache_does_not_wait(start_kbroker: Callable[..., BrokerProcess], topic: str) -> None:
    """The relaxed durability answers before any sync."""
    broker = start_kbroker({"kbroker.durability": "page-cache"})
    wire.create_topic(broker.port, topic)
    with slow_syncs(broker), WireConnection(broker.port, timeout_s=HOLD_S / 2) as producer:
        for _ in range(20):
            producer.call(PRODUCE, 9, produce_body(topic, batch(b"quick")))
        assert end_offset(broker.port, topic) == 20


TIME = int(time.time() * 1000)
EARLIER = TIME - 60_000


def questions(topic: str) -> dict[str, tuple[int, int, dict[str, Any]]]:
    """What reads the end of a log: (API, version, request)."""

    def offsets(timestamp: int) -> tuple[int, int, dict[str, Any]]:
        part = {"partition_index": 0, "timestamp": timestamp}
        return LIST_OFFSETS, 7, {
            "replica_id": -1, "topics": [{"name": topic, "partitions": [part]}]
        }  # fmt: skip

    epoch = {"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}
    cut = {"partition_index": 0, "offset": -1}
    return {
        "latest": offsets(-1),
        "by time": offsets(TIME),
        "greatest": offsets(-3),
        "fetch": (FETCH, 11, fetch_body(topic, 1)),
        "epoch": (OFFSET_FOR_LEADER_EPOCH, 4, {
            "replica_id": -1, "topics": [{"topic": topic, "partitions": [epoch]}]}),
        "delete": (DELETE_RECORDS, 2, {
            "topics": [{"name": topic, "partitions": [cut]}], "timeout": 30_000}),
    }  # fmt: skip


def told(name: str, answer: dict[str, Any]) -> int:
    """How far the answer says that the log goes."""
    if name == "fetch":
        (part,) = answer["responses"][0]["partitions"]
        return int(part["high_watermark"])
    (part,) = answer["topics"][0]["partitions"]
    assert part["error_code"] == 0
    if name in ("by time", "greatest"):
        return int(part["offset"]) + 1
    return int(part[{"epoch": "end_offset", "delete": "low_watermark"}.get(name, "offset")])


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", list(questions("")))
def test_what_was_acknowledged_unsynced_is_told_once_synced(
    start_kbroker: Callable[..., BrokerProcess], topic: str, name: str
) -> None:
    """acks=1: nobody is shown what a power cut could take back, and nobody misses what he wrote."""
    broker = start_kbroker()
    wire.create_topic(broker.port, topic)
    before = batch(b"before", base_timestamp=EARLIER)
    wire.call_once(broker.port, PRODUCE, 9, produce_body(topic, before))
    data = Batch(records=[Record(b"mine")], base_timestamp=TIME).encode()
    api, version, asked = questions(topic)[name]
    with slow_syncs(broker), WireConnection(broker.port) as connection:
        connection.call(PRODUCE, 9, produce_body(topic, data, acks=1))
        number = connection.send(api, version, asked)
        assert connection.is_silent(HOLD_S / 2)
        assert told(name, connection.receive(api, version, number)) == 2


@pytest.mark.timeout(120)
def test_a_disk_that_hangs_holds_up_readers_for_some_seconds(
    start_kbroker: Callable[..., BrokerProcess], topic: str
) -> None:
    """Then they are told of what is synced."""
    broker = start_kbroker()
    wire.create_topic(broker.port, topic)
    before = batch(b"before", base_timestamp=EARLIER)
    wire.call_once(broker.port, PRODUCE, 9, produce_body(topic, before))
    data = Batch(records=[Record(b"mine")], base_timestamp=TIME).encode()
    with slow_syncs(broker, 20), WireConnection(broker.port) as connection:
        connection.call(PRODUCE, 9, produce_body(topic, data, acks=1))
        asked = {
            name: (one, one.send(*questions(topic)[name]))
            for name in ("latest", "by time", "fetch")
            for one in [WireConnection(broker.port, timeout_s=15)]
        }
        for name, (one, number) in asked.items():
            api, version, _ = questions(topic)[name]
            with one:
                assert told(name, one.receive(api, version, number)) == (name != "by time")
