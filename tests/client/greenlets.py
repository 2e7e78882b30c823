"""A client in greenlets: python -m tests.client.greenlets LIBRARY ORDER BROKER NOBODY PID

LIBRARY is gevent or eventlet, ORDER says whether it patches Python `before` or `after` the client
is imported; BROKER and NOBODY are bootstrap servers with and without a broker, PID the broker's
process. Prints a line for each call that ends while another greenlet goes on.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

_LIBRARY, _ORDER, BROKER, NOBODY, _PID = sys.argv[1:]
green = importlib.import_module(_LIBRARY)
TURNS: list[None] = []  # one for each turn of `tick`


def _patch() -> None:
    if _LIBRARY == "gevent":
        importlib.import_module("gevent.monkey").patch_all()
    else:
        green.monkey_patch()


if _ORDER == "before":
    _patch()
from kbroker.client import Admin, Consumer, Producer, TopicPartition  # noqa: E402
from kbroker.client.errors import KafkaError  # noqa: E402

if _ORDER == "after":
    _patch()



def tick() -> None:
    """Count how often this greenlet has its turn."""
    while True:
        green.sleep(0.005)
        TURNS.append(None)


@contextlib.contextmanager
def going_on(name: str, least: int = 1) -> Iterator[None]:
    """Print `name` where others have had their turn so often within the block."""
    before = len(TURNS)
    yield
    turns = len(TURNS) - before
    print(name if turns >= least else f"{name}: others have had {turns} turns", flush=True)


def together(calls: list[Callable[[], Any]]) -> None:
    """Run each in a greenlet; raise what one raises."""
    if _LIBRARY == "gevent":
        green.joinall([green.spawn(call) for call in calls], raise_error=True)
    else:
        for each in [green.spawn(call) for call in calls]:
            each.wait()


def _is_stopped(task: Path) -> bool:
    return (task / "stat").read_text().rpartition(")")[2].split()[0] == "T"


def halt(seconds: float) -> None:
    """Stop the broker; a greenlet lets it go on."""
    os.kill(int(_PID), signal.SIGSTOP)
    while not all(_is_stopped(task) for task in Path(f"/proc/{_PID}/task").iterdir()):
        pass

    def go_on() -> None:
        green.sleep(seconds)
        os.kill(int(_PID), signal.SIGCONT)

    green.spawn(go_on)


def produce() -> None:
    """Records of many greenlets by one producer, for which some wait by the outcome."""
    with Producer(bootstrap_servers=BROKER, linger_ms=50, buffer_memory=131072) as producer:
        with going_on("send"):
            together([lambda: producer.send("t", b"v" * 100).result(20) for _ in range(50)])
        with going_on("send_batch"):
            ranges = producer.send_batch("t", [b"v" * 1000] * 500).result(20)
            assert sum(each.records for each in ranges) == 500
        halt(0.4)
        with going_on("memory", 20):
            for _ in range(500):
                producer.send("t", b"v" * 1000)
        halt(0.4)
        with going_on("flush", 20):
            producer.send("t", b"last")
            producer.flush()
        halt(0.4)
        batch = producer.send_batch("t", [b"v" * 100] * 10)
        with going_on("wait", 20):
            batch.result(20)
        producer.send("t", b"at the end")
    print("closed", flush=True)


def transact() -> None:
    """A transaction."""
    producer = Producer(bootstrap_servers=BROKER, transactional_id="green", linger_ms=50)
    with producer, going_on("transaction"):
        producer.init_transactions()
        with producer.transaction():
            producer.send("u", b"in a transaction")


def consume() -> None:
    """Polls that find nothing, one consumer in two greenlets, a group that is iterated over."""
    with Consumer(bootstrap_servers=BROKER) as consumer:
        consumer.assign([TopicPartition("empty", 0)])
        with going_on("poll", 20):
            assert not consumer.poll(0.5)
        with going_on("poll_batch", 20):
            assert not consumer.poll_batch(0.5)
        refused: list[KafkaError] = []

        def intrude() -> None:
            green.sleep(0.1)
            try:
                consumer.poll(0)
            except KafkaError as error:
                refused.append(error)

        together([lambda: consumer.poll(0.5), intrude])
        print("one at a time" if refused else "two at once", flush=True)
    group = Consumer(bootstrap_servers=BROKER, group_id="g", auto_offset_reset="earliest")
    with group, going_on("iterate"):
        group.subscribe(["t"])
        for count, _ in enumerate(group, 1):
            if count == 1000:
                break
        group.commit()
    print("left", flush=True)


def administer() -> None:
    """Calls of several greenlets at once, and one that nobody answers."""
    with Admin(bootstrap_servers=BROKER) as admin, going_on("admin"):
        together([lambda: [admin.list_topics() for _ in range(20)] for _ in range(10)])
    nobody = Admin(bootstrap_servers=NOBODY, default_api_timeout_ms=500)
    with nobody, going_on("nobody", 20), contextlib.suppress(KafkaError):
        nobody.list_topics()


if __name__ == "__main__":
    green.spawn(tick)
    green.sleep(0)
    for part in (produce, transact, consume, administer):
        part()
