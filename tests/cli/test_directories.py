"""Commands that read log directories: all that a broker has."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kbroker import runfile
from kbroker.cli import root
from kbroker.cli.directories import log_directories, main_directory
from kbroker.client import Producer
from tests.support import wire
from tests.support.processes import BrokerProcess

Run = Callable[..., tuple[int, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*words: object) -> tuple[int, str]:
        capsys.readouterr()
        status = root.run(list(map(str, words)))
        return status, "".join(capsys.readouterr())

    return call


@pytest.fixture
def broker(start_kbroker: Callable[..., BrokerProcess], tmp_path: Path) -> BrokerProcess:
    """A broker on two directories, with two partitions in each."""
    made = start_kbroker(more_dirs=(tmp_path / "second",))
    wire.create_topic(made.port, "t", 4)
    return made


def named(first: Path, second: Path) -> list[list[object]]:
    """The ways to name both directories."""
    settings = first.parent / "server.properties"
    settings.write_text(f"log.dirs={second},{first}\n")
    return [
        ["-D", first], ["-D", first, "-D", second], ["-D", second, "-D", first],
        ["--config", settings],
    ]  # fmt: skip


def test_commands_read_every_directory(broker: BrokerProcess, tmp_path: Path, run: Run) -> None:
    first, second = broker.data_dir, tmp_path / "second"
    ways = named(first, second)
    for way in ways:
        status, output = run("status", "-o", "json", *way)
        told = json.loads(output)
        assert (status, told["answers"]) == (0, True)
        assert (told["data_dir"], told["further_dirs"]) == (str(first), [str(second)])
        status, output = run("log", "sizes", "-p", "-o", "json", *way)
        assert {row["directory"] for row in json.loads(output)["partitions"]} >= {
            str(first), str(second)
        }  # fmt: skip
        assert "2 batches" not in run("log", "dump", "t-1", *way)[1]  # found in the second
    assert "name its first directory" in run("status", "-D", second)[1]
    assert run("stop", *ways[2])[0] == 0 and runfile.running(first) is None
    damaged = next((second / "t-1").glob("*.log"), second / "t-1" / f"{0:020}.log")
    damaged.write_bytes(b"x" * 100)
    for way in ways:
        status, output = run("log", "verify", *way)
        assert status == 1 and f"{damaged}: " in output and "1 faults" in output, output
        status, output = run("check", *way)
        assert str(first) in output and f"{second}, no broker runs on it" in output


def test_a_further_directory_is_read_alone(
    broker: BrokerProcess, tmp_path: Path, run: Run
) -> None:
    first, second = broker.data_dir, tmp_path / "second"
    broker.stop()
    status, output = run("log", "verify", "-D", second)
    assert status == 0 and "__cluster_metadata" not in output, output
    status, output = run("check", "-D", second)
    assert "its metadata log is elsewhere" in output and "FAILED" not in output
    shutil.rmtree(second)
    status, output = run("log", "verify", "-D", first)
    assert status == 1 and f"{second}: is not there" in output
    shutil.rmtree(first / "__cluster_metadata-0")  # damage, not another kind of directory
    assert "__cluster_metadata-0: is not there" in run("log", "verify", "-D", first)[1]


def test_default_directories_may_be_several(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    (two / "__cluster_metadata-0").mkdir(parents=True)
    monkeypatch.setenv("KBROKER_DATA_DIR", f"{one},{two}")
    assert log_directories([]) == [two, one] and main_directory([]) == two
    assert log_directories([one]) == [one]


def test_wal_of_every_directory_is_checked_and_skipped(
    start_kbroker: Callable[..., BrokerProcess], tmp_path: Path, run: Run
) -> None:
    settings = {"kbroker.journal.bytes.max": "16777216"}
    broker = start_kbroker(settings, more_dirs=(tmp_path / "second",))
    wire.create_topic(broker.port, "t", 4)
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        for number in range(40):
            producer.send("t", b"%d" % number, partition=number % 4).result(30)
    first, second = broker.data_dir, tmp_path / "second"
    assert "all good" in run("log", "verify", "-D", first)[1]  # in use: the WAL is being written
    broker.kill()
    (wal,) = second.glob(".kbroker-journal.*")
    wal.write_bytes(b"\1" + wal.read_bytes()[1:])
    status, output = run("log", "verify", "-D", first)
    assert status == 1 and f"{wal}: " in output and "1 faults" in output, output
    status, output = run("log", "repair", "--skip-wal-damage", "-D", first)
    assert status == 0 and f"{wal}: " in output and f"{second}: the next start skips" in output
    broker.start()
    assert list(second.glob(f"{wal.name}.damaged"))
