"""What is secret and given to a start is not shown by `ps`, nor by what else /proc tells."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbroker import runfile
from kbroker.cli.options import reachable
from tests.support.waits import wait_for

LIMIT_S = 60
CLI = (sys.executable, "-m", "kbroker.cli")
JAAS = "listener.name.sasl_plaintext.plain.sasl.jaas.config"
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
LOGIN = f'{JAAS}={MODULE} required user_app="hush-1";'
TOKENS = "delegation.token.secret.key=hush-2"
WORDS = (
    "--listen", "127.0.0.1:0", "--set", "kbroker.http.listeners=", "--set", LOGIN,
    f"--set={TOKENS}", "--set", "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-512",
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


def told_by_the_kernel(place: Path) -> str:
    """Words and environment of the broker that runs there."""
    info = runfile.running(place)
    assert info is not None
    process = Path(f"/proc/{info.pid}")
    found = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
    assert b"start" in found or b"kbroker.server" in found
    return found.decode()


def may_enter(place: Path, mechanism: str, user: str, password: str) -> bool:
    info = runfile.running(place)
    assert info is not None
    told = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism,
            "sasl.username": user, "sasl.password": password}  # fmt: skip
    words = [word for name, value in told.items() for word in ("-X", f"{name}={value}")]
    listed = subprocess.run(
        [*CLI, "topic", "list", "-b", reachable(info.listeners[0]), *words],
        capture_output=True, timeout=LIMIT_S, check=False,
    )  # fmt: skip
    return listed.returncode == 0


def test_a_detached_broker(place: Path) -> None:
    started = subprocess.run(
        [*CLI, "start", "--detach", "-D", str(place), *WORDS, "--user", "admin"],
        capture_output=True, text=True, timeout=LIMIT_S, check=False,
        env={**os.environ, "KBROKER_PASSWORD": "hush-3"},
    )  # fmt: skip
    assert started.returncode == 0, started.stderr
    assert "hush" not in told_by_the_kernel(place)
    assert "KBROKER_START" not in told_by_the_kernel(place).replace("KBROKER_START_FILE=", "")
    assert may_enter(place, "PLAIN", "app", "hush-1")
    assert may_enter(place, "SCRAM-SHA-512", "admin", "hush-3")


def test_a_broker_in_the_foreground(place: Path) -> None:
    process = subprocess.Popen(
        [*CLI, "start", "-D", str(place), *WORDS, "--user", "admin:hush-3", "--user=eve:hush-4"],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        env={**os.environ, "KBROKER_PASSWORD": "hush-5"},
    )  # fmt: skip
    assert process.stdout is not None
    try:
        assert process.stdout.readline().startswith("listening on ")
        said = told_by_the_kernel(place)
        assert "hush" not in said
        assert "admin:******\0" in said and "eve:******\0" in said
        assert "delegation.token.secret.key=******\0" in said and str(place) in said
        assert may_enter(place, "PLAIN", "app", "hush-1")
        assert may_enter(place, "SCRAM-SHA-512", "eve", "hush-4")
        process.send_signal(signal.SIGHUP)  # the settings are read again, these are still known
        assert may_enter(place, "PLAIN", "app", "hush-1")
    finally:
        process.kill()
        process.communicate(timeout=LIMIT_S)
