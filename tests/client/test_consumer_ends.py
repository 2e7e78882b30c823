"""Where a consumer ends: told where to stop, left by an exception; and timestamps' types."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import time
import weakref
from collections.abc import Iterator

import pytest

from kbroker.client import (
    AsyncConsumer,
    AsyncProducer,
    Consumer,
    OffsetAndMetadata,
    Producer,
    TopicPartition,
)
from kbroker.ext.client_record import Record
from tests.client.reading import read_all
from tests.client.test_consumer import produce
from tests.support import wire
from tests.support.processes import BrokerProcess
from tests.support.waits import wait_for


def test_reads_up_to_where_it_stops(target: BrokerProcess, topic: str) -> None:
    """A batch that reaches beyond comes whole; then there is nothing to wait for."""
    wire.create_topic(target.port, topic, 1)
    for _ in range(3):
        produce(target.port, topic, 10)
    with Consumer(bootstrap_servers=target.bootstrap, auto_offset_reset="none") as consumer:
        consumer.assign([(topic, 0)])
        consumer.seek((topic, 0), 3)
        consumer.stop_at((topic, 0), 12)
        offsets: list[int] = []
        while consumer.position((topic, 0)) < 12:
            batch = consumer.poll_batch(60)
            offsets += batch.offsets
            assert [*batch.timestamp_types] == [0] * len(batch)
        assert offsets == [*range(3, len(offsets) + 3)]
        begun = time.monotonic()
        assert not len(consumer.poll_batch(60))
        assert consumer.poll(60) == []
        assert time.monotonic() - begun < 60
        consumer.stop_at((topic, 0), 30)
        while len(offsets) < 27:
            offsets += consumer.poll_batch(60).offsets
        assert offsets == [*range(3, 30)]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_member_leaves_nothing_to_the_collector(
    target: BrokerProcess, topic: str, protocol: str
) -> None:
    """All of it goes with the consumer that was closed."""
    wire.create_topic(target.port, topic, 1)
    produce(target.port, topic, 10)
    consumer = Consumer(
        bootstrap_servers=target.bootstrap, group_id=topic, group_protocol=protocol,
        auto_offset_reset="earliest",
    )  # fmt: skip
    gc.collect()
    gc.disable()
    try:
        consumer.subscribe([topic])
        assert consumer.poll(60)
        assert consumer._group is not None
        consumer.commit_async()
        parts = {
            "cluster": consumer._cluster, "control": consumer._control,
            "assignment": consumer._assignment, "group": consumer._group,
            "commits": consumer._group._commits, "wire": consumer._group._room.wire,
        }  # fmt: skip
        kept = {name: weakref.ref(part) for name, part in parts.items()}
        parts.clear()
        consumer.close()
        del consumer
        wait_for("nothing is left", lambda: not any(part() for part in kept.values()), 10)
    finally:
        gc.enable()


@pytest.mark.parametrize("how", ["poll", "iterate", "async"])
def test_an_exception_leaves_without_a_commit(target: BrokerProcess, topic: str, how: str) -> None:
    """What raised it was given out, and is given out again. An end that is asked for commits."""
    wire.create_topic(target.port, topic, 1)
    produce(target.port, topic, 10)
    settings = {
        "bootstrap_servers": target.bootstrap, "group_id": topic, "auto_offset_reset": "earliest",
        "auto_commit_interval_ms": 600_000,
    }  # fmt: skip

    def work(raised: type[BaseException]) -> None:
        with Consumer(**settings) as consumer:
            consumer.subscribe([topic])
            if how == "iterate":
                assert next(iter(consumer)).offset == 0
            else:
                assert consumer.poll(60)[0].offset == 0
            raise raised

    async def work_async(raised: type[BaseException]) -> None:
        async with AsyncConsumer(**settings) as consumer:
            await consumer.subscribe([topic])
            assert (await consumer.poll(60))[0].offset == 0
            raise raised

    for raised in (ZeroDivisionError, ZeroDivisionError, SystemExit):
        with contextlib.suppress(raised):
            if how == "async":
                asyncio.run(work_async(raised))
            else:
                work(raised)
        with Consumer(**settings) as consumer:
            where = TopicPartition(topic, 0)
            committed = consumer.committed([where])[where]
            assert committed == (None if issubclass(raised, Exception) else OffsetAndMetadata(0))


@pytest.mark.parametrize("how", ["poll", "iterate", "async"])
@pytest.mark.parametrize("raised", [KeyboardInterrupt, SystemExit, ZeroDivisionError])
def test_with_block_commits_no_more_than_was_written(
    target: BrokerProcess, topic: str, how: str, raised: type[BaseException]
) -> None:
    """A copy of a topic that an exception ends in the middle, after some calls of the consumer: the
    producer delivers what was sent, and what is committed was written."""
    wire.create_topic(target.port, topic, 1)
    wire.create_topic(target.port, f"{topic}-copy", 1)
    produce(target.port, topic, 100)
    where = TopicPartition(topic, 0)
    reading = {
        "bootstrap_servers": target.bootstrap, "group_id": topic, "auto_offset_reset": "earliest",
        "max_poll_records": 10, "auto_commit_interval_ms": 600_000,
    }  # fmt: skip
    writing = {"bootstrap_servers": target.bootstrap, "linger_ms": 60_000}

    def copy() -> None:
        with Consumer(reading) as consumer, Producer(writing) as producer:
            consumer.subscribe([topic])
            records = iter(consumer) if how == "iterate" else polled(consumer)
            for record in records:
                if record.offset == 25:
                    raise raised
                producer.send(f"{topic}-copy", record.value)

    async def copy_async() -> None:
        async with AsyncConsumer(reading) as consumer, AsyncProducer(writing) as producer:
            await consumer.subscribe([topic])
            while True:
                for record in await consumer.poll(60):
                    if record.offset == 25:
                        raise raised
                    await producer.send(f"{topic}-copy", record.value)

    with pytest.raises(raised):
        asyncio.run(copy_async()) if how == "async" else copy()
    assert [one.value for one in read_all(target.bootstrap, f"{topic}-copy", 25)] == [
        b"%d" % at for at in range(25)
    ]
    with Consumer(reading) as consumer:
        committed = consumer.committed([where])[where]
        if issubclass(raised, Exception):
            assert committed is None
        else:
            assert committed is not None and committed.offset == (25 if how == "iterate" else 20)


def polled(consumer: Consumer) -> Iterator[Record]:
    while True:
        yield from consumer.poll(60)
