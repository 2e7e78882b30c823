"""The loops of `kbroker bench produce` and `bench consume`. KeyboardInterrupt may end each at any
point; what was counted until then stands."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from kbroker.cli.bench_figures import Live, Meter
from kbroker.cli.bench_load import Load, Pace, payload
from kbroker.client.errors import RequestTimeoutError

if TYPE_CHECKING:
    from kbroker.client.consumer import Consumer
    from kbroker.client.partitions import TopicPartition
    from kbroker.client.producer import BatchDelivery, Delivery, Producer

__all__ = ["FIRST_S", "SILENCE_S", "consume", "fill", "produce"]

Partition = tuple[str, int]

FIRST_S = 30.0  # for the first record to be acknowledged or to come
SILENCE_S = 10.0  # without a record although some are left

_VALUES = 10_000  # that differ; they are sent again and again
_BATCH_BYTES = 1_000_000  # of one send_batch(), about
_SAMPLE = 64  # one of so many send() is timed
_POLL_S = 0.1


def produce(load: Load, producer: Producer, meter: Meter, live: Live) -> None:
    """Sends records; what is timed ends with the acknowledgement."""
    sending = _Sending(load, producer, meter, live)
    sending.first()
    meter.begin()
    if load.one_by_one:
        sending.one_by_one()
    else:
        sending.in_batches()


def _values(load: Load) -> list[bytes]:
    """What one send_batch() takes, sent again and again."""
    return payload(load.size, max(1, min(_VALUES, _BATCH_BYTES // max(load.size, 1))))


class _Sending:
    """Both ways of sending a load."""

    def __init__(self, load: Load, producer: Producer, meter: Meter, live: Live) -> None:
        self._load = load
        self._producer = producer
        self._meter = meter
        self._live = live
        self._values = _values(load)
        count = len(self._values)
        self._keys = [b"%d" % (n % load.keys) for n in range(count)] if load.keys else None

    def first(self) -> None:
        """A record that is not counted."""
        key = self._keys[0] if self._keys else None
        self._producer.send(self._load.topic, self._values[0], key).result(FIRST_S)

    def in_batches(self) -> None:
        """By send_batch()."""
        load, meter, values, keys = self._load, self._meter, self._values, self._keys
        pace = Pace(load, meter.begun_ns)
        sent = 0
        while not load.over(sent, meter.begun_ns):
            count, due_ns = pace.portion(sent, len(values))
            if count:
                whole = count == len(values)
                some = keys if keys is None or whole else keys[:count]
                batch = values if whole else values[:count]
                delivery = self._producer.send_batch(load.topic, batch, some)
                delivery.add_done_callback(functools.partial(self._acknowledged, due_ns))
                sent += count
            self._live.tick()
        self._drain()

    def _acknowledged(self, due_ns: int, delivery: BatchDelivery) -> None:
        ranges, errors = delivery.wait(0)
        done = sum(part.records for part in ranges)
        self._meter.arrived(done, done * self._load.size)
        if done:
            self._meter.took(time.monotonic_ns() - due_ns, done)
        if errors:
            self._meter.failed(errors[0], delivery.records - done)

    def one_by_one(self) -> None:
        """By send(); one of so many is timed."""
        load, producer, values, keys = self._load, self._producer, self._values, self._keys
        before = int(producer.metrics()["record-send-total"])
        count = functools.partial(self._count, before)
        pace = Pace(load, self._meter.begun_ns)
        sent = 0
        try:
            while not load.over(sent, self._meter.begun_ns):
                ready, due_ns = pace.portion(sent, _SAMPLE)
                for number in range(sent, sent + ready):
                    at = number % len(values)
                    told = functools.partial(self._delivered, due_ns) if number == sent else None
                    key = keys[at] if keys else None
                    producer.send(load.topic, values[at], key, on_delivery=told)
                sent += ready
                if self._live.due:
                    count()
                    self._live.tick()
            self._drain(count)
        finally:
            count()

    def _delivered(self, due_ns: int, delivery: Delivery) -> None:
        error = delivery.exception(0)
        if error is None:
            self._meter.took(time.monotonic_ns() - due_ns)
        else:
            self._meter.failed(error, 0)

    def _count(self, before: int) -> None:
        told = self._producer.metrics()
        self._meter.records = int(told["record-send-total"]) - before
        self._meter.errors = int(told["record-error-total"])
        self._meter.bytes = self._meter.records * self._load.size

    def _drain(self, count: Callable[[], None] = lambda: None) -> None:
        """Waits until everything is acknowledged or has failed."""
        while True:
            try:
                self._producer.flush(_POLL_S)
                return
            except TimeoutError:
                count()
                self._live.tick()


def fill(load: Load, settings: dict[str, str]) -> None:
    """Puts the records into a topic that are to be read."""
    from kbroker.client.producer import Producer

    values = _values(load)
    with Producer(settings) as producer:
        deliveries = []
        for left in range(load.records or 0, 0, -len(values)):
            deliveries.append(producer.send_batch(load.topic, values[:left]))
        producer.flush()
        for delivery in deliveries:
            delivery.result()  # raises what kept records from arriving


def consume(
    load: Load, consumer: Consumer, where: Sequence[Partition], meter: Meter, live: Live
) -> None:
    """Reads records until enough or all that are there were read; what is timed is each look for
    more. The clock starts with the look that brings the first ones: joining a group, connecting
    and asking for positions is not what is measured."""
    ends = consumer.end_offsets(where)
    there = sum(ends.values()) - sum(consumer.beginning_offsets(where).values())
    if there == 0:
        raise RequestTimeoutError(f"topic {load.topic} has no records to be read")
    wanted = there if load.records is None else min(load.records, there)
    heard_s = time.monotonic() + FIRST_S - SILENCE_S
    while meter.records < wanted and not (
        meter.records and load.over(meter.records, meter.begun_ns)
    ):
        if not meter.records:
            meter.begin()
        before_ns = time.monotonic_ns()
        records, size = _look(consumer, load)
        if records:
            meter.took(time.monotonic_ns() - before_ns)
            meter.arrived(records, size)
            heard_s = time.monotonic()
        elif meter.records and _at_end(consumer, ends):
            break  # offsets without a record: compacted away, or marks of transactions
        elif time.monotonic() - heard_s > SILENCE_S:
            raise RequestTimeoutError(
                f"{load.topic}: {meter.records} of {wanted} records came, and none for a while"
            )
        live.tick()


def _at_end(consumer: Consumer, ends: Mapping[TopicPartition, int]) -> bool:
    assigned = consumer.assignment()
    return len(assigned) == len(ends) and all(
        consumer.position(where, FIRST_S) >= ends[where] for where in assigned
    )


def _look(consumer: Consumer, load: Load) -> tuple[int, int]:
    """Records that have come, and the bytes of their keys and values."""
    if load.one_by_one:
        size = 0
        records = consumer.poll(_POLL_S)
        for record in records:
            key, value = record.key, record.value
            size += (len(key) if key else 0) + (len(value) if value else 0)
        return len(records), size
    columns = consumer.poll_batch(_POLL_S)
    return len(columns), columns.keys.data.nbytes + columns.values.data.nbytes
