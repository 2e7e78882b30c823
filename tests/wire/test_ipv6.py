"""IPv6 addresses in texts: in brackets, so that host and port can be told apart."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from kbroker import runfile
from kbroker.printable import host_port
from tests.support.waits import wait_for


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as one:
            one.bind(("::1", 0))
    except OSError:
        return False
    return True


pytestmark = pytest.mark.skipif(not has_ipv6(), reason="no IPv6 here: enable it on loopback")


def start(place: Path, log: Path, *options: str) -> subprocess.Popen[bytes]:
    with log.open("wb") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "kbroker.cli", "start", "-D", str(place), *options,
             "--set", "kbroker.http.listeners="],
            stdout=output, stderr=output,
        )  # fmt: skip


def test_logs_and_errors_put_ipv6_addresses_in_brackets(tmp_path: Path) -> None:
    assert host_port("::1", 9) == "[::1]:9" and host_port("h", 9) == "h:9"
    log = tmp_path / "log"
    broker = start(tmp_path / "data", log, "--listen", "[::1]:0")
    try:
        wait_for("the broker serves", lambda: runfile.running(tmp_path / "data"), 60)
        info = runfile.running(tmp_path / "data")
        assert info is not None
        address = info.listeners[0].removeprefix("PLAINTEXT://")
        assert address.startswith("[::1]:")
        port = int(address.rpartition(":")[2])
        with socket.create_connection(("::1", port)) as client:
            own = client.getsockname()[1]
            client.sendall(b"\xff\xff\xff\xff")  # a length below 0: the connection is closed
            assert client.recv(1) == b""

        def said() -> list[str]:
            lines = [json.loads(line)["msg"] for line in log.read_text().splitlines()
                     if line.startswith("{")]  # fmt: skip
            return [line for line in lines if line.startswith("closed connection")]

        wait_for("a line of the closed connection", said, 20)
        assert f"of [::1]:{own} on PLAINTEXT: " in said()[0]
        other = start(tmp_path / "other", tmp_path / "other.log", "--listen", address)
        assert other.wait(60) == 1
        assert f"cannot listen on {address}: " in (tmp_path / "other.log").read_text()
    finally:
        broker.terminate()
        broker.wait(60)
