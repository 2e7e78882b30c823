"""A broker on two directories that is killed while it moves a partition between them.

Run with tests/support/killer.c in front of the C library:

    python -m tests.reference.move_crash KILLER FIRST SECOND write COUNT
    python -m tests.reference.move_crash KILLER FIRST SECOND move N
    python -m tests.reference.move_crash KILLER FIRST SECOND read

`write` makes the topic and appends records to its partition; `move` has it moved to the other
directory, and the process ends before the N-th call from then on that changes what is on disk
(status 99), or prints how many calls there were; `read` prints, as JSON, the directory in which the
partition is and what it holds.
"""

from __future__ import annotations

import ctypes
import json
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kbroker.api import moving, publish
from kbroker.config import BrokerConfig
from kbroker.ext import records
from kbroker.metadata import builders
from kbroker.server.broker import Broker
from kbroker.uuids import random_uuid
from tests.support.waits import wait_for

TOPIC = "moved"
KEY = (TOPIC, 0)
SLOW_S = 60


def started(first: Path, second: Path) -> Broker:
    made = Broker(BrokerConfig({
        "log.dirs": f"{first},{second}", "listeners": "PLAINTEXT://127.0.0.1:0",
        "kbroker.http.listeners": "", "log.segment.bytes": str(1 << 20),
    }))  # fmt: skip
    made.start()
    return made


def on_control(broker: Broker, do: Callable[[], object]) -> Any:
    """What it answers on the control thread."""
    told: list[Any] = []
    done = threading.Event()

    def run() -> None:
        try:
            told.append(do())
        finally:
            done.set()

    assert broker._mailbox is not None
    broker._mailbox.post(run)
    assert done.wait(SLOW_S)
    return told[0]


def write(broker: Broker, count: int) -> None:
    services = broker._services
    assert services is not None

    def make() -> None:
        homes = [services.logs.main.id or b""]
        records = builders.create_topic(TOPIC, random_uuid(), 1, services.replica, None, homes)
        services.store.append(records, lambda: publish.create_topics(services, [TOPIC]))

    if TOPIC not in services.image.topics:
        on_control(broker, make)
    log = wait_for("the log", lambda: services.logs.get(*KEY), SLOW_S)
    for number in range(count):
        batch = records.build([(0, b"%d" % number, bytes(3000))])
        log.append(batch, leader_epoch=log.leader_epoch)
    wait_for("all is durable", lambda: log.high_watermark == log.log_end_offset, SLOW_S)


def move(broker: Broker, killer: Any, at: int) -> int:
    """How many calls there were."""
    services = broker._services
    assert services is not None and services.moves is not None
    home = services.logs.homes[KEY]
    target = next(one for one in services.logs.directories if one is not home)
    killer.die_at(at)
    on_control(broker, lambda: moving.begin(services, KEY, target))
    wait_for("it is there", lambda: services.logs.homes[KEY] is target, SLOW_S)
    wait_for("all is done", lambda: not services.moves.all(), SLOW_S)  # type: ignore[union-attr]
    taken = int(killer.steps_taken())
    killer.die_at(-1)
    return taken


def read(broker: Broker) -> dict[str, Any]:
    services = broker._services
    assert services is not None and services.moves is not None
    on_control(broker, lambda: None)  # what was cut off begins anew before
    wait_for("moves are over", lambda: not services.moves.all(), SLOW_S)  # type: ignore[union-attr]
    log = services.logs.get(*KEY)
    assert log is not None
    found: list[int] = []
    offset = 0
    while data := log.read(offset, 1 << 20):
        for batch in records.batches(data):
            found.append(batch.base_offset)
            offset = batch.base_offset + batch.last_offset_delta + 1
    return {"home": services.logs.homes[KEY].path.name, "offsets": found}


def main(library: str, first: str, second: str, what: str, *rest: str) -> None:
    killer = ctypes.CDLL(library)
    broker = started(Path(first), Path(second))
    if what == "write":
        write(broker, int(rest[0]))
    elif what == "move":
        print(move(broker, killer, int(rest[0])))
    else:
        print(json.dumps(read(broker)))
    broker.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
