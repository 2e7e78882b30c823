"""Records that go through a cluster while things happen to it, and the reckoning afterwards.

`Sender` numbers the records of each partition and knows which were acknowledged, and where.
`Follower` reads them while they come. `reckon` holds both against the log as librdkafka reads it.
"""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from kbroker.client import AsyncConsumer, AsyncProducer, Consumer, Delivery, Producer
from tests.client.reading import read_all
from tests.support.waits import wait_for

PARTITIONS = 6
PAUSE_S = 0.002
SLOW_S = 90.0


class _Worker:
    """A thread that works until it is told to end; what it raises comes up in `end`."""

    def __init__(self) -> None:
        self.over = threading.Event()
        self.failures: list[BaseException] = []
        self.thread = threading.Thread(target=self._guarded, daemon=True)

    def start(self) -> None:
        self.thread.start()

    def _guarded(self) -> None:
        try:
            self.work()
        except BaseException as error:
            self.failures.append(error)

    def work(self) -> None:
        raise NotImplementedError

    def end(self) -> None:
        self.over.set()
        self.thread.join(SLOW_S)
        assert not self.thread.is_alive(), "the worker does not end"
        if self.failures:
            raise self.failures[0]


class Sender(_Worker):
    """Sends to all partitions in turn; `acked`: partition to {number: offset}."""

    def __init__(self, bootstrap: str, topic: str, partitions: int = PARTITIONS, **more: Any):
        super().__init__()
        self.acked: dict[int, dict[int, int]] = defaultdict(dict)
        self.refused: list[BaseException] = []
        self.topic = topic
        self.partitions = partitions
        self.settings = {"bootstrap_servers": bootstrap, "linger_ms": 2, **more}
        self.sent = 0

    def count(self) -> int:
        return sum(map(len, self.acked.values()))

    def told(self, number: int, delivery: Delivery) -> None:
        error = delivery.exception()
        if error is not None:
            self.refused.append(error)
            return
        at = delivery.result()
        self.acked[at.partition][number] = at.offset

    def work(self) -> None:
        with Producer(**self.settings) as producer:
            while not self.over.is_set():
                for partition in range(self.partitions):
                    number = self.sent // self.partitions
                    producer.send(
                        self.topic, b"%d" % number, partition=partition,
                        on_delivery=lambda one, number=number: self.told(number, one),
                    )  # fmt: skip
                    self.sent += 1
                self.over.wait(PAUSE_S)
            producer.flush(SLOW_S)


class AsyncSender(Sender):
    """The same by AsyncProducer."""

    def work(self) -> None:
        asyncio.run(self._work())

    async def _work(self) -> None:
        async with AsyncProducer(**self.settings) as producer:
            while not self.over.is_set():
                for partition in range(self.partitions):
                    number = self.sent // self.partitions
                    await producer.send(
                        self.topic, b"%d" % number, partition=partition,
                        on_delivery=lambda one, number=number: self.told(number, one),
                    )  # fmt: skip
                    self.sent += 1
                await asyncio.sleep(PAUSE_S)
            await producer.flush(SLOW_S)


class Reads(Protocol):
    """Whoever reads: `seen` has (offset, number) of each partition in the order of arrival."""

    seen: dict[int, list[tuple[int, int]]]


class Follower(_Worker):
    """Reads the topic by `assign`, from its beginning, or as a member of a group."""

    def __init__(
        self, bootstrap: str, topic: str, partitions: int = PARTITIONS, *, columns: bool = False,
        **more: Any,
    ):  # fmt: skip
        super().__init__()
        self.seen: dict[int, list[tuple[int, int]]] = defaultdict(list)
        self.topic = topic
        self.partitions = partitions
        self.columns = columns
        self.settings = {
            "bootstrap_servers": bootstrap, "auto_offset_reset": "earliest",
            "fetch_max_wait_ms": 100, "metadata_max_age_ms": 10_000, **more,
        }  # fmt: skip
        self.consumer: Consumer | None = None

    def count(self) -> int:
        return sum(map(len, self.seen.values()))

    def places(self) -> list[tuple[str, int]]:
        return [(self.topic, at) for at in range(self.partitions)]

    def work(self) -> None:
        with Consumer(**self.settings) as consumer:
            self.consumer = consumer
            if "group_id" in self.settings:
                consumer.subscribe([self.topic])
            else:
                consumer.assign(self.places())
            while not self.over.is_set():
                if self.columns:
                    self.take_columns(consumer)
                else:
                    for record in consumer.poll(0.2):
                        self.seen[record.partition].append((record.offset, int(record.value)))

    def take_columns(self, consumer: Consumer) -> None:
        batch = consumer.poll_batch(0.2)
        for at in range(len(batch)):
            one = (batch.offsets[at], int(batch.values[at]))
            self.seen[batch.partitions[at]].append(one)


class AsyncFollower(Follower):
    """The same by AsyncConsumer."""

    def work(self) -> None:
        asyncio.run(self._work())

    async def _work(self) -> None:
        async with AsyncConsumer(**self.settings) as consumer:
            await consumer.assign(self.places())
            while not self.over.is_set():
                for record in await consumer.poll(0.2):
                    self.seen[record.partition].append((record.offset, int(record.value)))


@contextmanager
def running(*workers: _Worker) -> Iterator[None]:
    """They work meanwhile, and are ended in their order."""
    for one in workers:
        one.start()
    try:
        yield
    except BaseException:
        for one in workers:
            one.over.set()
        raise
    for one in workers:
        one.end()


def goes_on(what: str, count: Callable[[], int], more: int = 200) -> None:
    """Waits until so many more have come."""
    before = count()
    wait_for(what, lambda: count() >= before + more, SLOW_S)


def reckon(bootstrap: str, sender: Sender) -> dict[int, list[tuple[int, int]]]:
    """The log of each partition; nothing acknowledged is lost or elsewhere, nothing is doubled,
    and order is kept."""
    log: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for one in read_all(bootstrap, sender.topic, sender.count(), sender.partitions):
        assert one.value is not None
        log[one.partition].append((one.offset, int(one.value)))
    for partition, acked in sender.acked.items():
        numbers = [number for _, number in log[partition]]
        assert numbers == sorted(set(numbers)), f"doubled or out of order in {partition}"
        there = {number: offset for offset, number in log[partition]}
        lost = {number: offset for number, offset in acked.items() if there.get(number) != offset}
        assert not lost, f"acknowledged and lost in {partition}: {lost}"
    return log


def read_alike(reader: Reads, log: dict[int, list[tuple[int, int]]]) -> None:
    """All of the log was read, once and in order."""
    for partition, records in log.items():
        assert reader.seen[partition] == records, f"partition {partition} was read otherwise"
