"""Index files that another process cuts off while they are mapped."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from kbroker.client import Consumer, Producer, TopicPartition
from tests.support import wire
from tests.support.kbroker import KbrokerProcess
from tests.support.processes import BrokerProcess
from tests.support.waits import wait_for

SLOW_S = 60
RECORDS = 300
SETTINGS = {"index.interval.bytes": "100", "segment.bytes": "1048576"}


def write(broker: BrokerProcess, topic: str, first: int) -> None:
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        for number in range(first, first + RECORDS):
            producer.send(topic, b"%d" % number + bytes(500)).result(SLOW_S)


def read_from(broker: BrokerProcess, topic: str, offset: int, end: int) -> list[int]:
    found: list[int] = []
    with Consumer(bootstrap_servers=broker.bootstrap) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        consumer.seek(TopicPartition(topic, 0), offset)

        def all_read() -> bool:
            found.extend(int(record.value[:-500]) for record in consumer.poll(1.0))
            return len(found) >= end - offset

        wait_for("all records are read", all_read, SLOW_S)
    return found


@pytest.mark.parametrize("suffixes", [(".index",), (".timeindex",), (".index", ".timeindex")])
def test_live_index_that_is_cut_off(
    start_kbroker: Callable[..., BrokerProcess], topic: str, suffixes: tuple[str, ...]
) -> None:
    """The broker goes on, serves every offset, and has sound indexes after the next start."""
    broker = start_kbroker()
    assert isinstance(broker, KbrokerProcess)
    wire.create_topic(broker.port, topic, 1, SETTINGS)
    write(broker, topic, 0)
    folder = broker.data_dir / f"{topic}-0"
    for suffix in suffixes:
        os.truncate(folder / f"{0:020}{suffix}", 0)
    for offset in (1, RECORDS // 2, RECORDS - 1):
        assert read_from(broker, topic, offset, RECORDS) == list(range(offset, RECORDS))
    write(broker, topic, RECORDS)
    end = 2 * RECORDS
    for offset in (1, RECORDS + 1, end - 1):
        assert read_from(broker, topic, offset, end) == list(range(offset, end))
    broker.stop()
    broker.start()
    for offset in (1, RECORDS // 2, end - 1):
        assert read_from(broker, topic, offset, end) == list(range(offset, end))
    assert (folder / f"{0:020}.index").stat().st_size > 0
