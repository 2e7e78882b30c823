"""`kbroker bench`: figures that can be, nothing left behind, errors that say what it was."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from kbroker.cli import bench, root
from kbroker.cli.bench_figures import Latencies, Meter
from kbroker.cli.bench_load import Load, Pace, payload
from kbroker.client.cluster import Cluster
from kbroker.client.groups import list_groups
from tests.cli.conftest import ran
from tests.support.processes import BrokerProcess
from tests.support.waits import wait_for

Run = Callable[..., Any]


@pytest.fixture
def run(
    target: BrokerProcess, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Run:
    """The figures of a measurement; with a status other than 0 its standard error."""
    monkeypatch.setenv("KBROKER_BOOTSTRAP_SERVER", target.bootstrap)

    def run(*words: str, status: int = 0) -> Any:
        ended, out, err = ran(capfd, ["bench", *words, "-o", "json"])
        assert ended == status, err
        return json.loads(out) if out else err

    return run


def bench_topics(target: BrokerProcess) -> list[str]:
    with Cluster(target.bootstrap) as cluster:
        return [t.name for t in cluster.topics() if t.name.startswith("kbroker-bench-")]


@pytest.mark.parametrize("more", [[], ["--one-by-one"], ["--rate", "20000"], ["--keys", "7"]])
def test_produce(run: Run, target: BrokerProcess, more: list[str]) -> None:
    told = run("produce", "-n", "5000", "-s", "50", "-z", "lz4", "-p", "2", "--acks", "1", *more)
    assert (told["records"], told["bytes"], told["errors"]) == (5000, 250_000, 0)
    latency = told["latency_ms"]
    assert 0 < latency["p50"] <= latency["p95"] <= latency["p99"] <= latency["max"]
    assert told["cpu_s_per_million"] > 0
    if "--rate" in more:
        assert 0.2 < told["seconds"] < 60
    assert bench_topics(target) == []


@pytest.mark.parametrize("more", [[], ["--one-by-one", "--group"]])
def test_consume(run: Run, target: BrokerProcess, more: list[str]) -> None:
    told = run("consume", "-n", "20000", "-s", "40", *more)
    assert told["records"] == 20_000
    assert told["bytes"] == 800_000
    assert bench_topics(target) == []
    with Cluster(target.bootstrap) as cluster:
        assert not [g for g in list_groups(cluster) if g.group_id.startswith("kbroker-bench-")]


def test_a_topic_that_is_there_stays(run: Run, target: BrokerProcess, topic: str) -> None:
    with Cluster(target.bootstrap) as cluster:
        assert root.run(["topic", "create", topic, "-b", target.bootstrap, "-p", "1"]) == 0
        assert "has no records" in run("consume", "-t", topic, status=1)
        run("produce", "-t", topic, "-n", "1000")
        assert run("consume", "-t", topic)["records"] == 1001  # with the one that warmed up
        assert len(cluster.topic(topic).partitions) == 1


def test_from_end_to_end(run: Run, target: BrokerProcess) -> None:
    told = run("e2e", "-n", "300", "--rate", "1000", "-s", "64")
    assert (told["records"], told["errors"]) == (300, 0)
    assert 0 < told["latency_ms"]["p50"] < 20_000
    assert 0.29 < told["seconds"] < 60
    assert bench_topics(target) == []


@pytest.mark.parametrize(
    ("words", "status", "says"),
    [
        (["produce", "-n", "10", "-s", "3000000"], 1, "larger than max.request.size"),
        (["produce", "--set", "lingr.ms=5"], 1, "did you mean 'linger.ms'?"),
        (["produce", "-t", "nope"], 1, "topic 'nope'"),
        (["produce", "-r", "7"], 1, "INVALID_REPLICATION_FACTOR"),
        (["produce", "-z", "zip"], 2, "'zip' is not one of"),
        (["e2e", "-s", "8"], 2, "8 is not in the range 16<=x<="),
        (["produce", "-b", "127.0.0.1:1"], 1, "no broker listens on 127.0.0.1:1"),
    ],
)
def test_a_mistake_is_one_line(
    run: Run, target: BrokerProcess, words: list[str], status: int, says: str
) -> None:
    told = run(*words, status=status)
    assert says in told
    assert told.count("\n") == 1
    assert bench_topics(target) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_ends_with_the_figures_so_far(target: BrokerProcess, number: int) -> None:
    """On a terminal, with its live line."""
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "kbroker.cli", "bench", "produce", "-b", target.bootstrap,
         "-d", "60", "--rate", "2000", "-o", "json"],
        stdout=subprocess.PIPE, stderr=slave,
    )  # fmt: skip
    os.close(slave)
    shown: list[bytes] = []

    def read() -> None:
        try:
            while part := os.read(master, 4096):
                shown.append(part)
        except OSError:  # the other end is closed
            pass

    reader = threading.Thread(target=read)
    reader.start()
    live = re.compile(rb"\r\d+ s  [\d,]+ records  [\d,]+/s  [\d.]+ MB/s  p99 [\d.]+ ms")
    try:
        wait_for("a live line", lambda: live.search(b"".join(shown)), 60)
        process.send_signal(number)
        out, _ = process.communicate(timeout=120)
    finally:
        process.kill()
        reader.join()
        os.close(master)
    told = json.loads(out)
    assert process.returncode == 130
    assert told["stopped"]
    assert told["records"] > 0
    assert told["errors"] == 0
    assert bench_topics(target) == []


def test_percentiles() -> None:
    some = Latencies()
    assert some.told()["p50"] is None
    for ms in range(1, 1001):
        some.add(ms * 1_000_000)
    told = some.told()
    assert told["max"] == 1000
    for name, share in (("p50", 500), ("p95", 950), ("p99", 990), ("p99.9", 999)):
        assert share <= (told[name] or 0) <= share * 1.02
    for ns in (0, 1, 63, 64, 127, 128):
        one = Latencies()
        one.add(ns, 3)
        assert one.at(0.5) == ns / 1e6


def test_what_comes_after_the_end_does_not_count() -> None:
    meter = Meter()
    meter.begin()
    meter.arrived(2, 20)
    meter.end()
    meter.arrived(1, 10)
    meter.took(5)
    meter.failed(ValueError("late"), 1)
    told = meter.told()
    assert (told["records"], told["bytes"], told["errors"], told["error"]) == (2, 20, 0, None)


def test_the_pace_catches_up(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1_000_000_000
    slept: list[float] = []
    monkeypatch.setattr(time, "monotonic_ns", lambda: now)
    monkeypatch.setattr(time, "sleep", slept.append)
    pace = Pace(Load("t", 1, None, None, rate=1000.0), now)
    assert pace.portion(0, 100) == (1, now)
    begun, now = now, now + 50_000_000  # held up for 50 ms: what was due then counts from then
    sent = 1
    while sent < 50:
        count, due_ns = pace.portion(sent, 100)
        assert due_ns == begun + sent * 1_000_000
        sent += count
    assert slept == []
    assert pace.portion(51, 100)[0] == 0
    assert Pace(Load("t", 1, 10, None), now).portion(4, 100) == (6, now)


@pytest.mark.parametrize(
    ("given", "fills", "records"),
    [
        ({"records": None, "duration": None}, False, 1_000_000),
        ({"records": None, "duration": 5.0}, False, None),
        ({"records": None, "duration": 5.0}, True, 1_000_000),
        ({"records": 7, "duration": 5.0}, True, 7),
    ],
)
def test_there_is_an_end(given: dict[str, Any], fills: bool, records: int | None) -> None:
    place: Any = bench.Place(None, "t", 1, fills)  # type: ignore[arg-type]
    assert bench._load(place, 100, given, fills=fills).records == records


def test_values_differ() -> None:
    assert len(set(payload(100, 1000))) == 1000
    assert {len(value) for value in payload(100, 10)} == {100}
    assert payload(0, 2) == [b"", b""]
