"""The client under gevent and eventlet, and in a web application of gunicorn's gevent worker."""

from __future__ import annotations

import subprocess
import sys
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kbroker.client import Consumer, TopicPartition
from tests.support import wire
from tests.support.processes import BrokerProcess
from tests.support.tree import ROOT
from tests.support.waits import free_ports, wait_for

SLOW_S = 120
CALLS = [
    "send", "send_batch", "memory", "flush", "wait", "closed", "transaction", "poll", "poll_batch",
    "one at a time", "iterate", "left", "admin", "nobody",
]  # fmt: skip
APPLICATION = """
from kbroker.client import Producer

producer = None

def application(environ, start_response):
    global producer
    if producer is None:
        producer = Producer(bootstrap_servers={bootstrap!r}, linger_ms=300)
    sent = producer.send("t", environ["PATH_INFO"].encode()).result(20)
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [str(sent.offset).encode()]
"""


@pytest.mark.parametrize("order", ["before", "after"])
@pytest.mark.parametrize("library", ["gevent", "eventlet"])
def test_greenlets_go_on_while_one_waits(
    start_kbroker: Callable[..., BrokerProcess], library: str, order: str
) -> None:
    """No call of the client holds up other greenlets of its thread, and none hangs."""
    target = start_kbroker()
    for topic in ("t", "u", "empty"):
        wire.create_topic(target.port, topic, 1)
    nobody = f"127.0.0.1:{free_ports(1)[0]}"
    names = [library, order, target.bootstrap, nobody, str(target.pid)]
    command = [sys.executable, "-W", "ignore", "-m", "tests.client.greenlets", *names]
    done = subprocess.run(
        command, cwd=ROOT, check=False, capture_output=True, text=True, timeout=SLOW_S
    )
    assert done.stdout.splitlines() == CALLS, done.stderr


def test_gunicorn_gevent_worker_produces(
    start_kbroker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    """One worker answers many requests at once, each of which waits for its record."""
    target = start_kbroker()
    wire.create_topic(target.port, "t", 1)
    (tmp_path / "shop.py").write_text(APPLICATION.format(bootstrap=target.bootstrap))
    (port,) = free_ports(1)
    command = [
        sys.executable, "-m", "gunicorn", "-k", "gevent", "-w", "1", "-b", f"127.0.0.1:{port}",
        "--chdir", str(tmp_path), "--pythonpath", str(ROOT), "shop:application",
    ]  # fmt: skip
    with (tmp_path / "log").open("wb") as log:
        server = subprocess.Popen(command, cwd=tmp_path, stdout=log, stderr=log)
    try:
        wait_for("gunicorn answers", lambda: _get(port, "first") is not None, SLOW_S)
        with ThreadPoolExecutor(20) as threads:
            offsets = list(threads.map(lambda n: _get(port, f"r{n}"), range(20)))
    finally:
        server.terminate()
        server.wait(SLOW_S)
    assert sorted(offset or 0 for offset in offsets) == list(range(1, 21))
    # All within one linger or two: a worker that blocked would need 20 of them.
    times = []
    with Consumer(bootstrap_servers=target.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition("t", 0)])
        while len(times) < 21:
            times += [record.timestamp for record in consumer.poll(5)]
    assert max(times[1:]) - min(times[1:]) < 20 * 300 / 2


def _get(port: int, path: str) -> int | None:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=30) as answer:
            return int(answer.read())
    except OSError:
        return None
