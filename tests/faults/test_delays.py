"""The library that delays disk calls: coverage, repeatability, and the end of delays."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support import wire
from tests.support.delays import KINDS, DelayPlan, Delays
from tests.support.kbroker import KbrokerProcess
from tests.support.needs import need_command
from tests.support.transactional import WireProducer
from tests.support.tree import ROOT
from tests.support.waits import wait_for
from tests.support.wire import (
    CREATE_PARTITIONS,
    DELETE_RECORDS,
    DELETE_TOPICS,
    INCREMENTAL_ALTER_CONFIGS,
    call_once,
)

#: System calls of each kind. "other" has calls that the library does not see.
SYSTEM_CALLS = {
    "mkdir": "mkdir mkdirat",
    "open": "open openat openat2 creat",
    "size": "fallocate ftruncate truncate",
    "rename": "rename renameat renameat2 link linkat",
    "write": "write writev pwrite64 pwritev pwritev2",
    "sync": "fsync fdatasync syncfs sync_file_range",
    "unlink": "unlink unlinkat rmdir",
    "other": "copy_file_range splice symlink symlinkat mknodat io_uring_setup io_submit",
}
KIND_OF = {call: kind for kind, calls in SYSTEM_CALLS.items() for call in calls.split()}


class TracedBroker(KbrokerProcess):
    """A broker under strace, which writes a file of calls for each thread."""

    trace: Path

    def command(self) -> list[str]:
        """Run strace as a child of the broker, which then gets signals itself."""
        strace = need_command("strace", "strace")
        calls = f"trace={','.join(KIND_OF)}"
        options = ["-D", "-ff", "--seccomp-bpf", "-q", "-y", "-s", "256", "-o", str(self.trace)]
        return [strace, *options, "-e", calls, "-e", "signal=none", *super().command()]


def traced_calls(folder: Path, roots: list[Path]) -> Counter[str]:
    """Count the calls of each kind on files below the roots, as strace saw them."""
    found: Counter[str] = Counter()
    below = "|".join(re.escape(str(root)) for root in roots)
    wanted = re.compile(rf'(\w+)\((?:AT_FDCWD<[^>]*>, )?(?:[0-9]+<|")(?:{below})[/">]')
    for path in folder.iterdir():
        for line in path.read_text(errors="replace").splitlines():
            if call := wanted.match(line):
                found[KIND_OF[call[1]]] += 1
    return found


def change_everything(broker: KbrokerProcess) -> None:
    """Use the disk in every way that a client can cause."""
    wire.create_topic(broker.port, "kept", 3, {"segment.bytes": "1048576"})
    wire.create_topic(broker.port, "deleted", 2)
    producer = WireProducer(broker, "producer")
    producer.init()
    for number in range(9):
        producer.send("kept", number % 2, b"%d" % number + b"." * 300_000)
        producer.commit_offset("group", "kept", number)
        producer.end(commit=bool(number % 3))
    grown = {"name": "kept", "count": 5, "assignments": None}
    call_once(broker.port, CREATE_PARTITIONS, 3, {"topics": [grown], "timeout": 30_000})
    config = {"name": "retention.ms", "config_operation": 0, "value": "77000"}
    change = {"resource_type": 2, "resource_name": "kept", "configs": [config]}
    call_once(broker.port, INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [change]})
    parts = [{"partition_index": 0, "offset": -1}]
    body = {"topics": [{"name": "kept", "partitions": parts}], "timeout": 30_000}
    call_once(broker.port, DELETE_RECORDS, 2, body)
    body = {"topic_names": ["deleted"], "timeout": 30_000}
    call_once(broker.port, DELETE_TOPICS, 5, body)


@pytest.fixture
def delays(tmp_path: Path) -> Iterator[Delays]:
    with Delays(tmp_path, [tmp_path / "data", tmp_path / "second"]) as made:
        yield made


def test_every_disk_call_of_a_broker_is_seen(delays: Delays, tmp_path: Path) -> None:
    """strace and the library count the same calls of each kind, over two lives of the broker."""
    roots = [tmp_path / "data", tmp_path / "second"]
    settings = {"log.segment.delete.delay.ms": "0", "log.retention.check.interval.ms": "500",
                "offsets.topic.num.partitions": "2", "transaction.state.log.num.partitions": "2",
                "log.flush.offset.checkpoint.interval.ms": "500"}  # fmt: skip
    broker = TracedBroker(tmp_path / "home", settings, data_dir=roots[0], more_dirs=(roots[1],),
                          environ=delays.environment)  # fmt: skip
    broker.trace = tmp_path / "traces" / "trace"
    broker.trace.parent.mkdir()
    try:
        broker.start()
        change_everything(broker)
        assert broker.stop() == 0
        broker.start()
        change = WireProducer(broker, "another")
        change.init()
        change.send("kept", 1, b"last")
        change.end(commit=True)
        assert broker.stop() == 0
    finally:
        broker.kill()
    traced = traced_calls(broker.trace.parent, roots)
    seen = delays.calls()
    assert dict(traced) == seen
    assert all(seen[kind] for kind in KINDS), seen


DELAY_S = 0.3
EQUAL = DelayPlan(shortest_ms=1000 * DELAY_S, longest_ms=1000 * DELAY_S)
CALLER = """
import os, sys, threading, time
folder = sys.argv[1]
def call(name):
    for number in range(40):
        begun = time.monotonic()
        descriptor = os.open(f"{folder}/{name}", os.O_CREAT | os.O_RDWR)
        took = time.monotonic() - begun
        os.close(descriptor)
        print(f"{name} {number} {took:.3f}\\n", end="", flush=True)
threads = [threading.Thread(target=call, args=(name,)) for name in "abc"]
for one in threads: one.start()
for one in threads: one.join()
"""


def delayed_calls(delays: Delays, folder: Path) -> list[str]:
    """Return the calls of three threads that took as long as a delay."""
    folder.mkdir(exist_ok=True)
    environ = {**os.environ, "PYTHONUNBUFFERED": "1", **delays.environment}
    done = subprocess.run([sys.executable, "-c", CALLER, str(folder)], env=environ, check=True,
                          capture_output=True, text=True, cwd=ROOT)  # fmt: skip
    lines = [line.split() for line in done.stdout.splitlines()]
    return sorted(f"{path} {number}" for path, number, took in lines if float(took) >= DELAY_S)


def test_a_seed_delays_the_same_calls_again(delays: Delays, tmp_path: Path) -> None:
    """The order of the threads does not matter; another seed delays other calls."""
    found = []
    for seed in (1, 1, 2):
        with delays.during(replace(EQUAL, seed=seed, kinds=("open",), per_thousand=100)):
            found.append(delayed_calls(delays, tmp_path / "data"))
    assert 4 <= len(found[0]) <= 30
    assert found[0] == found[1] != found[2]


def test_the_other_directory_and_other_kinds_go_on(delays: Delays, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    with delays.during(replace(EQUAL, root=tmp_path / "data")):
        assert not delayed_calls(delays, tmp_path / "second")
    with delays.during(replace(EQUAL, kinds=("sync",))):
        assert not delayed_calls(delays, tmp_path / "data")
    assert delays.count == 0


def test_a_call_that_waits_goes_on_when_the_delays_end(delays: Delays, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    delays.begin(DelayPlan(shortest_ms=60_000, longest_ms=60_000))
    process = subprocess.Popen(
        [sys.executable, "-c", CALLER, str(tmp_path / "data")], stdout=subprocess.DEVNULL,
        env={**os.environ, **delays.environment},
    )  # fmt: skip
    try:
        wait_for("three calls wait", lambda: delays.under_way == 3, 30)
        begun = time.monotonic()
        delays.end()
        assert process.wait(30) == 0
        assert time.monotonic() - begun < 10
    finally:
        process.kill()
        process.wait()
    assert (delays.under_way, delays.count) == (0, 3)
