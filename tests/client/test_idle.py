"""Connections that nobody uses are closed by the client itself (connections.max.idle.ms)."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from kbroker.client import Admin, Consumer, Producer
from tests.support import wire
from tests.support.kbroker import KbrokerProcess
from tests.support.waits import wait_for

IDLE_MS = 300


def live(port: int) -> int:
    """This process's established connections to a port."""
    own = set()
    for path in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # closed meanwhile
            own.add(os.readlink(path))
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    fields = [line.split() for line in lines]
    return sum(
        int(one[2].split(":")[1], 16) == port and one[3] == "01" and f"socket:[{one[9]}]" in own
        for one in fields
    )


def test_idle_connections_are_closed_and_opened_anew(kbroker: KbrokerProcess, topic: str) -> None:
    wire.create_topic(kbroker.port, topic)
    told = {"bootstrap_servers": kbroker.bootstrap, "connections_max_idle_ms": IDLE_MS}
    with Admin(**told) as admin, Producer(**told, linger_ms=0) as producer:
        for value in (b"one", b"two"):
            admin.describe_topics([topic])
            producer.send(topic, value).result(60)
            assert live(kbroker.port) >= 2
            wait_for("all are closed", lambda: live(kbroker.port) == 0, 60)
    with Consumer(**told, auto_offset_reset="earliest", fetch_max_wait_ms=100) as consumer:
        consumer.assign([(topic, 0)])
        wait_for("the records are read", lambda: len(consumer.poll(0.2)) == 2, 60)
        consumer.beginning_offsets([(topic, 0)])
        consumer.pause([(topic, 0)])
        wait_for("what it asked by is closed", lambda: live(kbroker.port) <= 1, 60)
        producing(told, topic)
        consumer.resume([(topic, 0)])
        wait_for("it reads on", lambda: consumer.poll(0.2), 60)


def producing(told: dict[str, object], topic: str) -> None:
    with Producer(**told) as producer:
        producer.send(topic, b"three").result(60)
