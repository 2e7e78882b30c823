"""`kbroker bench e2e`: records that carry the time of their sending, read as they come.

Both ends are in this process, in a thread each, so that one clock times both; at the rates that
this is for, neither waits for the other's Python. A record's value begins with the time of send()
(monotonic, ns, 8 bytes) and the number of this run (8 bytes): records of others are passed over.
"""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING

from kbroker.cli.bench_figures import Live, Meter
from kbroker.cli.bench_load import Load, Pace, payload
from kbroker.cli.bench_work import FIRST_S, SILENCE_S
from kbroker.client.errors import RequestTimeoutError

if TYPE_CHECKING:
    from kbroker.client.consumer import Consumer
    from kbroker.client.producer import Producer

__all__ = ["STAMP_BYTES", "pass_through"]

STAMP_BYTES = 16

_PORTION = 1000
_POLL_S = 0.1
_TICK_S = 0.005


class _Reader:
    """The far end: a thread that reads until it is told to stop."""

    def __init__(self, consumer: Consumer, meter: Meter, run: bytes, size: int) -> None:
        self._consumer = consumer
        self._meter = meter
        self._run = run
        self._size = size
        self._stop = threading.Event()
        self.warm = threading.Event()  # the record without a time has come
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._read, name="kbroker-bench-read", daemon=True)
        self._thread.start()

    def _read(self) -> None:
        try:
            while not self._stop.is_set():
                self._poll()
        except BaseException as error:
            self.error = error
            self.warm.set()

    def _poll(self) -> None:
        meter = self._meter
        for record in self._consumer.poll(_POLL_S):
            now_ns = time.monotonic_ns()
            value = record.value
            if value is None or value[8:STAMP_BYTES] != self._run:
                continue
            sent_ns = int.from_bytes(value[:8])
            if sent_ns == 0:
                self.warm.set()
                continue
            meter.took(now_ns - sent_ns)
            meter.arrived(1, self._size)

    def check(self) -> None:
        """Raises what ended it."""
        if self.error is not None:
            raise self.error

    def end(self) -> None:
        """Ends the thread."""
        self._stop.set()
        self._thread.join()


def pass_through(
    load: Load,
    producer: Producer,
    consumer: Consumer,
    partitions: int,
    meter: Meter,
    live: Live,
) -> None:
    """Sends records at the rate and times each until poll() gives it."""
    run = os.urandom(STAMP_BYTES - 8)
    pad = payload(load.size - STAMP_BYTES, 1)[0]
    where = [(load.topic, index) for index in range(partitions)]
    consumer.assign(where)
    consumer.seek_to_end()
    for one in where:
        consumer.position(one, FIRST_S)
    reader = _Reader(consumer, meter, run, load.size)
    sent = 0
    try:
        producer.send(load.topic, bytes(8) + run + pad).result(FIRST_S)
        if not reader.warm.wait(FIRST_S):
            raise RequestTimeoutError(f"{load.topic}: no record was read in {FIRST_S:g} s")
        reader.check()
        meter.begin()
        pace = Pace(load, meter.begun_ns)
        while not load.over(sent, meter.begun_ns):
            count, _ = pace.portion(sent, _PORTION)
            for _ in range(count):
                stamp = time.monotonic_ns().to_bytes(8)
                producer.send(load.topic, stamp + run + pad)
            sent += count
            live.tick()
            reader.check()
        producer.flush()
        _await_rest(reader, meter, sent, live)
        if meter.records < sent:
            lost = RequestTimeoutError(f"not read within {SILENCE_S:g} s of the one before")
            meter.failed(lost, sent - meter.records)
    finally:
        meter.end()
        reader.end()


def _await_rest(reader: _Reader, meter: Meter, sent: int, live: Live) -> None:
    """Waits for what is on its way, while more of it comes."""
    heard_s, known = time.monotonic(), meter.records
    while meter.records < sent and time.monotonic() - heard_s < SILENCE_S:
        reader.check()
        time.sleep(_TICK_S)
        live.tick()
        if meter.records != known:
            heard_s, known = time.monotonic(), meter.records
