"""Commands on the session's broker: in this process, and as processes of their own."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import pytest

from kbroker.cli import root
from tests.support.kbroker import KbrokerProcess
from tests.support.needs import need_command


class Said(NamedTuple):
    """What a command printed."""

    out: bytes
    err: str


Run = Callable[..., Said]
Start = Callable[..., "subprocess.Popen[bytes]"]


def ran(capture: Any, words: Sequence[str]) -> tuple[int, Any, Any]:
    """Exit status, standard output and standard error of a command that runs here."""
    capture.readouterr()
    status = root.run(words)
    said = capture.readouterr()
    return status, said.out, said.err


@pytest.fixture
def run(kbroker: KbrokerProcess, monkeypatch: pytest.MonkeyPatch, capfdbinary: Any) -> Run:
    """Runs a command here: run("consume", topic, stdin=b"", status=0)."""
    monkeypatch.setenv("KBROKER_BOOTSTRAP_SERVER", kbroker.bootstrap)

    def run(*words: str, stdin: bytes = b"", status: int = 0) -> Said:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        ended, out, err = ran(capfdbinary, words)
        assert ended == status, err.decode()
        return Said(out, err.decode())

    return run


@pytest.fixture
def start(kbroker: KbrokerProcess) -> Iterator[Start]:
    """Starts a command as a process of its own; ends what is left of it."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*words: str, **more: Any) -> subprocess.Popen[bytes]:
        environment = dict(os.environ, KBROKER_BOOTSTRAP_SERVER=kbroker.bootstrap)
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        made = subprocess.Popen(
            [sys.executable, "-m", "kbroker.cli", *words], env=environment, **(pipes | more)
        )
        started.append(made)
        return made

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.fixture
def kcat(kbroker: KbrokerProcess) -> Callable[..., bytes]:
    """Runs kcat on the session's broker; gives what it printed."""
    program = need_command("kcat", "kcat")

    def kcat(*words: str, stdin: bytes = b"") -> bytes:
        done = subprocess.run(
            [program, "-b", kbroker.bootstrap, *words], check=False, input=stdin,
            capture_output=True, timeout=60,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    return kcat
