"""Sends the records of the source in the order of their time, at a chosen speed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby

from examples.pipeline.plan import DAY_MS, Event
from kbroker.client import Delivery, Producer

_HOUR_MS = 3_600_000
#: As long as a broker may be away; then the replay fails.
_PATIENCE_MS = 600_000


def replay(
    bootstrap: str, events: Sequence[Event], days_per_s: float, told: Callable[[int], None]
) -> None:
    """Sends `events`, so many days of theirs in a second of ours (0: as fast as it goes).

    Each day is acknowledged before the next one begins, so that no partition of any topic is ever
    more than a day ahead of another. told: how many records are acknowledged.
    """
    began, done = time.monotonic(), 0
    with Producer(
        bootstrap_servers=bootstrap,
        linger_ms=5,
        compression_type="lz4",
        delivery_timeout_ms=_PATIENCE_MS,
        max_block_ms=_PATIENCE_MS,
    ) as producer:
        first_ms = events[0].timestamp_ms if events else 0
        for _, of_day in groupby(events, key=lambda event: event.timestamp_ms // DAY_MS):
            sent = []
            for hour, of_hour in groupby(of_day, key=lambda event: event.timestamp_ms // _HOUR_MS):
                if days_per_s:
                    since_ms = hour * _HOUR_MS - first_ms
                    wait_until(began + since_ms / DAY_MS / days_per_s)
                sent += [send(producer, event) for event in of_hour]
            for delivery in sent:
                delivery.result()
            done += len(sent)
            told(done)


def send(producer: Producer, event: Event) -> Delivery:
    """One record; what it gives tells of its delivery."""
    return producer.send(event.topic, event.value, key=event.key, timestamp_ms=event.timestamp_ms)


def send_all(bootstrap: str, events: Iterable[Event]) -> None:
    """Sends them, and waits until all are acknowledged."""
    with Producer(bootstrap_servers=bootstrap, delivery_timeout_ms=_PATIENCE_MS) as producer:
        for delivery in [send(producer, event) for event in events]:
            delivery.result()


def wait_until(moment: float) -> None:
    """Returns at a time of the monotonic clock, at once where it is over."""
    left = moment - time.monotonic()
    if left > 0:
        time.sleep(left)
