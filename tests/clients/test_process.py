"""`kbroker start`, `status` and `stop` as a user types them, in processes of their own."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbroker import runfile
from kbroker.client.cluster import Cluster
from tests.support.waits import wait_for

LIMIT_S = 60
CLI = (sys.executable, "-m", "kbroker.cli")


def kbroker(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A command of the command line, run to its end."""
    return subprocess.run(
        [*CLI, *words],
        check=False, capture_output=True, text=True, timeout=LIMIT_S,
        env={**os.environ, **environment},
    )  # fmt: skip


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """A data directory; whatever broker is left on it ends with the test."""
    place = tmp_path / "data"
    yield place
    info = runfile.running(place)
    if info is not None:
        os.kill(info.pid, signal.SIGKILL)
        wait_for("the broker is gone", lambda: not runfile.alive(info), LIMIT_S)


def foreground(place: Path, *words: str) -> tuple[subprocess.Popen[str], str]:
    """A broker in the foreground and its address, as its first line tells it."""
    process = subprocess.Popen(
        [*CLI, "start", "--data-dir", str(place), *words],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    line = process.stdout.readline()
    found = re.fullmatch(r"listening on PLAINTEXT://(\S+:\d+)\n", line)
    if found is None:
        process.kill()
        raise AssertionError(f"{line!r} {process.communicate()}")
    return process, found[1]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_broker_in_the_foreground(place: Path, number: signal.Signals) -> None:
    process, address = foreground(place, "--listen", "127.0.0.1:0")
    info = runfile.running(place)
    assert info is not None
    assert (info.pid, info.listeners) == (process.pid, [f"PLAINTEXT://{address}"])
    with Cluster(address) as cluster:
        assert cluster.topics() == []
    process.send_signal(number)
    _, said = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0, said
    assert "Traceback" not in said
    assert runfile.read(place) is None
    assert (place / ".kafka_cleanshutdown").exists()


def test_a_detached_broker_is_found_described_and_stopped(place: Path) -> None:
    started = kbroker("start", "--data-dir", str(place), "--listen", "127.0.0.1:0", "--detach")
    assert started.returncode == 0, started.stderr
    address = re.match(r"listening on PLAINTEXT://(\S+)\n", started.stdout)
    assert address is not None
    kbroker("topic", "create", "t", "-b", address[1])
    shown = kbroker("status", "--data-dir", str(place), "-o", "json")
    assert shown.returncode == 0
    told = json.loads(shown.stdout)
    assert told["listeners"] == [f"PLAINTEXT://{address[1]}"]
    assert (told["topics"], told["durability"], told["answers"]) == (1, "fsync", True)
    assert told["rss_bytes"] > 1 << 20
    assert "uptime" in kbroker("status", "--data-dir", str(place)).stdout
    # Commands without -b find the broker of the default data directory.
    assert "t" in kbroker("topic", "list", KBROKER_DATA_DIR=str(place)).stdout
    second = kbroker("start", "--data-dir", str(place), "--listen", "127.0.0.1:0")
    assert second.returncode == 1
    assert f"by process {told['pid']} at PLAINTEXT://{address[1]}" in second.stderr
    assert second.stderr.count("\n") == 1
    stopped = kbroker("stop", "--data-dir", str(place))
    assert stopped.stdout == f"stopped the broker (pid {told['pid']}) of {place}\n"
    assert kbroker("status", "--data-dir", str(place)).returncode == 1
    assert "serving" in (place / "kbroker.log").read_text()


def test_a_detached_broker_that_asks_who_one_is_lives_all_the_same(place: Path) -> None:
    started = kbroker(
        "start", "--data-dir", str(place), "--listen", "127.0.0.1:0", "--detach",
        "--user", "admin:secret", "--set", "kbroker.http.listeners=HTTP://127.0.0.1:0",
        "--set", "kbroker.durability=page-cache",
    )  # fmt: skip
    assert started.returncode == 0, started.stderr
    assert re.search("^warn: .*a power cut may take back", started.stderr, re.MULTILINE)
    shown = kbroker("status", "--data-dir", str(place))
    assert shown.returncode == 0, shown.stderr
    assert "topics:     ? (it asks who one is: `kbroker cluster health`" in shown.stdout
    checked = kbroker("check", "--data-dir", str(place))
    assert "it lives; 127.0.0.1:" in checked.stdout and "FAILED" not in checked.stdout
    assert kbroker("stop", "--data-dir", str(place)).returncode == 0


@pytest.mark.parametrize(
    "protocol", ["SSL", pytest.param("SASL_PLAINTEXT", marks=pytest.mark.long)]
)
def test_a_broker_that_tells_nobody_how_it_is(place: Path, protocol: str) -> None:
    """A login is asked for everywhere, and there is no HTTP: it may be well."""
    words = ["--user", "admin:secret"]
    if protocol == "SSL":
        assert kbroker("cert", "create", "--dir", f"{place}-tls").returncode == 0
        words = ["--set", f"ssl.keystore.location={place}-tls/server.pem"]
    started = kbroker("start", "--data-dir", str(place), "--listen", f"{protocol}://127.0.0.1:0",
                      "--detach", "--set", "kbroker.http.listeners=", *words)  # fmt: skip
    assert started.returncode == 0, started.stderr
    shown = kbroker("status", "--data-dir", str(place))
    assert shown.returncode == 0 and "kbroker: it cannot be looked into" in shown.stderr
    assert json.loads(kbroker("status", "-D", str(place), "-o", "json").stdout)["answers"] is None
    checked = kbroker("check", "--data-dir", str(place), "-o", "json")
    assert checked.returncode == 0, checked.stdout
    (row,) = (row for row in json.loads(checked.stdout) if row["check"] == "answers")
    assert row["verdict"] == "warning" and "asks who one is" in row["text"]
    info = runfile.running(place)
    assert info is not None
    runfile._put(place, info._replace(listeners=[f"{protocol}://127.0.0.1:1"]))
    assert kbroker("check", "--data-dir", str(place)).returncode == 1  # nobody listens there
    assert kbroker("status", "--data-dir", str(place)).returncode == 1
    assert kbroker("stop", "--data-dir", str(place)).returncode == 0


def test_after_a_crash_the_directory_is_free(place: Path) -> None:
    process, _ = foreground(place, "--listen", "127.0.0.1:0")
    process.kill()
    process.communicate(timeout=LIMIT_S)
    assert runfile.read(place) is not None
    assert kbroker("status", "--data-dir", str(place)).returncode == 1
    process, _ = foreground(place, "--listen", "127.0.0.1:0")
    process.terminate()
    process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0


def test_the_lock_refuses_a_second_broker_whatever_the_run_file_says(place: Path) -> None:
    process, _ = foreground(place, "--listen", "127.0.0.1:0")
    runfile.remove(place)
    second = kbroker("start", "--data-dir", str(place), "--listen", "127.0.0.1:0")
    assert second.returncode == 1
    assert f"in use by process {process.pid}" in second.stderr
    shown = kbroker("status", "--data-dir", str(place))
    assert f"process {process.pid} holds" in shown.stderr
    assert f"pid {process.pid}" in kbroker("stop", "--data-dir", str(place)).stdout
    process.communicate(timeout=LIMIT_S)


def test_without_a_listener_it_is_loopback_and_the_next_free_port(place: Path) -> None:
    first, one = foreground(place)
    second, two = foreground(place.with_name("other"))
    hosts, ports = zip(*(address.split(":") for address in (one, two)), strict=True)
    assert set(hosts) == {"127.0.0.1"}
    assert 9092 <= int(ports[0]) < int(ports[1]) < 9192
    for process in (first, second):
        process.terminate()
        process.communicate(timeout=LIMIT_S)


def test_what_is_advertised_is_told_to_clients(place: Path) -> None:
    process, address = foreground(
        place, "--listen", "127.0.0.1:0", "--advertise", "broker.example:1234"
    )
    with Cluster(address) as cluster:
        cluster.refresh([])
        assert [str(node.address) for node in cluster.nodes.values()] == ["broker.example:1234"]
    process.terminate()
    process.communicate(timeout=LIMIT_S)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--set", "num.partition=3"], "unknown key num.partition: did you mean num.partitions?"),
        (["--set", "num.partitions=x"], "Not a number"),
        (["--set", "log.dirs={0},{0}/b"], "log.dirs: {0}/b is inside of {0}"),
        (["--listen", "SSL://127.0.0.1:0"], "SSL"),
    ],
)
def test_a_setting_that_is_wrong_is_one_line(place: Path, words: list[str], told: str) -> None:
    directory = [] if "log.dirs" in words[1] else ["--data-dir", str(place)]
    words, told = [one.format(place) for one in words], told.format(place)
    for detach in ([], ["--detach"]):
        ended = kbroker("start", *directory, *words, *detach)
        assert ended.returncode == os.EX_CONFIG
        assert told in ended.stderr
        assert ended.stderr.count("\n") == 1, ended.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="made by root: run as root")
def test_root_is_kept_off_the_directory_of_somebody_else(place: Path) -> None:
    """What root wrote there the service's user could not open."""
    place.mkdir()
    os.chown(place, 12_345, 12_345)
    told = f"{place} belongs to #12345, who could not open what root writes there"
    commands = [
        [*CLI, "start", "--data-dir", str(place)],
        [*CLI, "start", "--detach", "--data-dir", str(place)],
        [sys.executable, "-m", "kbroker.server", "--set", f"log.dirs={place}"],
    ]
    for command in commands:
        ended = subprocess.run(command, capture_output=True, text=True, check=False,
                               timeout=LIMIT_S)  # fmt: skip
        assert ended.returncode == 1
        assert told in ended.stderr and "`sudo -u '#12345' kbroker start`" in ended.stderr
        assert ended.stderr.count("\n") == 1, ended.stderr
    assert not list(place.iterdir())


def test_a_port_that_is_taken_is_one_line(place: Path) -> None:
    process, address = foreground(place, "--listen", "127.0.0.1:0")
    ended = kbroker("start", "--data-dir", str(place.with_name("other")), "--listen", address)
    assert ended.returncode == 1
    (line,) = [line for line in ended.stderr.splitlines() if line.startswith("kbroker: ")]
    assert address in line
    process.terminate()
    process.communicate(timeout=LIMIT_S)


def test_a_file_of_settings_is_read(place: Path, tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(
        f"log.dirs={place}\nlisteners=PLAINTEXT://127.0.0.1:0\nnum.partitions=5\n"
        "kbroker.durability=page-cache\nauto.create.topics.enable=true\n"
        "group.consumer.assignors=range,org.example.Own\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "kbroker.cli", "start", "--config", str(file)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    address = process.stdout.readline().strip().rpartition("://")[2]
    with Cluster(address) as cluster:
        assert len(cluster.topic("made", create=True).partitions) == 5
    assert "page-cache" in kbroker("status", "--data-dir", str(place)).stdout
    process.terminate()
    _, said = process.communicate(timeout=LIMIT_S)
    assert "a power cut may take back" in said
    assert "assignors: org.example.Own passed over; there are: uniform, range" in said


def test_the_broker_process_is_free_of_the_command_line(place: Path) -> None:
    """What a broker of `kbroker start` has loaded when it serves, told as it would wait."""
    code = (
        "import signal, sys; from kbroker import cli;"
        "signal.sigwait = lambda _: sys.stderr.write(' '.join(sys.modules)) and signal.SIGTERM;"
        f"sys.argv = ['kbroker', 'start', '-D', {str(place)!r}, '--listen', '127.0.0.1:0'];"
        "sys.exit(cli.main())"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], check=True, timeout=LIMIT_S, capture_output=True, text=True
    )
    loaded = {name.partition(".")[0] for name in ended.stderr.split()}
    assert "kbroker" in loaded
    assert not {"click", "rich", "numpy", "pyarrow", "pandas", "pyspark", "asyncio"} & loaded
