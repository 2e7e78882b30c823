"""Exceptions of signal handlers at each point of a consumer's calls: no record is lost."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kbroker.client import Consumer, TopicPartition
from kbroker.ext.client_record import Record
from tests.client.test_consumer import produce
from tests.support import wire
from tests.support.interruptions import interrupted
from tests.support.processes import BrokerProcess

COUNT = 5_000
SOME = 10  # records of a call
ERRORS = (KeyboardInterrupt, TimeoutError)  # the latter as handlers of SIGALRM raise it


class Counting:
    """An interceptor that returns another list."""

    def on_consume(self, records: list[Record]) -> list[Record]:
        return list(records)


def polled(consumer: Consumer) -> list[int]:
    return [record.offset for record in consumer.poll(10, SOME)]


def batched(consumer: Consumer) -> list[int]:
    return list(consumer.poll_batch(10, SOME).offsets)


def iterated(consumer: Consumer) -> list[int]:
    for record in consumer:
        return [record.offset]
    return []


WAYS = [polled, batched, iterated]


def settings_of(target: BrokerProcess, **more: Any) -> dict[str, Any]:
    return {
        "bootstrap_servers": target.bootstrap, "auto_offset_reset": "earliest",
        "value_deserializer": bytes, **more,
    }  # fmt: skip


@pytest.fixture
def filled(target: BrokerProcess, topic: str) -> str:
    wire.create_topic(target.port, topic, 1)
    produce(target.port, topic, COUNT, **{"compression.type": "lz4"})
    return topic


def through(
    consumer: Consumer, way: Callable[[Consumer], list[int]], where: TopicPartition
) -> Iterator[list[int]]:
    """Interrupts a call at its first point, the next call at its second one, to the last. Yields
    what calls return."""
    for at, error in zip(itertools.count(1), itertools.cycle(ERRORS)):
        before = consumer.position(where)
        offsets: list[int] = []
        with interrupted(at, error) as interruption:
            offsets = way(consumer)
        moved = consumer.position(where) - before
        assert moved == len(offsets), f"after an exception at {interruption.where}"
        yield offsets
        if not interruption.happened:
            return


@pytest.mark.parametrize("intercepted", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_interrupted_call_moves_no_position(
    target: BrokerProcess, filled: str, way: Callable[[Consumer], list[int]], intercepted: bool
) -> None:
    where = TopicPartition(filled, 0)
    more = {"interceptor_classes": [Counting()]} if intercepted else {}
    with Consumer(settings_of(target, **more)) as consumer:
        consumer.assign([where])
        assert consumer.position(where) == 0
        found = polled(consumer)
        for offsets in through(consumer, way, where):
            found += offsets
        found += polled(consumer)
        assert found == [*range(len(found))] and len(found) > 2 * SOME
