"""Exceptions of signal handlers at each point of a consumer's calls: no record is lost."""

from __future__ import annotations

import inspect
import itertools
import random
import signal
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest

from kbroker.client import Consumer, TopicPartition
from kbroker.client.errors import DeserializationError
from kbroker.ext.client_clock import monotonic
from kbroker.ext.client_record import Record
from tests.client.test_consumer import produce
from tests.support import wire
from tests.support.interruptions import interrupted
from tests.support.processes import BrokerProcess

COUNT = 5_000
SOME = 10  # records of a call
ALARM_S = 1e-4  # the longest time until a signal, at first
ERRORS = (KeyboardInterrupt, TimeoutError)  # the latter as handlers of SIGALRM raise it


class Alarm(Exception):  # noqa: N818 - a signal
    """SIGALRM came."""


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



POINTS = range(3, 1_300, 131)  # of the some hundred that a member passes until it has records


def read_interrupted(consumer: Consumer, topic: str, at: int, returned: set[int]) -> None:
    """Subscribe and read some records, interrupted at a point; then read all."""
    with interrupted(at, ERRORS[at % 2]):
        consumer.subscribe([topic])
        while len(returned) < 3 * SOME:
            returned.update(polled(consumer))
    if not consumer.subscription():
        consumer.subscribe([topic])
    deadline = monotonic() + 60
    while len(returned) < COUNT:
        assert monotonic() < deadline, f"the member is stuck with {len(returned)} of {COUNT}"
        returned.update(record.offset for record in consumer.poll(1, COUNT))
        committed = consumer.committed([(topic, 0)])[TopicPartition(topic, 0)]
        assert committed is None or returned.issuperset(range(committed.offset))


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_interrupted_member_goes_on(target: BrokerProcess, filled: str, protocol: str) -> None:
    """It reads all there is, and no offset is committed of a record that was not returned."""
    for at in POINTS:
        returned: set[int] = set()
        settings = settings_of(
            target, group_id=f"{filled}-{at}", group_protocol=protocol, auto_commit_interval_ms=1,
        )  # fmt: skip
        with Consumer(settings) as consumer:
            read_interrupted(consumer, filled, at, returned)
        with Consumer(settings) as judge:
            committed = judge.committed([(filled, 0)])[TopicPartition(filled, 0)]
            assert committed is not None and committed.offset == COUNT


def test_storm_of_signals_loses_nothing(target: BrokerProcess, filled: str) -> None:
    """Real signals, whenever they come."""
    where = TopicPartition(filled, 0)
    here = inspect.currentframe()
    assert here is not None

    def alarm(_signal: int, frame: FrameType | None) -> None:
        if frame is not here:  # outside of the call, what it returned would be lost to the test
            raise Alarm

    handler = signal.signal(signal.SIGALRM, alarm)
    returned: list[int] = []
    alarms = 0
    limit_s = ALARM_S
    try:
        with Consumer(settings_of(target)) as consumer:
            consumer.assign([where])
            while len(returned) < COUNT:
                try:
                    signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-5, limit_s))
                    found = consumer.poll(10, SOME)
                    signal.setitimer(signal.ITIMER_REAL, 0)
                except (Alarm, DeserializationError) as error:  # a deserializer was interrupted
                    assert isinstance(error, Alarm) or isinstance(error.__cause__, Alarm)
                    alarms += 1
                    limit_s *= 1.1  # a busy machine takes longer for a call
                else:
                    limit_s = ALARM_S
                    returned += [record.offset for record in found]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
    assert returned == [*range(COUNT)]
    assert alarms
