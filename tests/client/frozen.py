"""Calls of a client whose Python clocks stand still: python -m tests.client.frozen BROKER NOBODY

Freezes the clocks as libraries for tests do: functions of `time` are replaced, and so is each name
that a module has imported. Prints a line for each call that ends; BROKER and NOBODY are bootstrap
servers with and without a broker.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable

from kbroker.client import Admin, Consumer, Producer
from kbroker.client.errors import KafkaError
from kbroker.testing import Broker

_CLOCKS = ("monotonic", "monotonic_ns", "time", "time_ns", "perf_counter", "perf_counter_ns")
_OWN = ("threading", "queue", "selectors", "subprocess")  # which such libraries leave alone
_CALL_MS = 300


def freeze() -> None:
    """Stop the clocks."""
    frozen: dict[Callable[[], float], Callable[[], float]] = {}
    for name in _CLOCKS:
        clock = getattr(time, name)
        now = clock()
        frozen[clock] = lambda now=now: now
        setattr(time, name, frozen[clock])
    for module in list(sys.modules.values()):
        if getattr(module, "__name__", "") in _OWN:
            continue
        for name, value in list(vars(module).items()):
            with contextlib.suppress(TypeError):
                if value in frozen:
                    setattr(module, name, frozen[value])


def main(servers: str, nobody: str) -> None:
    """See the module."""
    broker = Broker({})
    broker.start()
    broker.produce("t", b"some")
    freeze()
    with Consumer(bootstrap_servers=servers, auto_offset_reset="latest") as consumer:
        consumer.assign([("t", 0)])
        assert consumer.poll(_CALL_MS / 1e3) == []
        print("poll", flush=True)
        assert not len(consumer.poll_batch(_CALL_MS / 1e3))
        print("poll_batch", flush=True)
    with Producer(bootstrap_servers=nobody, max_block_ms=_CALL_MS) as producer:
        with contextlib.suppress(KafkaError):
            producer.send("t", b"some")
        print("send", flush=True)
    with Producer(bootstrap_servers=servers, linger_ms=60_000) as producer:
        delivery = producer.send("t", b"some")
        with contextlib.suppress(TimeoutError):
            producer.flush(0)
        producer.close(_CALL_MS / 1e3)
        delivery.exception(0)
        print("close", flush=True)
    with Admin(bootstrap_servers=nobody, default_api_timeout_ms=_CALL_MS) as admin:
        with contextlib.suppress(KafkaError):
            admin.list_topics()
        print("admin", flush=True)
    with contextlib.suppress(TimeoutError):
        broker.records("t", 2, timeout_s=_CALL_MS / 1e3)
    print("records", flush=True)
    broker.stop()
    broker.close()
    print("stop", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
