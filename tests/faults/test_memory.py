"""F29: a ceiling of memory, with load, clients that do not read, and bombs, all at once."""

from __future__ import annotations

import os
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.faults.test_batches import CODECS, MIB, TOPICS, bomb, drop
from tests.faults.test_floods import filled_topic, many_files
from tests.support import wire
from tests.support.load import Load
from tests.support.needs import missing
from tests.support.oracle import judge
from tests.support.processes import BrokerProcess
from tests.support.tally import Tally
from tests.support.wire import FETCH
from tests.wire.test_connections import fetch_body, frame

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]
StartBroker = Callable[..., BrokerProcess]
PARTITIONS = 3
CEILING_BYTES, TOO_LOW_BYTES = 512 * MIB, 24 * MIB
MEMORY = Path("/sys/fs/cgroup/memory")


@pytest.fixture
def ceiling() -> Iterator[Path]:
    """A control group of this test's own; what runs in it is killed beyond its limit."""
    if not (MEMORY / "memory.limit_in_bytes").exists() or os.geteuid() != 0:
        missing("a memory control group (version 1, as root)", "cgroup-tools, or mount one")
    group = MEMORY / f"kbroker-test-{os.getpid()}"
    group.mkdir()
    yield group
    subprocess.run(["rmdir", group], check=True)


def put_under(broker: BrokerProcess, group: Path, limit_bytes: int) -> None:
    """The broker, as it runs, and what it takes from now on."""
    (group / "memory.limit_in_bytes").write_text(str(limit_bytes))
    (group / "cgroup.procs").write_text(str(broker.pid))


def attack(port: int, held: ExitStack) -> None:
    """Five hundred who ask for much and read nothing; four bombs of each codec on each topic."""
    asked = frame(FETCH, 11, fetch_body("large", 0, max_bytes=1 << 20)) * 20
    for _ in range(500):
        sock = held.enter_context(socket.create_connection(("127.0.0.1", port)))
        sock.settimeout(60)
        sock.sendall(asked)
    for codec in CODECS.values():
        data = bomb(codec, 192 * MIB)
        drops = [
            threading.Thread(target=drop, args=(port, topic, data, []))
            for topic in TOPICS for _ in range(4)
        ]  # fmt: skip
        for thread in drops:
            thread.start()
        for thread in drops:
            thread.join()


def test_a_ceiling_of_memory(
    start_kbroker: StartBroker, topic: str, tmp_path: Path, ceiling: Path, tally: Tally
) -> None:
    """Nobody is killed for memory, and the load in between is stored whole."""
    broker = start_kbroker()
    wire.create_topic(broker.port, topic, PARTITIONS)
    for name, configs in TOPICS.items():
        wire.create_topic(broker.port, name, 1, configs)
    filled_topic(broker.port)
    put_under(broker, ceiling, CEILING_BYTES)
    with Load(broker.bootstrap, topic, tmp_path, partitions=PARTITIONS) as load:
        with many_files(), ExitStack() as held:
            load.wait_for_acks(200)
            attack(broker.port, held)
            load.wait_for_acks(200)
        histories = load.finish()
    assert broker.is_running(), broker.log_tail()
    verdict = judge(broker.port, topic, PARTITIONS, histories)
    tally("F29", tried=1, lost=verdict.count())
    broker.kill()
    assert not verdict.faults()


def test_control_a_ceiling_that_is_too_low(
    start_kbroker: StartBroker, ceiling: Path, tally: Tally
) -> None:
    """The ceiling is one: a broker that is given too little ends, or cannot be put there."""
    broker = start_kbroker()
    filled_topic(broker.port)
    refused = False
    try:
        put_under(broker, ceiling, TOO_LOW_BYTES)
        drop(broker.port, "large", bomb(CODECS["gzip"], 192 * MIB), [])
        wire.create_topic(broker.port, "compacted", 1, TOPICS["compacted"])
        drop(broker.port, "compacted", bomb(CODECS["zstd"], 192 * MIB), [])
    except (OSError, wire.ConnectionClosedError):
        refused = True
    tally("F29", control=int(refused))
    broker.kill()
    assert refused
