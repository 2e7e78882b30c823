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
    values = _values(load)
    keys = [b"%d" % (number % load.keys) for number in range(len(values))] if load.keys else None
    producer.send(load.topic, values[0], keys[0] if keys else None).result(FIRST_S)
    meter.begin()
    send = _one_by_one if load.one_by_one else _in_batches
    send(load, producer, meter, live, values, keys)


def _values(load: Load) -> list[bytes]:
    """What one send_batch() takes, sent again and again."""
    return payload(load.size, max(1, min(_VALUES, _BATCH_BYTES // max(load.size, 1))))


def _in_batches(
    load: Load,
    producer: Producer,
    meter: Meter,
    live: Live,
    values: Sequence[bytes],
    keys: Sequence[bytes] | None,
) -> None:
    def acknowledged(due_ns: int, delivery: BatchDelivery) -> None:
        ranges, errors = delivery.wait(0)
        done = sum(part.records for part in ranges)
        meter.arrived(done, done * load.size)
        if done:
            meter.took(time.monotonic_ns() - due_ns, done)
        if errors:
            meter.failed(errors[0], delivery.records - done)

    pace = Pace(load, meter.begun_ns)
    sent = 0
    while not load.over(sent, meter.begun_ns):
        count, due_ns = pace.portion(sent, len(values))
        if count:
            whole = count == len(values)
            some = keys if keys is None or whole else keys[:count]
            delivery = producer.send_batch(load.topic, values if whole else values[:count], some)
            delivery.add_done_callback(functools.partial(acknowledged, due_ns))
            sent += count
        live.tick()
    _drain(producer, live)


def _one_by_one(
    load: Load,
    producer: Producer,
    meter: Meter,
    live: Live,
    values: Sequence[bytes],
    keys: Sequence[bytes] | None,
) -> None:
    def delivered(due_ns: int, delivery: Delivery) -> None:
        error = delivery.exception(0)
        if error is None:
            meter.took(time.monotonic_ns() - due_ns)
        else:
            meter.failed(error, 0)

    def count() -> None:
        told = producer.metrics()
        meter.records = int(told["record-send-total"]) - before
        meter.errors = int(told["record-error-total"])
        meter.bytes = meter.records * load.size

    before = int(producer.metrics()["record-send-total"])
    pace = Pace(load, meter.begun_ns)
    sent = 0
    try:
        while not load.over(sent, meter.begun_ns):
            ready, due_ns = pace.portion(sent, _SAMPLE)
            for number in range(sent, sent + ready):
                at = number % len(values)
                told = functools.partial(delivered, due_ns) if number == sent else None
                producer.send(load.topic, values[at], keys[at] if keys else None, on_delivery=told)
            sent += ready
            if live.due:
                count()
                live.tick()
        _drain(producer, live, count)
    finally:
        count()


def _drain(producer: Producer, live: Live, count: Callable[[], None] = lambda: None) -> None:
    """Waits until everything is acknowledged or has failed."""
    while True:
        try:
            producer.flush(_POLL_S)
            return
        except TimeoutError:
            count()
            live.tick()


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
