"""`kbroker bench locust`: a short run of every kind of user passes, one that must fail does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from kbroker.cli.bench_locust import _KINDS
from kbroker.cli.bench_locust import locust as command
from tests.support.kbroker import KbrokerProcess

LONG = pytest.mark.long


def locust(broker: KbrokerProcess, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kbroker.cli", "bench", "locust", "-b", broker.bootstrap]
    return subprocess.run([*command, *words], env=dict(os.environ), capture_output=True, text=True,
                          timeout=240, check=False)  # fmt: skip


def test_a_short_run(kbroker: KbrokerProcess, tmp_path: Path) -> None:
    done = locust(kbroker, "--profile", "flat", "--for", "6s", "--users", "8", "--bursts", "2",
                  "--csv", str(tmp_path / "run"))  # fmt: skip
    told = done.stdout + done.stderr
    assert done.returncode == 0, told
    assert "lost 0, twice 0" in told
    table = (tmp_path / "run_stats.csv").read_text()
    for name in ("kbroker,produce", "confluent,produce", "kbroker,poll"):
        assert name in table, table


def test_transactions(kbroker: KbrokerProcess, tmp_path: Path) -> None:
    kinds = "transactional,confluent-transactional,pipe,consumer"
    done = locust(kbroker, "--for", "5s", "--users", "5", "--kinds", kinds, "--bursts", "10",
                  "--csv", str(tmp_path / "run"))  # fmt: skip
    told = done.stdout + done.stderr
    assert done.returncode == 0, told
    assert "lost 0, twice 0" in told and "copied 0 of" not in told
    table = (tmp_path / "run_stats.csv").read_text()
    for name in ("kbroker,transaction", "confluent,transaction", "kbroker,pipe"):
        assert name in table, table


@pytest.mark.parametrize(
    ("number", "processes"),
    [
        (signal.SIGTERM, "1"),
        pytest.param(signal.SIGINT, "1", marks=LONG),
        pytest.param(signal.SIGINT, "2", marks=LONG),
        pytest.param(signal.SIGTERM, "2", marks=LONG),
        pytest.param(signal.SIGHUP, "1", marks=LONG),
        pytest.param(signal.SIGHUP, "2", marks=LONG),
    ],
)
def test_a_signal_ends_locust_too(
    kbroker: KbrokerProcess, number: signal.Signals, processes: str
) -> None:
    """Sent to the command alone: when its output ends, nothing that writes to it is left."""
    words = ["-b", kbroker.bootstrap, "--for", "1h", "--users", "2", "--kinds", "producer",
             "--processes", processes]  # fmt: skip
    process = subprocess.Popen(  # under nohup SIGHUP is ignored, by right
        ["env", "--default-signal", sys.executable, "-m", "kbroker.cli", "bench", "locust", *words],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        told = ""
        # The second where its processes take more than a second to tell it.
        while "All users spawned" not in told and "Spawning is complete" not in told:
            line = process.stdout.readline()
            assert line, told
            told += line
        process.send_signal(number)
        told += process.communicate(timeout=60)[0]
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            process.send_signal(signal.SIGINT)  # the second ends Locust in any case
        process.communicate()
    assert "lost 0, twice 0" in told


def test_a_threshold_fails_the_run(kbroker: KbrokerProcess) -> None:
    done = locust(kbroker, "--for", "3s", "--users", "1", "--kinds", "producer", "--p99", "0.001")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "FAILED: p99 of kbroker produce" in done.stdout


@LONG
def test_processes(kbroker: KbrokerProcess, tmp_path: Path) -> None:
    """Two that load and one that counts: just the users that were asked for, and all told."""
    done = locust(kbroker, "--for", "4s", "--users", "4", "--processes", "2", "--kinds",
                  "confluent-producer,consumer", "--csv", str(tmp_path / "run"))  # fmt: skip
    told = done.stdout + done.stderr
    assert done.returncode == 0 and "Traceback" not in told, told
    assert "lost 0, twice 0" in told
    names = {line.split(",")[0] for line in (tmp_path / "run_stats.csv").read_text().splitlines()}
    assert names >= {"confluent", "kbroker"}, names
    table = (tmp_path / "run_stats.csv").read_text()
    for name in ("kbroker,produce", "transaction", "topic", "slow", "vanishing"):
        assert name not in table, table


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--kinds", "producer,nobody"), "'nobody' is none of producer, "),
        (("--kinds", ""), "'' is none of producer, "),
        (("--sizes", "even:3"), "'even:3' is no distribution"),
        (("--sizes", "none"), "'none' is no distribution"),
        (("--keys", "zipf:0"), "'zipf:0' is no distribution"),
    ],
)
def test_a_mistyped_value_is_told_in_one_line(words: tuple[str, str], told: str) -> None:
    done = CliRunner().invoke(command, ["-b", "127.0.0.1:1", *words])
    assert done.exit_code == 2 and told in done.output


def test_kinds_are_those_of_the_users() -> None:
    """In a process of its own: Locust brings gevent with it."""
    code = "from kbroker.locust.users import USERS; print(*USERS)"
    environment = dict(os.environ, LOCUST_SKIP_MONKEY_PATCH="1")
    found = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True,
                           text=True, check=True)  # fmt: skip
    assert tuple(found.stdout.split()) == _KINDS
